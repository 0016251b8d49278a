#include "rival.h"

#include <string.h>

void rows_copy(char *dst, const char *src, int64_t row_bytes, const int64_t *idx, int64_t n, int64_t ahead) {
  for (int64_t i = 0; i < n; i++) {
    if (ahead > 0 && i + ahead < n) {
      const char *row = src + idx[i + ahead] * row_bytes;
      for (int64_t off = 0; off < row_bytes; off += 64) __builtin_prefetch(row + off);
    }
    memcpy(dst + i * row_bytes, src + idx[i] * row_bytes, row_bytes);
  }
}
