"""Options of :class:`freshgo.Loader` that belong together, and types of all options for functions that pass them on.

Options of planning are in the objects of :mod:`freshgo.policies`. A function of your own that passes options on takes
them as ``**options: Unpack[LoaderOptions]``: editors then complete them, and type checkers refuse misspelled ones.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from freshgo._args import checks, fields
from freshgo._args.choices import (
    EdgeIndexForm,
    Engine,
    Exchange,
    FeatureDType,
    NegativeMode,
    Subgraph,
    Temporal,
    Uneven,
)
from freshgo._args.entry import entry
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    import torch

    from freshgo._args.progress import Progress
    from freshgo._args.types import EdgeType
    from freshgo.history import History
    from freshgo.memory import MemoryBudget
    from freshgo.nn import Embedding
    from freshgo.policies import Policy, Scores
    from freshgo.samplers import NeighborSampler

    class NegativeSampling(Protocol):
        """PyG's class of this name."""

        mode: Any
        amount: Any

    class NumNeighbors(Protocol):
        """PyG's class of this name."""

        values: Any
        default: Any

    Embeddings: TypeAlias = Embedding | Sequence[Embedding] | Mapping[str, Embedding | Sequence[Embedding]] | None
    Negatives = NegativeMode | Mapping[str, Any] | tuple[Any, ...] | NegativeSampling | None

__all__ = ["Device", "Disk", "LinkOptions", "LoaderOptions", "PyGOptions", "Ranks"]


@entry
@dataclass(frozen=True, repr=False)
class Device:
    """A device, and what it does: ``Loader(..., device=Device("cuda", sample_on="device"))``.

    Args:
        on: where the tensors of a batch go, as ``device`` of a :class:`Loader`.
        sample_on: who draws batches: ``"cpu"``, the threads of the loader, or ``"device"``, its kernels. The batches
            are the same. The device draws uniformly, by ``weight_attr``, with and without replacement, and by LABOR, in
            a graph that is whole in memory. Tensors are read from locked memory. Not with ``device_cache`` and what
            draws otherwise. ``"auto"``: the device where it can, else the threads; the log says why. See
            docs/device.md.
        lists_on: where the neighbour lists are that the device draws from: ``"device"``, 4 bytes an edge, 4 more for
            ``e_id``, unless the edges were sorted by target, and 4 to 9 for weights, or ``"host"``, locked memory, in
            which the device reads them. ``"auto"``: the device, if they take at most a quarter of what it has free when
            the loader opens. 8 bytes a node of each edge type are on the device.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid, or two of them cannot be used together; the loader
            checks ``on``.
    """

    on: str | torch.device | None = None
    sample_on: Literal["auto", "cpu", "device"] = "cpu"
    lists_on: Literal["auto", "device", "host"] = "auto"

    def __post_init__(self) -> None:
        checks.choice("sample_on", self.sample_on, ("auto", "cpu", "device"))
        checks.choice("lists_on", self.lists_on, ("auto", "device", "host"))
        if self.sample_on == "cpu" and self.lists_on != "auto":
            raise InvalidArgumentError(
                f"lists_on is for sample_on='device' or 'auto', got {self.lists_on!r} with sample_on='cpu'"
            )

    def __repr__(self) -> str:
        return fields.shown(self)


@entry
@dataclass(frozen=True, kw_only=True, repr=False)
class Disk:
    """How a loader reads a store: ``Loader(..., disk=Disk(checksums=True))``.

    Args:
        io: the engine: ``"auto"``, ``"io_uring"``, ``"pread"`` or ``"buffered"``. A loader raises ``ReadError`` if the
            system refuses the one that is named.
        checksums: compare every page that is read with its checksum; ``CorruptError`` names the file and the offset.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid.
    """

    io: Engine = "auto"
    checksums: bool = False

    def __post_init__(self) -> None:
        checks.choice("io", self.io, Engine)
        checks.flag("checksums", self.checksums)

    def __repr__(self) -> str:
        return fields.shown(self)

    def _options(self) -> dict[str, Any]:
        """Return the options of the library."""
        return dataclasses.asdict(self)


