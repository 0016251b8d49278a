"""torch.fx among threads: while it records, every call of a module in the process goes through the tracer."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch import fx

_recording = threading.RLock()
"""Held while a model is recorded: patches of ``Module.__call__`` are undone in the reverse order."""


def _after_fork() -> None:
    global _recording
    _recording = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


class ThreadTracer(fx.Tracer):
    """Records the calls of its own thread. Modules that other threads call meanwhile run as they are."""

    _thread = 0

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        with _recording:
            self._thread = threading.get_ident()
            return super().trace(root, concrete_args)

    def call_module(self, m: torch.nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        return super().call_module(m, forward, args, kwargs) if self.here() else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return super().getattr(attr, attr_val, parameter_proxy_cache) if self.here() else attr_val

    def here(self) -> bool:
        """Return whether the thread that asks is the one that records."""
        return threading.get_ident() == self._thread
