"""How an ordinary model comes to use history: hooks that give each layer its rows and its bipartite graph.

For a plain batch the hooks return at once, and the model runs as if they were not there. A copy of the model (or a
pickled one) keeps hooks that refuse pruned batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx, nn

from freshgo._args.types import UNNAMED, Layout
from freshgo._batch.structure import Levels
from freshgo._history.aggregates import Merge, adds_up, merge_of, merged_output, over_merged
from freshgo._history.batch_norms import hook_batch_norms
from freshgo._history.layer_call import LayerCall, by_edge_type, levels_of, of_targets
from freshgo._history.layer_forms import GCN, form_of, is_precomputed, origin, parameters, passing
from freshgo._history.steps import Steps
from freshgo._history.training_step import Step
from freshgo._ops.eager import eager
from freshgo.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._batch.structure import HeteroBlock

_TRIMS = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")


class Attachment:
    """The hooks of a history in a model."""

    def __init__(self, history: Steps, model: nn.Module, layers: Iterable[nn.Module] | None) -> None:
        if not isinstance(model, nn.Module):
            raise DTypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = _uncompiled(model)
        basic = origin(self.model) == "BasicGNN"
        given = _layers_of(self.model, history.layout()) if layers is None else layers
        convs = [_uncompiled(layer) for layer in given]
        if not convs:
            raise InvalidArgumentError("layers must name at least one message-passing layer, got none")
        places: dict[nn.Module, list[int]] = {}
        for i, conv in enumerate(convs):
            places.setdefault(conv, []).append(i)
        if layers is not None and len(places) != len(convs):
            raise InvalidArgumentError("layers lists a layer twice: each layer must compute one hop")
        forms = {conv: form_of(f"layer {at[0] + 1}", conv) for conv, at in places.items()}
        history.check_levels(len(convs))
        history.forget_model()
        for level, conv in enumerate(convs[int(is_precomputed(convs[0])) :], 1):
            history.judge(level, adds_up=adds_up(conv), name=type(conv).__name__)
        self._handles: list[Any] = hook_batch_norms(history, self.model)
        self._output_hooks: list[_LayerOutputHook] = []
        state = _PassState()
        dropout = getattr(self.model, "dropout", None)
        if len(places) != len(convs):
            self._hook(self.model, _PassStartHook(state))
        if basic:
            self._hook(self.model, _ModelHook(history, state))
            if isinstance(dropout, nn.Module):
                self._hook(dropout, _DropoutHook(history, state))
        for conv, at in places.items():
            output = _LayerOutputHook(state)
            self._output_hooks.append(output)
            self._hook(conv, _LayerInputHook(history, at, len(convs), forms[conv], output, state))
            self._handles.append(conv.register_forward_hook(output))

    def _hook(self, module: nn.Module, hook: Any) -> None:
        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def remove(self) -> None:
        """Give the model back as it was."""
        for handle in self._handles:
            handle.remove()
        for output in self._output_hooks:
            output.restore()


class _PassState:
    """How far a model has come in the pruned batch at hand."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a pass."""
        self.calls: dict[_LayerInputHook, int] = {}  # of layers that are called several times
        self.computed: tuple[Levels, int] | None = None  # a layer has returned the computed rows of this level
        self.merged: int | None = None  # the rows of this level are whole already


class _Hook:
    """A hook that loses its history when it is copied."""

    history: Steps | None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "history": None}

    def levels(self, edge_index: object) -> Levels | None:
        """What is known of the levels of the batch with these edges, by type or without; None: it is plain."""
        edges = by_edge_type(edge_index)
        if not edges:
            return None
        levels = levels_of(edges)
        if levels is not None:
            if self.history is None:
                raise InvalidArgumentError(
                    "the batch was pruned, and this is a copy of the model that its history is attached to: attach a "
                    "history of its own, or give it plain batches"
                )
            return levels
        step: Step | None = None if self.history is None else self.history.current
        if step is None or step.done or self.history is None or self.history.evaluating():
            return None
        return step.recognise(edge_index, edges)


