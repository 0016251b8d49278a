/* Tables of rows that training changes: embeddings with the state of their optimiser. */
#ifndef FRESHGO_API_TABLE_H
#define FRESHGO_API_TABLE_H

#include "base.h"

typedef struct fg_table_options {
  uint64_t struct_size;
  int64_t num_rows;        /* at least 1 */
  int64_t row_bytes;       /* payload of a row: a multiple of 4 up to 512 KiB */
  FG_IN char *description; /* kept for the caller, up to 512 KiB; NULL: "" */
} fg_table_options;

/* The bytes behind the payload of each row in batches. They are the library's. */
enum { FG_TABLE_TRAILER = 8 };

/* Length of a token, with the zero at its end. */
enum { FG_TOKEN_BYTES = 33 };

/* Makes a table whose rows are zero, and opens it. It does not outlive the process before fg_table_save. Remains of a
 * table that was never saved are replaced.
 * Blocks: for a few small writes. Threads: any. Ownership: the caller closes *out.
 * Returns: FG_OK, FG_INVALID, FG_EXISTS, FG_BUSY, FG_PERMISSION, FG_NOT_FOUND, FG_WRITE. */
int32_t fg_table_create(FG_IN char *path, FG_IN fg_table_options *options, fg_table **out, fg_error *err);

/* Opens the state of a table that was saved last. Changes after it, by a process that ended, are undone.
 * Blocks: while changes are undone. Threads: any. Ownership: the caller closes *out.
 * Returns: FG_OK, FG_NOT_FOUND, FG_BUSY (another process has it open), FG_PERMISSION, FG_VERSION, FG_CORRUPT, FG_READ,
 * FG_WRITE. */
int32_t fg_table_open(FG_IN char *path, fg_table **out, fg_error *err);

/* Describes the table, a JSON object, as fg_store_describe writes it: "path", "num_rows", "row_bytes", "token" and
 * "previous" (of the states that fg_table_restore takes; "": none), "changed" (since the last save), "description",
 * "bytes" and "journal_bytes" (on disk).
 * Blocks: no. Threads: any. Ownership: none passes. Returns: FG_OK, FG_CLOSED. */
int32_t fg_table_describe(fg_table *table, char *json, int64_t capacity, int64_t *n_bytes, fg_error *err);

/* Writes the payloads of rows `first` to `first` + `count`, `count` times `row_bytes` bytes.
 * Blocks: for the writes. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID (no such rows, or a loader trains the table), FG_CORRUPT, FG_READ, FG_WRITE. */
int32_t fg_table_write(fg_table *table, int64_t first, int64_t count, FG_IN void *rows, fg_error *err);

/* Reads the payloads of `count` rows from the file, in any order. If a loader trains the table, call fg_loader_settle
 * or fg_loader_flush before.
 * Blocks: for the reads. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_CORRUPT, FG_READ, FG_WRITE (rows were lost). */
int32_t fg_table_read(fg_table *table, FG_IN int64_t *rows, int64_t count, void *out, fg_error *err);

/* Publishes the rows of the file as a state, whole or not at all, and writes its token. `description` replaces the
 * description; NULL: it stays. If a loader trains the table, call fg_loader_settle before.
 * Blocks: until the file is durable. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID, FG_WRITE (also if rows were lost). */
int32_t fg_table_save(fg_table *table, FG_IN char *description, char *token, fg_error *err);

/* Makes the table what it was when a state was saved: the last one, or the one before.
 * Blocks: while changes are undone. Threads: any. Ownership: none passes.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID (no such state, or a loader trains the table), FG_CORRUPT, FG_READ,
 * FG_WRITE. */
int32_t fg_table_restore(fg_table *table, FG_IN char *token, fg_error *err);

/* Closes the table. Changes since the last save are undone when it is opened again.
 * Blocks: no. Threads: any. Ownership: the handle ends, unless the call fails.
 * Returns: FG_OK, FG_CLOSED, FG_INVALID (a loader trains the table). */
int32_t fg_table_close(fg_table *table, fg_error *err);

#endif