@entry
@dataclass(frozen=True, kw_only=True, repr=False)
class Ranks:
    """Which part of every epoch a loader yields, and what it does together with other ranks.

        loader = Loader(store, [15, 10], "train", ranks=Ranks(share="host"))
        loader = Loader(store, [15, 10], "valid", ranks=Ranks(uneven="join"))

    Args:
        rank, world_size: the part of this loader, and how many parts there are. All batches of an epoch are numbered,
            and a batch is what a single process makes under its number; of the batches that are left, rank r yields
            every ``world_size``-th from the r-th on. ``batch_size`` is that of one rank. None takes both from
            ``torch.distributed`` when an epoch begins, if its default process group is initialised then; otherwise one
            rank makes all batches. The first epoch in a process group calls ``all_gather_object``, so that all ranks
            must begin it; ranks that were given are not compared.
        uneven: what the ranks do if the last batches are not enough for one more on each of them. ``"pad"``: the first
            batches of the epoch come again, as in ``DistributedSampler``. ``"drop"``: no rank yields them. ``"join"``:
            some ranks yield one batch less, for ``torch.distributed.algorithms.join.Join`` or for evaluation. None is
            ``"drop"`` with ``drop_last``, else ``"pad"``.
        share: ``"host"`` lets one process make the batches of all ranks of a host, from a store, so that they have one
            cache, one plan and one queue to the disk. ``memory`` and ``num_workers`` are then those of the host, and
            batches come through shared memory without a copy. All ranks open the loader together, after
            ``init_process_group``, and the ranks of a host begin their epochs together. ``embeddings`` are then opened
            with ``share="host"``. Not with ``history``, ``device_cache``, a :class:`MemoryBudget`, ``rank``, and
            ``reorder`` of the cache.
        features: ``"sharded"`` takes rows of node tensors from the ranks that have them. ``data`` is then the directory
            that :func:`freshgo.shard` has written; each host needs the graph and the parts for its ranks: of N parts,
            rank r of w reads part ``r * N // w``, and those up to the next rank's. Rows come over process groups of
            gloo while the loop has earlier batches. All ranks begin their epochs together. ``feature_cache`` (None:
            half of ``memory``) is for these rows, of whatever part: the hottest by ``cache`` (a hotness, scores or
            ``"none"``; ``"auto"`` is ``"expected"``) stay in the part of it that batches on their way leave. Not with
            ``history``, ``first_layer``, ``device_cache``, ``share``, a :class:`MemoryBudget`, ``rank``, and a planned
            cache; :meth:`Loader.sample` needs a process without a group.
        exchange: with ``features="sharded"``, how rows are handed over. ``"all_to_all"``: every rank with all others at
            a time. ``"rounds"``: in rounds of disjoint pairs, a bounded number of bytes at a time (FreshGNN).
            ``"auto"`` measures both in the first batches.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid, or two of them cannot be used together.
    """

    rank: int | None = None
    world_size: int | None = None
    uneven: Uneven | None = None
    share: Literal["host"] | None = None
    features: Literal["sharded"] | None = None
    exchange: Exchange = "auto"

    def __post_init__(self) -> None:
        if (self.rank is None) != (self.world_size is None):
            raise InvalidArgumentError(
                "rank and world_size go together, or are both left to torch.distributed, got "
                f"rank={self.rank!r} and world_size={self.world_size!r}"
            )
        world_size = 1 if self.world_size is None else checks.count("world_size", self.world_size, 1)
        if self.rank is not None and checks.count("rank", self.rank, 0) >= world_size:
            raise InvalidArgumentError(f"rank must be below world_size={world_size}, got {self.rank}")
        for name, allowed in (("uneven", Uneven), ("share", ("host",)), ("features", ("sharded",))):
            if getattr(self, name) is not None:
                checks.choice(name, getattr(self, name), allowed, optional=name != "uneven")
        checks.choice("exchange", self.exchange, Exchange)
        if self.features is None and self.exchange != "auto":
            raise InvalidArgumentError(f"exchange is for features='sharded', got {self.exchange!r} without it")
        for together in ("share", "features"):
            if getattr(self, together) is not None and self.rank is not None:
                raise cannot_combine(together, "rank and world_size", self)
        if self.features is not None and self.share is not None:
            raise cannot_combine("features", "share", self)

    def __repr__(self) -> str:
        return fields.shown(self)


