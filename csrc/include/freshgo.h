/*
 * freshgo: mini-batches of graphs that do not fit in memory.
 *
 * This header is the whole C API; the parts below are its documentation, one
 * subject each. Include this one: only it gives C++ the right linkage.
 *
 * Shape. Every function takes handles, then what is read (FG_IN), then what
 * is written, then an fg_error, and returns a code. FG_OK, FG_TIMEOUT and
 * FG_END are no errors; with any other code the fg_error says what happened.
 * `err` may be NULL; no other pointer may, unless it says so.
 *
 * Strings are UTF-8 (paths: bytes as the system has them) and end in a zero.
 * Sizes are in bytes where the name says n_bytes, else in elements.
 *
 * Structs whose first member is struct_size hold options: set it to sizeof of
 * the struct and the rest to zero before filling it in. A library newer than
 * its caller takes the missing tail for zero; one that is older refuses.
 *
 * Handles are made by _open or a job, used from any thread, and closed once.
 * A handle that was closed gives FG_CLOSED, one of another kind FG_INVALID.
 * A store or a graph may be closed while loaders or jobs use it: the handle
 * ends at once, what it holds is freed with the last of them.
 *
 * Jobs. What takes long is started by a function that returns a job. Wait
 * for it with fg_job_wait in steps, then close it, in every case.
 *
 * Threads. Every function may be called from any thread at any time, except
 * that a process which forked after its first call must not call in the child.
 * Tensors may be used and deleted there.
 *
 * Defects. Should the library break one of its own invariants, that call and
 * every later one return FG_INTERNAL with the message of the first.
 */
#ifndef FRESHGO_H
#define FRESHGO_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "freshgo/base.h"
#include "freshgo/library.h"
#include "freshgo/job.h"
#include "freshgo/tensor.h"
#include "freshgo/store.h"
#include "freshgo/graph.h"
#include "freshgo/table.h"
#include "freshgo/convert.h"
#include "freshgo/loader_options.h"
#include "freshgo/loader.h"
#include "freshgo/batch.h"
#include "freshgo/history.h"
#include "freshgo/lab.h"
#include "freshgo/operators.h"
#include "freshgo/cuda.h"

#ifdef __cplusplus
}
#endif

#endif
