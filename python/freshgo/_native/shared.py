"""Memory for batches that processes share: made by the one that makes batches, mapped by those that receive them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from freshgo._native import abi, dlpack, header
from freshgo._native.handle import Handle

BLOCK = 64 << 10
"""Where every tensor in it begins at a multiple of."""


class Place(NamedTuple):
    """Where a tensor lies in shared memory, for a receiver."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """-1: the tensor is empty and lies nowhere."""


class SharedBatches:
    """The memory of this process's batches, from now on. There is one in a process, before its first loader."""

    def __init__(self, n_bytes: int) -> None:
        shared = header.Shared(n_bytes=n_bytes)
        abi.call("fg_batches_share", ctypes.byref(shared))
        self.fd = int(shared.fd)
        self._data = int(shared.data)
        self._lent = mmap.mmap(self.fd, n_bytes // BLOCK)

    def lend(self, name: str, tensor: torch.Tensor) -> Place:
        """Note that a receiver is about to have a tensor of a batch, and say where it lies."""
        offset = tensor.data_ptr() - self._data if tensor.numel() else -1
        place = Place(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), offset)
        if place.offset >= 0:
            self._lent[place.offset // BLOCK] = 1
        return place

    def take_back(self, place: Place) -> None:
        """Note that its receiver never had it."""
        if place.offset >= 0:
            self._lent[place.offset // BLOCK] = 0

    def lent(self, place: Place) -> bool:
        """Whether its receiver still has it."""
        return place.offset >= 0 and self._lent[place.offset // BLOCK] != 0


class Lent:
    """What a receiver was sent. Its memory is not used again before the receiver has dropped the tensors."""

    def __init__(self, memory: SharedBatches) -> None:
        self._memory = memory
        self._sent: list[tuple[Place, torch.Tensor]] = []

    def send(self, tensors: Mapping[str, torch.Tensor]) -> list[Place]:
        """Lend the tensors of a batch, and say where they lie."""
        places = [self._memory.lend(name, tensor) for name, tensor in tensors.items()]
        self._sent += zip(places, tensors.values(), strict=True)
        return places

    def settle(self, lost: Sequence[Place] = ()) -> None:
        """Take back what the receiver has no more, and what was lost on its way."""
        for place in lost:
            self._memory.take_back(place)
        self._sent = [sent for sent in self._sent if self._memory.lent(sent[0])]

    def take_over(self, other: Lent) -> None:
        """Keep what another receiver still has."""
        self._sent += other._sent


class SharedMapping(Handle):
    """The memory of another process's batches. Tensors in it may outlive this."""

    _closer = "fg_shared_unmap"
    _what = "shared memory"

    def __init__(self, fd: int) -> None:
        super().__init__()
        out = ctypes.c_void_p()
        try:
            abi.call("fg_shared_map", fd, ctypes.byref(out))
        finally:
            self._pointer = out.value
        self._versioned = dlpack.use_versioned()

    def tensors(self, places: Sequence[Place | tuple[Any, ...]]) -> dict[str, torch.Tensor]:
        """Return tensors over the memory, without a copy. When one dies, whoever made it may use its memory again."""
        there = [place for place in places if place[3] >= 0]
        arrays = (header.Array * len(there))()
        for array, place in zip(arrays, there, strict=True):
            dlpack.describe(array, *place)
        slots = (header.Tensor * len(there))()
        try:
            abi.call("fg_shared_tensors", self._handle(), arrays, len(there), int(self._versioned), slots)
            made = dlpack.to_torch(slots, len(there), self._versioned)
        except BaseException:  # Ctrl-C may strike right after the library made them
            dlpack.discard(slots, len(there), self._versioned)
            raise
        return {
            name: made[name] if offset >= 0 else torch.empty(shape, dtype=dtype_of(dtype), device="cpu")
            for name, dtype, shape, offset in places
        }


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of this name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
