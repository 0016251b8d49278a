"""What a value of a model is: rows of nodes, rows of edges, the edges themselves, or something that no node changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, fx

CONSTANT, ROWS, STACKED, EDGES, ENDS, COUNT, OTHER = ("constant", "rows", "stacked", "edges", "ends", "count", "other")


class Level(NamedTuple):
    """``ROWS``: a row for each node of a type; ``STACKED``: several of these, one after the other, as ``torch.stack``
    makes them; ``EDGES``: a row for each edge of a type; ``ENDS``: the ``edge_index`` of an edge type; ``COUNT``: how
    many nodes a type has, or edges; ``CONSTANT``: the same for every graph; ``OTHER``: none of these, so that no
    operation may read it."""

    kind: str
    of: Any = None
    """The node type or the edge type."""

    @property
    def dim(self) -> int | None:
        """The dimension of a tensor that counts rows."""
        return {ROWS: 0, EDGES: 0, STACKED: 1}.get(self.kind)

    def __str__(self) -> str:
        if self.of in (None, "", ("", "", "")):
            return {ROWS: "rows of nodes", EDGES: "rows of edges", ENDS: "edge_index"}.get(self.kind, self.kind)
        return {ROWS: "rows of {!r}", EDGES: "rows of edges {!r}", ENDS: "the edges {!r}"}.get(
            self.kind, self.kind + " of {!r}"
        ).format(self.of)


def level(node: fx.Node) -> Level:
    """The level of a node of a traced model."""
    found: Level = node.meta["level"]
    return found


def mapped(value: Any, change: Callable[[Any], Any], kind: type = fx.Node) -> Any:
    """An argument with everything of a kind in it changed. Containers keep their classes."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        items = [mapped(item, change, kind) for item in value]
        return (
            type(value)(*items)
            if type(value).__module__ != "torch.return_types" and hasattr(value, "_fields")
            else type(value)(items)
        )
    if isinstance(value, list):
        return [mapped(item, change, kind) for item in value]
    if isinstance(value, dict):
        return {key: mapped(item, change, kind) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(item, change, kind) for item in (value.start, value.stop, value.step)))
    return value


def nodes_in(value: Any) -> list[fx.Node]:
    """The operations in an argument, in its order."""
    found: list[fx.Node] = []
    mapped(value, found.append)
    return found


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a value."""
    found: list[Tensor] = []
    mapped(value, found.append, Tensor)
    yield from found
