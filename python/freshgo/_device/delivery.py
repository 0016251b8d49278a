"""How the batches of a loader come to the consumer: as they are, or on a device."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from freshgo._args import checks, whole
from freshgo._args.size import format_size
from freshgo._args.types import Types
from freshgo._args.whole import Attributes
from freshgo._data.source import Source
from freshgo._native.loader import Batches, RawBatch
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions
from freshgo._observe.log import LOG
from freshgo._observe.ranges import stage
from freshgo.errors import ClosedError, CudaError, DTypeError, InvalidArgumentError
from freshgo.policies import Resolved

if TYPE_CHECKING:
    from freshgo._device.ahead import Ahead
    from freshgo._device.drawing import Drawing
    from freshgo._device.fitting import Fitting
    from freshgo._device.mover import Mover
    from freshgo._device.row_cache import DeviceCache
    from freshgo._device.rows import Rows


class Delivery(Protocol):
    """What a loader asks."""

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        """The options of a native loader that this can deliver the batches of."""

    def opened(self, native: NativeLoader) -> None:
        """Take batches of this native loader from now on."""

    def closing(self) -> None:
        """Leave the memory of the native loader alone, which is about to be closed."""

    def batches(self, made: Batches, count: int) -> Batches | Pinned | Ahead:
        """The ``count`` batches of an epoch that was started, by ``next()``."""

    def stop(self) -> None:
        """Take no batch of the running epoch that nobody asks for. Comes before the epoch ends in the library."""

    def one(self, raw: RawBatch) -> RawBatch:
        """A batch that is of no epoch. Any number of threads may call this."""

    def due(self, *, within: bool) -> bool:
        """Whether the native loader is to be opened again for what :meth:`fit` does, ``within`` an epoch or before."""

    def fit(self) -> dict[str, Any]:
        """As of :class:`freshgo._loader.openings.Reader`, as is :meth:`unfit`."""

    def unfit(self) -> dict[str, Any]: ...

    def stats(self) -> dict[str, Any]:
        """What belongs into ``Loader.stats()``."""

    def close(self) -> None:
        """Let go of what this holds."""


class OnHost:
    """Batches stay where the library made them."""

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        return options

    def opened(self, native: NativeLoader) -> None:
        pass

    def closing(self) -> None:
        pass

    def batches(self, made: Batches, count: int) -> Batches:
        return made

    def stop(self) -> None:
        pass

    def one(self, raw: RawBatch) -> RawBatch:
        return raw

    def due(self, *, within: bool) -> bool:
        return False

    def fit(self) -> dict[str, Any]:
        return {}

    def unfit(self) -> dict[str, Any]:
        return {}

    def stats(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Pinned:
    """The batches of an epoch in PyTorch's page-locked memory.

    It knows which streams copy from it, and uses it again when they have. Memory that the library locks is used again
    when the tensor dies, and so is only for copies of :class:`Mover`, which waits for them.
    """

    def __init__(self, source: Batches) -> None:
        self._source = source

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        raw = self._source.next(wait=wait, timeout_ms=timeout_ms)
        return None if raw is None else pinned(raw)


def pinned(raw: RawBatch) -> RawBatch:
    """The batch in PyTorch's pinned memory."""
    with stage("freshgo.pin"):
        tensors = {name: t.pin_memory() for name, t in raw.tensors.items()}
    return dataclasses.replace(raw, tensors=tensors)


class OnPinned(OnHost):
    """Batches stay on the host, in page-locked memory."""

    def batches(self, made: Batches, count: int) -> Pinned:
        return Pinned(made)

    def one(self, raw: RawBatch) -> RawBatch:
        return pinned(raw)


