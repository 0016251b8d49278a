"""What an executor that trains does with a batch of the queue: it takes it to its device.

Batches come whole, or packed and without the rows that the devices hold (``_device/row_cache.py``).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import torch

from freshgo._args.size import format_size
from freshgo._data.source import open_source
from freshgo._device import delivery, fitting, mover, row_cache, rows, streams
from freshgo._device.packed import Unpacking, grouped_by
from freshgo._loader.arrange import Assembler
from freshgo._native.loader import RawBatch
from freshgo.errors import InvalidArgumentError


class Sent(NamedTuple):
    """A batch on its way to a device."""

    raw: RawBatch
    moving: mover.Moving | None
    """Its tensors; None: ``raw`` has them, on the host."""


class Receiver(Protocol):
    """Takes batches to a device."""

    device: torch.device

    def room(self) -> int | None:
        """Return the bytes that a cache of rows may take of the device; None: batches come whole."""

    def hold(self, row_of_node: torch.Tensor) -> None:
        """Bring the rows to the device that batches leave out from now on: those of the nodes with a number."""

    def send(self, raw: RawBatch) -> Sent:
        """Queue the copies of a batch."""

    def batch(self, sent: Sent) -> Any:
        """Return a batch on the device, for PyTorch's current stream."""

    def settle(self) -> None:
        """Let go of the sampler's memory of the last batch, once the step is done."""


class OnDevice:
    """Takes whole batches to any device."""

    def __init__(self, assembler: Assembler, device: torch.device) -> None:
        self._assembler, self.device = assembler, device

    def room(self) -> None:
        return None

    def hold(self, row_of_node: torch.Tensor) -> None:
        pass

    def send(self, raw: RawBatch) -> Sent:
        return Sent(raw, None)

    def batch(self, sent: Sent) -> Any:
        batch = self._assembler.arranged(sent.raw)
        return self._assembler.transformed(batch if self.device.type == "cpu" else batch.to(self.device))

    def settle(self) -> None:
        pass


class Unpacked:
    """Takes packed batches to a CUDA device, unpacks them and completes their rows there."""

    def __init__(self, assembler: Assembler, device: torch.device, store: str, uuid: str) -> None:
        """``assembler`` is of this process alone."""
        found = delivery.resolve(device)
        assert found is not None, "CUDA devices take packed batches"
        self.device = device = found
        request = assembler.request
        self._source = open_source(store, request.asked.first_layer)
        if self._source.fingerprint() != f"store {uuid}":
            raise InvalidArgumentError(f"the store at {store} was replaced: open it again")
        attributes = delivery.delivered(request.attributes, device, pin_memory=False)
        assembler.request = dataclasses.replace(request, attributes=attributes)
        self._assembler = assembler
        self._options = options = request.options
        self._streams = streams.CudaStreams(device)
        self._parts = rows.parts_of(self._source)
        self._rows = rows.Rows(self._parts, rows.assembler(device), device)
        stay = mover.on_host(self._source.types, options["num_relations"])
        unpack = Unpacking(grouped_by(request.drawn) if options["transpose"] else {})
        self._mover = mover.Mover(self._streams, None, stay, unpack)

    def room(self) -> int:
        return fitting.room(self._streams)

    def hold(self, row_of_node: torch.Tensor) -> None:
        ids = (row_of_node >= 0).nonzero().view(-1)
        cache = row_cache.DeviceCache(ids, self._parts)
        try:
            with self._streams.side():
                cache.fill(row_cache.read_rows(self._source, ids, self._options), self.device)
        except torch.cuda.OutOfMemoryError as error:
            raise row_cache.no_room(row_cache.bytes_of(row_of_node, self._parts), self.device, error) from error
        self._rows.hold(cache.tables)
        self._mover.finish = self._rows.finish
        size = format_size(cache.n_bytes)
        self._mover.beside = f"device_cache= holds {size} of rows there: give a smaller one, or None"

    def send(self, raw: RawBatch) -> Sent:
        self._mover.make_room(wait=True)
        return Sent(dataclasses.replace(raw, tensors={}), self._mover.send(raw.tensors))

    def batch(self, sent: Sent) -> Any:
        assert sent.moving is not None, "as send() has made it"
        raw = dataclasses.replace(sent.raw, tensors=self._mover.receive(sent.moving))
        return self._assembler.transformed(self._assembler.arranged(raw))

    def settle(self) -> None:
        self._mover.make_room(wait=False)  # the step has waited for its copies, and the next batch's may still run
