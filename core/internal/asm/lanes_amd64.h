// Registers of the routines that make variates: Z31 the key of the variates, Z30 to Z28 the constants of splitmix64,
// Z27 ones in all bits.
#define CONSTANTS \
	VPTERNLOGD $0xff, Z27, Z27, Z27 \
	MOVQ $0x9e3779b97f4a7c15, R10   \
	VPBROADCASTQ R10, Z30           \
	MOVQ $0xbf58476d1ce4e5b9, R10   \
	VPBROADCASTQ R10, Z29           \
	MOVQ $0x94d049bb133111eb, R10   \
	VPBROADCASTQ R10, Z28

// MIX makes eight variates of eight ids.
#define MIX(Z, T) \
	VPXORQ  Z31, Z, Z \
	VPADDQ  Z30, Z, Z \
	VPSRLQ  $30, Z, T \
	VPXORQ  T, Z, Z   \
	VPMULLQ Z29, Z, Z \
	VPSRLQ  $27, Z, T \
	VPXORQ  T, Z, Z   \
	VPMULLQ Z28, Z, Z \
	VPSRLQ  $31, Z, T \
	VPXORQ  T, Z, Z

// LOAD brings ids number at to at+15. It reads no quarter of them behind the last id, whose quarter begins at R9: the
// lines there were not asked for. What it brings instead is not used.
#define LOAD(at, Z, X) \
	MOVL    $at, R13    \
	CMPQ    R13, R9     \
	CMOVQGT R9, R13     \
	VMOVDQU (SI)(R13*4), X \
	MOVL    $(at+4), R13 \
	CMPQ    R13, R9     \
	CMOVQGT R9, R13     \
	VINSERTI32X4 $1, (SI)(R13*4), Z, Z \
	MOVL    $(at+8), R13 \
	CMPQ    R13, R9     \
	CMOVQGT R9, R13     \
	VINSERTI32X4 $2, (SI)(R13*4), Z, Z \
	MOVL    $(at+12), R13 \
	CMPQ    R13, R9     \
	CMOVQGT R9, R13     \
	VINSERTI32X4 $3, (SI)(R13*4), Z, Z
