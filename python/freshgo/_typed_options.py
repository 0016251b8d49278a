"""What a loader over a graph with types was asked for, checked against the types that there are."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from freshgo._typed_source import TypedSource
from freshgo._types import ByRelation, Inputs, Types
from freshgo.errors import InvalidArgumentError
from freshgo.samplers import Sampling


@dataclasses.dataclass(frozen=True)
class TypedOptions:
    """Types, neighbours along each relation, and input nodes."""

    types: Types
    fanouts: ByRelation
    inputs: Inputs | None
    """None: batches are made for links."""

    @classmethod
    def of(
        cls, source: TypedSource, drawn: Sampling, input_nodes: object, *, links: bool = False, **homogeneous: object
    ) -> TypedOptions:
        """Check the arguments of a loader. ``homogeneous`` are those that work without types alone."""
        types = source.types
        given = [name for name, value in homogeneous.items() if value is not None]
        if drawn.walks is not None:
            given.append("RandomWalk in num_neighbors")
        if given:
            raise InvalidArgumentError(
                f"{given[0]} works on homogeneous graphs, this one has the node types "
                f"{', '.join(map(repr, types.node_types))}"
            )
        fanouts = types.fanouts(drawn.by_relation, drawn.fanouts)
        return cls(types, fanouts, None if links else types.inputs(input_nodes, source.split_of))

    def warn_one_way(self) -> None:
        """Say which relations a bidirectional batch leaves as they are."""
        for edge_type in self.types.one_way():
            warnings.warn(
                f"subgraph_type='bidirectional' adds nothing to {edge_type}, which has no reverse edge type: it would "
                f"be {(edge_type[2], f'rev_{edge_type[1]}', edge_type[0])}, or the only one from {edge_type[2]!r} to "
                f"{edge_type[0]!r}",
                UserWarning,
                stacklevel=3,
            )

    def native(self) -> dict[str, Any]:
        """Return the options of the library."""
        seeds = None if self.inputs is None else self.inputs.seeds
        return {"fanouts": [], "relation_fanouts": list(self.fanouts.values()), "seeds": seeds}

    def config(self) -> dict[str, Any]:
        """Return what a batch depends on, as it comes back from JSON."""
        return {
            "num_neighbors": [[list(edge_type), list(hops)] for edge_type, hops in self.fanouts.items()],
            "input_nodes": None if self.inputs is None else self.inputs.config,
        }
