"""What a tensor belongs to: nodes, edges, or the graph as a whole.

The caller says it (``node_level``, ``edge_level``, ``graph_level``, ``weight_attr``), or the number of rows does. Where
neither decides, the caller is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal

from freshgo._args import checks
from freshgo._args.arrays import Array, NpyFile, is_integer
from freshgo._args.hints import among
from freshgo._args.types import label_of
from freshgo.errors import DTypeError, InvalidArgumentError

Level = Literal["node", "edge", "graph"]

_ASKED = "convert() takes these options, and freshgo.with_levels() for a graph in memory"

OF_NODES = ("x", "feat", "pos", "batch")
"""Names that PyG and everybody else give to tensors of nodes alone."""

_OF_EDGES = ("edge_attr", "edge_weight")

_OF_EITHER = ("time", "weight")


def holds_rows(name: str) -> bool:
    """Whether a name is given to tensors with a row for each node or edge alone."""
    return name in (*OF_NODES, *_OF_EDGES, "y") or name.endswith("_mask")


@dataclasses.dataclass(frozen=True)
class Levels:
    """What the caller says of tensors, by name."""

    of: Mapping[str, Level] = dataclasses.field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    """What ``weight_attr`` names: a tensor of edges, if it has a row for each."""
    whole: bool = True
    """Whether a tensor of a type that has other rows may belong to the graph as a whole."""

    @classmethod
    def given(cls, node_level: object = (), edge_level: object = (), graph_level: object = ()) -> Levels:
        """Check three lists of names."""
        of: dict[str, Level] = {}
        lists: dict[Level, object] = {"node": node_level, "edge": edge_level, "graph": graph_level}
        for level, names in lists.items():
            if isinstance(names, str) or not isinstance(names, Collection) or getattr(names, "ndim", 1) == 0:
                raise DTypeError(f"{level}_level must be a list of names of tensors, got {checks.shown(names)}")
            for name in names:
                if not isinstance(name, str):
                    raise DTypeError(f"{level}_level must be a list of names of tensors, got {checks.shown(names)}")
                if of.setdefault(name, level) != level:
                    raise InvalidArgumentError(f"{name!r} is both in {of[name]}_level and in {level}_level")
        return cls(of)

    def or_else(self, other: Levels) -> Levels:
        """Return these levels, and ``others`` for names that these lack."""
        return Levels({**other.of, **self.of}, self.weights | other.weights, self.whole and other.whole)

    def counting(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays whose rows may tell the number of nodes: those that are not said to be of the graph."""
        return {name: array for name, array in arrays.items() if self.of.get(name) != "graph"}

    def check_names(self, known: Collection[str]) -> None:
        """Raise InvalidArgumentError for a name that no tensor has."""
        for name, level in self.of.items():
            if name not in known:
                raise InvalidArgumentError(
                    f"{level}_level names {name!r}, which the graph does not have: it has {among(name, sorted(known))}"
                )

    def check_whole(self, values: Mapping[str, Any], counts: Collection[int | None], label: str) -> None:
        """Ask about values that have no rows: a number by a name of rows, and a list with an entry for each node or
        edge, whose entries nothing can select."""
        for name, value in values.items():
            if self.of.get(name) == "graph":
                continue
            if holds_rows(name) and name != "y":  # which may be the label of the graph
                raise InvalidArgumentError(
                    f"{label}{name} is a single value, {checks.shown(value)}: expected a row for each node or edge"
                    f"{self._or_whole(name)}"
                )
            if isinstance(value, list | tuple) and len(value) in counts:
                raise InvalidArgumentError(
                    f"{label}{name} is a {type(value).__name__} with an entry for each node or edge: expected a tensor"
                    f"{self._or_whole(name)}"
                )

    def homogeneous(
        self, name: str, array: Array, num_nodes: int | None, num_edges: int, num_graphs: int, dim: int | None = 0
    ) -> Level:
        """Return what a tensor of a homogeneous graph belongs to. ``dim`` is where the graph says that nodes or edges
        are.

        Raises:
            InvalidArgumentError: nothing decides, or the rows do not fit.
        """
        rows = int(array.shape[0])
        level = self.of.get(name)
        if level is None and dim not in (0, None, -len(array.shape)):
            self._check_columns(name, array, (num_nodes, num_edges), "", dim)
        if level is None and rows == num_edges and name in self.weights:
            level = "edge"
        if level is None and rows == num_nodes == num_edges:
            level = self._by_name(name, array, rows)
        if level is None:
            level = "node" if rows == num_nodes else "edge" if rows == num_edges else None
        named = name in self.weights or num_nodes is None
        if level is None and not named and is_whole(name, array, ("node", "edge"), num_graphs):
            level = "graph"
            self._check_columns(name, array, (num_nodes, num_edges), "")
        fits = level == "graph" or (level == "node" and rows == num_nodes) or (level == "edge" and rows == num_edges)
        if level is None or not fits:
            known = "an unknown number of nodes (give num_nodes)" if num_nodes is None else f"{num_nodes} nodes"
            one = "one row per node or one per edge" if level is None else f"one row per {level}"
            raise InvalidArgumentError(
                f"{name!r} has shape {list(array.shape)}, but the graph has {known} and {num_edges} edges: "
                f"expected {one}{'' if level else self._or_whole(name)}"
            )
        return level

    def _by_name(self, name: str, array: Array, rows: int) -> Level:
        """Decide by the name where a graph has as many nodes as edges."""
        if "edge" in name:
            return "edge"
        if name in (*OF_NODES, "y") or "node" in name or is_mask(name, array):
            return "node"
        raise InvalidArgumentError(
            f"{name!r} has {rows} rows, and the graph has {rows} nodes and {rows} edges: say which it belongs to with "
            f"node_level=[{name!r}] or edge_level=[{name!r}] ({_ASKED})"
        )

    def typed(self, key: Any, name: str, array: Array, count: int, num_graphs: int = 0) -> Level:
        """Return what a tensor of a node type or edge type with ``count`` members belongs to: they, or the whole type.

        Raises:
            InvalidArgumentError: as :meth:`homogeneous`.
        """
        own: Level = "node" if isinstance(key, str) else "edge"
        level, label = self.of.get(name), label_of(key)
        if level == "graph":
            return level
        level = level if level == own else None  # said of a tensor of this name of other types
        fits = int(array.shape[0]) == count
        if fits:
            return own
        if level is None and self.whole and is_whole(name, array, (own,), num_graphs):
            if own == "edge":
                self._check_columns(name, array, (count,), label)
            return "graph"
        where = f" in {array.path}" if isinstance(array, NpyFile) else ""
        expected = f"one row per {level or own}{'' if level else self._or_whole(name)}"
        raise InvalidArgumentError(
            f"{label}{name}{where} has shape {list(array.shape)}, but there are {count} {own}s of this type: "
            f"expected {expected}"
        )

    def _or_whole(self, name: str) -> str:
        return f", or graph_level=[{name!r}] if it belongs to the graph as a whole ({_ASKED})"

    def _check_columns(
        self, name: str, array: Array, counts: Collection[int | None], label: str, dim: int | None = None
    ) -> None:
        """Ask about a tensor whose columns, or what it has along ``dim``, PyG's loaders would select."""
        named = "index" in name or name == "face"
        at = -1 if dim is None and named else dim
        if at is not None and len(array.shape) > 1 and int(array.shape[at]) in counts:
            what = "a column" if at in (-1, len(array.shape) - 1) else f"an entry of dimension {at}"
            raise InvalidArgumentError(
                f"{label}{name} has shape {list(array.shape)}, with {what} for each node or edge: expected a row for "
                f"each{self._or_whole(name)}"
            )


