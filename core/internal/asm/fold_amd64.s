#include "textflag.h"

// FOLD moves the 512 bits of register A on by the distance of the constants in K, and adds what is there; T is scratch.
#define FOLD(A, K, T, next) \
	VPCLMULQDQ $0x00, K, A, T \
	VPCLMULQDQ $0x11, K, A, A \
	VPTERNLOGQ $0x96, next, T, A

// func foldCRC512(register uint32, p unsafe.Pointer, n int, keys *[4]uint64) uint32
TEXT ·foldCRC512(SB), NOSPLIT, $64-36
	MOVL register+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ keys+24(FP), DX
	VBROADCASTI32X4 (DX), Z10   // by 256 bytes
	VBROADCASTI32X4 16(DX), Z11 // by 64
	VMOVD     AX, X12           // and zeros above
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VPXORQ    Z12, Z0, Z0
	ADDQ      $256, SI
	SUBQ      $512, CX
	JLT       reduce

loop:
	FOLD(Z0, Z10, Z4, (SI))
	FOLD(Z1, Z10, Z5, 64(SI))
	FOLD(Z2, Z10, Z6, 128(SI))
	FOLD(Z3, Z10, Z7, 192(SI))
	ADDQ $256, SI
	SUBQ $256, CX
	JGE  loop

reduce:
	FOLD(Z0, Z11, Z4, Z1)
	FOLD(Z0, Z11, Z4, Z2)
	FOLD(Z0, Z11, Z4, Z3)
	VMOVDQU64 Z0, (SP)
	VZEROUPPER
	XORL   AX, AX
	CRC32Q (SP), AX
	CRC32Q 8(SP), AX
	CRC32Q 16(SP), AX
	CRC32Q 24(SP), AX
	CRC32Q 32(SP), AX
	CRC32Q 40(SP), AX
	CRC32Q 48(SP), AX
	CRC32Q 56(SP), AX
	MOVL   AX, ret+32(FP)
	RET
