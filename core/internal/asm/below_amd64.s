#include "textflag.h"
#include "lanes_amd64.h"

DATA eight<>+0(SB)/8, $0
DATA eight<>+8(SB)/8, $1
DATA eight<>+16(SB)/8, $2
DATA eight<>+24(SB)/8, $3
DATA eight<>+32(SB)/8, $4
DATA eight<>+40(SB)/8, $5
DATA eight<>+48(SB)/8, $6
DATA eight<>+56(SB)/8, $7
GLOBL eight<>(SB), RODATA|NOPTR, $64

// func below512(ids unsafe.Pointer, n int, key, bound uint64, found *Found) (number, seen int)
TEXT ·below512(SB), NOSPLIT, $0-56
	MOVQ ids+0(FP), SI
	MOVQ n+8(FP), CX
	ANDQ $~7, CX
	VPBROADCASTQ key+16(FP), Z31
	VPBROADCASTQ bound+24(FP), Z26
	MOVQ found+32(FP), DI
	CONSTANTS
	VMOVDQU64 eight<>(SB), Z25
	MOVL $8, R10
	VPBROADCASTQ R10, Z24
	XORL BX, BX // found
	XORL DX, DX // seen

next:
	CMPQ DX, CX
	JGE  done
	CMPQ BX, $(64-8)
	JGT  done
	VPMOVSXDQ (SI)(DX*4), Z0
	MIX(Z0, Z1)
	VPCMPUQ $1, Z26, Z0, K2
	VPCOMPRESSQ Z0, K2, Z1
	VPCOMPRESSQ Z25, K2, Z2
	VMOVDQU64 Z1, (DI)(BX*8)
	VMOVDQU64 Z2, 512(DI)(BX*8)
	KMOVW K2, AX
	POPCNTQ AX, AX
	ADDQ AX, BX
	VPADDQ Z24, Z25, Z25
	ADDQ $8, DX
	JMP  next

done:
	MOVQ BX, number+40(FP)
	MOVQ DX, seen+48(FP)
	VZEROUPPER
	RET
