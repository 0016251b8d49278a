/* What functions that fail say. */
#include <stdarg.h>
#include <stdio.h>

#include "operators.h"

int32_t fgi_fail(fg_error *err, int32_t code, const char *format, ...) {
  if (err != NULL) {
    va_list arguments;
    va_start(arguments, format);
    err->code = code;
    err->sys_errno = 0;
    err->minimum = 0;
    err->path[0] = 0;
    vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
  }
  return code;
}

int32_t fgi_no_memory(fg_error *err) {
  return fgi_fail(err, FG_BUDGET, "out of memory: the system refuses the scratch memory of an operator");
}

int32_t fgi_struct_size(fg_error *err, uint32_t have, uint32_t want) {
  return have == want ? FG_OK : fgi_fail(err, FG_INVALID, "struct_size is %u, expected %u", have, want);
}
