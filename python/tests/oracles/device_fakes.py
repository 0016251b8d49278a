"""A device that is not there: streams that do nothing until somebody waits, and kernels that run on the host."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from freshgo._device import delivery, rows, streams
from freshgo._native import abi, cuda, header


class Point:
    """An event: everything before it in the side stream."""

    def __init__(self, streams: LateStreams) -> None:
        self.streams = streams
        self.at = len(streams.queue)

    def query(self) -> bool:
        return self.streams.done >= self.at

    def synchronize(self) -> None:
        self.streams.waits_of_host += not self.query()
        self.streams.advance(self.at)


class LateStreams:
    """Copies are made as late as CUDA may make them: when the consumer's stream waits for an event behind them.

    Source memory is known by its address alone, so that what is freed or reused too early is copied wrong.
    """

    last: LateStreams
    left, total = 0, 0  # bytes of the device: no cache fits, unless a test says so
    failed = 0  # how often it ran out of memory

    def __init__(self, device: torch.device) -> None:
        LateStreams.last = self
        self.queue: list[Callable[[], object]] = []
        self.done = 0
        self.local = threading.local()  # streams are entered by threads
        self.lock = threading.RLock()
        self.waits_of_host = 0
        self.copies: list[torch.Tensor] = []
        self.made: list[dict[str, torch.Tensor]] = []  # of packed batches
        self.used: set[int] = set()  # addresses

    @property
    def inside(self) -> bool:
        return getattr(self.local, "inside", False)

    @contextlib.contextmanager
    def side(self) -> Iterator[None]:
        assert not self.inside
        self.local.inside = True
        try:
            yield
        finally:
            self.local.inside = False

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self.inside
        assert tensor.is_contiguous()
        out = torch.empty_like(tensor)
        out.view(-1).view(torch.uint8).fill_(0xAB) if tensor.numel() else None
        n_bytes, source, target = tensor.numel() * tensor.element_size(), tensor.data_ptr(), out.data_ptr()
        self.queue.append(lambda: ctypes.memmove(target, source, n_bytes))
        self.copies.append(out)  # memory of the device is not given back here, so that addresses tell tensors apart
        return out

    def begin_thread(self) -> None:
        assert threading.current_thread() is not threading.main_thread()

    def unpack(self, make: Any, copies: dict[str, torch.Tensor], parts: list[Any]) -> dict[str, torch.Tensor]:
        """Make the tensors when the copies before it are made: now they are of noise."""
        assert self.inside
        given = dict(copies)
        out = {name: tensor.clone() for name, tensor in make(given, parts).items()}
        for tensor in out.values():
            tensor.view(-1).view(torch.uint8).fill_(0xAB) if tensor.numel() else None

        def made() -> None:
            for name, tensor in make(given, parts).items():
                out[name].copy_(tensor)

        self.queue.append(made)
        self.made.append(out)
        return out

    def draw(self, make: Any, batch: dict[str, torch.Tensor], keys: list[int], *, pad: bool) -> dict[str, torch.Tensor]:
        """The host waits for the counts of each hop, and so for everything before. A padded batch comes late."""
        assert self.inside
        self.advance(len(self.queue))
        out: dict[str, torch.Tensor] = self.compute(lambda: make(batch, keys, pad=pad))
        self.made.append(out)
        if "fg/fits" not in out:
            return out
        return {name: tensor if "num_sampled" in name else self.late(tensor) for name, tensor in out.items()}

    def late(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that becomes this one when the streams get there: now it is noise."""
        out = tensor.clone()
        out.view(-1).view(torch.uint8).fill_(0xAB) if tensor.numel() else None
        self.queue.append(lambda: out.copy_(tensor))
        return out

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.late(tensor)

    def compute(self, work: Callable[[], Any]) -> Any:
        return work()

    def device_tensors(self) -> list[torch.Tensor]:
        """Everything that is on the device."""
        return [*self.copies, *(tensor for out in self.made for tensor in out.values())]

    def put_together(self, *given: Any) -> torch.Tensor:
        return rows.assemble(*given)

    def assemble(self, *given: Any) -> torch.Tensor:
        """Put rows together when the copies before it are made."""
        assert self.inside
        table, _, place, index = given
        ids = place if index is None else index
        out = table.new_empty((ids.numel(), *table.shape[1:]))
        self.queue.append(lambda: out.copy_(self.put_together(*given)))
        return out

    def record(self) -> Point:
        assert self.inside
        return Point(self)

    def wait(self, event: Point) -> None:
        assert not self.inside, "the consumer's stream is not the side stream"
        self.advance(event.at)

    def use(self, tensor: torch.Tensor) -> None:
        assert not self.inside
        self.used.add(tensor.data_ptr())

    def memory(self) -> tuple[int, int]:
        return self.left, self.total

    def failures(self) -> int:
        return self.failed

    def advance(self, to: int) -> None:
        with self.lock:
            while self.done < to:
                self.queue[self.done]()
                self.done += 1


def until(done: Callable[[], bool]) -> None:
    """Wait for the thread that sends batches ahead."""
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.001)


