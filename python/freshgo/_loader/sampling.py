"""How neighbours are drawn: what a loader was given, checked as far as that goes without its graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from freshgo._args import checks, choices
from freshgo._args.hints import among, did_you_mean
from freshgo._args.types import ByRelation, EdgeType, Types, by_relation
from freshgo._loader import walks as random_walks
from freshgo._loader.walks import Walks
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.samplers import NAMED, Labor, RandomWalk


@dataclass(frozen=True)
class Sampling:
    """How neighbours are drawn, in the terms of the library."""

    fanouts: list[int] | ByRelation
    """Neighbours per hop, of every edge type alike or by edge type; empty with walks."""
    walks: Walks | None
    """Random walks by the edge type that they make."""
    sampler: Labor | None
    """The sampler that was chosen by name; None: the one that other options ask for."""
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
        if self.walks is not None:
            return {"weight_attrs": [{"name": None} for _ in self.walks]}  # which the library refuses
        if types.homogeneous:
            raise DTypeError("weight_attr must be the name of an edge-level tensor in a homogeneous graph, got a dict")
        for edge_type in self.weight_attrs:
            if edge_type not in types.edge_types:
                known = among(edge_type, types.edge_types)
                raise InvalidArgumentError(f"weight_attr has the unknown edge type {edge_type!r}, expected {known}")
        return {"weight_attrs": [{"name": self.weight_attrs.get(edge_type)} for edge_type in types.edge_types]}

    def options(self) -> dict[str, Any]:
        """Return the options of the library that do not depend on the graph."""
        if self.sampler is None:
            return {"weight_attr": self.weight_attr}
        return {
            "weight_attr": self.weight_attr,
            "sampler": self._key,
            "sampler_options": json.dumps(self._options),
            "no_edge_weight": not getattr(self.sampler, "edge_weight", True),
        }

    @property
    def _key(self) -> str:
        """The name of the sampler that was chosen by name."""
        return next(key for key, kind in NAMED.items() if type(self.sampler) is kind)

    @property
    def _options(self) -> dict[str, Any]:
        """The options of the sampler that was chosen by name, as JSON takes them."""
        values = {name: value for name, value in vars(self.sampler).items() if name != "edge_weight"}
        return {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}

    def config(self) -> dict[str, object]:
        """Return what a batch depends on besides the fanouts; every value is None if draws are uniform."""
        return {
            "weight_attr": self._config_of_weights(),
            "labor": None,  # which states of all loaders have
            **({} if self.sampler is None else {self._key: list(self._options.values())}),
            "walks": None if self.walks is None else random_walks.config(self.walks),
        }

    def _config_of_weights(self) -> Any:
        """Return the names of weights as they come back from JSON."""
        by_type = self.weight_attrs
        return self.weight_attr if by_type is None else [[list(of), by_type[of]] for of in sorted(by_type)]


def subgraph_type(value: object, history: object) -> int:
    """Check which edges a batch gets besides those that are drawn, and return the number that the library uses for it.

    The library is not told of a history that keeps nothing, but its model takes the hops of a batch all the same.
    """
    name = checks.choice("subgraph_type", getattr(value, "value", value), choices.Subgraph)  # PyG's is an enum
    if name != "directional" and history is not None:
        raise InvalidArgumentError(f"history prunes batches hop by hop, but subgraph_type={name!r} has no hops")
    return get_args(choices.Subgraph).index(name)


def sampling(num_neighbors: object, neighbor_sampler: object, weight_attr: object) -> Sampling:
    """Check the sampling options of a loader, each by itself: the library knows which go together."""
    if isinstance(num_neighbors, RandomWalk):
        raise DTypeError(f"num_neighbors must be a list with a RandomWalk for each hop, such as [{num_neighbors!r}]")
    walks = random_walks.walks(num_neighbors)
    if isinstance(neighbor_sampler, RandomWalk):
        raise DTypeError("a RandomWalk goes into num_neighbors, one for each hop, not into neighbor_sampler")
    name, by_type = _weights(weight_attr)
    fanouts, default = ([], None) if walks else _fanouts(num_neighbors)
    return Sampling(fanouts, walks, _sampler(neighbor_sampler), name, by_type, default)


def _sampler(value: object) -> Labor | None:
    """Check neighbor_sampler: a name, or a sampler with its options."""
    if value is None:
        return None
    for kind in NAMED.values():
        if isinstance(value, kind):
            return value
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]()
    known = ", ".join(f"{name!r}, a freshgo.{kind.__name__}" for name, kind in NAMED.items())
    error = InvalidArgumentError if isinstance(value, str) else DTypeError
    raise error(f"neighbor_sampler must be {known} or None, got {value!r}{did_you_mean(value, NAMED)}")


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
