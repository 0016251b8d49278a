"""Layers over all types of a graph in an attached model, which are called with dicts of rows and of edges.

A ``HeteroConv`` gets what ``block.pairs(h)`` gives. Any other layer gets the rows of all sources, of which targets come
first, and what it returns is cut to the targets: no edge ends at the others, so this is right for whatever computes a
row from the row itself and from its in-edges, such as HGTConv or a layer that ``to_hetero`` made.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from freshgo._batch.structure import Levels, recall
from freshgo._history.interfaces import Rows
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._args.types import EdgeType
    from freshgo._batch.structure import HeteroBlock


def origin(module: nn.Module) -> str:
    """The name of the first class of PyG that the module's class comes from: "BasicGNN" for its ready-made models."""
    names = [kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch_geometric.")]
    return "BasicGNN" if "BasicGNN" in names else next(iter(names), "")


def by_relation(module: nn.Module) -> bool:
    """Whether a layer is a HeteroConv, called as PyG calls it."""
    forward: Any = type(module).forward
    return origin(module) == "HeteroConv" and str(forward.__module__).startswith("torch_geometric.")


def parameters(module: nn.Module) -> list[str]:
    """Return the names of what a layer is called with, its rows and edges first."""
    if by_relation(module):
        return ["x_dict", "edge_index_dict"]
    return list(inspect.signature(module.forward).parameters)


def levels_of(edges: Mapping[Any, Any]) -> Levels | None:
    """Return what is known of the levels of the batch with these edges by type; None: it is plain, or not known.

    Raises:
        InvalidArgumentError: some are those of a pruned batch and some are not.
    """
    known = {key: recall(index) if isinstance(index, Tensor) else None for key, index in edges.items()}
    of = {key: None if one is None else one.levels for key, one in known.items()}
    found = next((levels for levels in of.values() if levels is not None), None)
    if found is None:
        return None
    if not found.named:
        raise InvalidArgumentError("edges were given as a dict, but the batch is homogeneous: give a tensor")
    for key, levels in of.items():
        if levels is None or levels.index != found.index or levels.owner is not found.owner:
            raise InvalidArgumentError(
                f"the edges of {key} are not those of the pruned batch that the others are of: with history edges "
                "cannot be changed, neither by a transform of the loader nor in the model"
            )
    return found


def arguments(
    history: Rows, where: str, module: nn.Module, block: HeteroBlock, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a layer is called with in the place of what the model gives it, as by hand::

        h = history(h, block)
        layer(block.pairs(h), block.edge_index_dict)  # a HeteroConv
        layer(h, block.edge_index_dict)  # another layer

    Tensors of edges among the other arguments are brought along.

    Raises:
        InvalidArgumentError, DTypeError: what is given is not what a layer over types takes.
    """
    names = parameters(module)
    x, edges = (_named(names, args, kwargs, i) for i in range(2))
    unknown = [key for key in edges if key not in block.relations]
    if unknown:
        raise InvalidArgumentError(f"{where} was given edges of {unknown[0]}, which the batch does not have")
    if any(origin(part) == "GCNConv" and getattr(part, "normalize", False) for part in module.modules()):
        raise InvalidArgumentError(
            f"{where} has a GCNConv, whose coefficients are not known for a pruned heterogeneous batch: normalize "
            "weights beforehand and use GCNConv(normalize=False), or SAGEConv, GATConv, GraphConv"
        )
    rows: Any = history(x, block)
    assert history._step is not None  # history() has checked it
    first = next(iter(rows.values()))
    pruned = history._step.on(first.device)
    block = pruned.blocks[block.level]
    if by_relation(module):
        convs: Any = module.convs
        read = [key for key in edges if key in set(convs.keys())]
        rows = block.pairs(rows, read)

    def replaced(at: int, name: str, value: Any) -> Any:
        if at == 0:
            return rows
        if at == 1:
            return {key: block[key].edge_index for key in edges}
        return _of_edges(where, name, value, block, edges)

    positional = tuple(
        replaced(i, names[i] if i < len(names) else f"argument {i + 1}", value) for i, value in enumerate(args)
    )
    return positional, {name: replaced(_place(names, name), name, value) for name, value in kwargs.items()}


def find_edges(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the second argument of a layer: a dict of edges, if it is one over types."""
    return _named(parameters(module), args, kwargs, 1)


def cut(name: str, out: Any, block: HeteroBlock, *, pairs: bool) -> Any:
    """Return the rows of the targets among what a layer has returned.

    Raises:
        InvalidArgumentError: it has returned something else.
    """
    if not isinstance(out, Mapping) or not all(isinstance(rows, Tensor) for rows in out.values()):
        raise InvalidArgumentError(
            f"{name} returned {type(out).__name__}, expected a dict of rows by node type, as it was called with"
        )
    for node_type, rows in out.items():
        allowed = {block.num_dst.get(node_type)} | (set() if pairs else {block.num_src.get(node_type)})
        if rows.size(0) not in allowed:
            raise InvalidArgumentError(
                f"{name} returned {rows.size(0)} rows of node type {node_type!r}, expected the "
                f"{block.num_dst.get(node_type, 0)} of its targets"
                + ("" if pairs else f" or a row for each of its {block.num_src.get(node_type, 0)} sources")
            )
    return {node_type: rows[: block.num_dst[node_type]] for node_type, rows in out.items()}


def _named(names: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any], at: int) -> Any:
    return args[at] if at < len(args) else kwargs.get(names[at]) if at < len(names) else None


def _place(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _of_edges(where: str, name: str, value: Any, block: HeteroBlock, edges: Mapping[EdgeType, Tensor]) -> Any:
    """An argument for the edges of one layer."""
    if not isinstance(value, Mapping):
        if isinstance(value, Tensor) and value.dim():
            raise InvalidArgumentError(
                f"{where}: {name} is a tensor of shape {list(value.shape)}, with history an argument beside rows and "
                "edges must be a dict by edge type, with an entry for each edge"
            )
        return value
    result = {}
    for key, of in value.items():
        index = edges.get(key)
        if not isinstance(of, Tensor) or index is None or of.dim() == 0 or of.size(0) != index.size(1):
            got = list(of.shape) if isinstance(of, Tensor) else type(of).__name__
            raise InvalidArgumentError(
                f"{where}: {name}[{key!r}] is {got}, with history an argument beside rows and edges must have, by edge "
                f"type, an entry for each of the batch's {'no' if index is None else index.size(1)} edges"
            )
        part = block[key]
        assert part.edge is not None  # as of every block of levels
        result[key] = of.index_select(0, part.edge)
    return result
