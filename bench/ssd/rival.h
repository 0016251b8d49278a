/* A plain loop over liburing: the yardstick of the io_uring engine. */
#pragma once
#include <stdint.h>

/* Reads block bytes at each of n offsets with O_DIRECT, depth at a time, and checks that the first 8 bytes are the
 * page's number. registered: with registered buffers and file. Returns 0 or a negated errno (-EBADMSG: wrong data). */
int rival_read(const char *path, const int64_t *offsets, int64_t n, int block, int depth, int registered);
