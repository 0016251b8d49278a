"""Ranges of ``torch.profiler``: the steps of a loader in the thread of the training loop."""

from __future__ import annotations

import contextlib
from typing import Any

from torch._C._autograd import _profiler_enabled
from torch.autograd.profiler import record_function

_NOTHING = contextlib.nullcontext()


def stage(name: str) -> contextlib.AbstractContextManager[Any]:
    """A range of this name in the trace of the profiler that runs in this thread; without one, nothing at all."""
    return record_function(name) if _profiler_enabled() else _NOTHING
