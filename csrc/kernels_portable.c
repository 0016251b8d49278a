/* The kernels for any processor: 16-byte vectors, which the compiler maps to what there is. */
#define WIDE 16
#define F16C 0
#define TABLE fgi_portable
#include "isa.h"