class HostKernels:
    """The device path over memory of the host: every call goes through the prototypes that the library is called by."""

    STREAM = 0x77

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.scratch_bytes = 4096
        self.status = {0: torch.zeros(1, dtype=torch.int64)}
        self._call = abi.call

    def install(self, monkeypatch: Any) -> HostKernels:
        abi.library()
        monkeypatch.setattr(cuda, "takes", lambda tensor: True)
        monkeypatch.setattr(cuda, "usable", lambda tensor: True)
        monkeypatch.setattr(cuda, "_stream", lambda device: self.STREAM)
        monkeypatch.setattr(cuda, "_status", self.status)
        monkeypatch.setattr(abi, "call", self.call)
        return self

    def call(self, name: str, *args: Any) -> int:
        if not name.startswith("fg_cuda_"):
            return self._call(name, *args)
        self.calls.append(name)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *header.SIGNATURES[name], ctypes.POINTER(header.Error))
        failure: list[BaseException] = []

        def body(*given: Any) -> int:
            try:
                getattr(self, name)(*given[:-1])
            except BaseException as error:  # ctypes would print it and go on
                failure.append(error)
            return 0

        code = prototype(body)(*args, ctypes.byref(header.Error()))
        if failure:
            raise failure[0]
        return int(code)

    def check_queue(self, queue: Any) -> None:
        on = queue.contents
        assert on.struct_size == ctypes.sizeof(header.CudaQueue)
        assert (on.device, on.stream) == (0, self.STREAM)
        assert on.status == self.status[0].data_ptr()

    def twin(self, name: str, raw: Any, *rest: Any) -> None:
        kind = type(raw.contents)
        assert raw.contents.struct_size == ctypes.sizeof(kind)
        raw.contents.threads = 1
        abi.operate(name, raw, *rest)

    def fg_cuda_aggregate(self, raw: Any, scratch: int | None, n_bytes: Any, queue: Any) -> None:
        self.check_queue(queue)
        if not self.scratch(scratch, n_bytes):
            return
        a = raw.contents
        assert a.dot is None  # the device has no kernel for both at a time
        if a.cut_at:
            word = ctypes.c_int64.from_address
            a.cut, a.cut_at, a.num_index = word(a.cut_at).value, None, word(a.ptr + 8 * a.rows).value
        self.twin("fg_aggregate", raw)

    def fg_cuda_attention_forward(self, raw: Any, queue: Any) -> None:
        self.check_queue(queue)
        self.twin("fg_attention_forward", raw)

    def fg_cuda_attention_back(self, raw: Any, queue: Any) -> None:
        self.check_queue(queue)
        self.twin("fg_attention_back", raw)

    def scratch(self, scratch: int | None, address: Any) -> bool:
        n_bytes = ctypes.cast(address, ctypes.POINTER(ctypes.c_int64))
        if scratch is None:
            n_bytes[0] = self.scratch_bytes
            return False
        assert n_bytes[0] == self.scratch_bytes
        ctypes.memset(scratch, 0xCD, self.scratch_bytes)
        return True

    def fg_cuda_transpose(self, raw: Any, scratch: int | None, n_bytes: Any, queue: Any) -> None:
        self.check_queue(queue)
        if not self.scratch(scratch, n_bytes):
            return
        t = raw.contents
        if t.ptr is not None:
            self.twin("fg_transpose", raw)
            return
        assert t.target is None
        kind = ctypes.c_int64 if t.index_bytes == 8 else ctypes.c_int32
        for i in range(t.num_index):
            ctypes.cast(t.edge, ctypes.POINTER(kind))[i] = i  # fg_group leaves the order of sorted edges alone
        is_sorted = ctypes.c_int32()
        abi.operate(
            "fg_group", t.index, t.index_bytes, t.num_index, t.sources, t.source_ptr, t.edge, ctypes.byref(is_sorted)
        )

    def fg_cuda_map(self, raw: Any, scratch: int | None, n_bytes: Any, queue: Any) -> None:
        self.check_queue(queue)
        if not self.scratch(scratch, n_bytes):
            return
        m = raw.contents
        kind = ctypes.POINTER(ctypes.c_int64 if m.index_bytes == 8 else ctypes.c_int32)
        ids, node, local = (ctypes.cast(p, kind) for p in (m.id, m.node, m.local))
        seen: dict[int, int] = {}
        for i in range(m.n):
            local[i] = seen.setdefault(ids[i], len(seen))
            node[local[i]] = ids[i]
        ctypes.cast(m.count, ctypes.POINTER(ctypes.c_int64))[0] = len(seen)

    def fg_cuda_gather(self, raw: Any, queue: Any) -> None:
        self.check_queue(queue)
        g = raw.contents
        assert g.struct_size == ctypes.sizeof(cuda.Gathering)
        index = ctypes.cast(g.index, ctypes.POINTER(ctypes.c_int64 if g.index_bytes == 8 else ctypes.c_int32))
        slot = ctypes.cast(g.slot, ctypes.POINTER(ctypes.c_int32))
        for i in range(g.n):
            if slot and slot[i] >= 0:
                assert slot[i] < g.cache_rows
                source = g.cache + slot[i] * g.cache_stride
            else:
                assert 0 <= index[i] < g.table_rows
                source = g.table + index[i] * g.table_stride
            ctypes.memmove(g.out + i * g.row_bytes, source, g.row_bytes)


def in_place_of_cuda(*, total: int = 0, autouse: bool = True) -> Any:
    """A fixture: loaders that ask for CUDA get streams over memory of the host, on a device of ``total`` bytes."""

    @pytest.fixture(autouse=autouse)
    def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        host = torch.device("cpu")
        monkeypatch.setattr(delivery, "resolve", lambda device: None if device in (None, "cpu") else host)
        monkeypatch.setattr(streams, "CudaStreams", LateStreams)
        monkeypatch.setattr(rows, "assembler", lambda device: LateStreams.last.assemble)
        monkeypatch.setattr(LateStreams, "total", total)
        yield
        LateStreams.last = None  # type: ignore[assignment]

    return fake


ROW = 115
"""The bytes of a row of all tensors of the nodes of a graph with one node type."""
MARGIN_OF_32 = 32 * 32 * ROW
"""The bytes of a device whose margin beside a cache is 32 rows."""


def leave_room(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Leave a device with a margin of 32 rows room for a cache of ``count`` rows."""
    monkeypatch.setattr(LateStreams, "left", 2 * (count + 32) * ROW)
