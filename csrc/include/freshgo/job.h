/* Long-running work. Other functions start jobs; these wait for them and close them. */
#ifndef FRESHGO_API_JOB_H
#define FRESHGO_API_JOB_H

#include "base.h"

typedef struct fg_progress {
  int64_t done;
  int64_t total; /* 0: unknown */
  void *result;  /* the job's result, as its start function says; returned once */
  char stage[32];
} fg_progress;

/* Waits for a job, at most timeout_ms (0: polls; negative: without limit).
 * Blocks: up to timeout_ms. Threads: any.
 * Ownership: the first call that returns FG_OK passes `result` to the caller; later ones set it to NULL.
 * Returns: FG_TIMEOUT while the job runs; afterwards FG_OK or the code of its failure, on every call. */
int32_t fg_job_wait(fg_job *job, int32_t timeout_ms, fg_progress *out, fg_error *err);

/* Cancels a job: fg_job_wait then returns FG_CANCELLED, unless the job had ended before.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_job_cancel(fg_job *job, fg_error *err);

/* Cancels the job if it runs, waits until it has stopped and frees it. A result that nobody took is
 * closed. After the return the job reads none of its inputs.
 * Blocks: until the job stops, usually within 100 ms. Threads: any.
 * Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_job_close(fg_job *job, fg_error *err);

#endif
