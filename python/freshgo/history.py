"""Historical embeddings: a cache of what hidden layers compute, with an exact bound on its age.

history = History(t_stale=1.0)
loader = Loader(store, num_neighbors=[20, 15, 10], input_nodes="train", batch_size=1000, history=history)
history.attach(model)
for batch in loader:
    loss = F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
    loss.backward()
    optimizer.step()
    history.update()
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, overload

import torch
from torch import Tensor, nn

from freshgo._args import checks
from freshgo._args.choices import Kept, Pruning
from freshgo._args.entry import entry
from freshgo._args.size import format_size, parse_size
from freshgo._args.types import UNNAMED, Layout
from freshgo._batch.structure import HeteroBlock, Levels
from freshgo._history import by_hand, saved_state
from freshgo._history import checks as history_checks
from freshgo._history.attach import Attachment
from freshgo._history.estimation import Estimation, Trail
from freshgo._history.interfaces import Decisions, Feeder
from freshgo._history.training_step import Admitted, Buffer, Keeps, Step, Unwritten
from freshgo._native.options import Settings, Span
from freshgo._observe.ranges import stage
from freshgo._ops.eager import eager
from freshgo._plots.history import figure
from freshgo.errors import ClosedError, DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._batch.structure import Block

__all__ = ["History"]


@entry
class History:
    """A cache of embeddings h^(l) of hidden layers, which prunes what a loader samples (FreshGNN, sections 3 and 4).

    A node of a hidden layer whose embedding is cached is not computed: its neighbours are not sampled further, read or
    aggregated on its account. After the backward pass the rows with the smallest gradients are kept, because they
    change least, and cached rows whose gradient has grown are dropped. An entry older than ``t_stale`` iterations is
    never read.

    With ``keep="aggregates"`` an entry is not the embedding but what the layer adds up over the node's sampled
    neighbours, with the node's own row where the layer reads it (``SAGEConv`` and ``GraphConv`` with a mean or a sum,
    ``GINConv``, ``GCNConv``; of a ``HeteroConv`` of these along each relation). The layer's own maps, norm and
    activation follow with the parameters of now, for hits as for computed rows, and learn from both. At level 1, whose
    inputs are the features, this is plain training on neighbours that are sampled again when the entry ends: nothing is
    stale. Of other layers, such as ``GATConv`` and ``HGTConv``, an entry is what the layer returns: its own parameters
    learn from computed rows alone, what follows it learns from all. What enters does not depend on gradients.

    Give the history to one loader, as ``Loader(..., history=history)``, and let the model ask for its rows in one of
    two ways: with ``history.attach(model)``, or in the model's ``forward``::

        h = batch.x
        for conv, block in zip(self.convs, batch.blocks()):
            h = history(h, block, conv)

    Call :meth:`update` after every backward pass. Attached PyG models keep rows as they are before dropout, and apply
    dropout to cached ones anew; rows of other layers are kept as the next layer reads them. Attention is taken over the
    sampled neighbours of each computed row and its self-loop, whether cached or not; the coefficients of GCN are those
    of the sampled batch before pruning. With ``p_grad=0`` or ``t_stale=0``, before ``start`` and in evaluation, the
    batches are the loader's plain ones, bit for bit.

    Args:
        p_grad: the fraction of newly computed rows, those with the smallest gradients, that may be kept. None is 0.9,
            and 1 for aggregates and ``policy="gas"``, which admit whatever the gradient.
        t_stale: the maximum age of an entry, in iterations (int) or epochs (float, 1.0 is one); ``math.inf`` is for
            ever.
        keep: ``"rows"``, as the next layer reads them (FreshGNN's Algorithm 1, GNNAutoScale), or ``"aggregates"``.
        levels: the hidden levels that are kept: one, several, or None, which is all of them for rows and level
            1 for aggregates. Over a precomputed first layer (``first_layer`` of :class:`Loader`) level 1 is what the
            second layer computes.
        policy: ``"performance"`` keeps, among those rows, the ones that save most reads per byte; ``"gradient"`` keeps
            all of them, in a ring; ``"gas"`` keeps every computed row for ever, as GNNAutoScale and VR-GCN do.
        start: iterations or epochs before the cache is used: embeddings change fast at first.
        memory: the size of the buffer in bytes or as ``"512MiB"``; on the CPU it is part of the loader's ``memory``.
            None is a tenth of the bytes of the features, of all node types together.
        lag: a batch is pruned by the cache as it was this many iterations before its own, so that it can be prepared
            ahead; the bound on the age includes it. It is less where the loader's ``memory`` has no room for as many
            batches: ``"lag"`` of :meth:`stats` says what it is.
        device: where the buffer is, which is where the model computes; None is the CPU.
        sample_error: this fraction of the iterations is not pruned but compares the cached rows with computed ones; see
            ``"error"`` in :meth:`stats`.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; the message says what was expected.
    """

    def __init__(
        self,
        p_grad: float | None = None,
        t_stale: int | float = 200,
        *,
        keep: Kept = "rows",
        levels: int | Iterable[int] | None = None,
        policy: Pruning = "performance",
        start: int | float = 0,
        memory: int | str | None = None,
        lag: int = 1,
        device: torch.device | str | None = None,
        sample_error: float = 0.0,
    ) -> None:
        policy = checks.choice("policy", policy, Pruning)
        aggregates = checks.choice("keep", keep, Kept) == "aggregates"
        keeps = Keeps(aggregates, (1,) if aggregates and levels is None else history_checks.levels(levels))
        everything = aggregates or policy == "gas"
        fraction = history_checks.fraction("p_grad", (1.0 if everything else 0.9) if p_grad is None else p_grad)
        stale = history_checks.span("t_stale", t_stale)
        if aggregates and (fraction != 1 or policy == "gradient"):
            raise InvalidArgumentError(
                "keep='aggregates' selects no rows by their gradients: omit "
                f"p_grad, and use policy='performance' or 'gas', got p_grad={p_grad!r}, policy={policy!r}"
            )
        if policy == "gas":
            if fraction != 1 or (stale != Span(200, False) and not math.isinf(stale.count)):
                raise InvalidArgumentError(
                    f"policy='gas' keeps every row for ever, got p_grad={p_grad!r} and t_stale={t_stale!r}: omit "
                    "both, or use policy='gradient'"
                )
            stale = Span(math.inf, False)
        n_bytes = None if memory is None else parse_size("memory", memory)
        if n_bytes == 0:
            raise InvalidArgumentError("memory must be at least 1 byte, or None to let the loader choose, got 0")
        sampled = history_checks.fraction("sample_error", sample_error)
        if not stale.epochs and 0 < stale.count <= checks.count("lag", lag, 0, 1 << 20):
            warnings.warn(
                f"with t_stale={t_stale} iterations and lag={lag} hardly any kept row is young enough to be used: the "
                "youngest that a batch can find is lag + 1 iterations old; use a larger t_stale, or lag=0",
                UserWarning,
                stacklevel=checks.caller(),
            )
        self._settings = Settings(
            policy="all" if policy == "gas" else policy,
            p_grad=fraction,
            t_stale=stale,
            start=history_checks.span("start", start),
            memory=n_bytes,
            device=history_checks.device(device),
            lag=checks.count("lag", lag, 0, 1 << 20),
            levels=sum(1 << level - 1 for level in keeps.levels or ()),
            probe_every=round(1 / sampled) if sampled else 0,
        )
        self._policy, self._keeps = policy, keeps
        self.training = True
        self._loader: weakref.ref[Feeder] | None = None
        self._hops = 0  # of the loader
        self._exported: tuple[object, Buffer] | None = None  # the buffer, and the native loader that it belongs to
        self._attached: Attachment | None = None
        self._step: Step | None = None
        self._unwritten: Unwritten | None = None
        self._restored: dict[str, Any] | None = None  # waits for the loader
        self._warned = False
        self._last: dict[str, Any] = {}  # the figures of a loader that is closed
        self._estimation = Estimation()
        self._trail = Trail()

    @overload
    def __call__(self, h: Tensor, block: Block, conv: nn.Module | None = None, *args: Any, **kwargs: Any) -> Tensor: ...

    @overload
    def __call__(
        self, h: dict[str, Tensor], block: HeteroBlock, conv: nn.Module | None = None, *args: Any, **kwargs: Any
    ) -> dict[str, Tensor]: ...

    def __call__(self, h: Any, block: Any, conv: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return what a layer computes over a block, or without ``conv`` the rows that it reads: the input of
        ``conv((h, h[:block.num_dst]), block.edge_index)``.

        Args:
            h: ``[nodes, columns]``: ``batch.x`` for the first block, then what the previous layer has returned. In a
                heterogeneous graph a dict of these by node type, all of one width in a hidden layer.
            block: one of ``batch.blocks()``, in order.
            conv: the layer, which is called as ``conv((sources, targets), edges, *args, **kwargs)``; a ``HeteroConv``
                as ``conv(block.pairs(h), block.edge_index_dict, ...)``; any other with the rows of all sources, and
                what it returns is cut to the targets. Tensors of edges among ``args`` are those of the block, such as
                ``batch.edge_weight[block.edge]``. ``keep="aggregates"`` needs it.

        Returns:
            Without ``conv``: ``[block.num_src, columns]``, or a dict of these. Rows from the cache equal the stored
            ones bit for bit, and no gradient goes on from them. For a plain batch, ``h`` itself. With it:
            ``[block.num_dst, columns]``, or a dict of these; where aggregates of this level are kept there are also
            the rows whose aggregates the history has, and gradients go to the layer's parameters from all of them.

        Raises:
            InvalidArgumentError, DTypeError: rows do not fit, the batch is not the newest one, the batch was pruned and
                the history is in evaluation, the history keeps aggregates and no layer was given, or the layer is one
                that cannot be used, such as a ``GCNConv`` that normalises.
        """
        if conv is not None:
            return by_hand.called(self, h, block, conv, args, kwargs)
        levels = getattr(block, "levels", None)
        if levels is None:
            return h
        if not self._keeps_rows:
            raise InvalidArgumentError(
                "keep='aggregates' needs the layer: call h = history(h, block, conv), or use history.attach(model)"
            )
        if isinstance(block, HeteroBlock):
            return self._rows(levels, block.level, h)
        return self._rows(levels, block.level, {UNNAMED[0]: h})[UNNAMED[0]]

    def attach(self, model: nn.Module, layers: Iterable[nn.Module] | None = None) -> None:
        """Let an ordinary ``model(batch.x, batch.edge_index)`` use history.

        Every layer is then called with the rows that it reads and a bipartite graph to those that it computes, as
        ``layer((h, h[:num_dst]), edge_index)``. It returns ``num_dst`` rows, which activations and norms of the model
        receive. Tensors of edges among the arguments are reduced to these edges.

        Args:
            model: a model of PyG's ``BasicGNN`` family (``GraphSAGE``, ``GCN``, ``GAT``, ``GIN``, ``PNA``,
                ``EdgeCNN``); a model of yours, once there is a loader with this history: its layers are found as
                ``forward`` is recorded (:mod:`torch.fx`, in the mode ``eval()``) over a small random graph with tensors
                like the loader's; or any model with ``layers``. It may be compiled and accelerated
                (:mod:`freshgo.nn`).
            layers: None finds the message-passing layers: each reads what the one before has computed and nothing else,
                changed row by row, and so do the rows that the model returns; one that is called several times is a
                layer for each call. Residuals, jumping knowledge and layers side by side are refused, and the message
                names the line. Else the layers, one for each hop, in the order in which the model calls each of
                them once as ``layer(h, edge_index, ...)``, with the batch's own edges. Layers must accept a pair of
                tensors for ``h``, except GCNConv and PNAConv. In a heterogeneous graph layers are called as ``layer(h,
                batch.edge_index_dict, ...)``, with dicts: ``HeteroConv``, which is given pairs, or any layer that
                returns a row for each row of ``h``, such as ``HGTConv``; the rows of the targets are kept.

        Raises:
            InvalidArgumentError: a layer or a model that cannot be attached, or whose layers cannot be found; the
                message says why, and at which line of the model.
            DTypeError: ``model`` or a layer is not a module.
        """
        if self._attached is not None:
            raise InvalidArgumentError("a model is already attached to this history: call detach() first")
        self._attached = Attachment(self, model, layers)

    def detach(self) -> None:
        """Restore the attached model. Without one, do nothing."""
        if self._attached is not None:
            self._attached.remove()
            self._attached = None

    def train(self, mode: bool = True) -> History:
        """Use history from the next epoch on, or with False do not. For an attached model, its own ``train()``
        decides."""
        self.training = checks.flag("mode", mode)
        return self

    def eval(self) -> History:
        """Neither read nor write: epochs that begin now have plain batches."""
        return self.train(False)

    @eager
    def update(self) -> None:
        """Keep the stable rows of the batch, after its backward pass; the gradients of several passes are added.

        Does nothing for plain batches, and nothing when called again. A batch without an update keeps nothing.
        Aggregates need no gradient.

        Raises:
            InvalidArgumentError: no backward pass reached the batch whose rows are to be kept, the model did not ask
                for its rows, or no loader was made with this history.
            DTypeError, InvalidArgumentError: the dtype or the width of hidden rows has changed since the first update.
        """
        if self._loader is None:
            raise InvalidArgumentError("this history has no loader: make one with Loader(..., history=history)")
        with stage("freshgo.update"):
            self._keep()

    def _keep(self) -> None:
        step = self._step
        if step is None or step.done:
            return
        native, index = self._native(), step.levels.index
        try:
            if self._evaluating():
                native.history_skip(index)
                return
            try:
                dtype, width, norms = step.observed()
                buffer = self._buffer()
                for level in step.kept:
                    buffer.check(step.seen[level].rows, level)
            except BaseException:
                native.history_skip(index)
                raise
            row_bytes = buffer.row_bytes or width * dtype.itemsize
            if row_bytes > buffer.raw.numel():
                native.history_skip(index)
                raise InvalidArgumentError(
                    f"the history's buffer of {format_size(buffer.raw.numel())} has no room for one row of "
                    f"{format_size(row_bytes)}: use a larger History(memory=...); a useful buffer holds "
                    "some thousand rows at least"
                )
            self._unwritten = Unwritten(norms, buffer, dtype, width, step.rows())
            self._write(native.history_update(index, row_bytes, norms))
            self._trail.bytes_saved += step.bytes_saved
        finally:
            step.forget()

    def stats(self) -> dict[str, Any]:
        """Return what the cache did.

        Once there is a loader, from the library: ``"layers"`` (``"hits"``, ``"misses"``, ``"admitted"``, ``"live"`` of
        each hidden layer), ``"ages"`` of hits (element k counts ages from 2^k), why entries ended (``"replaced"``,
        ``"evicted"`` by their gradients, ``"overwritten"``, ``"expired"``) and why rows were refused
        (``"refused_..."``), the bytes of the buffer that hold rows (``"embedding_bytes"``), and ``"lag"``.

        ``"rows_saved"``, ``"edges_saved"``: how many more plain batches would have had; ``"bytes_saved"``: the same for
        the features that the first layer reads. Rows count even if they would have been cached. ``"saving"``: the same
        for consecutive spans of iterations, each with its first. ``"error"`` (with ``sample_error``): by age, which
        doubles from entry to entry, the number of compared rows, their mean cosine, and their mean relative error
        ``|stored - computed| / |computed|``; with dropout this includes the dropout of both, and of aggregates of level
        1 it is how far two samples are apart.
        """
        return {
            "keep": "aggregates" if self._keeps.aggregates else "rows",
            "policy": self._policy,
            **(self._native().history_stats() if self._kept() else self._last),
            "rows_saved": self._trail.total("plain_rows") - self._trail.total("loaded"),
            "edges_saved": self._trail.total("plain_edges") - self._trail.total("edges"),
            "bytes_saved": self._trail.bytes_saved,
            "saving": self._trail.rows(),
            "error": self._estimation.rows(),
        }

    def forecast(self) -> dict[str, Any]:
        """Return what the history will save in the epoch that the next ``iter`` of the loader begins, before it begins.

        Where gradients decide nothing (aggregates, ``policy="gas"``, ``p_grad=1``), entries depend on the samples, on
        age and on room, which are all known ahead. So these are the very counts that the epoch will have, if it runs
        to its end and every batch is updated. All batches of the epoch are sampled for it; no row is read.

        Returns:
            ``"rows"``, whose features are read or found in a cache, and ``"plain_rows"`` without history;
            ``"edges"`` and ``"plain_edges"``; ``"layers"`` with ``"hits"`` and ``"misses"`` of each hidden layer. Where
            lists on disk are spared, ``"rows_saved"`` of :meth:`stats` does not count nodes that only those name.

        Raises:
            InvalidArgumentError: gradients decide; nothing has been updated yet, so that it is not known how many rows
                have room; the history is in evaluation; an epoch runs; or batches are reordered.
            BudgetError: there is no room for a second set of the history's tables.
            ClosedError: there is no open loader.
        """
        native = self._native()
        if not self._training():
            raise InvalidArgumentError("the history or its model is in evaluation: the next epoch uses no history")
        if not self._kept():
            raise InvalidArgumentError("with p_grad=0 or t_stale=0 nothing is kept: there is nothing to forecast")
        loader = self._live()
        assert loader is not None  # as there is a native one
        counts = native.history_forecast(*loader.upcoming(), self._hops - 1)
        found = dict(zip(("rows", "plain_rows", "edges", "plain_edges"), counts, strict=False))
        layers = zip(counts[4::2], counts[5::2], strict=True)
        return {**found, "layers": [{"hits": hits, "misses": misses} for hits, misses in layers]}

    def plot(self) -> Any:
        """Return a matplotlib figure of :meth:`stats`: saving over time, hits by layer, ages, buffer, error by age."""
        return figure(self.stats())

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to continue identically: entries, their rows, counters, and a checksum of all of it.

        ``torch.save`` takes the state, and ``torch.load`` with ``weights_only=True`` returns it. It is as large as what
        the buffer holds.

        Raises:
            ClosedError: the loader was closed.
        """
        if self._restored is not None:
            return self._restored
        if self._last:
            raise ClosedError(
                "the loader of this history is closed, and its entries are gone: save the state before it closes"
            )
        state: dict[str, Any] = {"version": saved_state.VERSION, "settings": self._described()}
        state |= {"saving": self._trail.save(), "error": self._estimation.save()}
        if self._kept():
            self._write()
            state |= saved_state.entries(self._native(), self._buffer())
            state["rank"] = self._rank(take=False)
        state["checksum"] = saved_state.checksum(state)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was saved; together with the loader's state, with the identical next batch.

        Raises:
            InvalidArgumentError: ``state`` is not a state, or belongs to a history of other options, another graph or
                another rank.
            FormatError: it is damaged.
        """
        trail, estimation = saved_state.check(state, self._described())
        if "entries" not in state:
            pass  # it was saved before there was a loader
        elif self._kept():
            self._restore(state)
            loader = self._live()
            assert loader is not None  # as something is kept
            loader.rewind()  # the epoch that ran has ended: iter() goes on with it
        else:
            self._restored = state
        self._step, self._trail, self._estimation = None, trail, estimation

    def __repr__(self) -> str:
        s = self._settings
        parts = ["keep='aggregates'"] if self._keeps.aggregates else []
        if self._keeps.levels is not None:
            parts.append(f"levels={self._keeps.levels}")
        parts += [f"p_grad={s.p_grad:g}", f"t_stale={history_checks.spoken(s.t_stale)}", f"policy={self._policy!r}"]
        if s.start.count:
            parts.append(f"start={history_checks.spoken(s.start)}")
        if s.memory is not None:
            parts.append(f"memory={format_size(s.memory)}")
        return f"History({', '.join(parts)})"

    def __reduce__(self) -> NoReturn:
        raise DTypeError("a History cannot be pickled or copied: make another one, and carry over state_dict()")

    # What the loader and the attached layers call.

    def _bind(self, loader: Feeder, hops: int) -> None:
        """Belong to a loader, which samples ``hops`` hops."""
        live = self._live()
        if live is not None and live is not loader:
            raise InvalidArgumentError(
                "this history is used by another loader, whose nodes and iterations it counts: make a History for each"
            )
        history_checks.levels_of_model(self._keeps.levels, hops, f"the loader samples {hops} hops (num_neighbors)")
        if self._loader is not None and self._restored is None:  # what was counted was another loader's
            self._trail, self._estimation = Trail(), Estimation()
        self._loader, self._exported, self._step, self._last = weakref.ref(loader), None, None, {}
        self._hops = hops
        self._unwritten = None

    def _closing(self, loader: Feeder) -> None:
        """Keep the figures of a loader that is about to close."""
        if self._live() is loader and self._kept():
            self._last = self._native().history_stats()

    @property
    def _keeps_rows(self) -> bool:
        return not self._keeps.aggregates

    def _check_levels(self, num_layers: int) -> None:
        """Raise an error if a model with this number of layers lacks a level that is kept."""
        what = f"the model has {num_layers} message-passing layers"
        history_checks.levels_of_model(self._keeps.levels, num_layers, what)

    def _batches(self) -> Layout | None:
        loader = self._live()
        return None if loader is None else loader.layout()

    def _evaluating(self) -> bool:
        return not self.training or (self._attached is not None and not self._attached.model.training)

    def _training(self) -> bool:
        """Return whether the epoch that begins now uses history."""
        self._left()
        if self._restored is not None:
            self._restore(self._restored)
            self._restored = None  # and no sooner: what is refused or interrupted is not forgotten
        return not self._evaluating()

    def _write(self, admitted: Admitted | None = None) -> None:
        """Put the rows that the library has admitted to where it has their entries, before anybody reads them.

        Without an argument those of an update that Ctrl-C has left; doing so again does no harm."""
        left = self._unwritten
        if left is None:
            return
        if admitted is not None:
            left.write(admitted)
        elif self._native().history_stats()["row_bytes"]:
            left.write(self._native().history_admitted(left.norms))
        self._unwritten = None

    def _left(self) -> None:
        """Forget a batch that was handed over and that no model has seen: the loop was left."""
        if self._step is not None and not self._step.asked:
            self._step = None

    def _handed(self, levels: Levels | None) -> None:
        """Take note of a batch that the loader yields; None for a plain one."""
        self._write()
        step = self._step
        self._step = None if levels is None else Step(levels, self._keeps)
        if levels is not None:
            self._trail.add(levels)
        if step is not None and not step.done and not self._warned:
            self._warned = True
            warnings.warn(
                "history.update() was not called for a batch before the next one was requested: such batches "
                "keep nothing and save nothing; call it after every loss.backward()",
                UserWarning,
                stacklevel=checks.caller(),
            )

    def _rows(self, levels: Levels, level: int, h: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The rows that layer ``level + 1`` reads of the batch of these levels, by node type."""
        return self._checked(levels).input(level, h, self._buffer, self._estimation.add)

    def _merged(self, levels: Levels, level: int, parts: list[Tensor]) -> list[Tensor]:
        """The aggregates of all rows of a level, of whose computed ones, type after type, these are the parts."""
        return self._checked(levels).merged(level, parts, self._buffer, self._estimation.add)

    def _checked(self, levels: Levels) -> Step:
        """The step at hand, if it is that of these levels."""
        step = self._step
        if self._evaluating():
            raise InvalidArgumentError(
                "the batch was pruned for training, but the history or its model is in evaluation: evaluate with a "
                "loader that has no history, or begin an epoch of this one after eval()"
            )
        if step is not None and step.levels.owner is not levels.owner:
            raise InvalidArgumentError("the batch was pruned by another loader's history")
        if step is None or step.levels.index != levels.index:
            raise InvalidArgumentError(
                f"batch {levels.index} is not the newest batch of its loader: the rows that it needs are kept only "
                "until the next batch is asked for, so train on each batch before the next"
            )
        if step.done:
            raise InvalidArgumentError(
                f"update() has been called for batch {levels.index}, and the cache may have dropped the rows that the "
                "batch needs: run a batch through the model before you call update() for it"
            )
        return step

    def _live(self) -> Feeder | None:
        """The loader, if there is one that is open."""
        loader = None if self._loader is None else self._loader()
        native = getattr(loader, "native", None)
        return None if native is None or native.closed else loader

    def _kept(self) -> bool:
        """Whether the loader keeps anything: not before there is one, nor where it never would."""
        return self._live() is not None and self._settings.p_grad > 0 and self._settings.t_stale.count > 0

    def _native(self) -> Decisions:
        loader = self._live()
        if loader is None:
            raise ClosedError("this history has no open loader: give it to one, as Loader(..., history=history)")
        return loader.native

    def _rank(self, *, take: bool) -> list[int] | None:
        loader = self._live()
        assert loader is not None  # as something is kept
        return loader.rank(take=take)

    def _buffer(self) -> Buffer:
        native = self._native()
        if self._exported is None or self._exported[0] is not native:
            raw = native.history_buffer()
            if raw is None:
                n_bytes = int(native.history_stats()["bytes"])
                raw = torch.empty(n_bytes, dtype=torch.uint8, device=self._settings.device)
            self._exported = (native, Buffer(raw))
        return self._exported[1]

    def _restore(self, state: dict[str, Any]) -> None:
        rank = self._rank(take=True)
        if repr(state.get("rank")) != repr(rank):
            raise InvalidArgumentError(
                f"the state is that of rank {state.get('rank')} (number, of how many), this is rank {rank}: every rank "
                "keeps the rows of its own batches, and another number of ranks begins with empty histories"
            )
        self._write()  # before what is restored, if that fails and nothing is
        saved_state.restore(state, self._native(), self._buffer())

    def _described(self) -> dict[str, Any]:
        s = self._settings
        return {
            "keep": "aggregates" if self._keeps.aggregates else "rows",
            "levels": self._keeps.levels,
            "policy": self._policy,
            "p_grad": s.p_grad,
            "t_stale": history_checks.spoken(s.t_stale),
            "start": history_checks.spoken(s.start),
            "memory": s.memory,
            "lag": s.lag,
            "probe_every": s.probe_every,
        }
