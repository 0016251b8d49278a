/* Work that takes long: started by a function that returns a job, waited for and closed here. */
#ifndef FRESHGO_API_JOB_H
#define FRESHGO_API_JOB_H

#include "base.h"

typedef struct fg_progress {
  int64_t done;
  int64_t total; /* 0: unknown */
  void *result;  /* what the job made, see the function that started it; once */
  char stage[32];
} fg_progress;

/* Waits for a job, at most timeout_ms (0: only looks; negative: for ever).
 * Blocks: up to timeout_ms. Threads: any.
 * Ownership: the first call that returns FG_OK passes `result` to the caller; later ones set it to NULL.
 * Returns: FG_TIMEOUT while the job runs, FG_OK when it succeeded, otherwise why it failed, every time. */
int32_t fg_job_wait(fg_job *job, int32_t timeout_ms, fg_progress *out, fg_error *err);

/* Asks a job to end; fg_job_wait then returns FG_CANCELLED, unless it had ended before.
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_job_cancel(fg_job *job, fg_error *err);

/* Cancels the job if it runs, waits until it has stopped and frees it. A result that nobody took is
 * closed. After the return the job reads none of its inputs.
 * Blocks: until the job notices, as a rule below 100 ms. Threads: any.
 * Ownership: the handle ends. Returns: FG_OK, FG_CLOSED. */
int32_t fg_job_close(fg_job *job, fg_error *err);

#endif
