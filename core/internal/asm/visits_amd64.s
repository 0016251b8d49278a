#include "textflag.h"

DATA sixteen<>+0(SB)/8, $0
DATA sixteen<>+8(SB)/8, $1
DATA sixteen<>+16(SB)/8, $2
DATA sixteen<>+24(SB)/8, $3
DATA sixteen<>+32(SB)/8, $4
DATA sixteen<>+40(SB)/8, $5
DATA sixteen<>+48(SB)/8, $6
DATA sixteen<>+56(SB)/8, $7
DATA sixteen<>+64(SB)/8, $8
DATA sixteen<>+72(SB)/8, $9
DATA sixteen<>+80(SB)/8, $10
DATA sixteen<>+88(SB)/8, $11
DATA sixteen<>+96(SB)/8, $12
DATA sixteen<>+104(SB)/8, $13
DATA sixteen<>+112(SB)/8, $14
DATA sixteen<>+120(SB)/8, $15
GLOBL sixteen<>(SB), RODATA|NOPTR, $128

// func visits512(visits unsafe.Pointer, n int) int
TEXT ·visits512(SB), NOSPLIT, $128-24
	MOVQ  visits+0(FP), SI
	MOVQ  n+8(FP), CX
	MOVQ  $-1, R11
	BZHIQ CX, R11, R11
	KMOVW R11, K1
	SHRQ  $8, R11
	KMOVW R11, K2
	VPTERNLOGD $0xff, Z27, Z27, Z27
	VMOVDQA64 Z27, Z0
	VMOVDQA64 Z27, Z1
	VMOVDQU64 (SI), K1, Z0
	VMOVDQU64 64(SI), K2, Z1
	VMOVDQU64 Z0, (SP)
	VMOVDQU64 Z1, 64(SP)
	VPMOVQ2M  Z0, K1 // below 0
	VPMOVQ2M  Z1, K2

	// Z2 and Z3 count down how often each is there.
	MOVL $16, AX
	VPBROADCASTQ AX, Z2
	VMOVDQA64 Z2, Z3
	LEAQ (SP), DI
	LEAQ (SP)(CX*8), DX

equal:
	VPCMPEQQ.BCST (DI), Z0, K3
	VPCMPEQQ.BCST (DI), Z1, K4
	VPADDQ Z27, Z2, K3, Z2
	VPADDQ Z27, Z3, K4, Z3
	ADDQ $8, DI
	CMPQ DI, DX
	JNE  equal

	VPSLLQ $46, Z2, Z2
	VPSLLQ $46, Z3, Z3
	VPSLLQ $4, Z0, Z0
	VPSLLQ $4, Z1, Z1
	VPORQ  Z2, Z0, Z0
	VPORQ  Z3, Z1, Z1
	VPORQ  sixteen<>(SB), Z0, Z0
	VPORQ  sixteen<>+64(SB), Z1, Z1
	VPSRLQ $1, Z27, Z2
	VMOVDQA64 Z2, K1, Z0
	VMOVDQA64 Z2, K2, Z1
	VMOVDQU64 Z0, (SP)
	VMOVDQU64 Z1, 64(SP)
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	LEAQ (SP), DI

above:
	VPCMPQ.BCST $6, (DI), Z0, K3
	VPCMPQ.BCST $6, (DI), Z1, K4
	VPSUBQ Z27, Z2, K3, Z2
	VPSUBQ Z27, Z3, K4, Z3
	ADDQ $8, DI
	CMPQ DI, DX
	JNE  above

	KNOTB   K1, K1
	KNOTB   K2, K2
	KMOVB   K1, AX
	KMOVB   K2, BX
	POPCNTL AX, AX
	POPCNTL BX, BX
	ADDQ    BX, AX
	MOVQ    AX, ret+16(FP)
	VPSCATTERQQ Z0, K1, (SI)(Z2*8)
	VPSCATTERQQ Z1, K2, (SI)(Z3*8)
	VZEROUPPER
	RET