def cannot_combine(option: str, other: str, ranks: Ranks) -> InvalidArgumentError:
    """Return the error for an option of ``ranks`` that excludes another option of a loader."""
    return InvalidArgumentError(
        f"{option}={getattr(ranks, option)!r} and {other} cannot be used together: give the loader one of them"
    )


class PyGOptions(TypedDict, total=False):
    """Options of PyG's loaders that :class:`freshgo.Loader` also accepts, so that scripts run as they are.

    One with a reason is ignored, with a warning. ``directed=False`` means ``subgraph_type="induced"``, also with a
    warning. The others have the only value that is allowed.
    """

    pin_memory_device: Annotated[str, "memory is pinned for every CUDA device"]
    persistent_workers: Annotated[bool, "its threads live as long as the loader"]
    worker_init_fn: Annotated[Callable[[int], None] | None, "it uses threads, not worker processes"]
    multiprocessing_context: Annotated[Any, "it uses threads, not worker processes"]
    prefetch_factor: Annotated[int | None, "prefetch= counts the batches made ahead"]
    timeout: Annotated[float, "it waits until a batch is ready, and Ctrl-C always works"]
    generator: Annotated[Any, "seed= and the epoch decide everything random"]
    in_order: Annotated[bool, "batches always come in order"]
    filter_per_worker: Annotated[bool | None, "rows are gathered by its threads"]
    is_sorted: Annotated[bool, "it sorts the edges itself"]
    directed: bool
    transform_sampler_output: None
    custom_cls: None
    batch_sampler: None
    collate_fn: None


class CommonOptions(PyGOptions, total=False):
    """Options of :class:`freshgo.Loader` that :class:`freshgo.LinkLoader` takes too. A test compares the signatures."""

    batch_size: int
    shuffle: bool
    drop_last: bool
    replace: bool
    weight_attr: str | Mapping[EdgeType, str] | None
    neighbor_sampler: NeighborSampler | None
    sampler: torch.utils.data.Sampler[int] | None
    input_weight: Any
    disjoint: bool
    time_attr: str | None
    temporal_strategy: Temporal
    time_window: int | None
    seed: int
    num_workers: int
    prefetch: int | None
    memory: int | str | MemoryBudget | None
    feature_cache: int | str | None
    neighbor_cache: int | str | None
    cache: Policy | Scores | None
    disk: Disk | None
    ranks: Ranks | None
    feature_dtype: FeatureDType
    transpose: bool
    pad: bool
    return_edge_id: bool
    edge_index: EdgeIndexForm
    device: str | torch.device | Device | None
    pin_memory: bool
    device_cache: int | str | None
    transform: Callable[[Any], Any] | None
    transform_workers: int
    subgraph_type: Subgraph | enum.Enum
    first_layer: str | None
    embeddings: Embeddings
    progress: bool | Progress


class LoaderOptions(CommonOptions, total=False):
    """Keywords of :class:`freshgo.Loader`, for functions that pass them on as ``**options: Unpack[LoaderOptions]``."""

    input_time: Any
    history: History | None


class LinkOptions(CommonOptions, total=False):
    """Keywords of :class:`freshgo.LinkLoader`, as :class:`LoaderOptions`."""

    edge_label: Any
    edge_label_time: Any
    neg_sampling: Negatives
    neg_sampling_ratio: float | None
    strict_negatives: bool
    exclude_seed_edges: bool | Literal["reverse"] | EdgeType


class ModuleOptions(LoaderOptions, LinkOptions, total=False):
    """Keywords of the loaders that :class:`freshgo.lightning.DataModule` opens, of either class."""
