"""Small tensors of a history that cross between the host and the device that computes. The host waits for none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on ``device``, in its current stream."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


class Fetched:
    """A tensor on its way to the host, from the current stream of its device."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: Any = None
        self._there = tensor
        if tensor.device.type != "cpu":
            self._there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(
                tensor, non_blocking=True
            )
            self._event = torch.cuda.current_stream(tensor.device).record_event()

    def arrived(self) -> bool:
        """Return whether :meth:`wait` returns at once."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> Tensor:
        """Return the tensor on the host."""
        if self._event is not None:
            self._event.synchronize()
        return self._there
