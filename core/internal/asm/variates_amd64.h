// Registers of the routines that make variates: Z31 the key of the variates, Z30 to Z28 the constants of splitmix64, Z27 ones in all bits.
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
