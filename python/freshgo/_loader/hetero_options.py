"""What a loader over a graph with types was asked for, checked against the types that there are."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from freshgo._args import checks
from freshgo._args.types import ByRelation, Inputs, Types
from freshgo._data.hetero_source import TypedSource
from freshgo._loader import metapaths as walks_of_types
from freshgo._loader.metapaths import Metapaths
from freshgo._loader.sampling import Sampling
from freshgo.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class TypedOptions:
    """Types, neighbours along each relation, and input nodes."""

    types: Types
    fanouts: ByRelation
    """Of every type of edges that batches have."""
    inputs: Inputs | None
    """None: batches are made for links."""
    metapaths: Metapaths | None = None
    """What is walked along, in the order of ``fanouts``."""

    @classmethod
    def of(cls, source: TypedSource, drawn: Sampling, input_nodes: object, *, links: bool = False) -> TypedOptions:
        """Check the arguments of a loader."""
        types = source.types
        if drawn.walks is not None:
            raise InvalidArgumentError(
                "a RandomWalk in a heterogeneous graph goes along a metapath=[...] of its edge types, which are "
                f"{', '.join(map(repr, types.edge_types)) or 'none at all'}"
            )
        inputs = None if links else types.inputs(input_nodes, source.split_of, source.splits_of)
        if drawn.metapaths is None:
            return cls(types, types.fanouts(drawn.by_relation, drawn.fanouts), inputs)
        if inputs is None:
            raise InvalidArgumentError("a LinkLoader draws along edge types: it cannot use metapaths")
        walks_of_types.in_graph(drawn.metapaths, types, inputs.config)
        fanouts = {name: [walk.top for walk in hops] for name, hops in drawn.metapaths.items()}
        return cls(types, fanouts, inputs, drawn.metapaths)

    @property
    def drawn(self) -> Types:
        """The types of nodes and edges that batches have."""
        return Types(self.types.num_nodes, list(self.fanouts))

    def warn_one_way(self) -> None:
        """Say which relations a bidirectional batch leaves as they are."""
        for edge_type in self.types.one_way():
            warnings.warn(
                f"subgraph_type='bidirectional' adds nothing to {edge_type}, which has no reverse edge type: it would "
                f"be {(edge_type[2], f'rev_{edge_type[1]}', edge_type[0])}, or the only one from {edge_type[2]!r} to "
                f"{edge_type[0]!r}",
                UserWarning,
                stacklevel=checks.caller(),
            )

    def native(self) -> dict[str, Any]:
        """Return the options of the library."""
        return {
            "fanouts": [],
            "relation_fanouts": list(self.fanouts.values()),
            "seeds": None if self.inputs is None else self.inputs.seeds,
            "metapaths": None if self.metapaths is None else walks_of_types.native(self.metapaths, self.types),
        }

    def config(self) -> dict[str, Any]:
        """Return what a batch depends on, as it comes back from JSON."""
        return {
            "num_neighbors": [[list(edge_type), list(hops)] for edge_type, hops in self.fanouts.items()],
            "input_nodes": None if self.inputs is None else self.inputs.config,
        }
