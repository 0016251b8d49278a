/* Memory for batches that other processes receive: fg_batches_share in freshgo/tensor.h. buffer.c takes ranges of it,
 * received.c maps it in the processes that receive batches. */
#ifndef FRESHGO_ARENA_H
#define FRESHGO_ARENA_H

#include <stddef.h>

enum { FGI_ARENA_CLASSES = 192 };

/* Where ranges begin and end: a page of any system. Of a range that is shorter only its first pages take memory. */
enum { FGI_ARENA_BLOCK = 64 << 10 };

/* The bytes of the whole blocks that n_bytes need. */
size_t fgi_arena_whole(size_t n_bytes);

/* Maps an arena of n_bytes by its descriptor. NULL: there is no address space for it. */
char *fgi_arena_map(int fd, size_t n_bytes);

/* Whether buffers of batches lie in the arena. It does not change once there is a buffer. */
int fgi_arena_begun(void);

/* A range of whole blocks; contents undefined. NULL: none is left. */
void *fgi_arena_take(int size_class, size_t capacity);

/* Takes back such a range, whose pages go back to the system. */
void fgi_arena_give(int size_class, void *data, size_t capacity);

#endif
