"""Historical embeddings: a cache of what hidden layers compute, with an exact bound on its age.

history = History()
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
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, overload

import torch
from torch import Tensor, nn

from freshgo._args import checks
from freshgo._args.choices import Kept, Pruning
from freshgo._args.entry import entry
from freshgo._args.size import format_size, parse_size
from freshgo._args.types import UNNAMED
from freshgo._batch.structure import HeteroBlock
from freshgo._history import by_hand
from freshgo._history import checks as history_checks
from freshgo._history.attach import Attachment
from freshgo._history.entries import Entries
from freshgo._history.steps import Steps
from freshgo._history.training_step import Keeps
from freshgo._native.options import Settings, Span
from freshgo._observe.ranges import stage
from freshgo._ops.eager import eager
from freshgo._plots.history import figure
from freshgo.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._batch.structure import Block

__all__ = ["History"]

_PART = 0.25
"""Epochs that an aggregate is used for: the longest age within the noise of plain training wherever it was measured,
over a precomputed first layer too (docs/history-measured.md)."""

_PAPERS = 200
"""Iterations, FreshGNN's t_stale."""

_SAMPLED = 0.05
"""The part of the iterations that measures the error of entries that grow stale."""


@entry
class History:
    """A cache of what hidden layers compute, which prunes what a loader samples (FreshGNN, sections 3 and 4).

    A node of a hidden layer with a cached entry is not computed: its neighbours are not sampled further, read
    or aggregated on its account. An entry older than ``t_stale`` is never read.

    Without options an entry is what layer 1 adds up over the node's sampled neighbours, with the node's own row where
    the layer reads it (``SAGEConv`` and ``GraphConv`` with a mean or a sum, ``GINConv``, ``GCNConv``; of a
    ``HeteroConv`` of these along each relation). The layer's own maps, norm and activation follow with the parameters
    of now, for hits as for computed rows, and learn from both. As the inputs are the features, this is plain training
    on neighbours that are sampled again when the entry ends, after a quarter of an epoch: nothing is stale. Of other
    layers, such as ``GATConv`` and ``HGTConv``, and where layer 1 reads learned rows, nothing is kept unless ``levels``
    names the level: then an entry of another layer is what it returns, its own parameters learn from computed rows
    alone, what follows it learns from all. What enters does not depend on gradients. Where nothing is kept, ``"idle"``
    of :meth:`stats` says why.

    ``keep="rows"`` is FreshGNN's setting. An entry is then the row that the next layer reads, of every hidden layer,
    for 200 iterations. After the backward pass the rows with the smallest gradients are kept, because they change
    least, and cached rows whose gradient has grown are dropped. No gradient goes on from a hit, which may cost
    accuracy.

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
            ever. None is 0.25 epochs for aggregates, 200 iterations for rows.
        keep: ``"aggregates"``, what a layer adds up, or ``"rows"``, as the next layer reads them (FreshGNN's Algorithm
            1, GNNAutoScale).
        levels: the hidden levels that are kept: one, several, or None, which is all of them for rows and level
            1 for aggregates. Over a precomputed first layer (``first_layer`` of :class:`Loader`) level 1 is what the
            second layer computes.
        policy: ``"performance"`` keeps, among those rows, the ones that save most reads per byte; ``"gradient"`` keeps
            all of them, in a ring; ``"gas"`` keeps every computed row for ever, as GNNAutoScale and VR-GCN do.
        start: iterations or epochs before the cache is used: embeddings change fast at first.
        memory: the size of the buffer in bytes or as ``"512MiB"``; on the CPU it is part of the loader's ``memory``.
            None is a tenth of the bytes of the features, of all node types together; of aggregates of level 1 only if
            the loader's memory holds all features as well, and else nothing is kept.
        lag: a batch is pruned by the cache as it was this many iterations before its own, so that it can be prepared
            ahead; the bound on the age includes it. It is less where the loader's ``memory`` has no room for as many
            batches: ``"lag"`` of :meth:`stats` says what it is.
        device: where the buffer is, which is where the model computes; None is the CPU.
        sample_error: this fraction of the iterations is not pruned but compares the cached rows with computed ones; see
            ``"error"`` in :meth:`stats`. Where the error grows by more than a tenth with age, entries are used for less
            time from the next epoch on. None is 0.05 for aggregates of named levels, else 0.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; the message says what was expected.
    """

    def __init__(
        self,
        p_grad: float | None = None,
        t_stale: int | float | None = None,
        *,
        keep: Kept = "aggregates",
        levels: int | Iterable[int] | None = None,
        policy: Pruning = "performance",
        start: int | float = 0,
        memory: int | str | None = None,
        lag: int = 1,
        device: torch.device | str | None = None,
        sample_error: float | None = None,
    ) -> None:
        policy = checks.choice("policy", policy, Pruning)
        aggregates = checks.choice("keep", keep, Kept) == "aggregates"
        unnamed = aggregates and levels is None
        keeps = Keeps(aggregates, (1,) if unnamed else history_checks.levels(levels), sums=unnamed)
        everything = aggregates or policy == "gas"
        fraction = checks.fraction("p_grad", (1.0 if everything else 0.9) if p_grad is None else p_grad)
        usual = math.inf if policy == "gas" else _PART if aggregates else _PAPERS
        stale = history_checks.span("t_stale", usual if t_stale is None else t_stale)
        if aggregates and (fraction != 1 or policy == "gradient"):
            raise InvalidArgumentError(
                "keep='aggregates' selects no rows by their gradients, got "
                f"p_grad={p_grad!r}, policy={policy!r}: use keep='rows', or omit p_grad and use policy='performance' "
                "or 'gas'"
            )
        if policy == "gas":
            if fraction != 1 or not math.isinf(stale.count):
                raise InvalidArgumentError(
                    f"policy='gas' keeps every row for ever, got p_grad={p_grad!r} and t_stale={t_stale!r}: omit "
                    "both, or use policy='gradient'"
                )
            stale = Span(math.inf, False)
        n_bytes = None if memory is None else parse_size("memory", memory)
        if n_bytes == 0:
            raise InvalidArgumentError("memory must be at least 1 byte, or None to let the loader choose, got 0")
        stated = _SAMPLED if aggregates and not unnamed else 0.0
        sampled = checks.fraction("sample_error", stated if sample_error is None else sample_error)
        if not stale.epochs and 0 < stale.count <= checks.count("lag", lag, 0, 1 << 20):
            warnings.warn(
                f"with t_stale={t_stale} iterations and lag={lag} hardly any kept row is young enough to be used: the "
                "youngest that a batch can find is lag + 1 iterations old; use a larger t_stale, or lag=0",
                UserWarning,
                stacklevel=checks.caller(),
            )
        settings = Settings(
            policy="all" if policy == "gas" else policy,
            p_grad=fraction,
            t_stale=stale,
            start=history_checks.span("start", start),
            memory=n_bytes,
            device=history_checks.device(device),
            lag=checks.count("lag", lag, 0, 1 << 20),
            aggregates=aggregates,
            levels=sum(1 << level - 1 for level in keeps.levels or ()),
            probe_every=round(1 / sampled) if sampled else 0,
        )
        self._entries = Entries(settings, keeps)
        self._steps = Steps(self._entries)
        self._attachment: Attachment | None = None

    @property
    def training(self) -> bool:
        """Whether history is used from the next epoch on; an attached model's own mode decides too."""
        return self._steps.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._steps.training = mode

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
            return by_hand.called(self._steps, h, block, conv, args, kwargs)
        levels = getattr(block, "levels", None)
        if levels is None:
            return h
        if self._steps.keeps.aggregates:
            raise InvalidArgumentError(
                "keep='aggregates' needs the layer: call h = history(h, block, conv), or use history.attach(model)"
            )
        if isinstance(block, HeteroBlock):
            return self._steps.rows(levels, block.level, h)
        return self._steps.rows(levels, block.level, {UNNAMED[0]: h})[UNNAMED[0]]

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
        if self._attachment is not None:
            raise InvalidArgumentError("a model is already attached to this history: call detach() first")
        self._attachment = Attachment(self._steps, model, layers)
        self._steps.model = self._attachment.model

    def detach(self) -> None:
        """Restore the attached model. Without one, do nothing."""
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = self._steps.model = None

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
        if not self._entries.bound:
            raise InvalidArgumentError("this history has no loader: make one with Loader(..., history=history)")
        with stage("freshgo.update"):
            self._steps.update()

    def stats(self) -> dict[str, Any]:
        """Return what the cache did.

        Once there is a loader, from the library: ``"layers"`` (``"hits"``, ``"misses"``, ``"admitted"``, ``"live"`` of
        each hidden layer), ``"ages"`` of hits (element k counts ages from 2^k), why entries ended (``"replaced"``,
        ``"evicted"`` by their gradients, ``"overwritten"``, ``"expired"``) and why rows were refused
        (``"refused_..."``), the bytes of the buffer that hold rows (``"embedding_bytes"``), and ``"lag"``.

        ``"idle"``: why nothing is kept, None where something is.

        ``"rows_saved"``, ``"edges_saved"``: how many more plain batches would have had; ``"bytes_saved"``: the same for
        the features that the first layer reads. Rows count even if they would have been cached. ``"saving"``: the same
        for consecutive spans of iterations, each with its first. ``"error"`` (with ``sample_error``): by age, which
        doubles from entry to entry, the number of compared rows, their mean cosine, and their mean relative error
        ``|stored - computed| / |computed|``; with dropout this includes the dropout of both, and of aggregates of level
        1 it is how far two samples are apart.
        """
        return self._entries.stats()

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
        native = self._entries.native
        if not self._steps.begin_epoch() and self._entries.idle is None:
            raise InvalidArgumentError("the history or its model is in evaluation: the next epoch uses no history")
        return self._entries.forecast(native)

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
        return self._entries.save()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was saved; together with the loader's state, with the identical next batch.

        Raises:
            InvalidArgumentError: ``state`` is not a state, or belongs to a history of other options, another graph or
                another rank.
            FormatError: it is damaged.
        """
        self._entries.load(state)
        self._steps.current = None

    def __repr__(self) -> str:
        settings, options = self._entries.settings, self._entries.described()
        parts = ["keep='aggregates'"] if options["keep"] == "aggregates" else []
        if options["levels"] is not None:
            parts.append(f"levels={options['levels']}")
        parts += [f"p_grad={settings.p_grad:g}", f"t_stale={options['t_stale']}", f"policy={options['policy']!r}"]
        if settings.start.count:
            parts.append(f"start={options['start']}")
        if settings.memory is not None:
            parts.append(f"memory={format_size(settings.memory)}")
        return f"History({', '.join(parts)})"

    def __reduce__(self) -> NoReturn:
        raise DTypeError("a History cannot be pickled or copied: make another one, and carry over state_dict()")
