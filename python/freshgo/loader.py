"""The loader: mini-batches of a graph on disk or in memory, prepared ahead of the training loop."""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, cast

from freshgo._args import checks
from freshgo._args.choices import EdgeIndexForm, FeatureDType, Subgraph, Temporal, Uneven
from freshgo._args.entry import entry
from freshgo._args.types import EdgeType, Layout
from freshgo._batch.blocks import levels_of
from freshgo._data.narrow import Delivered
from freshgo._data.source import Source, StoreSource, open_source
from freshgo._device import delivery, mover
from freshgo._loader import on_demand
from freshgo._loader.arrange import arrange, batch_class, trace_of
from freshgo._loader.epoch import Batches, Epoch, Mode, Position, Started
from freshgo._loader.keywords import check_pyg_options, directed
from freshgo._loader.openings import Openings
from freshgo._loader.orders import Order, position
from freshgo._loader.origin import InProcess
from freshgo._loader.ranks import Agreement, Share, check_same
from freshgo._loader.request import Asked, Request, in_graph
from freshgo._loader.transforming import Underway, Workers
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions
from freshgo._observe.flat import flat
from freshgo._observe.ranges import stage
from freshgo.errors import DTypeError, RankError
from freshgo.memory import Lending, MemoryBudget
from freshgo.options import Disk, PyGOptions, Ranks
from freshgo.plan import Plan
from freshgo.policies import Policy
from freshgo.samplers import NeighborSampler, RandomWalk

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self, TypeVar, Unpack

    from freshgo._batch.pyg_batches import Data
    from freshgo._data.like import GraphLike
    from freshgo._loader.link_inputs import Links
    from freshgo._sharded.source import ShardedSource
    from freshgo.history import History
    from freshgo.options import NumNeighbors
    from freshgo.policies import Scores

    BatchType = TypeVar("BatchType", default=Data)
else:
    from typing import TypeVar

    BatchType = TypeVar("BatchType")  # it has no default before Python 3.13


