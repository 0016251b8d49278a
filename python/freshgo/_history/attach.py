"""How an ordinary model comes to use history: hooks that give each layer its rows and its bipartite graph.

For a plain batch the hooks return at once, and the model runs as if they were not there. A copy of the model (or a
pickled one) keeps hooks that refuse pruned batches.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from freshgo._batch.structure import Levels, recall
from freshgo._history import attach_hetero
from freshgo._history.attach_hetero import origin as _origin
from freshgo._history.batch_norms import hook_batch_norms
from freshgo._history.eager import eager
from freshgo._history.interfaces import Rows
from freshgo._history.training_step import NOT_ATTACHED, Step
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._batch.structure import Block, HeteroBlock

_PAIR, _GCN, _SQUARE = "pair", "gcn", "square"
_TRIMS = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")


class Attachment:
    """The hooks of a history in a model."""

    def __init__(self, history: Rows, model: nn.Module, layers: Iterable[nn.Module] | None) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = _uncompiled(model)
        basic = _origin(self.model) == "BasicGNN"
        convs = [_uncompiled(layer) for layer in (_convs(self.model, basic) if layers is None else layers)]
        if not convs:
            raise InvalidArgumentError("layers must name at least one message-passing layer, got none")
        if len({id(conv) for conv in convs}) != len(convs):
            raise InvalidArgumentError("layers lists a layer twice: each layer must compute one hop")
        forms = [_form(f"layer {i + 1}", conv) for i, conv in enumerate(convs)]
        self._handles: list[Any] = hook_batch_norms(history, self.model)
        self._after: list[_After] = []
        reached = _Reached()
        dropout = getattr(self.model, "dropout", None)
        if basic:
            self._hook(self.model, _Model(history, reached))
            if isinstance(dropout, nn.Module):
                self._hook(dropout, _Dropout(history, reached))
        for i, (conv, form) in enumerate(zip(convs, forms, strict=True)):
            after = _After(reached, i + 1)
            self._after.append(after)
            self._hook(conv, _Before(history, i, len(convs), form, after, reached))
            self._handles.append(conv.register_forward_hook(after))

    def _hook(self, module: nn.Module, hook: Any) -> None:
        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def remove(self) -> None:
        """Give the model back as it was."""
        for handle in self._handles:
            handle.remove()
        for after in self._after:
            after.restore()


class _Reached:
    """How far a model has come in the pruned batch at hand."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a pass."""
        self.computed: tuple[Levels, int] | None = None  # a layer has returned the computed rows of this level
        self.merged: int | None = None  # the rows of this level are whole already


class _Hook:
    """A hook that loses its history when it is copied."""

    history: Rows | None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "history": None}

    def levels(self, edge_index: object) -> Levels | None:
        """What is known of the levels of the batch with these edges, by type or without; None: it is plain."""
        levels: Levels | None = None
        if isinstance(edge_index, Mapping):
            levels = attach_hetero.levels_of(edge_index)
        elif isinstance(edge_index, Tensor):
            known = recall(edge_index)
            levels = None if known is None else getattr(known, "levels", None)
        else:
            return None
        if levels is not None:
            if self.history is None:
                raise InvalidArgumentError(
                    "the batch was pruned, and this is a copy of the model that its history is attached to: attach a "
                    "history of its own, or give it plain batches"
                )
            return levels
        step: Step | None = None if self.history is None else self.history._step
        if step is None or step.done or self.history is None or self.history._evaluating():
            return None
        return step.recognise(edge_index)


class _Model(_Hook):
    """Before a model of PyG: what trims or describes nodes by batch has no place where levels are computed alone."""

    def __init__(self, history: Rows, reached: _Reached) -> None:
        self.history, self._reached = history, reached

    @eager
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._reached.start()
        names = _parameters(module)
        given = _by_name(names, args, kwargs)
        if self.levels(given.get("edge_index")) is None:
            return None
        if given.get("batch") is not None:
            raise InvalidArgumentError(
                "batch= assigns nodes to graphs, but the layers of a pruned batch compute some of its nodes only: "
                "norms over graphs cannot be used with history"
            )
        for name in _TRIMS:
            if given.get(name) is not None:
                given[name] = None  # levels are trimmed already
        return (), given


