#include "textflag.h"
#include "lanes_amd64.h"

// VARIATES makes the upper halves of sixteen variates of the ids in Z, in their order. M has every other bit set.
#define VARIATES(Z, T, U, M) \
	VPSRAQ    $32, Z, T \
	VPSLLQ    $32, Z, Z \
	VPSRAQ    $32, Z, Z \
	MIX(Z, U)           \
	MIX(T, U)           \
	VPSRLQ    $32, Z, Z \
	VMOVDQA32 T, M, Z

// COUNT adds one to those ranks R whose key in Z is above the one at an address.
#define COUNT(at, Z, R, M) \
	VPCMPUD.BCST $6, at, Z, M \
	VPSUBD Z27, R, M, R

// func smallest512(ids unsafe.Pointer, n int, key uint64, k int) uint64
TEXT ·smallest512(SB), NOSPLIT, $256-40
	MOVQ ids+0(FP), SI
	MOVQ n+8(FP), CX
	VPBROADCASTQ key+16(FP), Z31
	MOVQ k+24(FP), AX
	VPBROADCASTD AX, Z26
	CONSTANTS
	MOVL  $0xaaaa, R10
	KMOVW R10, K1
	MOVQ  $-1, R11
	BZHIQ CX, R11, R11 // what is in the list
	LEAQ  -1(CX), R9
	ANDQ  $~3, R9

	KMOVW R11, K2
	LOAD(0, Z4, X4)
	VARIATES(Z4, Z6, Z7, K1)
	VMOVDQA32 Z27, Z0
	VMOVDQA32 Z4, K2, Z0
	VMOVDQU32 Z0, (SP)
	VPXORD Z8, Z8, Z8
	CMPQ CX, $16
	JHI  more

	COUNT(0(SP), Z0, Z8, K2)
	COUNT(4(SP), Z0, Z8, K3)
	COUNT(8(SP), Z0, Z8, K4)
	COUNT(12(SP), Z0, Z8, K5)
	COUNT(16(SP), Z0, Z8, K2)
	COUNT(20(SP), Z0, Z8, K3)
	COUNT(24(SP), Z0, Z8, K4)
	COUNT(28(SP), Z0, Z8, K5)
	COUNT(32(SP), Z0, Z8, K2)
	COUNT(36(SP), Z0, Z8, K3)
	COUNT(40(SP), Z0, Z8, K4)
	COUNT(44(SP), Z0, Z8, K5)
	COUNT(48(SP), Z0, Z8, K2)
	COUNT(52(SP), Z0, Z8, K3)
	COUNT(56(SP), Z0, Z8, K4)
	COUNT(60(SP), Z0, Z8, K5)
	VPCMPUD $1, Z26, Z8, K2
	KMOVW K2, AX
	ANDQ  R11, AX
	MOVQ  AX, ret+32(FP)
	VZEROUPPER
	RET

more:
	MOVQ  R11, R12
	SHRQ  $16, R12
	KMOVW R12, K2
	LOAD(16, Z4, X4)
	VARIATES(Z4, Z6, Z7, K1)
	VMOVDQA32 Z27, Z1
	VMOVDQA32 Z4, K2, Z1
	VMOVDQU32 Z1, 64(SP)
	VPXORD Z9, Z9, Z9
	LEAQ (SP), DI
	LEAQ (SP)(CX*4), DX
	CMPQ CX, $32
	JHI  most

two:
	COUNT((DI), Z0, Z8, K2)
	COUNT((DI), Z1, Z9, K3)
	ADDQ $4, DI
	CMPQ DI, DX
	JNE  two
	VPCMPUD $1, Z26, Z8, K2
	VPCMPUD $1, Z26, Z9, K3
	KMOVW K2, AX
	KMOVW K3, BX
	SHLQ  $16, BX
	ORQ   BX, AX
	ANDQ  R11, AX
	MOVQ  AX, ret+32(FP)
	VZEROUPPER
	RET

most:
	SHRQ  $16, R12
	KMOVW R12, K2
	LOAD(32, Z4, X4)
	VARIATES(Z4, Z6, Z7, K1)
	VMOVDQA32 Z27, Z2
	VMOVDQA32 Z4, K2, Z2
	VMOVDQU32 Z2, 128(SP)
	VPXORD Z10, Z10, Z10
	SHRQ  $16, R12
	KMOVW R12, K2
	LOAD(48, Z4, X4)
	VARIATES(Z4, Z6, Z7, K1)
	VMOVDQA32 Z27, Z3
	VMOVDQA32 Z4, K2, Z3
	VMOVDQU32 Z3, 192(SP)
	VPXORD Z11, Z11, Z11

four:
	COUNT((DI), Z0, Z8, K2)
	COUNT((DI), Z1, Z9, K3)
	COUNT((DI), Z2, Z10, K4)
	COUNT((DI), Z3, Z11, K5)
	ADDQ $4, DI
	CMPQ DI, DX
	JNE  four
	VPCMPUD $1, Z26, Z8, K2
	VPCMPUD $1, Z26, Z9, K3
	VPCMPUD $1, Z26, Z10, K4
	VPCMPUD $1, Z26, Z11, K5
	KMOVW K2, AX
	KMOVW K3, BX
	SHLQ  $16, BX
	ORQ   BX, AX
	KMOVW K4, BX
	SHLQ  $32, BX
	ORQ   BX, AX
	KMOVW K5, BX
	SHLQ  $48, BX
	ORQ   BX, AX
	ANDQ  R11, AX
	MOVQ  AX, ret+32(FP)
	VZEROUPPER
	RET
