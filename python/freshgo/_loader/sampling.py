"""How neighbours are drawn: what a loader was given, checked as far as that goes without its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from freshgo._args import checks, choices
from freshgo._args.types import ByRelation, by_relation
from freshgo._loader import walks as random_walks
from freshgo._loader.walks import Walks
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.samplers import Labor, RandomWalk


@dataclass(frozen=True)
class Sampling:
    """How neighbours are drawn, in the terms of the library."""

    fanouts: list[int] | ByRelation
    """Neighbours per hop, of every edge type alike or by edge type; empty with walks."""
    walks: Walks | None
    """Random walks by the edge type that they make."""
    labor: Labor | None
    weight_attr: str | None

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
        labor = self.labor
        return {
            "weight_attr": self.weight_attr,
            "labor": None if labor is None else [bool(labor.layer_dependency), int(labor.batch_dependency)],
            "walks": None if self.walks is None else random_walks.config(self.walks),
        }


def subgraph_type(value: object, sampling: Sampling, history: object) -> int:
    """Check which edges a batch gets besides those that are drawn, and return the number that the library uses for
    it."""
    name = checks.choice("subgraph_type", getattr(value, "value", value), choices.Subgraph)  # PyG's is an enum
    if name != "directional":
        if sampling.walks is not None:
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
    return get_args(choices.Subgraph).index(name)


def sampling(num_neighbors: object, neighbor_sampler: object, weight_attr: object, replace: bool) -> Sampling:
    """Check the sampling options of a loader, each and together."""
    if isinstance(num_neighbors, RandomWalk):
        raise DTypeError(f"num_neighbors must be a list with a RandomWalk for each hop, such as [{num_neighbors!r}]")
    walks = random_walks.walks(num_neighbors)
    if isinstance(neighbor_sampler, RandomWalk):
        raise DTypeError("a RandomWalk goes into num_neighbors, one for each hop, not into neighbor_sampler")
    labor = Labor() if neighbor_sampler == "labor" else neighbor_sampler
    if labor is not None and not isinstance(labor, Labor):
        raise DTypeError(f"neighbor_sampler must be 'labor', a freshgo.Labor or None, got {neighbor_sampler!r}")
    if weight_attr is not None and not isinstance(weight_attr, str):
        raise DTypeError(f"weight_attr must be the name of an edge-level tensor, got {checks.shown(weight_attr)}")
    if weight_attr == "":
        raise InvalidArgumentError("weight_attr must be the name of an edge-level tensor, got an empty string")
    if replace and (labor is not None or walks):
        raise InvalidArgumentError(f"replace=True cannot be combined with {'a RandomWalk' if walks else 'LABOR'}")
    if walks and (labor is not None or weight_attr is not None):
        other = "neighbor_sampler" if labor is not None else "weight_attr"
        raise InvalidArgumentError(f"random walks are uniform: they cannot be combined with {other}")
    if walks:
        return Sampling([], walks, None, None)
    by_type = by_relation(num_neighbors) if isinstance(num_neighbors, Mapping) else None
    return Sampling(by_type or checks.fanouts(num_neighbors), None, labor, weight_attr)
