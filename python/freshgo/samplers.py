"""How neighbours are drawn: what ``Loader(num_neighbors=…, neighbor_sampler=…)`` accept in addition to numbers.

Without these a loader draws neighbours uniformly; ``weight_attr=`` draws them in proportion to weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.metapaths import check_metapath
from freshgo._args.types import EdgeType
from freshgo.errors import DTypeError, InvalidArgumentError

MAX_STEPS = 1 << 20
"""The most steps that the walks of a node may have together."""


@entry
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
        edge_weight: give ``batch.edge_weight``. Must be False if the graph itself has a tensor of this name.

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


NeighborSampler = Labor | Literal["labor"]
"""A sampler with its options, or its name."""

NAMED: dict[str, type[Labor]] = {"labor": Labor}
"""The samplers by name, as the library knows them. Their fields are its options of the sampler, except for
``edge_weight``."""


@entry
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
            raise InvalidArgumentError(f"restart must be in [0, 1), got {self.restart}")
        if self.metapath is not None:
            object.__setattr__(self, "metapath", check_metapath(self.metapath, self.length))

    @property
    def step(self) -> tuple[int, int, float]:
        """The number of walks, their length and the restart probability."""
        return int(self.walks), int(self.length), float(self.restart)