class _PassStartHook:
    """Before a model that calls a layer several times."""

    def __init__(self, state: _PassState) -> None:
        self._state = state

    @eager
    def __call__(self, *_: Any) -> None:
        self._state.start()


class _ModelHook(_Hook):
    """Before a model of PyG: what trims or describes nodes by batch has no place where levels are computed alone."""

    def __init__(self, history: Steps, state: _PassState) -> None:
        self.history, self._state = history, state

    @eager
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._state.start()
        given = {**dict(zip(parameters(module), args, strict=False)), **kwargs}
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


class _DropoutHook(_Hook):
    """Before the dropout of a model of PyG, the last thing between two layers: cached rows are dropped out anew each
    time, as computed ones are, and what is kept was not dropped out (as in GNNAutoScale)."""

    def __init__(self, history: Steps, state: _PassState) -> None:
        self.history, self._state = history, state

    @eager
    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        computed, self._state.computed = self._state.computed, None
        if computed is None or self.history is None or len(args) != 1:
            return None
        levels, level = computed
        rows = self.history.rows(levels, level, {UNNAMED[0]: args[0]})
        self._state.merged = level
        return (rows[UNNAMED[0]],), kwargs


class _LayerInputHook(_Hook):
    """Before a layer: its rows, and its bipartite graph."""

    def __init__(
        self, history: Steps, places: list[int], num_layers: int, form: str, output: _LayerOutputHook, state: _PassState
    ) -> None:
        """``places`` are the layers of the model that the module is, from 0 on: several where it is called again."""
        self.history = history
        self._state = state
        self._places, self._level = places, places[0]
        self._num_layers, self._form, self._output = num_layers, form, output

    @eager
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._output.restore()  # what a call that raised left behind
        call = LayerCall(f"layer {self._places[0] + 1}", module, args, kwargs)
        levels = self.levels(call.edge_index)
        if levels is None:
            self._refuse_pruned(call)
            return None
        self._level = self._place(module)
        call.where = f"layer {self._level + 1}"
        assert self.history is not None  # as levels() has found some
        level = self._level_in(levels, module)
        if level < 0:
            return None
        call.check(levels.blocks[level])
        whole, self._state.merged, self._state.computed = self._state.merged == level, None, None
        rows = call.rows if whole else self.history.rows(levels, level, call.rows)
        assert self.history.current is not None  # rows() has checked it
        levels = self.history.current.on(next(iter(rows.values())).device)
        block = levels.blocks[level]
        replaced = call.replaced(rows, levels, block, self._form)
        if self._form == GCN and module.normalize:
            module.normalize = False  # type: ignore[assignment]  # a flag of GCNConv
            self._output.owes(module)
        self.history.judge_rows(levels, level, rows)
        merge = merge_of(self.history, levels, level + 1)
        if merge is not None and adds_up(module):
            computed = LayerCall(call.where, module, *replaced)
            return over_merged(computed, self._form, block, levels, level + 1, merge)
        self._output.expect(block, levels, level + 1, pairs=call.takes_pairs(self._form), merge=merge)
        return replaced

    def _place(self, module: nn.Module) -> int:
        """Which of the model's layers is called."""
        number = self._state.calls.get(self, 0)
        if len(self._places) > 1:
            if number == len(self._places):
                raise InvalidArgumentError(
                    f"{type(module).__name__} was called more than {number} times, expected {number} calls, as when "
                    "the history was attached"
                )
            self._state.calls[self] = number + 1
        return self._places[number]

    def _level_in(self, levels: Levels, module: nn.Module) -> int:
        """The level that the layer reads of a batch: -1 of a precomputed first layer, whose rows are level 0."""
        before = self._num_layers - levels.num_layers
        if before == 0:
            return self._level
        precomputed = levels.first_bytes is not None
        if before != 1 or not precomputed:
            raise InvalidArgumentError(
                f"the model has {self._num_layers} message-passing layers, the loader samples {levels.num_layers} hops "
                "(num_neighbors)"
                + (" and has first_layer=" if precomputed else "")
                + ": with history each layer is one hop"
            )
        if self._level == 0 and not is_precomputed(module):
            raise InvalidArgumentError(
                f"the loader has first_layer=, which {type(module).__name__}, the first layer of the model, does not "
                "use: "
                "call freshgo.nn.precomputed(model)"
            )
        return self._level - 1

    def _refuse_pruned(self, call: LayerCall) -> None:
        """Nobody knows these edges: they must not be those of the pruned batch, changed."""
        step = None if self.history is None else self.history.current
        if step is None or step.done or self._places[0] != 0 or self.history is None or self.history.evaluating():
            return
        rows = call.rows
        if isinstance(rows, dict) and all(isinstance(of, Tensor) for of in rows.values()) and step.has_gaps(rows):
            raise InvalidArgumentError(
                "layer 1 got the rows of a pruned batch with other edges than its edge_index: with history the "
                "edges cannot be changed, neither by a transform of the loader nor in the model"
            )


