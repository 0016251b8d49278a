"""The policy laboratory: what caches would do on a trace, without reading a row.

loader = Loader(store, [10, 10], "train", batch_size=1024, shuffle=True)
trace = list(loader.trace(0))
simulate(trace, policy="belady", capacity=100_000, num_nodes=store.num_nodes).reads
plot_policies(trace, num_nodes=store.num_nodes)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.choices import METRICS
from freshgo._args.entry import entry
from freshgo._args.size import parse_size
from freshgo._args.trace import flat_trace
from freshgo._data.source import open_source
from freshgo._loader.request import drawn_in_graph
from freshgo._loader.sampling import sampling
from freshgo._native import loader as native_loader
from freshgo._native.options import loader_options, relations
from freshgo.errors import InvalidArgumentError
from freshgo.policies import Policy, Resolved, resolve
from freshgo.samplers import NeighborSampler, RandomWalk

if TYPE_CHECKING:
    from freshgo._args.choices import Metric
    from freshgo._args.types import EdgeType
    from freshgo._data.like import GraphLike
    from freshgo.policies import Scores

    Ids = Tensor | np.ndarray[Any, Any]

COMPARED: tuple[str, ...] = ("belady", "oracle", "s3fifo", "sieve", "clock", "lru", "match")
"""The policies that :func:`plot_policies` draws: all that need nothing but the trace."""

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""The sizes of the cache that :func:`plot_policies` draws, as shares of all nodes."""

_NEEDS_GRAPH = frozenset(METRICS) - {"random", "oracle"}


@entry
@dataclass(frozen=True, repr=False)
class Simulation:
    """What a cache did on a trace, counted in rows. A row is fetched if it was not in the cache, or to fill the cache.

    Attributes:
        policy: its name.
        capacity: the rows that fit into the cache.
        reads_per_batch: int64 ``[batches]``, rows fetched because a batch needed them.
        hits_per_batch: int64 ``[batches]``, rows found in the cache.
        swaps_per_batch: int64 ``[batches]``, cached rows that rows of the batch replaced.
        fill: rows fetched before the first batch, to fill a cache that does not change afterwards.
    """

    policy: str
    capacity: int
    reads_per_batch: Tensor
    hits_per_batch: Tensor
    swaps_per_batch: Tensor
    fill: int

    @property
    def reads(self) -> int:
        """All rows fetched, including those that fill the cache."""
        return int(self.reads_per_batch.sum()) + self.fill

    @property
    def hits(self) -> int:
        """Rows found in the cache."""
        return int(self.hits_per_batch.sum())

    @property
    def swaps(self) -> int:
        """Cached rows that other rows replaced."""
        return int(self.swaps_per_batch.sum())

    @property
    def accesses(self) -> int:
        """Rows that the batches needed."""
        return int(self.reads_per_batch.sum()) + self.hits

    @property
    def hit_rate(self) -> float:
        """Hits per access; the fill does not count."""
        return self.hits / self.accesses if self.accesses else 0.0

    @property
    def read_rate(self) -> float:
        """Rows fetched per access, including the fill: the fair way to compare policies."""
        return self.reads / self.accesses if self.accesses else 0.0

    def __repr__(self) -> str:
        fill = f", {self.fill:,} of them to fill it" if self.fill else ""
        return (
            f"Simulation({self.policy}, {self.capacity:,} rows: {self.accesses:,} accesses, {self.hits:,} hits "
            f"({self.hit_rate:.1%}), {self.reads:,} reads{fill}, {self.swaps:,} swaps)"
        )


