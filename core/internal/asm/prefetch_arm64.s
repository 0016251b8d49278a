#include "textflag.h"

// INDICES prefetches at indices of W bytes.
#define INDICES(LOAD, W)    \
	MOVD base+0(FP), R0         \
	MOVD size+8(FP), R1         \
	MOVD idx+16(FP), R2         \
	MOVD n+24(FP), R3           \
next:                        \
	SUBS $1, R3, R3             \
	BLT  done                   \
	LOAD W(R2), R4              \
	MADD R1, R0, R4, R5         \
	PRFM (R5), PLDL1KEEP        \
	B    next                   \
done:                        \
	RET

// func prefetch64(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)
TEXT ·prefetch64(SB), NOSPLIT, $0-32
	INDICES(MOVD.P, 8)

// func prefetch32(base unsafe.Pointer, size uintptr, idx unsafe.Pointer, n int)
TEXT ·prefetch32(SB), NOSPLIT, $0-32
	INDICES(MOVWU.P, 4)

// func PrefetchRange(p unsafe.Pointer, n int)
TEXT ·PrefetchRange(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1, R1
	AND  $~63, R0, R0

line:
	CMP  R1, R0
	BHS  doneRange
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0, R0
	B    line

doneRange:
	RET
