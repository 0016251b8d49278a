"""How neighbours are drawn: what a loader was given, checked, and as the library takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freshgo._args import checks
from freshgo._args.types import ByRelation, by_relation
from freshgo._loader import metapaths as walks_of_types
from freshgo._loader.metapaths import Metapaths
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.samplers import Labor, RandomWalk


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
        """Return the options of the library that do not depend on the graph."""
        options: dict[str, Any] = {"weight_attr": self.weight_attr}
        if self.labor is not None:
            options["labor"] = 1 if self.labor.edge_weight else 2
            options["layer_dependency"] = bool(self.labor.layer_dependency)
            options["batch_dependency"] = int(self.labor.batch_dependency)
        return options

    def config(self) -> dict[str, object]:
        """Return what a batch depends on besides the fanouts; every value is None if draws are uniform."""
        labor, walks = self.labor, self.walks
        if self.metapaths is not None:
            walks = walks_of_types.config(self.metapaths)
        return {
            "weight_attr": self.weight_attr,
            "labor": None if labor is None else [bool(labor.layer_dependency), int(labor.batch_dependency)],
            "walks": None if walks is None else [list(walk) for walk in walks],
        }


def subgraph_type(value: object, sampling: Sampling, history: object) -> int:
    """Check which edges a batch gets besides those that are drawn, and return the number that the library uses for
    it."""
    name = checks.choice("subgraph_type", getattr(value, "value", value), checks.SUBGRAPH_TYPES)  # PyG's is an enum
    if name != "directional":
        if sampling.walks is not None or sampling.metapaths is not None:
            raise InvalidArgumentError(
                f"subgraph_type={name!r} adds edges of the graph, but those of a RandomWalk are not edges of the graph"
            )
        if sampling.labor is not None and sampling.labor.edge_weight:
            raise InvalidArgumentError(
                f"subgraph_type={name!r} has edges that were not drawn, and LABOR's edge_weight is for those that "
                "were: use Labor(edge_weight=False)"
            )
        if history is not None:
            raise InvalidArgumentError(f"history prunes batches hop by hop, but subgraph_type={name!r} has no hops")
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
    if relations and isinstance(num_neighbors, Mapping) and walks_of_types.has_walks(num_neighbors):
        metapaths = walks_of_types.by_name(num_neighbors)
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
        raise InvalidArgumentError(f"replace=True cannot be combined with {'a RandomWalk' if walks else 'LABOR'}")
    if walks and (labor is not None or weight_attr is not None):
        other = "sampler" if labor is not None else "weight_attr"
        raise InvalidArgumentError(f"random walks are uniform: they cannot be combined with {other}")
    if metapaths is None and any(walk.metapath is not None for walk in walks):
        if not relations:
            raise InvalidArgumentError("a RandomWalk with a metapath is for heterogeneous graphs")
        metapaths = walks_of_types.unnamed(walks)
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
