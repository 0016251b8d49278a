#include "textflag.h"

// The four routines share one shape. Registers: DI dst, SI src, R8 dstOff, R9 srcOff, DX rowBytes, CX rows left, R10 index
// of the row, R11 index of the last row to prefetch; R12 source and R13 destination inside the row, BX bytes left.
// PREFETCH_AHEAD must agree with aheadRows in rows.go.
#define PREFETCH_AHEAD 16

#define LOAD_ARGS \
	MOVQ dst+0(FP), DI      \
	MOVQ src+8(FP), SI      \
	MOVQ dstOff+16(FP), R8  \
	MOVQ srcOff+24(FP), R9  \
	MOVQ rowBytes+32(FP), DX \
	MOVQ n+40(FP), CX       \
	MOVQ m+48(FP), R11      \
	SUBQ $PREFETCH_AHEAD, R11 \
	XORL R10, R10

// PREFETCH_ROW touches every line of the row PREFETCH_AHEAD ahead, where there is one.
#define PREFETCH_ROW(line, done) \
	CMPQ R10, R11             \
	JGE  done                 \
	MOVQ (PREFETCH_AHEAD*8)(R9)(R10*8), R12 \
	ADDQ SI, R12              \
	LEAQ (R12)(DX*1), R13     \
	ANDQ $~63, R12            \
line:                         \
	PREFETCHT0 (R12)          \
	ADDQ $64, R12             \
	CMPQ R12, R13             \
	JCS  line                 \
done:

#define ROW_ADDRESSES \
	MOVQ (R9)(R10*8), R12 \
	ADDQ SI, R12          \
	MOVQ (R8)(R10*8), R13 \
	ADDQ DI, R13          \
	MOVQ DX, BX

#define COPY_ROWS(V0, V1, V2, V3, LOAD, STORE, W) \
	LOAD_ARGS              \
row:                       \
	SUBQ $1, CX            \
	JLT  end               \
	PREFETCH_ROW(line, prefetched) \
	ROW_ADDRESSES          \
four:                      \
	SUBQ $(4*W), BX        \
	JLT  fewer             \
	LOAD 0(R12), V0        \
	LOAD W(R12), V1        \
	LOAD (2*W)(R12), V2    \
	LOAD (3*W)(R12), V3    \
	STORE V0, 0(R13)       \
	STORE V1, W(R13)       \
	STORE V2, (2*W)(R13)   \
	STORE V3, (3*W)(R13)   \
	ADDQ $(4*W), R12       \
	ADDQ $(4*W), R13       \
	JMP  four              \
fewer:                     \
	ADDQ $(4*W), BX        \
one:                       \
	SUBQ $W, BX            \
	JLT  tail              \
	LOAD 0(R12), V0        \
	STORE V0, 0(R13)       \
	ADDQ $W, R12           \
	ADDQ $W, R13           \
	JMP  one               \
tail:                      \
	ADDQ $W, BX            \
	JEQ  next              \
	LOAD -W(R12)(BX*1), V0 \
	STORE V0, -W(R13)(BX*1) \
next:                      \
	ADDQ $1, R10           \
	JMP  row               \
end:

// func copyRowsAVX2(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)
TEXT ·copyRowsAVX2(SB), NOSPLIT, $0-56
	COPY_ROWS(Y0, Y1, Y2, Y3, VMOVDQU, VMOVDQU, 32)
	VZEROUPPER
	RET

// func streamRowsAVX2(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)
TEXT ·streamRowsAVX2(SB), NOSPLIT, $0-56
	COPY_ROWS(Y0, Y1, Y2, Y3, VMOVDQU, VMOVNTDQ, 32)
	SFENCE
	VZEROUPPER
	RET

// func copyRowsAVX512(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)
TEXT ·copyRowsAVX512(SB), NOSPLIT, $0-56
	COPY_ROWS(Z0, Z1, Z2, Z3, VMOVDQU64, VMOVDQU64, 64)
	VZEROUPPER
	RET

// func streamRowsAVX512(dst, src unsafe.Pointer, dstOff, srcOff *offsets, rowBytes, n, m int)
TEXT ·streamRowsAVX512(SB), NOSPLIT, $0-56
	COPY_ROWS(Z0, Z1, Z2, Z3, VMOVDQU64, VMOVNTDQ, 64)
	SFENCE
	VZEROUPPER
	RET