@entry
def simulate(
    trace: Iterable[Ids] | Iterable[Mapping[str, Ids]],
    *,
    policy: Policy | Scores | None = "belady",
    capacity: int,
    num_nodes: int | Mapping[str, int] | None = None,
) -> Simulation:
    """Count what a cache of ``capacity`` rows would do on a trace.

    A batch finds its rows in the cache or fetches them; then the policy decides what stays. These are the policies that
    loaders run, applied to node ids instead of rows.

    Args:
        trace: the ids that each batch needs: one-dimensional vectors of integers, without repeated ids in a batch; for
            example :meth:`freshgo.Loader.trace`. In a heterogeneous graph a dict of these by node type; rows of all
            types then share the cache.
        policy: a name, an object of :mod:`freshgo.policies`, or a score per node for a cache that is filled once with
            the highest. ``"belady"`` plans the whole trace at once, which is the optimum; ``Belady(superbatch=n)``
            plans n batches together (Ginex, 3.1). ``"oracle"`` counts the trace itself. A metric of the graph needs the
            graph: pass what :func:`hotness` returns.
        capacity: rows that fit into the cache; 0 caches nothing.
        num_nodes: all ids are below it; in a heterogeneous graph a dict by node type. None takes the length of the
            scores, or one more than the largest id.

    Returns:
        A :class:`Simulation`: totals ``reads``, ``hits``, ``swaps``, ``fill``, and each per batch.

    Raises:
        InvalidArgumentError: ids that are out of range (the trace of another graph) or repeated in a batch; the message
            names the batch and the id. An invalid policy, size or scores.
        DTypeError: a trace that does not hold vectors of integers.
    """
    chosen = _planned(resolve("policy", policy))
    if num_nodes is None and chosen.by_type is not None:
        num_nodes = {name: scores.numel() for name, scores in chosen.by_type.items()}
    batches, counts = flat_trace(trace, num_nodes)
    return _simulate(batches, _in_graph(chosen, counts), checks.count("capacity", capacity, 0), _total(counts))


def _total(counts: dict[str, int] | None) -> int | None:
    return None if counts is None else sum(counts.values())


def _in_graph(policy: Resolved, counts: dict[str, int] | None) -> Resolved:
    """Return the policy with the scores of all node types in one vector."""
    return policy.of_types({"": 0} if counts is None else counts)


def _simulate(batches: list[Tensor], policy: Resolved, capacity: int, num_nodes: int | None) -> Simulation:
    if policy.name in _NEEDS_GRAPH:
        raise InvalidArgumentError(
            f"{policy.name!r} is a metric of the graph, which a trace does not hold: "
            f"pass policy=freshgo.hotness(store, {policy.name!r}, ...)"
        )
    if num_nodes is None:
        num_nodes = _num_nodes(batches) if policy.scores is None else policy.scores.numel()
    checks.count("num_nodes", num_nodes, 1, 2**32 - 2)
    policy.check_nodes(num_nodes)
    reads, hits, swaps, fill = native_loader.simulate(
        batches,
        policy=policy.name,
        capacity=min(capacity, num_nodes),
        num_nodes=num_nodes,
        superbatch=policy.plan.superbatch,
        carry_over=policy.plan.carry_over,
        lookahead=policy.plan.lookahead,
        hotness=policy.scores,
        hotness_seed=policy.seed,
    )
    return Simulation(policy.name, capacity, reads, hits, swaps, fill)


