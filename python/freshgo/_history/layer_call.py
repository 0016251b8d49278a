"""One call of a layer in an attached model, whose arguments are replaced by those of a level of a pruned batch.

The arguments are by type: those of a homogeneous graph, tensors and not dicts, are of its unnamed types. A layer that
takes pairs gets (rows of sources, rows of targets), a ``HeteroConv`` those of every edge type. Any other layer gets the
rows of all sources, the targets first, and its result is cut to the targets: no edge ends at the others,
so this is right for whatever computes a row from the row itself and from its in-edges, such as PNAConv, HGTConv, or a
layer that ``to_hetero`` made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from freshgo._args.types import UNNAMED, of_type
from freshgo._batch.structure import Levels, recall
from freshgo._batch.tables import NOT_ATTACHED
from freshgo._history.layer_forms import GCN, PAIR, by_relation, origin, parameters
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._batch.structure import HeteroBlock


def by_edge_type(edges: object) -> Mapping[Any, Any]:
    """Return edges as a model gives them to a layer by edge type; empty if they are none."""
    return edges if isinstance(edges, Mapping) else {UNNAMED: edges} if isinstance(edges, Tensor) else {}


def levels_of(edges: Mapping[Any, Any]) -> Levels | None:
    """Return what is known of the levels of the batch with these edges; None: it is plain, or not known.

    Raises:
        InvalidArgumentError: some are those of a pruned batch and some are not.
    """
    known = {key: recall(index) if isinstance(index, Tensor) else None for key, index in edges.items()}
    of = {key: None if one is None else one.levels for key, one in known.items()}
    found = next((levels for levels in of.values() if levels is not None), None)
    if found is None:
        return None
    if (UNNAMED in edges) == found.named:
        raise InvalidArgumentError(
            NOT_ATTACHED if found.named else "edges were given as a dict, but the batch is homogeneous: give a tensor"
        )
    for key, levels in of.items():
        if levels is None or levels.index != found.index or levels.owner is not found.owner:
            raise InvalidArgumentError(
                f"the edges of {key} are not those of the pruned batch that the others are of: with history edges "
                "cannot be changed, neither by a transform of the loader nor in the model"
            )
    return found


class LayerCall:
    """What a model calls a layer with: rows and edges first, then others, by position or by name."""

    def __init__(self, where: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.where = where
        """The layer, for messages."""
        self._module, self._args, self._kwargs = module, args, kwargs
        self._names = parameters(module)
        self.edge_index = self._given(1)
        """The edges as the model gave them."""
        self._edges = by_edge_type(self.edge_index)
        self._named = UNNAMED not in self._edges

    @property
    def rows(self) -> Any:
        """The rows that the model gave, by node type."""
        return self._given(0) if self._named else {UNNAMED[0]: self._given(0)}

    def relations(self) -> dict[Any, tuple[Any, Any, Any, Any]]:
        """The layer of each edge type that it is called over, with the rows, the edges and the weights of edges that
        it gets, or None: itself, or the parts of a ``HeteroConv``."""
        if not self._named:
            return {UNNAMED: (self._module, self._given(0), self.edge_index, self._weight(self._names))}
        convs: Any = self._module.convs
        rows: Any = self._given(0)
        found = {}
        for key, conv in convs.items():
            if key in self._edges and key in rows:
                weights = self._kwargs.get("edge_weight_dict", self._weight([*self._names, "edge_weight"])) or {}
                found[key] = conv, rows[key], self._edges[key], weights.get(key)
        return found

    def _weight(self, names: list[str]) -> Any:
        """The weights of edges, of a layer that takes some."""
        at = names.index("edge_weight") if "edge_weight" in names else len(names)
        if at < len(self._args):
            return self._args[at]
        return self._kwargs.get("edge_weight")

    def bare(self, by_type: Mapping[Any, Any]) -> Any:
        """Values by type as the layer takes them: of types without names the only one, alone."""
        return by_type if self._named else next(iter(by_type.values()))

    def _given(self, at: int) -> Any:
        if at < len(self._args):
            return self._args[at]
        return self._kwargs.get(self._names[at]) if at < len(self._names) else None

    def check(self, block: HeteroBlock) -> None:
        """Raise an error if the layer cannot be called over the edges that were given.

        Raises:
            InvalidArgumentError: the block has no edges of a type, or coefficients are not known.
        """
        unknown = [key for key in self._edges if key not in block.relations]
        if unknown:
            raise InvalidArgumentError(f"{self.where} was given edges of {unknown[0]}, which the batch does not have")
        parts = self._module.modules() if self._named else ()
        if any(origin(part) == "GCNConv" and getattr(part, "normalize", False) for part in parts):
            raise InvalidArgumentError(
                f"{self.where} has a GCNConv, whose coefficients are not known for a pruned heterogeneous batch: "
                "normalize weights beforehand and use GCNConv(normalize=False), or SAGEConv, GATConv, GraphConv"
            )

    def takes_pairs(self, form: str) -> bool:
        """Whether a layer of this form gets (rows of sources, rows of targets)."""
        return by_relation(self._module) if self._named else form == PAIR

    def input(self, rows: Mapping[str, Tensor], block: HeteroBlock, form: str) -> Any:
        """The rows of a block as the layer takes them."""
        x: Mapping[Any, Any] = rows
        if self.takes_pairs(form):
            used = set(self._module.convs.keys()) if by_relation(self._module) else set(self._edges)  # type: ignore[union-attr, operator]
            x = block.pairs(rows, [key for key in self._edges if key in used])
        return self.bare(x)

    def replaced(
        self, rows: Mapping[str, Tensor], levels: Levels, block: HeteroBlock, form: str
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the layer is called with instead, as by hand::

            h = history(h, block)
            layer(block.pairs(h), block.edge_index_dict)  # a layer that takes pairs
            layer(h, block.edge_index_dict)  # another layer

        Tensors of edges among the other arguments are brought along.

        Raises:
            InvalidArgumentError: an argument does not fit the batch's edges.
        """
        values = [self.input(rows, block, form), self.bare({key: block[key].edge_index for key in self._edges})]

        def new(at: int, value: Any) -> Any:
            name = self._names[at] if at < len(self._names) else f"argument {at + 1}"
            return values[at] if at < 2 else self._of_edges(name, value, block)

        args = [new(at, value) for at, value in enumerate(self._args)]
        places = {name: at for at, name in enumerate(self._names)}
        kwargs = {
            name: new(places[name], value) if name in places else self._of_edges(name, value, block)
            for name, value in self._kwargs.items()
        }
        if form == GCN and self._module.normalize:
            self._put(args, kwargs, levels, block, values[0])
        return tuple(args), kwargs

    def _put(self, args: list[Any], kwargs: dict[str, Any], levels: Levels, block: HeteroBlock, rows: Tensor) -> None:
        """Give a GCNConv the coefficients of the batch before pruning, as ``gcn_norm`` computes them."""
        if self._given(2) is not None:
            raise InvalidArgumentError(
                f"{self.where}: GCNConv normalizes by the sum of the weights of edges, and some are pruned: "
                "normalize them beforehand (torch_geometric.utils, over the whole graph) and use "
                "GCNConv(normalize=False)"
            )
        loops: Any = self._module.add_self_loops
        made = gcn_coefficients(levels, block.level, rows.dtype, loops)
        for at, value in zip((1, 2), made, strict=True):
            if at < len(args):
                args[at] = value
            else:
                kwargs[self._names[at]] = value

    def _of_edges(self, name: str, value: Any, block: HeteroBlock) -> Any:
        """An argument for the edges of one layer."""
        if not isinstance(value, Tensor | Mapping if self._named else Tensor):
            return value
        if isinstance(value, Tensor) and value.dim() == 0:
            return value
        given = by_edge_type(value)
        if self._named and UNNAMED in given:
            raise InvalidArgumentError(
                f"{self.where}: {name} is a tensor of shape {list(value.shape)}, with history an argument beside rows "
                "and edges must be a dict by edge type, with an entry for each edge"
            )
        result = {}
        for key, of in given.items():
            index, what = self._edges.get(key), f"{name}[{key!r}]" if self._named else name
            if not isinstance(of, Tensor) or index is None or of.dim() == 0 or of.size(0) != index.size(1):
                got = list(of.shape) if isinstance(of, Tensor) else type(of).__name__
                raise InvalidArgumentError(
                    f"{self.where}: {what} is {got}, with history an argument beside rows and edges must have an "
                    f"entry for each of the batch's {'no' if index is None else index.size(1)} edges"
                )
            part = block[key].edge
            assert part is not None  # as of every block of levels
            result[key] = of.index_select(0, part)
        return self.bare(result)