ROWS = Levels(whole=False)
"""Of sources whose files say what a tensor belongs to."""


def is_mask(name: str, array: Array) -> bool:
    """Whether a tensor of this name is a split, or several in its columns."""
    return name.endswith("_mask") and 1 <= len(array.shape) <= 2 and is_bool(array)


def is_bool(array: Array) -> bool:
    """Whether these are bools."""
    return str(array.dtype).removeprefix("torch.") == "bool"


def is_whole(name: str, array: Array, levels: Collection[str], num_graphs: int) -> bool:
    """Whether a tensor with rows for neither nodes nor edges may belong to the graph as a whole.

    A name that everybody gives to tensors of nodes or edges says that rows are missing, rather. ``y`` may be the label
    of the graph, or of ``num_graphs`` graphs that are batched into one.
    """
    if name == "y":
        return int(array.shape[0]) in (1, num_graphs)
    if name in _OF_EITHER:
        return False
    nodes = name in OF_NODES or is_mask(name, array)
    return not (("node" in levels and nodes) or ("edge" in levels and name in _OF_EDGES))


def is_index(array: Array) -> bool:
    """Whether an array may hold links: integers ``[2, links]``."""
    return len(array.shape) == 2 and int(array.shape[0]) == 2 and (is_integer(array) or int(array.shape[1]) == 0)
