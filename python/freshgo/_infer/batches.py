"""A model as it is, over batches with all neighbours up to a depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.types import Types
from freshgo._infer.dtypes import of_edges
from freshgo._infer.layers import Key, Work, ends_of
from freshgo._traced.levels import EDGES, ROWS, tensors
from freshgo._traced.recording import call_model
from freshgo._traced.sample import Given, Sample
from freshgo.errors import InvalidArgumentError

_MOST = 16
"""The largest depth that an error proposes. Arbitrary."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """A model over a batch."""

    model: torch.nn.Module
    given: Mapping[str, Given]
    output: int | str | None
    types: Types
    node_type: str = ""
    """The type of the nodes whose rows are returned without one."""

    @classmethod
    def over(
        cls, sample: Sample, model: torch.nn.Module, given: Mapping[str, Given], output: int | str | None, types: Types
    ) -> Whole:
        """Return a model whose rows belong to the node type with as many nodes in the sample."""
        whole = cls(model, given, output, types)
        found = whole._returned(sample)
        if not isinstance(found, Tensor) or types.homogeneous or found.dim() == 0:
            return whole
        of = next((of for of, count in sample.nodes.items() if count == found.size(0)), "")
        return dataclasses.replace(whole, node_type=of)

    def sources(self) -> tuple[Key, ...]:
        """The rows of nodes that it reads."""
        names = dict.fromkeys(of.tensor for of in self.given.values() if of.level == ROWS)
        return tuple((node_type, name) for node_type in self.types.node_types for name in names)

    def __call__(self, work: Work) -> dict[Key, Any]:
        batch, named = work.batch, not self.types.homogeneous
        edges = {}
        for of in self.given.values():
            if of.level == EDGES:
                for key in self.types.edge_types:
                    part = batch[key] if named else batch
                    if of.tensor in part:
                        edges[key, str(of.tensor)] = of_edges(part[of.tensor])
        rows = {(node_type, str(name)): of for (node_type, name), of in work.rows.items()}
        targets = {}
        for node_type in self.types.node_types:
            part = batch[node_type] if named else batch
            targets[node_type] = int(part.batch_size) if "batch_size" in part else 0
        return self.rows(Sample({}, ends_of(batch, self.types), rows, edges), targets)

    def rows(self, graph: Sample, targets: Mapping[str, int]) -> dict[Key, Any]:
        """What the model returns for the first nodes of each type of a graph."""
        found = self._returned(graph)
        if isinstance(found, Tensor):
            found = {self.node_type: found}
        if not isinstance(found, Mapping) or not all(isinstance(of, Tensor) for of in found.values()):
            raise InvalidArgumentError(
                f"{type(self.model).__name__} returns {checks.shown(found)}, expected rows of nodes, or a dict of "
                "these by node type: choose an entry by output="
            )
        if not set(found) <= set(self.types.node_types):
            raise InvalidArgumentError(
                f"{type(self.model).__name__} returns rows of {', '.join(map(repr, found))}, expected node types of "
                f"the store: {', '.join(map(repr, self.types.node_types))}"
            )
        return {(of, None): rows[: targets[of]] for of, rows in found.items()}

    def _returned(self, graph: Sample) -> Any:
        found = call_model(self.model, graph, self.given)
        return found if self.output is None else found[self.output]


def check_depth(whole: Whole, sample: Sample, depth: int) -> None:
    """Check that a model gives nodes of a sample the same rows from their neighbours up to a depth as from the whole.

    Raises:
        InvalidArgumentError: it reads further, or all nodes.
    """
    want = whole.rows(sample, sample.nodes)
    if not _suffices(whole, sample, want, depth):
        enough = next((n for n in range(depth + 1, _MOST) if _suffices(whole, sample, want, n)), None)
        kind = type(whole.model).__name__
        if enough is None:
            raise InvalidArgumentError(
                f"{kind} returns other rows over neighbours up to any depth than over the whole graph: it reads all "
                "nodes, or is random"
            )
        raise InvalidArgumentError(
            f"depth={depth} is too small for {kind}: on a random graph depth={enough} gives the rows of the whole graph"
        )


def _suffices(whole: Whole, sample: Sample, want: Mapping[Key, Tensor], depth: int) -> bool:
    """Return whether ``depth`` hops give the first node of each type, by itself, its row of the whole graph."""
    for node_type in dict.fromkeys(of for of, _ in want):
        for seed in range(min(5, sample.nodes[node_type])):
            graph, order = _around(sample, node_type, seed, depth)
            found = whole.rows(graph, graph.nodes)[node_type, None]
            assert int(order[node_type][0]) == seed
            rows = want[node_type, None]
            largest = rows.abs().max().item()
            if not torch.allclose(found[0], rows[seed], rtol=1e-4, atol=1e-4 * largest, equal_nan=True):
                return False
    return True


def _around(sample: Sample, node_type: str, seed: int, depth: int) -> tuple[Sample, dict[str, Tensor]]:
    """The graph up to a distance from a node, which comes first."""
    device = next(tensors(tuple(sample.ends.values()))).device
    reached = {of: torch.zeros(count, dtype=torch.bool, device=device) for of, count in sample.nodes.items()}
    reached[node_type][seed] = True
    taken = {key: torch.zeros(ends.size(1), dtype=torch.bool, device=device) for key, ends in sample.ends.items()}
    for _ in range(depth):
        for key, ends in sample.ends.items():
            taken[key] |= reached[key[2]][ends[1]]
        for key, ends in sample.ends.items():
            reached[key[0]][ends[0, taken[key]]] = True
    order = {of: some.nonzero().view(-1) for of, some in reached.items()}
    first = order[node_type]
    order[node_type] = torch.cat([first[first == seed], first[first != seed]])
    places = {of: torch.zeros(count, dtype=torch.long, device=device) for of, count in sample.nodes.items()}
    for of, nodes in order.items():
        places[of][nodes] = torch.arange(nodes.numel(), device=device)
    local = {
        key: torch.stack([places[key[0]][ends[0, taken[key]]], places[key[2]][ends[1, taken[key]]]])
        for key, ends in sample.ends.items()
    }
    rows = {(of, name): rows[order[of]] for (of, name), rows in sample.rows.items()}
    edges = {(key, name): rows[taken[key]] for (key, name), rows in sample.edges.items()}
    return Sample({of: nodes.numel() for of, nodes in order.items()}, local, rows, edges), order
