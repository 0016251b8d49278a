#include "textflag.h"
#include "lanes_amd64.h"

// RUNNING makes running sums of the eight numbers in Z. Z9 is 0.
#define RUNNING(Z, T) \
	VALIGNQ $7, Z9, Z, T \
	VPADDQ  T, Z, Z      \
	VALIGNQ $6, Z9, Z, T \
	VPADDQ  T, Z, Z      \
	VALIGNQ $4, Z9, Z, T \
	VPADDQ  T, Z, Z

// func sequence512(weights unsafe.Pointer, n int, state uint64, first int64, out unsafe.Pointer, k int) bool
//
// Units of weights lie at SP, their running sums are in Z0 and Z1, and BX is what is left.
TEXT ·sequence512(SB), NOSPLIT, $128-49
	MOVQ weights+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ state+16(FP), R8
	MOVQ out+32(FP), DI
	MOVQ k+40(FP), R10
	MOVB $0, ret+48(FP)
	LEAQ -1(CX), R9
	ANDQ $~3, R9
	LOAD(0, Z4, X4)
	MOVQ  $-1, R11
	BZHIQ CX, R11, R11
	KMOVW R11, K1
	MOVL  $0x7fffffff, AX
	VPBROADCASTD AX, Z5
	VPANDD.Z Z5, Z4, K1, Z4 // also of -0

	VPTESTMD Z4, Z4, K2
	KMOVW    K2, AX
	POPCNTL  AX, AX
	CMPQ     AX, R10
	JLE      end // no more than are wanted

	VEXTRACTI64X4 $1, Z4, Y5
	VPMAXUD Y4, Y5, Y6
	VEXTRACTI128 $1, Y6, X7
	VPMAXUD X6, X7, X6
	VPSHUFD $0x4e, X6, X7
	VPMAXUD X6, X7, X6
	VPSHUFD $0xb1, X6, X7
	VPMAXUD X6, X7, X6
	VMOVD   X6, AX
	SHRL    $23, AX
	JEQ     end // not normalized
	MOVL    $1206, DX // 2*1023 + 56, less what the exponents of float32 and float64 differ by
	SUBQ    AX, DX
	SHLQ    $52, DX
	VPBROADCASTQ DX, Z7

	VCVTPS2PD  Y4, Z0
	VCVTPS2PD  Y5, Z1
	VMULPD     Z7, Z0, Z0
	VMULPD     Z7, Z1, Z1
	VCVTTPD2QQ Z0, Z0
	VCVTTPD2QQ Z1, Z1
	VMOVDQU64  Z0, (SP)
	VMOVDQU64  Z1, 64(SP)
	VPXORD     Z9, Z9, Z9
	RUNNING(Z0, Z2)
	RUNNING(Z1, Z3)
	VALIGNQ    $7, Z0, Z0, Z2
	VPBROADCASTQ X2, Z2
	VPADDQ     Z2, Z1, Z1
	VALIGNQ    $7, Z1, Z1, Z2
	VMOVQ      X2, BX

	MOVQ first+24(FP), R9
	LEAQ (DI)(R10*8), R10
	MOVQ $0x9e3779b97f4a7c15, CX
	MOVQ $0xbf58476d1ce4e5b9, SI
	MOVQ $0x94d049bb133111eb, R11
	MOVQ $0x10000000000000, R13

next:
	ADDQ CX, R8
	MOVQ R8, AX
	MOVQ R8, DX
	SHRQ $30, DX
	XORQ DX, AX
	IMULQ SI, AX
	MOVQ AX, DX
	SHRQ $27, DX
	XORQ DX, AX
	IMULQ R11, AX
	MOVQ AX, DX
	SHRQ $31, DX
	XORQ DX, AX
	MULQ BX
	VPBROADCASTQ DX, Z5
	VPCMPUQ $6, Z5, Z0, K2
	VPCMPUQ $6, Z5, Z1, K3
	KMOVB K2, AX
	KMOVB K3, DX
	SHLL  $8, DX
	ORL   DX, AX
	TZCNTL AX, AX
	VPSUBQ.BCST (SP)(AX*8), Z0, K2, Z0
	VPSUBQ.BCST (SP)(AX*8), Z1, K3, Z1
	SUBQ (SP)(AX*8), BX
	ADDQ R9, AX
	MOVQ AX, (DI)
	ADDQ $8, DI
	CMPQ DI, R10
	JEQ  all
	CMPQ BX, R13
	JCC  next
	VZEROUPPER
	RET

all:
	MOVB $1, ret+48(FP)

end:
	VZEROUPPER
	RET
