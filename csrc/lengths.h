/* One element type at every vector length that WIDE has room for. Undefines TYPE. */
#if WIDE >= 64
#define LANES LANES_OF_64
#include "lanes.h"
#endif
#if WIDE >= 32
#define LANES LANES_OF_32
#include "lanes.h"
#endif
#define LANES LANES_OF_16
#include "lanes.h"
#define LANES 1
#include "lanes.h"
#undef TYPE
