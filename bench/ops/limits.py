"""What the machine can do at best: a C loop with prefetch that only touches the bytes that a sum must touch.

Forward these are the rows of all edges, read in the order of the edges, and a row written for each target; on the way
back the rows of the targets by source, and a row written for each source. The work is divided by edges, as that of the
operators is, and what is written was touched before.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

SOURCE = r"""
#include <stdint.h>
#include <string.h>
/* Reads the rows of index[ptr[begin]..ptr[end]] into one that stays in the cache, and writes one for each target. */
void touch(const float *x, const int64_t *index, const int64_t *ptr, int64_t begin, int64_t end, int64_t n, int64_t columns, float *out) {
  float sum[1024] = {0};
  for (int64_t t = begin; t < end; t++) {
    for (int64_t i = ptr[t]; i < ptr[t + 1]; i++) {
      const float *row = x + index[i] * columns, *next = x + index[i + 8 < n ? i + 8 : i] * columns;
      for (int64_t c = 0; c < columns; c += 16) __builtin_prefetch(next + c);
      for (int64_t c = 0; c < columns; c++) sum[c] += row[c];
    }
    memcpy(out + t * columns, sum, columns * sizeof *sum);
  }
}
"""


def toucher(threads: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], None]:
    """A function of x, index, ptr and out (at most 1024 columns)."""
    folder = Path(tempfile.mkdtemp())
    (folder / "touch.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", folder / "touch.so", folder / "touch.c"], check=True)
    fn = ctypes.CDLL(str(folder / "touch.so")).touch
    fn.argtypes, fn.restype = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 4 + [ctypes.c_void_p], None
    pool = ThreadPoolExecutor(threads)

    def run(x: Tensor, index: Tensor, ptr: Tensor, out: Tensor) -> None:
        edges, columns = index.numel(), x.size(1)
        cuts = torch.searchsorted(ptr, torch.tensor([edges * p // threads for p in range(threads)])).tolist()
        cuts = [0, *cuts[1:], ptr.numel() - 1]
        work = [
            pool.submit(fn, x.data_ptr(), index.data_ptr(), ptr.data_ptr(), begin, end, edges, columns, out.data_ptr())
            for begin, end in itertools.pairwise(cuts)
        ]
        for part in work:
            part.result()

    return run
