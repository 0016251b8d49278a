/* Return codes, the error struct, handles. */
#ifndef FRESHGO_API_BASE_H
#define FRESHGO_API_BASE_H

#include <stddef.h>
#include <stdint.h>

/* Only read by the callee. The exporting file defines it away, because the
 * prototypes generated from Go, which this header is checked against, have no
 * word for const. */
#ifndef FG_IN
#define FG_IN const
#endif

/* Raised whenever a struct or a function changes in a way that breaks callers. */
#define FG_ABI_VERSION 6

enum {
  FG_OK = 0,
  FG_TIMEOUT = 1, /* not finished within timeout_ms; nothing is lost, call again */
  FG_END = 2,     /* the epoch has no more batches */

  FG_INVALID = 10,    /* an argument has a value that cannot work */
  FG_DTYPE = 11,      /* an array has a dtype that cannot be used there */
  FG_NOT_FOUND = 12,  /* the path does not exist */
  FG_EXISTS = 13,     /* the path exists */
  FG_PERMISSION = 14, /* the system refuses access to the path */
  FG_READ = 15,       /* reading failed: sys_errno, path */
  FG_WRITE = 16,      /* writing failed, disk full included: sys_errno, path */
  FG_FORMAT = 17,     /* not a store, or its layout contradicts its header */
  FG_VERSION = 18,    /* a store of a newer version */
  FG_CORRUPT = 19,    /* data that do not match their checksum or size: path */
  FG_BUDGET = 20,     /* the memory budget is too small: minimum */
  FG_CLOSED = 21,     /* a closed handle, or a loader without a running epoch */
  FG_BUSY = 22,       /* another conversion is writing to the path */
  FG_CANCELLED = 23,  /* the job was cancelled */
  FG_INTERNAL = 24,   /* a defect of the library, which is unusable from now on */
  FG_CUDA = 25        /* CUDA is missing, or a driver call failed, which the message names */
};

/* An error. The caller owns it; it needs no initialisation and no free. */
typedef struct fg_error {
  int32_t code;
  int32_t sys_errno;  /* of the system call that failed, or 0 */
  int64_t minimum;    /* FG_BUDGET: the smallest budget in bytes that works, 0 if unknown */
  char message[1024]; /* UTF-8, truncated if longer */
  char path[4096];    /* the file concerned, or empty */
} fg_error;

typedef struct fg_store fg_store;
typedef struct fg_table fg_table;
typedef struct fg_graph fg_graph;
typedef struct fg_loader fg_loader;
typedef struct fg_job fg_job;
typedef struct fg_sampled fg_sampled;

/* As the value of an option: the library chooses. */
#define FG_AUTO (-1)

#endif
