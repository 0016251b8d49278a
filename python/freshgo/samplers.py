"""How neighbours are drawn: what ``Loader(num_neighbors=…, sampler=…)`` accept in addition to numbers.

Without these a loader draws neighbours uniformly; ``weight_attr=`` draws them in proportion to weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from freshgo._args import checks
from freshgo._args import metapaths as metapath_checks
from freshgo._args.metapaths import Metapaths
from freshgo._args.types import ByRelation, EdgeType, by_relation
from freshgo.errors import DTypeError, InvalidArgumentError

MAX_STEPS = 1 << 20
"""The most steps that the walks of a node may have together."""


@dataclass(frozen=True)
class Labor:
    """Layer-neighbour sampling: all targets of a layer draw by the same random number of each neighbour.

    So targets with common neighbours draw the same ones, and a batch has fewer nodes to load, with as many edges. For
    each target alone nothing changes: every subset of its neighbours is as likely as with uniform draws. This is
    LABOR-0 of Balin and Catalyurek (Layer-Neighbor Sampling, NeurIPS 2023) in the sequential form, which GraphBolt's
    ``LayerNeighborSampler`` also has. ``batch.edge_weight`` (float32) makes a weighted sum over a target's edges an
    unbiased estimate of the mean over all its neighbours, or with ``weight_attr`` of the weighted mean.

    Args:
        layer_dependency: use one random number for all layers, for even fewer nodes.
        batch_dependency: for how many batches a node keeps its random number. From one batch to the next, a share of
            1/batch_dependency of the nodes change theirs, so their rows are in a cache more often.
        edge_weight: give ``batch.edge_weight``. A graph that itself has a tensor of this name must do without.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid.
    """

    layer_dependency: bool = False
    batch_dependency: int = 1
    edge_weight: bool = True

    def __post_init__(self) -> None:
        checks.flag("layer_dependency", self.layer_dependency)
        checks.count("batch_dependency", self.batch_dependency, 1, 2**31 - 1)
        checks.flag("edge_weight", self.edge_weight)


@dataclass(frozen=True)
class RandomWalk:
    """Neighbours by random walks (PinSAGE; FGNN, 7.1), instead of a number in ``num_neighbors``.

    ``walks`` walks of ``length`` steps start from each node. Each step goes, uniformly, to one of the nodes with an
    edge to the walk's current node. Before each step but the first, a walk goes back to its start with probability
    ``restart``, and it always does so if it cannot go on. The ``top`` nodes visited most often become the node's
    neighbours, the lower id first among equals, and ``batch.edge_weight`` (float32) is the number of visits. These
    edges are not edges of the graph: a batch has no ``e_id`` and no edge-level tensors.

        Loader(data, num_neighbors=[RandomWalk(walks=4, length=3, top=5)] * 2)

    In a heterogeneous graph, walks go along a metapath: edge types that follow one another from source to target, as in
    PyG's ``AddMetaPaths``. A walk begins where the metapath ends and follows it backwards, edge type by edge type, to
    where it begins. That is one of its ``length`` steps, and the node there is what it visits. The resulting edges
    point in the direction of the metapath, from the visited node to the start of the walk. A walk that cannot go on
    within the metapath visits nothing in this step.

        items = RandomWalk(metapath=[("item", "rev_buys", "user"), ("user", "buys", "item")])
        Loader(data, num_neighbors=[items, items], input_nodes="item")

    Args:
        walks: how many walks start at each node.
        length: steps of a walk; with a metapath, how often it is walked.
        top: neighbours that a node keeps; -1 keeps all that were visited.
        restart: a probability in [0, 1).
        metapath: edge types ``(source, relation, target)`` of a heterogeneous graph. With ``length=1`` it may begin at
            another node type than it ends.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid.
    """

    walks: int = 4
    length: int = 3
    top: int = 5
    restart: float = 0.5
    metapath: Sequence[EdgeType] | None = None

    def __post_init__(self) -> None:
        checks.count("walks", self.walks, 1)
        checks.count("length", self.length, 1)
        if self.walks * self.length > MAX_STEPS:
            raise InvalidArgumentError(
                f"walks * length must be at most {MAX_STEPS}, got {self.walks} walks of length {self.length}"
            )
        if checks.count("top", self.top, None) != -1 and self.top < 1:
            raise InvalidArgumentError(f"top must be at least 1, or -1 for all, got {self.top}")
        if isinstance(self.restart, bool) or not isinstance(self.restart, int | float):
            raise DTypeError(f"restart must be a number, got {self.restart!r}")
        if not 0 <= self.restart < 1:
            raise InvalidArgumentError(f"restart must be a probability below 1, got {self.restart}")
        if self.metapath is not None:
            object.__setattr__(self, "metapath", metapath_checks.check_metapath(self.metapath, self.length))

    @property
    def step(self) -> tuple[int, int, float]:
        """The number of walks, their length and the restart probability."""
        return int(self.walks), int(self.length), float(self.restart)


@dataclass(frozen=True)
class Sampling:
    """How neighbours are drawn, in the terms of the library."""

    fanouts: list[int]
    walks: list[tuple[int, int, float]] | None
    labor: Labor | None
    weight_attr: str | None
    by_relation: ByRelation | None = None
    """The fanouts by edge type, if they differ; ``fanouts`` is empty then."""
    metapaths: Metapaths | None = None
    """Walks in a heterogeneous graph; ``fanouts`` is empty then, and ``walks`` is None."""

    def check_homogeneous(self) -> None:
        """Refuse what only heterogeneous graphs have."""
        if self.metapaths is not None:
            raise InvalidArgumentError("a metapath is of edge types, which this homogeneous graph does not have")
        if self.by_relation is not None:
            raise DTypeError("num_neighbors is a dict: that is for the edge types of a heterogeneous graph")

    def options(self) -> dict[str, Any]:
        """Return the options of the library."""
        labor = self.labor
        return {
            "fanouts": self.fanouts,
            "walks": self.walks,
            "labor": None
            if labor is None
            else (bool(labor.layer_dependency), int(labor.batch_dependency), bool(labor.edge_weight)),
            "weight_attr": self.weight_attr,
        }

    def config(self) -> dict[str, object]:
        """Return what a batch depends on besides the fanouts; every value is None if draws are uniform."""
        options = self.options()
        labor, walks = options["labor"], options["walks"]
        if self.metapaths is not None:
            walks = metapath_checks.config(self.metapaths)
        return {
            "weight_attr": self.weight_attr,
            "labor": None if labor is None else list(labor[:2]),
            "walks": None if walks is None else [list(walk) for walk in walks],
        }


def subgraph_type(value: object, sampling: Sampling, history: object) -> int:
    """Check which edges a batch gets besides those that are drawn, and return the number that the library uses for
    it."""
    name = checks.choice("subgraph_type", getattr(value, "value", value), checks.SUBGRAPH_TYPES)  # PyG's is an enum
    if name != "directional":
        if sampling.walks is not None or sampling.metapaths is not None:
            raise InvalidArgumentError(
                f"subgraph_type={name!r} completes edges of the graph, which those of a RandomWalk are not"
            )
        if sampling.labor is not None and sampling.labor.edge_weight:
            raise InvalidArgumentError(
                f"subgraph_type={name!r} has edges that were not drawn, and LABOR's edge_weight is for those that "
                "were: take Labor(edge_weight=False)"
            )
        if history is not None:
            raise InvalidArgumentError(f"history prunes batches hop by hop, which subgraph_type={name!r} has not")
    return checks.SUBGRAPH_TYPES.index(name)


def sampling(
    num_neighbors: object, sampler: object, weight_attr: object, replace: bool, *, relations: bool = False
) -> Sampling:
    """Check the sampling options of a loader, each and together.

    With ``relations``, num_neighbors may differ between edge types.
    """
    hops = list(num_neighbors) if isinstance(num_neighbors, list | tuple) else []
    walks = [hop for hop in hops if isinstance(hop, RandomWalk)]
    metapaths = None
    if relations and isinstance(num_neighbors, Mapping) and metapath_checks.has_walks(num_neighbors):
        metapaths = metapath_checks.by_name(num_neighbors)
        walks = [walk for hops in metapaths.values() for walk in hops]
    if metapaths is None and walks and len(walks) < len(hops):
        raise InvalidArgumentError(
            f"num_neighbors must be numbers or RandomWalk in all hops, got {len(walks)} RandomWalk in {len(hops)} hops"
        )
    if isinstance(num_neighbors, RandomWalk):
        raise DTypeError(f"num_neighbors must be a list with a RandomWalk for each hop, such as [{num_neighbors!r}]")
    if isinstance(sampler, RandomWalk):
        raise DTypeError("a RandomWalk goes into num_neighbors, one for each hop, not into sampler")
    labor = Labor() if sampler == "labor" else sampler
    if labor is not None and not isinstance(labor, Labor):
        raise DTypeError(f"sampler must be 'labor', a freshgo.Labor or None, got {sampler!r}")
    if weight_attr is not None and not isinstance(weight_attr, str):
        raise DTypeError(f"weight_attr must be the name of an edge-level tensor, got {checks.shown(weight_attr)}")
    if weight_attr == "":
        raise InvalidArgumentError("weight_attr must be the name of an edge-level tensor, got an empty string")
    if replace and (labor is not None or walks):
        raise InvalidArgumentError(f"replace=True does not go with {'a RandomWalk' if walks else 'LABOR'}")
    if walks and (labor is not None or weight_attr is not None):
        other = "sampler" if labor is not None else "weight_attr"
        raise InvalidArgumentError(f"random walks are uniform: they go without {other}")
    if metapaths is None and any(walk.metapath is not None for walk in walks):
        if not relations:
            raise InvalidArgumentError("a RandomWalk with a metapath is for graphs with types")
        metapaths = metapath_checks.unnamed(walks)
    if metapaths is not None:
        return Sampling([], None, None, None, metapaths=metapaths)
    if relations and isinstance(num_neighbors, Mapping):
        return Sampling([], None, labor, weight_attr, by_relation(num_neighbors))
    return Sampling(
        fanouts=[walk.top for walk in walks] if walks else checks.fanouts(num_neighbors),
        walks=[walk.step for walk in walks] or None,
        labor=labor,
        weight_attr=weight_attr,
    )
