"""How neighbours are drawn: what a loader was given, checked as far as that goes without its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from freshgo._args import checks, choices
from freshgo._args.hints import among
from freshgo._args.types import ByRelation, EdgeType, Types, by_relation
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
    weight_attrs: Mapping[EdgeType, str] | None = None
    """The same by edge type."""
    default: list[int] | None = None
    """Neighbours per hop of edge types that ``fanouts`` does not name."""

    @property
    def weight_names(self) -> frozenset[str]:
        """The names of the tensors of weights."""
        return frozenset() if self.weight_attr is None else frozenset({self.weight_attr})

    def weights(self, types: Types) -> dict[str, Any]:
        """Return the option of the library for weights by edge type.

        Raises:
            InvalidArgumentError, DTypeError: an edge type that the graph does not have.
        """
        if self.weight_attrs is None:
            return {}
        if types.homogeneous:
            raise DTypeError("weight_attr is a dict: that is for the edge types of a heterogeneous graph")
        for edge_type in self.weight_attrs:
            if edge_type not in types.edge_types:
                known = among(edge_type, types.edge_types)
                raise InvalidArgumentError(f"weight_attr has the unknown edge type {edge_type!r}, expected {known}")
        return {"weight_attrs": [{"name": self.weight_attrs.get(edge_type)} for edge_type in types.edge_types]}

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
            "weight_attr": self._config_of_weights(),
            "labor": None if labor is None else [bool(labor.layer_dependency), int(labor.batch_dependency)],
            "walks": None if self.walks is None else random_walks.config(self.walks),
        }

    def _config_of_weights(self) -> Any:
        """Return the names of weights as they come back from JSON."""
        by_type = self.weight_attrs
        return self.weight_attr if by_type is None else [[list(of), by_type[of]] for of in sorted(by_type)]


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
    name, by_type = _weights(weight_attr)
    if replace and (labor is not None or walks):
        raise InvalidArgumentError(f"replace=True cannot be combined with {'a RandomWalk' if walks else 'LABOR'}")
    if walks and (labor is not None or weight_attr is not None):
        other = "neighbor_sampler" if labor is not None else "weight_attr"
        raise InvalidArgumentError(f"random walks are uniform: they cannot be combined with {other}")
    if walks:
        return Sampling([], walks, None, None)
    fanouts, default = _fanouts(num_neighbors)
    return Sampling(fanouts, None, labor, name, by_type, default)


def _weights(value: object) -> tuple[str | None, dict[EdgeType, str] | None]:
    """Check weight_attr: one name, or names by edge type."""
    by_type = dict(value) if isinstance(value, Mapping) else None
    for name in [value] if by_type is None else by_type.values():
        if (name is not None and not isinstance(name, str)) or (by_type is not None and name is None):
            raise DTypeError(
                "weight_attr must be the name of an edge-level tensor, or a dict of names by edge type, got "
                f"{checks.shown(value)}"
            )
        if name == "":
            raise InvalidArgumentError("weight_attr must be the name of an edge-level tensor, got an empty string")
    if by_type == {}:
        raise InvalidArgumentError("weight_attr must name the tensor of at least one edge type, got an empty dict")
    return (value if isinstance(value, str) else None), by_type


def _fanouts(value: Any) -> tuple[list[int] | ByRelation, list[int] | None]:
    """Check num_neighbors: a list, lists by edge type, or PyG's NumNeighbors of either, which may have a default."""
    default = None
    if hasattr(value, "get_values") and hasattr(value, "default"):
        if value.default is not None:
            default = checks.fanouts(value.default, name="num_neighbors.default")
        named = value.values
        value = {tuple(key.split("__")): hops for key, hops in named.items()} if isinstance(named, Mapping) else named
    if not isinstance(value, Mapping):
        return checks.fanouts(value), None
    fanouts = by_relation(value) if value or default is None else {}
    if default is not None and any(len(hops) != len(default) for hops in fanouts.values()):
        raise InvalidArgumentError(
            f"num_neighbors: hops must be the same across all edge types, got {fanouts} and the default {default}"
        )
    return fanouts, default
