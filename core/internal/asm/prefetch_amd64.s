#include "textflag.h"

// INDICES prefetches at indices of W bytes, four at a time.
#define INDICES(LOAD, W)   \
	MOVQ base+0(FP), DI        \
	MOVQ size+8(FP), DX        \
	MOVQ idx+16(FP), SI        \
	MOVQ n+24(FP), CX          \
four:                       \
	SUBQ  $4, CX               \
	JLT   rest                 \
	LOAD  0(SI), R8            \
	LOAD  W(SI), R9            \
	LOAD  (2*W)(SI), R10       \
	LOAD  (3*W)(SI), R11       \
	IMULQ DX, R8               \
	IMULQ DX, R9               \
	IMULQ DX, R10              \
	IMULQ DX, R11              \
	PREFETCHT0 (DI)(R8*1)      \
	PREFETCHT0 (DI)(R9*1)      \
	PREFETCHT0 (DI)(R10*1)     \
	PREFETCHT0 (DI)(R11*1)     \
	ADDQ  $(4*W), SI           \
	JMP   four                 \
rest:                       \
	ADDQ $4, CX                \
one:                        \
	SUBQ  $1, CX               \
	JLT   done                 \
	LOAD  (SI), R8             \
	IMULQ DX, R8               \
	PREFETCHT0 (DI)(R8*1)      \
	ADDQ  $W, SI               \
	JMP   one                  \
done:                       \
	RET

// func prefetch64(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)
TEXT ·prefetch64(SB), NOSPLIT, $0-32
	INDICES(MOVQ, 8)

// func prefetch32(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)
TEXT ·prefetch32(SB), NOSPLIT, $0-32
	INDICES(MOVL, 4)

// func PrefetchRange(p unsafe.Pointer, n int)
TEXT ·PrefetchRange(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ n+8(FP), CX
	ADDQ DI, CX
	ANDQ $~63, DI

line:
	CMPQ DI, CX
	JCC  doneRange
	PREFETCHT0 (DI)
	ADDQ $64, DI
	JMP  line

doneRange:
	RET
