"""The shape of papers100M with half of its edges: 111M nodes of one type, 0.8G edges with skewed sources."""

from __future__ import annotations

import numpy as np
from shape import Edges, Relation, Shape

NODES, EDGES = 111_059_956, 800_000_000


class Papers(Shape):
    """Edges are sorted by target, so that a conversion sorts nothing, unless they are in no order."""

    fanouts, input_whole, columns_whole = [15, 10, 5], 1_207_179, 64

    def __init__(self, fraction: float, columns: int = columns_whole, in_order: bool = True) -> None:
        nodes = int(NODES * fraction)
        self.list = Edges("edge_index", nodes, nodes, int(EDGES * fraction), in_order)
        self.edges = self.list.count
        name = f"papers-{fraction:g}-{columns}" + ("" if in_order else "-unsorted")
        super().__init__(name, columns, {None: nodes}, None, {None: Relation(self.list)})

    def edge(self, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and targets."""
        return self.list.edge(number)

    def into(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the edges that end at some nodes: sources, and the place in ``node`` of each target."""
        return self.list.into(node)
