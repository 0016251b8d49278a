"""The user's transform: in the thread of the training loop, or ahead of it in threads of its own."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from freshgo._native.loader import Batches, RawBatch
from freshgo._observe.ranges import stage
from freshgo.errors import FreshgoError

Transform = Callable[[Any], Any]


@dataclass(frozen=True)
class Underway(RawBatch):
    """A batch whose transform runs. Its tensors are in what the transform was given."""

    made: Future[Any]

    def result(self) -> Any:
        """Wait for what the transform returns, or raise what it raised."""
        with stage("freshgo.transform"):
            return self.made.result()


class Workers:
    """Threads that call a transform, each with another batch."""

    def __init__(self, transform: Transform, count: int) -> None:
        self._transform = transform
        self._count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="freshgo-transform")
        self._ahead: Transformed | None = None

    def batches(self, source: Batches, arrange: Callable[[RawBatch], Any]) -> Transformed:
        """The batches of an epoch, in their order. Those of an earlier epoch are forgotten."""
        self.stop()
        self._ahead = Transformed(source, lambda raw: self._submit(arrange(raw)), self._count)
        return self._ahead

    def _submit(self, batch: Any) -> Future[Any]:
        # PyTorch's modes belong to threads: the transform gets those of the loop.
        return self._pool.submit(
            _called, self._transform, batch, torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        )

    def stop(self) -> None:
        """Forget batches that nobody has received. A transform that runs goes on to its end."""
        if self._ahead is not None:
            self._ahead.forget()
            self._ahead = None

    def close(self) -> None:
        """Wait for the transforms that run, and end the threads."""
        self.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _called(transform: Transform, batch: Any, grad: bool, inference: bool) -> Any:
    with torch.inference_mode(inference), torch.set_grad_enabled(grad):
        return transform(batch)


class Transformed:
    """The batches of an epoch; up to ``count`` of the batches that are ready are being transformed."""

    def __init__(self, source: Batches, submit: Callable[[RawBatch], Future[Any]], count: int) -> None:
        self._source = source
        self._submit = submit
        self._count = count
        self._underway: deque[Underway] = deque()

    def next(self) -> Underway | None:
        """The next batch, ``None`` after the last one."""
        if not self._underway and not self._fetch(wait=True):
            return None
        # What goes wrong is about a later batch, and is raised again when that is asked for.
        with contextlib.suppress(FreshgoError):
            while len(self._underway) <= self._count and self._fetch(wait=False):
                pass
        return self._underway.popleft()

    def _fetch(self, *, wait: bool) -> bool:
        raw = self._source.next(wait=wait)
        if raw is None:
            return False
        self._underway.append(Underway(raw.index, raw.num_seeds, {}, self._submit(raw)))
        return True

    def forget(self) -> None:
        """Let go of the batches that were not handed over."""
        while self._underway:
            self._underway.pop().made.cancel()