@entry
def hotness(
    data: GraphLike,
    metric: Metric = "expected",
    *,
    num_neighbors: Sequence[int] | Sequence[RandomWalk] | Mapping[EdgeType, Sequence[int]] | None = None,
    input_nodes: Any = None,
    batch_size: int = 1024,
    shuffle: bool = False,
    replace: bool = False,
    weight_attr: str | None = None,
    neighbor_sampler: NeighborSampler | None = None,
    k: int = 1,
    seed: int = 0,
    memory: int | str | None = None,
) -> Any:
    """Compute how hot every node is: float32 ``[num_nodes]``, by node id.

    In a heterogeneous graph the result is a dict of these by node type, on one scale, in the order of the graph.
    ``Loader(cache=...)`` accepts either.

    Args:
        data: a :class:`freshgo.Store`, the path of one, or a graph in memory, as :class:`freshgo.Loader` takes it.
        metric: ``"expected"``: in how many batches of an epoch a node is expected, computed hop by hop from the input
            nodes without sampling. ``"presc"``: in how many it was, in ``k`` sampled epochs (PreSC#K; FGNN, 6.3).
            ``"degree"``: out-degree, the number of nodes it can be drawn for. ``"in-degree"``. In a heterogeneous graph
            these count the edges of all edge types together. ``"random"``.
        num_neighbors: for ``"expected"`` and ``"presc"``, as for a loader.
        input_nodes: for these two, as for a loader; None is every node. Required for a heterogeneous graph.
        batch_size: for these two, as for a loader.
        shuffle: for ``"presc"``, as for a loader.
        replace: for these two, as for a loader.
        weight_attr: for these two, as for a loader. ``"expected"`` then draws edges with approximately the
            probabilities that follow from weights (Rosen, 1997).
        neighbor_sampler: for ``"presc"``, as for a loader. ``"expected"`` has the same scores with LABOR, because for
            each target the draws have the same distribution. It does not follow random walks.
        k: epochs that ``"presc"`` samples: 0 to k - 1 of a loader with this ``seed``. To judge a cache fairly, use
            another seed than that of the training.
        seed: the seed of ``"presc"`` and ``"random"``.
        memory: what the computation may use, in bytes or as ``"8GiB"``, not counting the result. None is half of what
            is available, beside a graph in memory.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; for an unknown metric, the message lists the known
            ones.
        BudgetError: ``memory`` is too small; ``minimum`` is more than was given.
        StoreNotFoundError, FormatError, CorruptError, ReadError: the store cannot be opened or read.
    """
    checks.choice("metric", metric, [name for name in METRICS if name != "oracle"])
    if num_neighbors is None and metric in ("expected", "presc"):
        raise InvalidArgumentError(f"{metric!r} depends on what is sampled: give num_neighbors")
    drawn = sampling(
        [1] if num_neighbors is None else num_neighbors,
        neighbor_sampler,
        weight_attr,
    )
    options: dict[str, Any] = {
        **drawn.options(),
        "batch_size": checks.count("batch_size", batch_size, 1),
        "shuffle": checks.flag("shuffle", shuffle),
        "replace": replace,
        "presc_epochs": checks.count("k", k, 1, 1 << 20),
        "seed": checks.count("seed", seed, None),
    }
    options["hotness_seed"] = options["seed"]
    source = open_source(data)
    scores: Tensor
    try:
        types = source.types
        if types.homogeneous or input_nodes is not None or metric in ("expected", "presc"):
            options |= drawn_in_graph(drawn, source, input_nodes)[2]
        else:  # which depends on nothing that is drawn
            options |= relations([[1]] * len(types.edge_types))
        n_bytes = source.default_memory() if memory is None else parse_size("memory", memory)
        native = loader_options(cache=metric, memory=n_bytes, spare=memory is None, **options)
        scores = native_loader.hotness(source.native, types.total, native)
        counts = types.num_nodes
        return types.bare(dict(zip(counts, torch.split(scores, list(counts.values())), strict=True)))
    finally:
        source.close()


@entry
def plot_policies(
    trace: Iterable[Ids] | Iterable[Mapping[str, Ids]],
    *,
    num_nodes: int | Mapping[str, int] | None = None,
    policies: Sequence[Any] | Mapping[str, Any] = COMPARED,
    fractions: Sequence[float] = FRACTIONS,
) -> Any:
    """Return a matplotlib figure of policies over the size of the cache: hits, and rows fetched.

    Args:
        trace: as for :func:`simulate`.
        num_nodes: as for :func:`simulate`.
        policies: what to compare: policies as :func:`simulate` takes them, or a mapping from a label to one.
        fractions: sizes of the cache as shares of all nodes, from 0 to 1.

    Raises:
        InvalidArgumentError, DTypeError: as for :func:`simulate`.
    """
    from freshgo._plots.lab import figure

    batches, counts = flat_trace(trace, num_nodes)
    total = _num_nodes(batches) if counts is None else checks.count("num_nodes", _total(counts), 1)
    shares = [checks.fraction(f"fractions[{i}]", fraction) for i, fraction in enumerate(fractions)]
    if not shares or not policies:
        raise InvalidArgumentError("fractions and policies must not be empty")
    named = policies.items() if isinstance(policies, Mapping) else ((_label(policy), policy) for policy in policies)
    resolved = [(label, _in_graph(resolve("policy", policy), counts)) for label, policy in named]
    sizes = [round(share * total) for share in sorted(shares)]
    return figure(
        [(label, [_simulate(batches, _planned(policy), size, total) for size in sizes]) for label, policy in resolved],
        sizes,
        total,
        len(np.unique(torch.cat(batches).numpy())),
    )


def _planned(policy: Resolved) -> Resolved:
    return Resolved("belady", policy.plan) if policy.name == "auto" else policy


def _label(policy: Any) -> str:
    if policy is None or isinstance(policy, str):
        return policy or "none"
    return "by scores" if isinstance(policy, Tensor | np.ndarray | Mapping) else repr(policy)


def _num_nodes(batches: list[Tensor]) -> int:
    for i, batch in enumerate(batches):
        if batch.numel() and int(batch.min()) < 0:
            at = int(batch.argmin())
            raise InvalidArgumentError(f"trace[{i}][{at}] is {int(batch[at])}, expected an id of at least 0")
    return 1 + max((int(batch.max()) for batch in batches if batch.numel()), default=0)
