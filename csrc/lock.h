/*
 * Locking buffers in place for a device: what is copied from locked memory is copied while the host goes on.
 *
 * The driver is not linked; who has it hands over its entries (fg_buffers_lock).
 */
#ifndef FRESHGO_LOCK_H
#define FRESHGO_LOCK_H

#include <stddef.h>

/* Locks whole pages. What fgi_unlock needs, or NULL: they stay as they are. */
const void *fgi_lock(void *data, size_t n_bytes);
void fgi_unlock(const void *lock, void *data);

#endif