@entry
class Loader(Generic[BatchType]):
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

    For editors and type checkers a loader is generic in its batches: a ``Loader`` yields :class:`freshgo.pyg.Data`, or
    what ``transform`` is annotated to return; ``Loader[HeteroData](...)`` and ``Loader[freshgo.Batch](...)`` say
    another type.

    Every ``iter`` is the next epoch. Leaving a loop early stops its work. Threads that share an iterator get each batch
    once.

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
        device (str or torch.device, default None: the CPU): where the tensors of a batch go, such as ``"cuda"`` or
            ``"cuda:1"``. Copies run beside the training, one batch ahead of it (with ``prefetch``, and without
            ``history``), and the host waits for none. A device that cannot be used raises what ``torch.zeros(1,
            device=device)`` raises.
        transform (callable, default None): called with each batch, on its device; the loop gets its result.

    Input nodes:
        drop_last (bool, default False): leave out the last batch if it is not full.
        input_weight (numbers ``[n]``, default None): a finite number that is not negative for each input node, in their
            order; by type as ``input_time``. An epoch then draws as many input nodes as there are, in proportion to
            these numbers and with replacement, different ones in every epoch; ``shuffle`` has no effect. ``input_id``
            says which were drawn.
        sampler (default None): a sampler of ``torch.utils.data``, in place of ``input_weight`` and ``shuffle``. PyG's
            ``ImbalancedSampler`` and any other ``WeightedRandomSampler`` give their weights, ``RandomSampler`` means
            ``shuffle``, and ``SequentialSampler`` neither. Random numbers follow from ``seed``, not from the sampler's
            generator.

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
        transpose (bool, default False): batches also bring their edges grouped by source, made in the loader's threads.
            The derivatives of :mod:`freshgo.ops` and of accelerated layers need this grouping and otherwise make it in
            the training thread.
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
        transform_workers (int, default 0: the thread of the loop): threads of Python that call ``transform``, each with
            another batch, on batches that are prepared already. Batches still come in their order. A transform without
            randomness of its own gives what it gives in one thread; random numbers that it draws from a generator that
            threads share (``torch.rand``, ``random``) come in any order: seed a generator of its own from
            ``batch.input_id``. Threads help where it spends its time in PyTorch or NumPy, which release Python's lock.
            Up to ``transform_workers`` more batches are in memory, within ``memory``. Not with ``history``, a CUDA
            ``device``, or ``prefetch=0``.

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
        prefetch (int, default 4): batches prepared ahead, while ``memory`` has room for them; more than 1024 count as
            1024. 0 prepares each batch when it is requested.
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
        device_cache (bytes, default None: no cache): memory of the device for the hottest rows; a batch then transfers
            only the other rows (FGNN, 6.1). The ranking is ``cache`` if that is a hotness, else expected visits, over
            the rows of all node types.

    Historical embeddings:
        history (History, default None): prune the batches by a cache of historical embeddings: see :class:`History`.

    Compatibility:
        **pyg_options: options of PyG's loaders that have no meaning here are accepted, with a warning. Other names
            raise ``DTypeError`` with the nearest option.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; the message says what was expected.
        BudgetError: ``memory`` is too small; the message and ``minimum`` name the smallest that works, or, where a
            batch is too large to be measured within ``memory``, an estimate that is enough.
        StoreNotFoundError, FormatError, CorruptError, ReadError: the store cannot be opened or read.
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
        prefetch: int = 4,
        memory: int | str | MemoryBudget | None = None,
        feature_cache: int | str | None = None,
        neighbor_cache: int | str | None = None,
        cache: Policy | Scores | None = "auto",
        disk: Disk | None = None,
        ranks: Ranks | None = None,
        feature_dtype: FeatureDType = "float32",
        transpose: bool = False,
        return_edge_id: bool = True,
        edge_index: EdgeIndexForm = "tensor",
        history: History | None = None,
        device: str | torch.device | None = None,
        pin_memory: bool = False,
        device_cache: int | str | None = None,
        transform: Callable[[Any], BatchType] | None = None,
        transform_workers: int = 0,
        subgraph_type: Subgraph | enum.Enum = "directional",
        first_layer: str | None = None,
        **pyg_options: Unpack[PyGOptions],
    ) -> None:
        check_pyg_options(pyg_options, type(self))
        subgraph_type = directed(pyg_options, subgraph_type)
        asked = Asked.of(locals())
        self._history, self._transform, self._ranks = history, transform, asked.member
        self._token = object()  # tells the batches of this loader from others
        self._at, self._agreement = Position(), Agreement()
        self._asking = 0  # calls that wait for a batch on demand; changed under the lock of the position
        self._source = (
            open_source(data, asked.first_layer, asked.levels)
            if asked.ranks.features is None
            else _divided_source(data)
        )
        try:
            self._request = request = in_graph(asked, self._source, self._links)
            if history is not None:
                history._bind(self, request.hops)
            self._delivery = delivery.open_delivery(
                asked.device, self._source, request.policy, request.options, asked.device_cache, asked.pin_memory
            )
            options = self._delivery.adapt(request.options)
            self._origin = _origin(self._source, request, options)
            self._options = self._origin.adapt(options)
            asked_dtype, delivered_dtype = request.options["feature_dtype"], self._options["feature_dtype"]
            self._narrow = Delivered(self._source.narrow, asked_dtype, delivered_dtype)
            budget = memory if isinstance(memory, MemoryBudget) else None
            with self._at.lock:  # so that it lends nothing before it is whole
                self._openings = Openings(self._origin.open, self._options, budget, self, self._source.attribute_bytes)
            self._order = Order(self._openings, self._options, self._at)
        except BaseException:
            self._source.close()
            raise
        self._batch_class = batch_class(request.types)
        self._workers = Workers(transform, asked.transform_workers) if transform and asked.transform_workers else None

    @property
    def _native(self) -> NativeLoader:
        """That of the last opening; closed while another loader has its memory."""
        return self._openings.native

    @property
    def batch_size(self) -> int:
        """The number of input nodes, or of links, per batch."""
        return int(self._options["batch_size"])

    @property
    def dataset(self) -> range:
        """The positions of all input nodes, or links, as of PyG's loaders: ``len(loader.dataset)`` is their number, of
        all ranks together."""
        request = self._request
        return range(request.links.count(self._source) if request.links is not None else request.num_inputs)

    @property
    def num_neighbors(self) -> list[int] | Mapping[EdgeType, list[int]]:
        """The neighbours per node and hop, by edge type in a heterogeneous graph."""
        return self._request.shown()

    @property
    def input_nodes(self) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        """The ids of the input nodes (int64 ``[n]``), in their order; None stands for every node. In a heterogeneous
        graph a dict of these by node type."""
        return self._request.input_nodes()

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        return self._share().count(self._openings.num_batches)

    def __iter__(self) -> Iterator[BatchType]:
        """Return an iterator over the next epoch. The epoch begins when its first batch is requested: it then takes
        over from any other iterator of this loader."""
        self._openings.check()
        return Epoch(self, self._at)

    def __call__(self, index: Any) -> BatchType:
        """Return one batch now, of the input nodes at these places, as PyG's loaders do: of ``input_nodes[index]``,
        with ``input_id = index``. See :meth:`sample`.

        Args:
            index: integers in ``[0, number of input nodes)``, a list or tensor; they may repeat.
        """
        return self._one(on_demand.places(index), self._request)

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
        return self._one(*on_demand.nodes(self._request, self._source, ids, time))

    def trace(self, epoch: int) -> Iterator[Any]:
        """Yield the ``n_id`` of every batch of an epoch without reading rows: a tensor, or in a heterogeneous graph a
        dict of them by node type. A trace is not counted as an epoch; it ends a running one."""
        return Epoch(self, self._at, trace=checks.count("epoch", epoch, 0))

    def set_epoch(self, epoch: int) -> None:
        """Make the next ``iter`` begin ``epoch``, from its first batch."""
        self._seek(checks.count("epoch", epoch, 0), 0)

    def state_dict(self) -> dict[str, Any]:
        """Return how far this loader is: the batches it has yielded, and what they depend on. The result can be stored
        as JSON.

        With several ranks, ``"batches"`` counts those of all of them, and supposes that each has yielded as many as
        this one. So all ranks return the same after the same number of steps, and one of these states is enough: save
        that of rank 0, which has the last batch where the others have none.
        """
        return {"version": 1, "epoch": self._at.epoch, "batches": self._at.done, "config": self._config()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next ``iter`` continue where ``state`` was saved, with the identical next batch.

        All ranks load the same state. There may be more or fewer of them than when it was saved: together they yield
        every batch that is left.

        With ``reorder`` of the cache, the order of the batches is made as it was then, whatever the memory is now.

        Raises:
            InvalidArgumentError: ``state`` is not a state, or belongs to a loader that yields other batches.
        """
        epoch, batches = position(state, self._config(), self._openings.num_batches)
        self._order.adopt(state["config"].get("reorder"))
        self._seek(epoch, batches)

    def stats(self, prefix: str | None = None) -> dict[str, Any]:
        """Return what the loader did since it was opened.

        With a ``prefix`` such as ``"loader/"``, return the numbers alone, in one dict without further dicts, as
        TensorBoard, Weights & Biases and MLflow take them: ``"loader/rows"``, ``"loader/memory/batch"``,
        ``"loader/last_epoch/seconds"`` (of the last of ``"epochs"``).

        - ``"batches"``, ``"rows"`` (of nodes) and ``"edges"`` that were handed over. Of the rows, ``"hits"`` were in
          memory, ``"packed"`` were kept aside earlier for their batch, ``"misses"`` were read for it, and ``"held"``
          were on the device. ``"neighbor_hits"`` and ``"neighbor_misses"`` count sampled edges whose neighbour was in
          memory, or was read.
        - ``"bytes_read"`` and ``"requests"`` of the disk, including fills of caches and excluding the measurement of
          the device. ``"scratch_written"``, ``"scratch_read"``: bytes of the scratch file.
        - ``"seconds_waiting"``: how long the loop waited for batches; if it is small, the loader does not limit the
          training. ``"seconds_sampling"``, ``"_reading"``, ``"_gathering"``, ``"_planning"``: summed over threads.
          ``"seconds_opening"``; ``"seconds_first_batch"`` and ``"seconds_epoch"`` of the last epoch.
        - ``"memory_limit"``, ``"memory_used"``, ``"memory_peak"``, ``"memory_smallest"`` (the smallest
          ``memory`` that works), in bytes; ``"memory"`` and ``"memory_peaks"`` by purpose.
        - ``"engine"``, ``"cache"``, ``"cached_rows"``, ``"cache_capacity"`` (rows), ``"superbatch"``,
          ``"topology_on_disk"``, ``"num_workers"``, ``"prefetch"``: what was chosen.
        - ``"sharded"``: with ``Ranks(features="sharded")``, what divided rows took since the ranks of the last process
          group joined: ``"rows_held"`` of batches that were in memory, ``"rows_own"`` of the rank's parts,
          ``"rows_remote"``; ``"rows_served"`` for other ranks, ``"bytes_sent"`` and ``"bytes_received"``,
          ``"turns"`` of the exchange, ``"seconds_exchanging"``, ``"exchange"`` (the way of the next one),
          ``"hot_rows"`` in memory, and ``"bytes_read"`` and ``"requests"`` of the parts.
        - ``"openings"``: how often a :class:`MemoryBudget` opened it; 1 without one.
        - ``"epochs"``: the epochs that were consumed from their first batch to their last, with what each added.
        """
        figures = {**self._openings.stats(), **self._delivery.stats(), **self._origin.stats()}
        if prefix is None:
            return {**figures, "epochs": list(self._at.whole)}
        if not isinstance(prefix, str):
            raise DTypeError(f"prefix must be a string such as 'loader/' or None, got {checks.shown(prefix)}")
        return flat({**figures, "last_epoch": self._at.whole[-1] if self._at.whole else {}}, prefix)

    def plan(self) -> Plan:
        """Return how the memory is divided and how rows are read: what was chosen, why, and what it took.

        The plan prints as text and draws itself with ``plot()``; ``data`` is a dict.
        """
        return Plan(self._openings.plan())

    def plot(self) -> Any:
        """Return a matplotlib figure of :meth:`stats`: time, bytes, cache hits, memory, and epoch by epoch."""
        from freshgo._plots.stats import figure

        return figure(self.stats())

    def close(self) -> None:
        """End the running epoch and free everything but the batches. Closing again does nothing."""
        self._at.end()
        if self._history is not None:
            self._history._closing(self)
        self._origin.close()
        self._openings.close()
        if self._workers is not None:
            self._workers.close()
        self._delivery.close()
        self._source.close()

    def __getitem__(self, index: object) -> NoReturn:
        raise DTypeError(
            f"a {type(self).__name__} cannot be indexed: iterate over it. It makes whole batches and replaces "
            "torch.utils.data.DataLoader, which cannot wrap it"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise DTypeError(
            "a Loader cannot be pickled or sent to another process: open one there, and carry over state_dict()"
        )

    def __repr__(self) -> str:
        what = "closed" if self._openings.closed else f"{len(self)} batches of {self._options['batch_size']}"
        return f"Loader({self._source.shown()}, num_neighbors={self._request.shown()}, {what})"

    def _repr_html_(self) -> str:
        from freshgo._plots.stats import html

        return html(repr(self), {} if self._openings.closed else self.stats())

    def _config(self) -> dict[str, Any]:
        """Everything a batch depends on."""
        return {"graph": self._source.fingerprint(), **self._request.config(), "reorder": self._order.value}

    def _agree(self, share: Share) -> None:
        """Ask all ranks what they make, and raise on all of them where that differs. The order of the batches, which
        may depend on the memory of each, is made that of rank 0."""
        said = self._agreement.gather(
            {
                "the version of freshgo": importlib.metadata.version("freshgo"),
                **self._config(),
                **self._origin.described(),
                "reorder": self._options["reorder"],
                "order": self._order.value,
                "uneven": share.uneven,
                "history": None if self._history is None else self._history._described(),
                "the epoch": self._at.epoch,
                "the number of batches before": self._at.done,
            }
        )
        orders = [one.pop("order") for one in said]
        everything = [order is None for order in orders]  # is in memory, so that there is no order
        try:
            check_same([one | {"everything is in memory": held} for one, held in zip(said, everything, strict=True)])
        except RankError:
            self._agreement = Agreement()  # they are asked again when an epoch begins again
            raise
        self._order.adopt(orders[0])

    def _one(self, ask: on_demand.Ask, request: Request) -> BatchType:
        """The batch that is asked for."""
        with self._at.lock:  # so that a budget does not close what makes it
            native = self._openings.ready()
            self._asking += 1
        try:
            with stage("freshgo.sample"):
                raw = self._delivery.one(self._origin.one(native.sample(ask), self._share()))
        finally:
            with self._at.lock:
                self._asking -= 1
        return self._transformed(self._arranged(raw, request))

    def _seek(self, epoch: int, batch: int) -> None:
        with self._at.lock:
            self._at.end()
            self._stop_work()
            self._at.move(epoch, batch)

    # What its budget calls.

    def _lending(self) -> Lending:
        at = self._at
        return Lending(self._history is not None, at.busy, at.continued, at.hurried)

    def _give_back(self) -> bool:
        at = self._at
        if not at.lock.acquire(blocking=False):
            return False
        try:
            if self._asking:
                return False
            at.interrupted()
            self._origin.stop()
            self._openings.give_back()
            return True
        finally:
            at.lock.release()

    # What its history calls.

    def _layout(self) -> Layout:
        return self._source.layout()

    def _rewind(self) -> None:
        self._seek(self._at.epoch, self._at.done)

    def _upcoming(self) -> tuple[int, int]:
        """The epoch that the next ``iter`` begins, and how many of its batches have been made."""
        at = self._at
        with at.lock:
            share = self._share()
            self._settle(share)
            self._openings.ready().take(share.members())
            return (at.epoch + 1, 0) if at.begun else (at.epoch, at.done)

    def _rank(self, *, take: bool) -> list[int] | None:
        share = self._share()
        if take:
            self._native.take(share.members())
        return None if share.world_size == 1 else [share.rank, share.world_size]

    # What evaluation calls.

    def _once(self) -> Iterator[Any]:
        """Return the next epoch, in which every batch is made by one rank."""
        return Epoch(self, self._at, uneven="join")

    # What factored training calls.

    def _hand_out(self) -> tuple[int, int, int]:
        """The epoch that the next ``iter`` begins, how many of its batches have been made, and how many it has. Others
        make them: this frees its memory until it makes batches again."""
        at = self._at
        with at.lock:
            self._openings.check()
            at.end()
            if at.begun:
                at.move(at.epoch + 1, 0)
            self._openings.give_back()
            return at.epoch, at.done, self._openings.num_batches

    # What Lightning's data module calls.

    def _within(self) -> bool:
        """Whether it stands between the first batch and the last one of an epoch."""
        return 0 < self._at.done < self._openings.num_batches

    # What its iterators call.

    def _share(self, *, uneven: Uneven | None = None) -> Share:
        share = self._ranks.now()
        return share if uneven is None else dataclasses.replace(share, uneven=uneven)

    def _settle(self, share: Share) -> None:
        self._origin.prepare(share)
        if self._agreement.pending(self._ranks):
            self._agree(share)
        self._origin.join()
        self._openings.ready()
        self._order.check()

    def _made(self, batches: int) -> int:
        return min(batches, self._openings.num_batches)

    def _start(self, epoch: int, done: int, share: Share, mode: Mode) -> Started:
        self._origin.begin(share)
        native = self._openings.ready()
        self._order.check()
        native.take(share.members())
        native.start(epoch, done, mode)
        batches: Batches = native
        left = share.count(native.num_batches, done)
        if mode != "trace":
            batches = self._delivery.batches(self._origin.batches(native, left))
            if self._workers is not None:  # not on a device, the only place where next() always waits
                batches = self._workers.batches(cast(mover.Batches, batches), self._arranged_of_epoch)
        count = share.count(native.num_batches)
        return Started(batches, count - left, count)

    def _stop(self) -> None:
        if self._workers is not None:
            self._workers.stop()
        self._stop_work()

    def _stop_work(self) -> None:
        """End what prepares batches."""
        self._origin.stop()
        self._openings.stop()

    def _lent(self) -> bool:
        return not self._openings.closed

    def _mode(self) -> Mode:
        return "plain" if self._history is not None and not self._history._training() else "train"

    def _forget(self) -> None:
        if self._history is not None:
            self._history._left()

    def _figures(self) -> dict[str, Any]:
        return self._openings.stats()

    def _take(self, raw: RawBatch) -> Any:
        if isinstance(raw, Underway):
            return raw.result()
        batch = self._arranged_of_epoch(raw)
        if self._history is not None:
            levels = levels_of(batch)
            if levels is not None:
                levels.owner = self._token
            self._history._handed(levels)
        return self._transformed(batch)

    def _transformed(self, batch: Any) -> BatchType:
        if self._transform is None:
            return cast(BatchType, batch)
        with stage("freshgo.transform"):
            return self._transform(batch)

    def _arranged_of_epoch(self, raw: RawBatch) -> Any:
        return self._arranged(raw, self._request)

    def _arranged(self, raw: RawBatch, request: Request) -> Any:
        """A batch that was made for a request."""
        with stage("freshgo.arrange"):
            self._narrow.apply(raw.tensors)
            return arrange(self._batch_class, request, raw)

    def _nodes(self, raw: RawBatch) -> Any:
        """What a trace says of a batch."""
        return trace_of(self._request.types, raw.tensors)


# Rooms that few programs need are imported by those that do, so that `import freshgo` is quick.


def _divided_source(data: object) -> ShardedSource:
    from freshgo._sharded.source import ShardedSource

    return ShardedSource(data)


def _origin(source: Source, request: Request, options: LoaderOptions) -> InProcess:
    """Where the batches that are asked for are made."""
    if request.asked.ranks.features is not None:
        from freshgo._sharded.loading import Sharded

        return Sharded(cast("ShardedSource", source), request.policy, options, request.asked.ranks.exchange)
    if request.asked.ranks.share is not None:
        from freshgo._share.host import OfHost

        assert isinstance(source, StoreSource)  # as was checked
        return OfHost(source, request)
    return InProcess(source)