class OnDevice:
    """Batches are copied to a device, without the rows that it holds, or reads itself in memory of the host."""

    def __init__(
        self,
        mover: Mover,
        rows: Rows,
        fitting: Fitting | None,
        drawing: Drawing | None = None,
        *,
        look: bool,
        narrow: bool,
        reads: bool,
    ) -> None:
        """``fitting`` chooses a cache in the first epoch. ``look``: send the next batch before it is asked for.
        ``narrow``: send rows as they are stored; whoever takes the batch widens them on the device. ``reads``: the
        device can read locked memory of the host."""
        self._mover = mover
        self._rows = rows
        self._fitting = fitting
        self._drawing = drawing
        self._cache: DeviceCache | None = None
        self._received = 0  # batches of the epochs before
        self._look = look
        self._narrow = narrow
        self._reads = reads
        self._changed = threading.Condition()  # guards what follows
        self._open = False  # the native loader, whose memory the device may read
        self._on_demand = 0  # batches that are on their way
        self._ahead: Ahead | None = None  # of the running epoch

    def hold(self, cache: DeviceCache | None) -> dict[str, Any]:
        """Take rows from this cache from now on."""
        self._cache = cache
        self._rows.hold(None if cache is None else cache.tables)
        self._mover.finish = self._rows.finish if self._reads or cache is not None else None
        self._mover.beside = ""
        if cache is not None:
            then = "give a smaller one, or None" if self._fitting is None else "it takes less from the next epoch on"
            self._mover.beside = f"device_cache= holds {format_size(cache.n_bytes)} of rows there: {then}"
        return {"held": None if cache is None else cache.row_of_node}

    def due(self, *, within: bool) -> bool:
        received = self._received + (0 if self._ahead is None else self._ahead.received)
        return self._fitting is not None and self._fitting.due(received, within=within)

    def fit(self) -> dict[str, Any]:
        assert self._fitting is not None, "as due() says"
        return self.hold(self._fitting.fit())

    def unfit(self) -> dict[str, Any]:
        return self.hold(None)

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        from freshgo._device.mover import HELD

        held = None if self._cache is None else self._cache.row_of_node
        adapted = {**packed(options, narrow=self._narrow), "holds": HELD, "held": held, "lock_memory": True}
        adapted["rows_by_id"], adapted["seeds_only"] = self._reads, self._drawing is not None
        return adapted

    def opened(self, native: NativeLoader) -> None:
        tables = native.tables() if self._reads else {}
        self._rows.read(tables)
        self._mover.load(native)
        with self._changed:
            self._open = True
        if tables:
            n_bytes = format_size(self._rows.bytes_on_host)
            LOG.info("the device reads the rows of %s in %s of locked memory", ", ".join(tables), n_bytes)
        elif self._reads:
            LOG.info("no tensor of nodes is whole in locked memory: batches bring their rows")

    def closing(self) -> None:
        self.stop()
        with self._changed:
            self._open = False
            while self._on_demand:
                self._changed.wait()
        self._mover.close()
        self._rows.read({})
        if self._drawing is not None:
            self._drawing.leave()

    def batches(self, made: Batches, count: int) -> Ahead:
        from freshgo._device.ahead import Ahead

        self._ahead = Ahead(made, self._mover, count, look=self._look)
        return self._ahead

    def stop(self) -> None:
        if self._ahead is not None:
            self._ahead.end()
            self._received += self._ahead.received
            self._ahead = None

    def one(self, raw: RawBatch) -> RawBatch:
        with self._changed:
            if not self._open:
                raise ClosedError("loader is closed")
            self._on_demand += 1
        try:
            return self._mover.again().whole(raw)
        finally:
            with self._changed:
                self._on_demand -= 1
                self._changed.notify_all()

    def stats(self) -> dict[str, Any]:
        cache = self._cache
        return {
            "device_cache_rows": 0 if cache is None else cache.rows,
            "device_cache_bytes": 0 if cache is None else cache.n_bytes,
            "locked_bytes": self._rows.bytes_on_host + (0 if self._drawing is None else self._drawing.bytes_on_host),
            "device_lists_bytes": 0 if self._drawing is None else self._drawing.n_bytes,
            **({} if self._drawing is None else {"padded": self._mover.padded}),
        }

    def close(self) -> None:
        self.stop()
        self._mover.close()


def resolve(device: object) -> torch.device | None:
    """Return the CUDA device that batches are to go to, with its index, or None where they stay on the CPU.

    Raises:
        DTypeError, InvalidArgumentError: no device, or one that batches cannot go to.
        CudaError: PyTorch cannot use the device; the message is what ``torch.zeros(1, device=device)`` raises.
    """
    if device is None:
        return None
    if not isinstance(device, str | torch.device):
        raise DTypeError(f"device must be a string such as 'cuda:0', a torch.device or None, got {device!r}")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(f"device must be 'cpu', 'cuda' or 'cuda:<index>', got {str(device)!r}")
    if chosen.type == "cpu":
        return None
    try:
        return torch.zeros(1, device=chosen).device
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError) as error:  # an assertion where PyTorch was built without CUDA
        said = str(error).partition("\n")[0]
        raise CudaError(
            f"device={str(device)!r} cannot be used: {said}; device=None leaves batches on the CPU"
        ) from error


