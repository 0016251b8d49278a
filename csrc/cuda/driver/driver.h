/* The driver's library, found when it is first needed. */
#ifndef FRESHGO_CUDA_DRIVER_H
#define FRESHGO_CUDA_DRIVER_H

/* NULL when the driver is there and initialised, else a line that says why not. */
const char *fgc_driver(void);

#endif