def of_targets(name: str, out: Any, block: HeteroBlock, *, pairs: bool) -> Any:
    """Return what a layer has returned, for the targets of a block alone.

    Raises:
        InvalidArgumentError: it has returned something else.
    """
    one = UNNAMED in block.relations
    rows_of = out
    if one:
        rows_of = {UNNAMED[0]: out[0] if isinstance(out, tuple) else out}  # with weights of attention
    if not isinstance(rows_of, Mapping) or not all(isinstance(rows, Tensor) for rows in rows_of.values()):
        if one:
            return out
        raise InvalidArgumentError(
            f"{name} returned {type(out).__name__}, expected a dict of rows by node type, as it was called with"
        )
    for node_type, rows in rows_of.items():
        sources, targets = (of.get(node_type, 0) for of in (block.num_src, block.num_dst))
        if rows.size(0) != targets and (pairs or rows.size(0) != sources):
            how = (
                ": with history a layer must take (rows of sources, rows of targets) and return a row for each target"
                if pairs
                else f" or a row for each of its {sources} sources"
            )
            raise InvalidArgumentError(
                f"{name} returned {rows.size(0)} rows{of_type(node_type)}, expected the {targets} of its targets{how}"
            )
    if pairs:
        return out
    cut = {node_type: rows[: block.num_dst[node_type]] for node_type, rows in rows_of.items()}
    return cut[UNNAMED[0]] if one else cut


def gcn_coefficients(levels: Levels, level: int, dtype: torch.dtype, add_self_loops: bool) -> tuple[Tensor, Tensor]:
    """Edges and coefficients of GCN (Kipf and Welling) for the layer that reads ``level``.

    Degrees are those of the sampled batch before pruning, so that they are the same whether a source is computed or
    cached. As in PyG a self-loop takes the place of those that the graph has.
    """
    block = levels.blocks[level][UNNAMED]
    edge_index: Tensor = block.edge_index.as_tensor() if hasattr(block.edge_index, "as_tensor") else block.edge_index
    degree = levels.degree
    assert degree is not None  # as of every homogeneous graph
    if add_self_loops:
        degree = degree + 1 if levels.loops is None else degree - levels.loops + 1
        if levels.loops is not None:  # else there is nothing to take out, and a device need not be asked
            edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        loops = torch.arange(block.num_dst, device=edge_index.device)
        edge_index = torch.cat([edge_index, loops.expand(2, -1)], 1)
    # Autocast's half precision cannot count: the coefficients are rounded, not the degrees.
    wide = torch.promote_types(dtype, torch.float32)
    scale = degree.index_select(0, levels.nodes[level]).to(wide).pow(-0.5)
    scale.masked_fill_(scale == float("inf"), 0)
    return edge_index, (scale[edge_index[0]] * scale[edge_index[1]]).to(dtype)
