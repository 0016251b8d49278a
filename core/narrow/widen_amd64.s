#include "textflag.h"

// Each routine widens W/4 numbers a turn: it loads them, widens them, and stores W bytes. Registers: DI dst, SI src, CX
// numbers left, R8 scales, R9 offsets.

#define HALVES(LOAD, V, W, STORED) \
	MOVQ dst+0(FP), DI  \
	MOVQ src+8(FP), SI  \
	MOVQ n+16(FP), CX   \
	TESTQ CX, CX        \
	JEQ  end            \
turn:                   \
	LOAD                \
	VMOVUPS V, (DI)     \
	ADDQ $STORED, SI    \
	ADDQ $W, DI         \
	SUBQ $(W/4), CX     \
	JNE  turn           \
end:                    \
	VZEROUPPER          \
	RET

#define LOAD_F16_Y VCVTPH2PS (SI), Y0
#define LOAD_F16_Z VCVTPH2PS (SI), Z0
#define LOAD_BF16_Y VPMOVZXWD (SI), Y0; VPSLLD $16, Y0, Y0
#define LOAD_BF16_Z VPMOVZXWD (SI), Z0; VPSLLD $16, Z0, Z0
// The product is rounded before the sum: no fused multiply-add.
#define BYTES(V, SCALE, OFFSET, W) \
	MOVQ dst+0(FP), DI      \
	MOVQ src+8(FP), SI      \
	MOVQ n+16(FP), CX       \
	VBROADCASTSS scale+24(FP), SCALE \
	VBROADCASTSS offset+28(FP), OFFSET \
	TESTQ CX, CX            \
	JEQ  end                \
turn:                       \
	VPMOVSXBD (SI), V       \
	VCVTDQ2PS V, V          \
	VMULPS SCALE, V, V      \
	VADDPS OFFSET, V, V     \
	VMOVUPS V, (DI)         \
	ADDQ $(W/4), SI         \
	ADDQ $W, DI             \
	SUBQ $(W/4), CX         \
	JNE  turn               \
end:                        \
	VZEROUPPER              \
	RET

#define COLUMNS(V, W) \
	MOVQ dst+0(FP), DI      \
	MOVQ src+8(FP), SI      \
	MOVQ scales+16(FP), R8  \
	MOVQ offsets+24(FP), R9 \
	MOVQ n+32(FP), CX       \
	TESTQ CX, CX            \
	JEQ  end                \
turn:                       \
	VPMOVSXBD (SI), V       \
	VCVTDQ2PS V, V          \
	VMULPS (R8), V, V       \
	VADDPS (R9), V, V       \
	VMOVUPS V, (DI)         \
	ADDQ $(W/4), SI         \
	ADDQ $W, DI             \
	ADDQ $W, R8             \
	ADDQ $W, R9             \
	SUBQ $(W/4), CX         \
	JNE  turn               \
end:                        \
	VZEROUPPER              \
	RET

// func float16AVX2(dst, src unsafe.Pointer, n int)
TEXT ·float16AVX2(SB), NOSPLIT, $0-24
	HALVES(LOAD_F16_Y, Y0, 32, 16)

// func float16AVX512(dst, src unsafe.Pointer, n int)
TEXT ·float16AVX512(SB), NOSPLIT, $0-24
	HALVES(LOAD_F16_Z, Z0, 64, 32)

// func bfloat16AVX2(dst, src unsafe.Pointer, n int)
TEXT ·bfloat16AVX2(SB), NOSPLIT, $0-24
	HALVES(LOAD_BF16_Y, Y0, 32, 16)

// func bfloat16AVX512(dst, src unsafe.Pointer, n int)
TEXT ·bfloat16AVX512(SB), NOSPLIT, $0-24
	HALVES(LOAD_BF16_Z, Z0, 64, 32)

// func int8AVX2(dst, src unsafe.Pointer, n int, scale, offset float32)
TEXT ·int8AVX2(SB), NOSPLIT, $0-32
	BYTES(Y0, Y1, Y2, 32)

// func int8AVX512(dst, src unsafe.Pointer, n int, scale, offset float32)
TEXT ·int8AVX512(SB), NOSPLIT, $0-32
	BYTES(Z0, Z1, Z2, 64)

// func columnsAVX2(dst, src, scales, offsets unsafe.Pointer, n int)
TEXT ·columnsAVX2(SB), NOSPLIT, $0-40
	COLUMNS(Y0, 32)

// func columnsAVX512(dst, src, scales, offsets unsafe.Pointer, n int)
TEXT ·columnsAVX512(SB), NOSPLIT, $0-40
	COLUMNS(Z0, 64)
