"""Saying what the tensors of a graph in memory belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from freshgo._args.entry import entry
from freshgo._args.levels import Levels
from freshgo._args.parts import Levelled

__all__ = ["with_levels"]


@entry
def with_levels(
    data: object,
    *,
    node_level: Sequence[str] = (),
    edge_level: Sequence[str] = (),
    graph_level: Sequence[str] = (),
) -> Any:
    """Say what tensors of a graph belong to where their rows do not decide it, as in a graph with as many edges as
    nodes. The result takes the place of ``data`` wherever a graph in memory is taken.

        loader = Loader(with_levels(data, edge_level=["cost"]), num_neighbors=[10, 10], weight_attr="cost")

    Args:
        data: a graph in memory, as for :class:`freshgo.Loader`. Its tensors are not copied.
        node_level, edge_level, graph_level: names of tensors that belong to nodes, to edges, or to the graph as a
            whole. :func:`freshgo.convert` has the same options.

    Raises:
        InvalidArgumentError: a name in two lists. A name that the graph does not have, and rows that do not fit, are
            errors of whoever reads the graph.
        DTypeError: something other than lists of names.
    """
    return Levelled(data, Levels.given(node_level, edge_level, graph_level))
