/* Memory for batches that other processes receive: fg_batches_share and its neighbours in freshgo/tensor.h. */
#ifndef FRESHGO_SHARED_H
#define FRESHGO_SHARED_H

#include <stddef.h>

enum { FGI_SHARED_CLASSES = 192 };

/* Whether buffers of batches lie in shared memory. It does not change once there is a buffer. */
int fgi_shared_begun(void);

/* A range of whole blocks; contents undefined. NULL: none is left. */
void *fgi_shared_take(int size_class, size_t capacity);

/* Takes back such a range, whose pages go back to the system. */
void fgi_shared_give(int size_class, void *data, size_t capacity);

#endif