class _Dropout(_Hook):
    """Before the dropout of a model of PyG, the last thing between two layers: cached rows are dropped out anew each
    time, as computed ones are, and what is kept was not dropped out (as in GNNAutoScale)."""

    def __init__(self, history: Rows, reached: _Reached) -> None:
        self.history, self._reached = history, reached

    @eager
    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reached, self._reached.computed = self._reached.computed, None
        if reached is None or self.history is None or len(args) != 1:
            return None
        levels, level = reached
        rows = self.history._input(levels, level, args[0])
        self._reached.merged = level
        return (rows,), kwargs


class _Before(_Hook):
    """Before a layer: its rows, and its bipartite graph."""

    def __init__(self, history: Rows, level: int, num_layers: int, form: str, after: _After, reached: _Reached) -> None:
        self.history = history
        self._reached = reached
        self._level, self._num_layers, self._form, self._after = level, num_layers, form, after

    @eager
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._after.restore()  # what a call that raised left behind
        edges = attach_hetero.find_edges(module, args, kwargs)
        if isinstance(edges, Mapping):
            return self._over_types(module, edges, args, kwargs)
        names = _parameters(module)
        given = _by_name(names, args, kwargs)
        x, edge_index = (given.get(name) for name in names[:2])
        levels = self.levels(edge_index)
        if levels is None:
            self._refuse_pruned(x)
            return None
        assert self.history is not None
        if levels.named:
            raise InvalidArgumentError(NOT_ATTACHED)
        self._check_depth(levels)
        if not isinstance(x, Tensor):
            raise InvalidArgumentError(
                f"layer {self._level + 1} was called with {type(x).__name__} for its rows, expected one tensor: "
                "history makes the pair itself"
            )
        whole, self._reached.merged, self._reached.computed = self._reached.merged == self._level, None, None
        rows = x if whole else self.history._input(levels, self._level, x)
        assert self.history._step is not None  # _input has checked it
        levels = self.history._step.on(x.device)
        block = levels.layers[self._level]
        edges = 0 if edge_index is None else edge_index.size(1)
        for name in names[2:]:
            if name in given:
                given[name] = self._of_edges(name, given[name], block, edges)
        given[names[0]] = (rows, rows[: block.num_dst]) if self._form == _PAIR else rows
        given[names[1]] = block.edge_index
        if self._form == _GCN:
            self._gcn(module, levels, given, rows)
        self._after.expect(block.num_dst, levels, cut=self._form != _PAIR)
        return (), given

    def _over_types(self, module: nn.Module, edges: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        levels = self.levels(edges)
        if levels is None:
            return None
        assert self.history is not None
        self._check_depth(levels)
        block = levels.blocks[self._level]
        call = attach_hetero.arguments(self.history, f"layer {self._level + 1}", module, block, args, kwargs)
        self._after.expect_types(block)
        return call

    def _check_depth(self, levels: Levels) -> None:
        if levels.num_layers != self._num_layers:
            raise InvalidArgumentError(
                f"the model has {self._num_layers} message-passing layers, the loader samples {levels.num_layers} hops "
                "(num_neighbors): with history each layer is one hop"
            )

    def _refuse_pruned(self, x: object) -> None:
        """Nobody knows these edges: they must not be those of the pruned batch, changed."""
        step = None if self.history is None else self.history._step
        if step is None or step.done or self._level != 0 or self.history is None or self.history._evaluating():
            return
        if isinstance(x, Tensor) and step.has_gaps(x):
            raise InvalidArgumentError(
                "layer 1 got the rows of a pruned batch with other edges than its edge_index: with history the "
                "edges cannot be changed, neither by a transform of the loader nor in the model"
            )

    def _of_edges(self, name: str, value: Any, block: Block, edges: int) -> Any:
        """An argument for the edges of one layer."""
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        if value.size(0) == edges:
            assert block.edge is not None  # as of every block of levels
            return value.index_select(0, block.edge)
        raise InvalidArgumentError(
            f"layer {self._level + 1}: {name} has shape {list(value.shape)}, with history an argument beside the rows "
            f"must have an entry for each of the batch's {edges} edges"
        )

    def _gcn(self, conv: Any, levels: Levels, given: dict[str, Any], rows: Tensor) -> None:
        """Give a GCNConv the coefficients of the batch before pruning, as ``gcn_norm`` computes them."""
        if not conv.normalize:
            return
        if given.get("edge_weight") is not None:
            raise InvalidArgumentError(
                f"layer {self._level + 1}: GCNConv normalizes by the sum of the weights of edges, some of which are "
                "pruned: normalize them beforehand (torch_geometric.utils, over the whole graph) and use "
                "GCNConv(normalize=False)"
            )
        edge_index, weight = gcn_coefficients(levels, self._level, rows.dtype, conv.add_self_loops)
        given["edge_index"], given["edge_weight"] = edge_index, weight
        conv.normalize = False
        self._after.owes(conv)


class _After:
    """After a layer: its outputs are those of the rows it computes."""

    def __init__(self, reached: _Reached, level: int) -> None:
        self._num_dst: int | None = None
        self._cut = False
        self._conv: Any = None
        self._levels: Levels | None = None
        self._block: HeteroBlock | None = None
        self._reached, self._level = reached, level

    def __getstate__(self) -> dict[str, Any]:
        empty = dict.fromkeys(("_num_dst", "_conv", "_levels", "_block"))
        return {**empty, "_cut": False, "_reached": _Reached(), "_level": 0}

    def expect(self, num_dst: int, levels: Levels, *, cut: bool) -> None:
        """Of the call that begins, ``num_dst`` rows are computed; others are cut off or must not be there."""
        self._num_dst, self._levels, self._cut = num_dst, levels, cut

    def expect_types(self, block: HeteroBlock) -> None:
        """Of the call that begins, the rows of the block's targets are computed."""
        self._block = block

    def owes(self, conv: Any) -> None:
        """Let a layer normalize again afterwards."""
        self._conv = conv

    def restore(self) -> None:
        """End a call."""
        if self._conv is not None:
            self._conv.normalize = True
        self._num_dst, self._conv, self._levels, self._block = None, None, None, None

    @eager
    def __call__(self, module: nn.Module, _: Any, out: Any) -> Any:
        num_dst, cut, levels, block = self._num_dst, self._cut, self._levels, self._block
        if block is not None:
            self.restore()
            return attach_hetero.cut(type(module).__name__, out, block, pairs=attach_hetero.by_relation(module))
        if num_dst is None or levels is None:
            return None
        self.restore()
        self._reached.computed = (levels, self._level) if self._level < levels.num_layers else None
        if cut:
            return out[:num_dst]
        rows = out[0] if isinstance(out, tuple) else out
        if isinstance(rows, Tensor) and rows.size(0) != num_dst:
            raise InvalidArgumentError(
                f"{type(module).__name__} returned {rows.size(0)} rows, expected the {num_dst} of its targets: with "
                "history a layer must take (rows of sources, rows of targets) and return a row for each target"
            )
        return None


def gcn_coefficients(levels: Levels, level: int, dtype: torch.dtype, add_self_loops: bool) -> tuple[Tensor, Tensor]:
    """Edges and coefficients of GCN (Kipf and Welling) for the layer that reads ``level``.

    Degrees are those of the sampled batch before pruning, so that they are the same whether a source is computed or
    cached. As in PyG a self-loop takes the place of those that the graph has.
    """
    block = levels.layers[level]
    edge_index: Tensor = block.edge_index.as_tensor() if hasattr(block.edge_index, "as_tensor") else block.edge_index
    degree = levels.degree
    assert degree is not None  # as of every homogeneous graph
    if add_self_loops:
        degree = degree + 1 if levels.loops is None else degree - levels.loops + 1
        loops = torch.arange(block.num_dst, device=edge_index.device)
        edge_index = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops.expand(2, -1)], 1)
    # Autocast's half precision cannot count: the coefficients are rounded, not the degrees.
    wide = torch.promote_types(dtype, torch.float32)
    scale = degree.index_select(0, levels.nodes[level]).to(wide).pow(-0.5)
    scale.masked_fill_(scale == float("inf"), 0)
    return edge_index, (scale[edge_index[0]] * scale[edge_index[1]]).to(dtype)


