#include "textflag.h"

// func prefetch64(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)
TEXT ·prefetch64(SB), NOSPLIT, $0-32
	MOVQ base+0(FP), DI
	MOVQ size+8(FP), DX
	MOVQ idx+16(FP), SI
	MOVQ n+24(FP), CX

four64:
	SUBQ  $4, CX
	JLT   rest64
	MOVQ  0(SI), R8
	MOVQ  8(SI), R9
	MOVQ  16(SI), R10
	MOVQ  24(SI), R11
	IMULQ DX, R8
	IMULQ DX, R9
	IMULQ DX, R10
	IMULQ DX, R11
	PREFETCHT0 (DI)(R8*1)
	PREFETCHT0 (DI)(R9*1)
	PREFETCHT0 (DI)(R10*1)
	PREFETCHT0 (DI)(R11*1)
	ADDQ  $32, SI
	JMP   four64

rest64:
	ADDQ $4, CX

one64:
	SUBQ  $1, CX
	JLT   done64
	MOVQ  (SI), R8
	IMULQ DX, R8
	PREFETCHT0 (DI)(R8*1)
	ADDQ  $8, SI
	JMP   one64

done64:
	RET

// func prefetch32(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)
TEXT ·prefetch32(SB), NOSPLIT, $0-32
	MOVQ base+0(FP), DI
	MOVQ size+8(FP), DX
	MOVQ idx+16(FP), SI
	MOVQ n+24(FP), CX

four32:
	SUBQ  $4, CX
	JLT   rest32
	MOVL  0(SI), R8
	MOVL  4(SI), R9
	MOVL  8(SI), R10
	MOVL  12(SI), R11
	IMULQ DX, R8
	IMULQ DX, R9
	IMULQ DX, R10
	IMULQ DX, R11
	PREFETCHT0 (DI)(R8*1)
	PREFETCHT0 (DI)(R9*1)
	PREFETCHT0 (DI)(R10*1)
	PREFETCHT0 (DI)(R11*1)
	ADDQ  $16, SI
	JMP   four32

rest32:
	ADDQ $4, CX

one32:
	SUBQ  $1, CX
	JLT   done32
	MOVL  (SI), R8
	IMULQ DX, R8
	PREFETCHT0 (DI)(R8*1)
	ADDQ  $4, SI
	JMP   one32

done32:
	RET

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