class _LayerOutputHook:
    """After a layer: its outputs are those of the rows it computes."""

    def __init__(self, state: _PassState) -> None:
        self._block: HeteroBlock | None = None
        self._levels: Levels | None = None
        self._pairs = False
        self._merge: Merge | None = None
        self._conv: Any = None
        self._state, self._level = state, 0

    def __getstate__(self) -> dict[str, Any]:
        empty = dict.fromkeys(("_block", "_levels", "_merge", "_conv"))
        return {**empty, "_pairs": False, "_state": _PassState(), "_level": 0}

    def expect(self, block: HeteroBlock, levels: Levels, level: int, *, pairs: bool, merge: Merge | None) -> None:
        """Of the call that begins, the rows of the block's targets are computed, those of ``level``. With ``pairs``
        there must be no others; else these are cut off. With ``merge`` kept rows are to be put between them."""
        self._block, self._levels, self._level, self._pairs, self._merge = block, levels, level, pairs, merge

    def owes(self, conv: Any) -> None:
        """Let a layer normalize again afterwards."""
        self._conv = conv

    def restore(self) -> None:
        """End a call."""
        if self._conv is not None:
            self._conv.normalize = True
        self._block, self._levels, self._merge, self._conv = None, None, None, None

    @eager
    def __call__(self, module: nn.Module, _: Any, out: Any) -> Any:
        block, levels, merge = self._block, self._levels, self._merge
        self.restore()
        if block is None or levels is None:
            return None
        rows = of_targets(type(module).__name__, out, block, pairs=self._pairs)
        if merge is not None:
            return merged_output(rows, levels, self._level, merge)
        self._state.computed = (levels, self._level) if self._level < levels.num_layers else None
        return rows


def _layers_of(model: Any, layout: Layout | None) -> Iterable[nn.Module]:
    """Return the message-passing layers of a model, in the order of their calls. Those of a model that users write are
    found over a graph with the tensors of ``layout``, those of the loader's batches.

    Raises:
        InvalidArgumentError: there are no layers that can be attached to; the message says why.
    """
    if isinstance(model, fx.GraphModule):
        raise InvalidArgumentError(
            "a model that to_hetero made has no layers that are called with the rows of all types: let to_hetero make "
            "each of its layers, or take HeteroConv"
        )
    if origin(model) != "BasicGNN":
        named = ", ".join(passing(model)) or "model.conv1, model.conv2"
        if layout is None:
            raise InvalidArgumentError(
                f"{type(model).__name__} is not a model of PyG's BasicGNN family, and its layers are found with the "
                "tensors of the loader's graph: make the loader first, as Loader(..., history=history), or name the "
                f"layers in the order of their calls, as attach(model, layers=[{named}]), or do without attach() and "
                "call h = history(h, block) before every layer of batch.blocks()"
            )
        from freshgo._history.found import found_layers  # which few programs need

        return found_layers(model, layout, named)
    if hasattr(model, "jk"):
        raise InvalidArgumentError(
            f"jk={model.jk_mode!r} reads the rows of all layers side by side, but with history each layer computes "
            "other rows: use jk=None or jk='last'"
        )
    convs: Iterable[nn.Module] = model.convs
    return convs


def _uncompiled(module: nn.Module) -> nn.Module:
    original: nn.Module = getattr(module, "_orig_mod", module)
    return original