def open_delivery(
    device: torch.device | None,
    source: Source,
    drawn: Types,
    policy: Resolved,
    options: LoaderOptions,
    cache: int | Literal["auto"] | None,
    pin_memory: bool = False,
    *,
    lists_on: Literal["auto", "device", "host"] | None = None,
) -> Delivery:
    """Return what brings batches to ``device``, with the rows that it is to hold already there, or to the host, where
    they may be in page-locked memory. Batches have the edge types of ``drawn``. ``lists_on``: the device draws them,
    from lists that are there; None: the library draws them."""
    if device is None:
        return _on_pinned() if pin_memory else OnHost()
    from freshgo._device import pinned_memory, row_cache, rows
    from freshgo._device.fitting import Fitting
    from freshgo._device.mover import Mover, on_host
    from freshgo._device.packed import Unpacking, grouped_by
    from freshgo._device.rows import Rows
    from freshgo._device.streams import CudaStreams
    from freshgo._native import cuda

    locks = pinned_memory.lock_buffers(device.index or 0)
    if not locks:
        LOG.warning("the driver does not lock the library's buffers: batches go through PyTorch's pinned memory")
    streams = CudaStreams(device)
    assemble = rows.assembler(device)
    reads = (
        locks
        and options["history"] is None
        and assemble is not rows.assemble
        and pinned_memory.reads_host(device.index or 0)
    )
    parts = rows.parts_of(source)
    look = options["prefetch"] != 0
    stay = on_host(source.types, options["num_relations"])
    unpack = Unpacking(grouped_by(drawn) if options["transpose"] and options["history"] is None else {})
    drawing, edge_tensors = None, {}
    if lists_on is not None:
        from freshgo._device.drawing import drawing_of, edge_tensors_of

        if not reads:
            raise InvalidArgumentError(
                f"sample_on='device' needs kernels that run on {device} and read locked memory of the host: "
                f"{cuda.obstacle(device) or 'the driver does not lock memory that the device reads'}; use "
                "sample_on='cpu'"
            )
        edge_tensors = edge_tensors_of(source, drawn)
        drawing = drawing_of(device, source, drawn, options, unpack, lists_on, lambda: streams.memory()[0])
        unpack = Unpacking({})  # of the seeds, which have no edges yet
    found = Rows(parts, assemble, device, padded=bool(options["pad"]), of_edges=edge_tensors)
    mover = Mover(streams, found.finish if reads else None, stay, unpack, drawing)

    def make(n_bytes: int) -> DeviceCache:
        with streams.side():
            return row_cache.filled(source, policy, options, n_bytes, device)

    chooses = cache == "auto" and drawing is None and row_cache.obstacle(source) is None
    fitting = Fitting(make, streams, parts, device) if chooses else None
    delivery = OnDevice(mover, found, fitting, drawing, look=look, narrow=bool(source.narrow), reads=reads)
    if isinstance(cache, int):
        try:
            delivery.hold(make(cache))
        except torch.cuda.OutOfMemoryError as error:
            raise row_cache.no_room(cache, device, error) from error
    return delivery


def packed(options: LoaderOptions, *, narrow: bool) -> LoaderOptions:
    """Return options with which batches are packed for a device. ``narrow``: some rows are stored in fewer bytes, and
    are widened there."""
    adapted = {**options, "packed": True}
    if options["history"] is None:  # whose levels the library groups
        adapted["transpose"] = False
    return {**adapted, "feature_dtype": "stored"} if narrow else adapted


def delivered(attributes: Attributes, device: torch.device | None, pin_memory: bool) -> Attributes:
    """Return what every batch has as it is, where its tensors are."""
    if device is None and not (pin_memory and torch.cuda.is_available()):
        return attributes

    def put(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if device is None else tensor.to(device)

    return {owner: {name: whole.mapped(value, put) for name, value in of.items()} for owner, of in attributes.items()}


def _on_pinned() -> OnHost:
    if not torch.cuda.is_available():
        warnings.warn(
            "pin_memory=True locks memory for a CUDA device, and PyTorch finds none: batches come in pageable memory",
            UserWarning,
            stacklevel=checks.caller(),
        )
        return OnHost()
    return OnPinned()
