"""The graph of a loader whose rows are divided: the store beside the parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from freshgo._args import checks
from freshgo._args.types import counts_shown
from freshgo._data.narrow import Narrow
from freshgo._data.source import StoreSource
from freshgo._row_exchange.division import Division, read_division
from freshgo.errors import DTypeError, FormatError
from freshgo.store import Store


class ShardedSource(StoreSource):
    """What every rank has whole. Batches are those of the store that was divided, and so are states."""

    def __init__(self, data: object) -> None:
        """Open what :func:`freshgo.shard` has written.

        Raises:
            DTypeError: ``data`` is no path.
            StoreNotFoundError, FormatError: there are no parts, or the graph is not theirs.
        """
        if not isinstance(data, str | os.PathLike):
            raise DTypeError(
                "features='sharded' reads what freshgo.shard() has written: expected the path of that directory, got "
                f"{checks.shown(data)}"
            )
        path = Path(data)
        self.division = read_division(path)
        self.path = path
        graph = Store.open(path / "graph")
        try:
            _check(graph, self.division)
            super().__init__(graph, owned=True)
        except BaseException:
            graph.close()
            raise
        named = {
            f"{self.prefixes[of.node_type]}{rows.name}": rows.narrow()
            for of in self.division.nodes
            for rows in of.tensors
        }
        narrow: Mapping[str, Narrow] = {name: how for name, how in named.items() if how is not None}
        self.narrow = {**self.narrow, **narrow}
        self.tensors = [*self.tensors, *named]

    @property
    def prefixes(self) -> dict[str, str]:
        """What the names of tensors of each node type begin with in a batch of the library."""
        return {node_type: self.types.node_name(i, "") for i, node_type in enumerate(self.types.node_types)}

    def fingerprint(self) -> str:
        return f"store {self.division.store}"

    def shown(self) -> str:
        return f"parts of {str(self.path)!r}, {counts_shown(self.types, self.num_edges)}"


def _check(graph: Store, division: Division) -> None:
    """Check that a graph is that of the parts, and that the ranges are ranges of its nodes."""
    if graph.uuid != division.graph:
        raise FormatError(
            f"{graph.path} is the store {graph.uuid}, but the graph of these parts is {division.graph}: it belongs to "
            "other parts"
        )
    for of in division.nodes:
        nodes = graph._contents.nodes.get(of.node_type)
        count = -1 if nodes is None else nodes.num_nodes
        ranges = all(a <= b for a, b in zip(of.bounds, of.bounds[1:], strict=False))
        if len(of.bounds) != len(division.parts) + 1 or of.bounds[0] != 0 or of.bounds[-1] != count or not ranges:
            raise FormatError(f"{graph.path}: the parts do not divide the {max(count, 0)} nodes of {of.node_type!r}")
