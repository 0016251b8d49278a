"""The loader: mini-batches of a graph on disk or in memory, prepared ahead of the training loop."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

from freshgo._args import checks
from freshgo._args.choices import EdgeIndexForm, FeatureDType, Subgraph, Temporal
from freshgo._args.entry import entry
from freshgo._args.types import EdgeType
from freshgo._data.source import Source, StoreSource, open_source
from freshgo._loader.asked import Asked
from freshgo._loader.batch_makers import BatchMaker
from freshgo._loader.engine import Engine
from freshgo._loader.epoch import Epoch
from freshgo._loader.keywords import check_pyg_options, directed
from freshgo._loader.request import Request, in_graph
from freshgo._loader.stateful import StatefulLoader
from freshgo._native.options import LoaderOptions
from freshgo.memory import MemoryBudget
from freshgo.options import Device, Disk, PyGOptions, Ranks
from freshgo.policies import Policy
from freshgo.samplers import NeighborSampler, RandomWalk

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeVar, Unpack

    from freshgo._args.progress import Progress
    from freshgo._batch.pyg_batches import Data
    from freshgo._data.like import GraphLike
    from freshgo._loader.links import Links
    from freshgo._row_exchange.source import ShardedSource
    from freshgo.history import History
    from freshgo.options import Embeddings, NumNeighbors
    from freshgo.policies import Scores

    BatchType = TypeVar("BatchType", default=Data)
else:
    from typing import TypeVar

    BatchType = TypeVar("BatchType")  # it has no default before Python 3.13


@entry
class Loader(StatefulLoader, Generic[BatchType]):
    """Samples neighbours around batches of input nodes and loads their rows, as PyG's ``NeighborLoader`` does.

    Threads of the library sample and read ahead of the consumer, at most ``prefetch`` batches and never more than
    ``memory``. A batch depends only on ``seed``, the epoch and its position. It does not depend on threads, caches, the
    disk engine, memory or the number of ranks, nor on whether the graph is on disk.

        loader = Loader(store, num_neighbors=[15, 10, 5], input_nodes="train", batch_size=1024, shuffle=True)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])

    A batch is a PyG ``Data``, or a :class:`freshgo.Batch` if PyG is not installed. It has ``n_id`` (the input nodes
    first, as given, then the other nodes in the order of discovery), ``edge_index`` (row 0 the neighbour, row 1 the
    target; hops one after the other), ``e_id`` (the user's edge numbers), ``input_id`` (positions in ``input_nodes``),
    ``batch_size``, ``num_sampled_nodes``, ``num_sampled_edges``, and the rows of every node-level tensor (``x``, ``y``,
    ...) and every edge-level tensor. What belongs to the graph as a whole (``class_weights``, :meth:`Store.attributes`)
    comes with every batch as it is. ``batch.blocks()`` splits it by layers.

    A heterogeneous graph gives a PyG ``HeteroData``, or a :class:`freshgo.HeteroBatch`, with all of this for each type:
    ``batch["paper"].x``, ``batch["author", "writes", "paper"].edge_index``. Node types with input nodes have
    ``input_id`` and ``batch_size``. Types that the batch did not reach are present and empty. ``batch.blocks()`` gives
    :class:`freshgo.HeteroBlock` objects.

    For editors and type checkers a loader is generic in its batches: it yields :class:`freshgo.pyg.Data`, or what
    ``transform`` is annotated to return; ``Loader[HeteroData](...)`` and ``Loader[freshgo.Batch](...)`` say otherwise.

    Every ``iter`` is the next epoch, and leaving it early stops its work. Threads may share it: each batch comes once.

    The arguments, the everyday ones first. Sizes in bytes are an int or a string such as ``"8GiB"``, ``"500MB"`` or
    ``"64KiB"``. An argument of a wrong type raises ``DTypeError``, a value that is not allowed
    ``InvalidArgumentError``.

    Everyday:
        data (Store, path, Data, HeteroData or mapping): the graph. A :class:`Store` or the path of one is read from
            disk. A PyG object or a mapping of tensors is a graph in memory, whose features are used in place and not
            copied; for a heterogeneous graph, a mapping from types to such mappings.
        num_neighbors (list, or dict of lists; required): neighbours per node and hop, the hop nearest the input nodes
            first; -1 takes all, 0 none. An empty list makes batches of the input nodes alone. Or a :class:`RandomWalk`
            for each hop. In a heterogeneous graph a list applies to every edge type; a dict gives a list for every edge
            type, and PyG's ``NumNeighbors`` either of them and a default. With walks along metapaths, the edges of the
            metapaths replace those of the graph in a batch: a list names them ``(source, "metapath_0", target)``, and
            the keys of a dict name them.
        input_nodes (default None: every node): node ids (integers ``[n]``), a bool mask ``[num_nodes]``, or the name of
            a split. In a heterogeneous graph it is required: a node type, ``"paper"``; a node type with any of these,
            ``("paper", ids)``; or a dict for several types, ``{"paper": ids, "author": "train"}``. Zeros and ones of
            uint8, one for each node, are refused: they are a mask that lacks ``.bool()``.
        batch_size (int, default 1): input nodes per batch.
        shuffle (bool, default False): a new order of the input nodes in every epoch.
        seed (int, default 0): all randomness follows from it.
        memory (bytes or MemoryBudget, default None): the budget for everything the loader allocates; a
            :class:`MemoryBudget` is shared by loaders of this process. None is half of what is available,
            divided among the ranks of this host (``LOCAL_WORLD_SIZE``); beside a graph in memory, whose index is
            otherwise part of ``memory``. Raises ``BudgetError`` if it is too small.
        num_workers (int, default 0): threads that sample and copy rows, divided among the batches in preparation; more
            than 1024 count as 1024. 0 is as many as there are cores that this process may use, by its affinity and the
            quotas of its control groups, divided among the ranks of this host (``LOCAL_WORLD_SIZE``).
        device (str, torch.device or Device, default None: the CPU): where the tensors of a batch go, such as ``"cuda"``
            or ``"cuda:1"``. Copies run beside the training, one batch ahead of it (with ``prefetch``, and without
            ``history``), and the host waits for none. With a :class:`Device`, kernels may draw the batches there. A
            device that cannot be used raises what ``torch.zeros(1, device=device)`` raises.
        transform (callable, default None): called with each batch, on its device; the loop gets its result.
        progress (bool or callable, default True): show a bar where opening the loader, or a batch that the loop waits
            for, takes more than five seconds; of several ranks, the first does. A callable is called with ``(stage,
            done, total)`` meanwhile; ``total`` is 0 where it is unknown.

    Input nodes:
        drop_last (bool, default False): leave out the last batch if it is not full.
        input_weight (numbers ``[n]``, default None): a finite number that is not negative for each input node, in their
            order; by type as ``input_time``. An epoch then draws as many input nodes as there are, in proportion to
            these numbers and with replacement, different ones in every epoch; ``shuffle`` has no effect. ``input_id``
            says which were drawn.
        sampler (default None): a sampler of ``torch.utils.data``, in place of ``input_weight`` and ``shuffle``. PyG's
            ``ImbalancedSampler`` and any other ``WeightedRandomSampler`` give their weights, ``RandomSampler`` means
            ``shuffle``, and ``SequentialSampler`` neither. Random numbers follow from ``seed``.

    Sampling:
        replace (bool, default False): draw neighbours with replacement.
        weight_attr (str, default None: uniform draws): the name of an edge-level tensor of finite numbers that are not
            negative. Neighbours are drawn in proportion to it, one after the other among those that are left;
            neighbours of weight 0 are never drawn. Edge types without this tensor are drawn from uniformly. Or a dict
            of names by edge type; the others are drawn from uniformly.
        neighbor_sampler (default None): ``"labor"`` or a :class:`Labor` draws layer by layer, so that a batch has fewer
            nodes.
        subgraph_type (str, default ``"directional"``): which edges a batch has. ``"directional"``: those that were
            drawn. ``"bidirectional"``: also the reverse of each, without duplicates. ``"induced"``: all edges of the
            graph between the batch's nodes. The edges of the last two are ordered by target, so there are no
            ``num_sampled_nodes``, ``num_sampled_edges`` and ``blocks()``. In a heterogeneous graph this applies to
            every edge type; bidirectional edges have no ``e_id`` if the reverse is another edge type.
        disjoint (bool, default False): give every input node a tree of its own, which shares no node with another.
            ``batch.batch`` (int64 ``[num_nodes]``) gives the tree of each node, as the position of its input node in
            the batch. Trees are numbered over the input nodes of all types.

    Time:
        time_attr (str, default None): the name of an edge-level or node-level tensor of integers: the time of each edge
            or node. Nothing later than an input node is ever drawn into its tree. Implies ``disjoint``.
            ``batch.seed_time`` (int64 ``[batch_size]``) holds the times of the input nodes. In a heterogeneous graph
            some node types or some edge types have this tensor; whatever has none is drawn regardless of time.
        temporal_strategy (str, default ``"uniform"``): ``"uniform"`` draws among everything that is not too late;
            ``"last"`` takes the latest of it.
        time_window (int, default None: no limit): only edges within this window before the input node's time: times in
            ``(t - time_window, t]``, in the units of ``time_attr``.
        input_time (integers, default None): a time for each input node, in their order; required with times of edges.
            None uses the times of the input nodes themselves, if nodes have times. With input nodes of several types: a
            mapping from each type to its times.

    Batches:
        return_edge_id (bool, default True): batches have ``e_id``. False, as in pyg-lib, leaves it out of edge types
            without edge-level tensors. Out of core that saves memory and reads: the store has an edge number beside
            each neighbour, unless its edges came sorted by target.
        transpose (bool, default False): batches also bring their edges grouped by source, made ahead by the loader.
            The derivatives of :mod:`freshgo.ops` and of accelerated layers otherwise make it in the training thread.
        pad (bool, default False): every batch has the same sizes, so that ``torch.compile`` compiles once. Nodes and
            edges that pad it have ``n_id`` and ``e_id`` -1 and rows of zeros; no edge joins them to other nodes. A
            batch that is too large has ``batch.padded`` False. See docs/device.md.
        edge_index (str, default ``"tensor"``): ``"EdgeIndex"`` makes ``batch.edge_index`` a PyG ``EdgeIndex`` with its
            order and pointers, so that PyG's own layers take their fused path. In a heterogeneous graph, that of every
            edge type within one node type: PyG cannot compute the derivative of others.
        feature_dtype (str, default ``"float32"``): how batches deliver tensors that are stored in fewer bytes
            (``dtype=`` of :func:`convert`). ``"float32"``: widened, on ``device`` after the copy. ``"stored"``: float16
            or bfloat16 as they are; int8 with ``batch.x_scale`` and ``batch.x_offset`` (float32, of shapes that
            broadcast with it) for a tensor ``x``: ``x_scale * x + x_offset`` is what the numbers stand for. Caches hold
            the stored rows either way.
        first_layer (str, default None): the aggregate over all neighbours that replaces the first layer of the model
            and that :func:`freshgo.propagate` has computed: the name of the tensor, or ``"mean"``, ``"sum"`` or
            ``"gcn"`` if it is the only one of its kind. A model of three layers then needs two hops: ``Loader(store,
            [15, 10], first_layer="mean")``. A batch has ``x`` and the aggregate ``x_mean`` of every node; with
            ``"gcn"`` it has ``x_gcn`` and no ``x``. In a heterogeneous graph the aggregate belongs to the edge type,
            ``batch["author", "writes", "paper"].x_mean``, with a row for each target. :func:`freshgo.nn.precomputed`
            makes a model use it; a plain convolution over such a batch raises an error. A ``history`` keeps what layers
            above it compute. Not with ``time_attr`` or random walks.
        transform_workers (int, default 0: the thread of the loop): threads that call ``transform``, each with another
            batch. Batches come in order. Random numbers of a generator that threads share (``torch.rand``) come in any
            order: seed one of its own from ``batch.input_id``. Threads help where PyTorch or NumPy, which release the
            lock, take the time. ``memory`` holds as many batches more. Not with ``history``, CUDA, or ``prefetch=0``.

    Memory and disk:
        cache (default ``"auto"``): which rows stay in memory: a name or an object of :mod:`freshgo.policies`, or a
            score per node (floats ``[num_nodes]``; in a heterogeneous graph a dict of scores by node type). None is
            ``"none"``. ``"auto"`` samples ahead and keeps what is needed again soonest (``"belady"``: Ginex, 3.3),
            unless everything fits or nothing is on disk. :class:`Auto` and :class:`Belady` have the options of the
            plan: how far ahead, how rows are read, in what order batches come, and the plan's memory and scratch file.
        feature_cache (bytes, default None): the part of ``memory`` for rows that stay in memory; None lets the loader
            choose.
        neighbor_cache (bytes, default None): the part of ``memory`` for neighbour lists that stay in memory, for all
            edge types together (Ginex, 3.2); None lets the loader choose.
        prefetch (int, default None): batches prepared ahead, up to 1024, while ``memory`` has room; 0: none. None: one
            a thread in a quarter of ``memory``, at least 4; 4 a rank with ``history``, ``embeddings`` or ``share``.
        disk (Disk, default None): the engine that reads, and whether checksums are compared: see :class:`Disk`.

    Processes:
        ranks (Ranks, default None): which part of every epoch this loader yields, what happens to the last batches, and
            what ranks of a host or a job do together: see :class:`Ranks`. None takes rank and number of ranks from
            ``torch.distributed``, if its default process group is initialised when an epoch begins.

    Devices:
        pin_memory (bool, default False): batches come in page-locked memory of the host, from which
            ``batch.to("cuda", non_blocking=True)`` copies while the host goes on. Every batch is copied into PyTorch's
            pinned memory, by the thread that asks for it; ``device`` does without that copy. Without CUDA there is a
            warning, and memory as usual.
        device_cache (bytes, default ``"auto"``): memory of the device for the hottest rows; a batch transfers only the
            others (FGNN, 6.1). ``"auto"`` is up to half of what the first steps leave free; None is no cache. The
            ranking is ``cache`` if that is a hotness, else the number of batches of the first epochs with a node.

    Embeddings, historical and trained:
        history (History, default None): prune the batches by a cache of historical embeddings: see :class:`History`.
        embeddings (Embedding, list, or dict of these by node type; default None): see :class:`freshgo.nn.Embedding`.

    Compatibility:
        **pyg_options: options of PyG's loaders that have no meaning here are accepted, with a warning. Other names
            raise ``DTypeError`` with the nearest option.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; the message says what was expected.
        BudgetError: ``memory`` is too small; the message and ``minimum`` name the smallest that works, an estimate that
            is enough where ``memory`` is too small to measure a batch, or what links or times need without batches.
        StoreNotFoundError, FormatError, CorruptError, ReadError: the store cannot be opened or read.
        LibraryError: ``edge_index="EdgeIndex"`` without PyG.
        RankError: when an epoch begins, if the ranks have different graphs, options or positions; in an epoch, if the
            number of ranks has changed; with ``Ranks(share=)`` or ``Ranks(features=)`` also if another rank has died,
            or does not answer within the timeout of the process group. With ``Ranks(share="host")`` on opening, if this
            rank or another has other options, of memory and disk too, than the first one of the host.
        ServerError: with ``Ranks(share="host")``, if the process that makes the batches has died or cannot be started.
    """

    _links: Links | None = None  # of a LinkLoader

    def __init__(
        self,
        data: GraphLike,
        num_neighbors: Sequence[int]
        | Sequence[RandomWalk]
        | Mapping[EdgeType, Sequence[int]]
        | Mapping[EdgeType, Sequence[RandomWalk]]
        | NumNeighbors,
        input_nodes: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        replace: bool = False,
        weight_attr: str | Mapping[EdgeType, str] | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        sampler: torch.utils.data.Sampler[int] | None = None,
        input_weight: Any = None,
        disjoint: bool = False,
        time_attr: str | None = None,
        temporal_strategy: Temporal = "uniform",
        time_window: int | None = None,
        input_time: Any = None,
        seed: int = 0,
        num_workers: int = 0,
        prefetch: int | None = None,
        memory: int | str | MemoryBudget | None = None,
        feature_cache: int | str | None = None,
        neighbor_cache: int | str | None = None,
        cache: Policy | Scores | None = "auto",
        disk: Disk | None = None,
        ranks: Ranks | None = None,
        feature_dtype: FeatureDType = "float32",
        transpose: bool = False,
        pad: bool = False,
        return_edge_id: bool = True,
        edge_index: EdgeIndexForm = "tensor",
        history: History | None = None,
        embeddings: Embeddings = None,
        device: str | torch.device | Device | None = None,
        pin_memory: bool = False,
        device_cache: int | str | None = "auto",
        transform: Callable[[Any], BatchType] | None = None,
        transform_workers: int = 0,
        subgraph_type: Subgraph | enum.Enum = "directional",
        first_layer: str | None = None,
        progress: bool | Progress = True,
        **pyg_options: Unpack[PyGOptions],
    ) -> None:
        check_pyg_options(pyg_options, type(self))
        subgraph_type = directed(pyg_options, subgraph_type)
        self._engine = _opened(data, Asked.of(locals()), self._links)

    @property
    def batch_size(self) -> int:
        """The number of input nodes, or of links, per batch."""
        return int(self._engine.options["batch_size"])

    @property
    def dataset(self) -> range:
        """The positions of all input nodes, or links, as of PyG's loaders: ``len(loader.dataset)`` is their number, of
        all ranks together."""
        request, source = self._engine.request, self._engine.source
        return range(request.links.count(source) if request.links is not None else request.num_inputs)

    @property
    def num_neighbors(self) -> list[int] | Mapping[EdgeType, list[int]]:
        """The neighbours per node and hop, by edge type in a heterogeneous graph."""
        return self._engine.request.shown()

    @property
    def input_nodes(self) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        """The ids of the input nodes (int64 ``[n]``), in their order; None stands for every node. In a heterogeneous
        graph a dict of these by node type."""
        return self._engine.request.input_nodes()

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        return self._engine.ranks.now().count(self._engine.openings.num_batches)

    def __iter__(self) -> Iterator[BatchType]:
        """Return an iterator over the next epoch. The epoch begins when its first batch is requested: it then takes
        over from any other iterator of this loader."""
        self._engine.openings.check()
        return Epoch(self._engine)

    def __call__(self, index: Any) -> BatchType:
        """Return one batch now, of the input nodes at these places, as PyG's loaders do: of ``input_nodes[index]``,
        with ``input_id = index``. See :meth:`sample`.

        Args:
            index: integers in ``[0, number of input nodes)``, a list or tensor; they may repeat.
        """
        from freshgo._loader import on_demand

        batch: BatchType = self._engine.one(on_demand.places(index), self._engine.request)
        return batch

    def sample(self, ids: Any, time: Any = None) -> BatchType:
        """Return one batch now, of any nodes: for serving, for explanations, for debugging.

        It is the first batch of a loader with the same options and ``input_nodes=ids``, all in one batch and in this
        order, so the same call gives the same batch. It may be called from several threads, and changes nothing of an
        epoch that runs. Rows that the loader does not hold in memory for good are read: a cache that is filled once
        (``cache="degree"``) serves these batches, one that changes with the epochs (``"belady"``, ``"lru"``) does not.
        What a call needs comes on top of ``memory``, in proportion to its batch. :meth:`stats` counts the rows, but not
        the batch. With ``history`` the batch is whole.

        Args:
            ids: nodes, as ``input_nodes`` of a :class:`Loader`. In a heterogeneous graph of the types that this loader
                has input nodes of, whose name may be left out if it is only one.
            time: with ``time_attr``, an integer, or one for each node; by type as ``input_time``. None uses the times
                of the nodes themselves, if nodes have times.

        Raises:
            InvalidArgumentError, DTypeError: no such nodes, or no time where one is needed.
            ReadError, CorruptError, ClosedError: as in an epoch.
        """
        from freshgo._loader import on_demand

        engine = self._engine
        batch: BatchType = engine.one(*on_demand.nodes(engine.request, engine.source, ids, time))
        return batch

    def trace(self, epoch: int) -> Iterator[Any]:
        """Yield the ``n_id`` of every batch of an epoch, in the order without ``reorder``, and read no rows: a tensor,
        or in a heterogeneous graph a dict by node type. A trace is not counted as an epoch; it ends a running one."""
        return Epoch(self._engine, trace=checks.count("epoch", epoch, 0))

    def __repr__(self) -> str:
        engine = self._engine
        what = "closed" if engine.openings.closed else f"{len(self)} batches of {self.batch_size}"
        return f"Loader({engine.source.shown()}, num_neighbors={engine.request.shown()}, {what})"


def _opened(data: GraphLike, asked: Asked, links: Links | None) -> Engine:
    """Return the engine of a loader, which closes the source."""
    source = _source(data, asked)
    try:
        request = in_graph(asked, source, links)
        return Engine(source, request, lambda options: _batch_maker(source, request, options))
    except BaseException:
        source.close()
        raise


def _source(data: GraphLike, asked: Asked) -> Source:
    if asked.ranks.features is None:
        return open_source(data, asked.first_layer, asked.levels)
    from freshgo._row_exchange.source import ShardedSource  # here, as below, so that `import freshgo` is quick

    return ShardedSource(data)


def _batch_maker(source: Source, request: Request, options: LoaderOptions) -> BatchMaker:
    """Return the maker of the batches that the request describes."""
    if request.asked.ranks.features is not None:
        from freshgo._row_exchange.batch_maker import ExchangeBatchMaker

        return ExchangeBatchMaker(cast("ShardedSource", source), request.policy, options, request.asked.ranks.exchange)
    if request.asked.ranks.share is not None:
        from freshgo._host_loader.host import HostBatchMaker

        assert isinstance(source, StoreSource)  # as was checked
        return HostBatchMaker(source, request)
    return BatchMaker(source, request.asked.progress)