def _uncompiled(module: nn.Module) -> nn.Module:
    original: nn.Module = getattr(module, "_orig_mod", module)
    return original


def _convs(model: Any, basic: bool) -> Iterable[nn.Module]:
    if isinstance(model, torch.fx.GraphModule):
        raise InvalidArgumentError(
            "a model that to_hetero made has no layers that are called with the rows of all types: let to_hetero make "
            "each of its layers, or take HeteroConv, and name them, as attach(model, layers=[model.conv1, model.conv2])"
        )
    if not basic:
        raise InvalidArgumentError(
            f"{type(model).__name__} is not a model of PyG's BasicGNN family: name its message-passing layers, as "
            "attach(model, layers=[model.conv1, model.conv2]), or do without attach() and call h = history(h, block) "
            "before every layer of batch.blocks()"
        )
    if hasattr(model, "jk"):
        raise InvalidArgumentError(
            f"jk={model.jk_mode!r} reads the rows of all layers side by side, but with history each layer computes "
            "other rows: use jk=None or jk='last'"
        )
    convs: Iterable[nn.Module] = model.convs
    return convs


def _form(where: str, conv: Any) -> str:
    """How a layer is called."""
    if not isinstance(conv, nn.Module):
        raise InvalidArgumentError(f"{where} must be a torch.nn.Module, got {type(conv).__name__}")
    name, origin = type(conv).__name__, _origin(conv)
    if attach_hetero.by_relation(conv):
        return _relations(where, conv)
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise InvalidArgumentError(f"{where}: {name} has flow={conv.flow!r}, batches lead from source to target")
    parameters = list(inspect.signature(conv.forward).parameters.values())
    if len(parameters) < 2 or parameters[1].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise InvalidArgumentError(
            f"{where}: {name} must be called with (rows, edge_index, ...), over types with (rows by node type, edges "
            "by edge type, ...)"
        )
    if origin in ("GCNConv", "PNAConv"):
        if name.removeprefix("_") != origin:
            raise InvalidArgumentError(
                f"{where}: {name} is derived from {origin}, which history calls in its own way: use {origin} itself, "
                "or a layer that takes (rows of sources, rows of targets)"
            )
        return _GCN if origin == "GCNConv" else _SQUARE
    annotation = parameters[0].annotation
    if annotation not in (inspect.Parameter.empty, Any, "Any") and not _takes_pairs(annotation):
        raise InvalidArgumentError(
            f"{where}: {name} takes {_spoken(annotation)} for its rows, history needs layers that take (rows of "
            "sources, rows of targets), such as SAGEConv, GATConv, GINConv or GraphConv; GCNConv works too"
        )
    return _PAIR


def _relations(where: str, hetero: Any) -> str:
    """How the layers of a HeteroConv are called."""
    for edge_type, conv in hetero.convs.items():
        if _form(f"{where}, {edge_type}", conv) != _PAIR:
            raise InvalidArgumentError(
                f"{where}, {edge_type}: {type(conv).__name__} takes no pairs, a HeteroConv with history needs layers "
                "that take (rows of sources, rows of targets), such as SAGEConv, GATConv, GINConv or GraphConv"
            )
    return _PAIR


def _takes_pairs(annotation: object) -> bool:
    """Whether a type admits (rows of sources, rows of targets) or rows by node type; it may be a string, or PyG's name
    for such a pair."""
    text = str(annotation).lower()
    return "tuple" in text or "pair" in text or "dict" in text


def _spoken(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _parameters(module: nn.Module) -> list[str]:
    return list(inspect.signature(module.forward).parameters)


def _by_name(names: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(names, args, strict=False)), **kwargs}
