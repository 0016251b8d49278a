/* The bodies of all kernels. */
#ifndef FRESHGO_CUDA_KERNELS_H
#define FRESHGO_CUDA_KERNELS_H

#include "aggregate.h"
#include "attention.h"
#include "dot.h"
#include "draw.h"
#include "gather.h"
#include "labor.h"
#include "map.h"
#include "sort.h"
#include "weighted.h"

#endif
