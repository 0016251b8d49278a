"""What moving batches takes of CUDA: a side stream, and its place beside the stream that the consumer works on."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Protocol

import torch
from torch import Tensor

from freshgo._device.drawing import Drawing
from freshgo._device.packed import Part, Unpacking
from freshgo._native import libraries

_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: this thread may allocate and look at events while the loop's captures a graph."""

Tensors = dict[str, Tensor]


class Event(Protocol):
    """A point in a stream."""

    def query(self) -> bool:
        """Whether everything before it is done."""

    def synchronize(self) -> None:
        """Wait on the host until it is."""


class Streams(Protocol):
    """What moving takes of CUDA: a side stream, and the one that the consumer works on."""

    def begin_thread(self) -> None:
        """Let this thread use the device while another one captures a graph."""

    def side(self) -> contextlib.AbstractContextManager[Any]:
        """What is queued within goes to the side stream."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Queue a copy to the device. ``tensor`` must live and stay as it is until that is done."""

    def unpack(self, make: Unpacking, copies: Tensors, parts: list[Part]) -> Tensors:
        """Queue the work of ``make`` on the side stream."""

    def draw(self, make: Drawing, batch: Tensors, keys: list[int], *, pad: bool) -> Tensors:
        """Do the work of ``make`` on the side stream. The host waits for what is queued there before, unless the batch
        is padded."""

    def fetch(self, tensor: Tensor) -> Tensor:
        """Queue a copy of a tensor of the device to the host."""

    def record(self) -> Event:
        """The point that the side stream has been filled to."""

    def wait(self, event: Event) -> None:
        """Let the consumer's stream wait for a point of the side stream."""

    def use(self, tensor: Tensor) -> None:
        """Tell the allocator that the consumer's stream uses a tensor made in the side stream."""

    def memory(self) -> tuple[int, int]:
        """The bytes that are left beside the most that PyTorch has allocated at a time, and all of the device."""

    def failures(self) -> int:
        """How often PyTorch has found no memory on the device."""


class CudaStreams:
    """The real :class:`Streams` of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin_thread(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            relaxed = ctypes.c_int(_RELAXED)
            ctypes.CDLL(libraries.DRIVER).cuThreadExchangeStreamCaptureMode(ctypes.byref(relaxed))

    def side(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self._side)

    def copy(self, tensor: Tensor) -> Tensor:
        # From pageable memory the host would wait. The library locks its buffers (see pinned_memory), except small ones
        # and those that it may not lock: these go through PyTorch's pinned memory, which is reused after the copy.
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self._device, non_blocking=True)

    def unpack(self, make: Unpacking, copies: Tensors, parts: list[Part]) -> Tensors:
        return make(copies, parts)

    def draw(self, make: Drawing, batch: Tensors, keys: list[int], *, pad: bool) -> Tensors:
        return make(batch, keys, pad=pad)

    def fetch(self, tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)

    def record(self) -> Event:
        event: Event = self._side.record_event()
        return event

    def wait(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)

    def use(self, tensor: Tensor) -> None:
        tensor.record_stream(torch.cuda.current_stream(self._device))

    def memory(self) -> tuple[int, int]:
        # What PyTorch keeps between steps is for the next one: only what it has above the peak is left, or it lacks.
        free, total = torch.cuda.mem_get_info(self._device)
        kept = torch.cuda.memory_reserved(self._device) - torch.cuda.max_memory_allocated(self._device)
        return free + kept, total

    def failures(self) -> int:
        return int(torch.cuda.memory_stats(self._device).get("num_ooms", 0))
