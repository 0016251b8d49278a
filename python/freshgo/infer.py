"""Predictions and embeddings of every node, layer by layer, for graphs larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.progress import Progress, finish, progress_of
from freshgo._args.size import format_size, parse_size
from freshgo.errors import DTypeError
from freshgo.store import Store, opened

if TYPE_CHECKING:  # a room that few programs need, imported at the first call
    from freshgo._infer.epochs import Epochs
    from freshgo._infer.layers import Plan
    from freshgo._infer.streamed import Streamed
    from freshgo.nn import Embedding

__all__ = ["infer"]


@entry
@torch.no_grad()
def infer(
    model: torch.nn.Module | None,
    store: Store | str | os.PathLike[str],
    out: str | os.PathLike[str] | tuple[Store | str | os.PathLike[str], str],
    *,
    nodes: Any = None,
    layers: Sequence[Callable[[Any, Any], Any]] | None = None,
    tensor: str = "x",
    embeddings: Embedding | Mapping[str, Embedding] | None = None,
    edge_weight: str | None = None,
    edge_attr: str | None = None,
    inputs: Mapping[str, str] | None = None,
    output: int | str | None = None,
    fallback: Literal["batches"] | None = None,
    depth: int | None = None,
    memory: int | str = "1GiB",
    batch_size: int = 1024,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Path | str:
    """Compute a model's output for every node of a store, and write it to ``out``: as ``.npy``, as Parquet with the
    keys of the nodes, or as a tensor of the store.

    All nodes pass through the first layer, with all their neighbours, before any passes through the second. So every
    row of a layer is computed once, however many nodes need it, and nothing is sampled: the result is that of the
    model's ``forward`` over the whole graph, within rounding. What a layer has computed is written to disk and becomes
    the features that the next one reads. Where all layers add rows up with coefficients that do not depend on the rows
    (SAGE and GIN with mean or sum, GraphConv, GCN), each row is read in its order and not once for each neighbour.
    Other layers read through the caches and plans of a :class:`Loader`.

        embeddings = freshgo.infer(model.eval(), "papers.freshgo", "embeddings.npy", memory="8GiB")
        rows = numpy.load(embeddings, mmap_mode="r")  # row i is that of node i
        freshgo.infer(model, "papers.freshgo", "embeddings.parquet")  # columns "id" and "embedding"
        freshgo.infer(model, "papers.freshgo", ("papers.freshgo", "emb"))  # a tensor of the store

    A model is traced (:mod:`torch.fx`) and cut at its message-passing layers. What is between them is computed for
    ranges of nodes: maps, activations, norms over columns, residuals, concatenation, jumping knowledge, several inputs
    of one layer. Rows that a later layer reads wait on disk until then. PyG's ready-made models, models that users
    write, and those of ``to_hetero`` and ``HeteroConv`` are taken, also with ``freshgo.nn.accelerate``. ``forward`` is
    given ``x`` and ``edge_index`` by name, in a heterogeneous graph as dicts, also as ``x_dict`` and
    ``edge_index_dict``, and what the options name. An operation that mixes the rows of nodes (a mean over nodes, a
    softmax over them, ``GraphNorm``) is refused, and so is code that cannot be traced; the message says at which line.
    ``fallback="batches"`` computes such a model over batches of all neighbours up to ``depth`` hops. GCN needs the
    degrees of all nodes, for which the lists are read once more.

    The layers may also be given as functions: ``layer(h, batch)`` is called with the rows of the layer before and a
    batch of one hop with all neighbours, as a :class:`Loader` with ``num_neighbors=[-1]`` makes it, and returns the
    rows of the nodes that come first in it::

        def first(h, batch):
            return conv1(h, batch.edge_index)[: batch.batch_size].relu()

    In a heterogeneous graph ``h`` is a dict by node type, and so is what a layer returns: a type that it leaves out has
    no rows for the next layer. Batches have every edge-level tensor (``batch.edge_type``) and no ``e_id``.

    Beside ``out`` there is a directory, ``out`` with ``.partial`` (for a tensor of a store ``.infer``), while this
    works: the rows that later layers read, and for layers that a :class:`Loader` reads the edges. If the process ends,
    the same call goes on where it was, at most some seconds of work before. Another call with the same ``out`` begins
    anew.

    Args:
        model: in the mode ``eval()``. With ``layers`` it may be None; if given, its parameters tell whether a call goes
            on with what another began.
        store: an open store, or the path of one.
        out: the file to write, a row for each node; in a heterogeneous graph a directory to create, with a file for
            each node type that the last layer gives rows of. A path that ends in ``.parquet`` becomes Parquet: ``id``,
            the key that the node had in the tables of :func:`freshgo.convert_tables` (int64, uint64 or string) or else
            its number (int64), and ``embedding``, a list of fixed size. A path that ends in ``.npy``, or has no suffix,
            becomes ``.npy``; any other suffix is an error. A pair of a store, or the path of one, and a name becomes a
            tensor of that store: of ``store`` itself, or of a store to create there, which is ``store`` with this
            tensor (:func:`freshgo.update`). It is a tensor like any other, and stays when others change. A store that
            was replaced so has to be opened again. A URL that ``fsspec`` knows (``"s3://bucket/embeddings.parquet"``)
            is written when everything is computed; the directory of what is not yet there is beside the store then. The
            objects of several node types appear together: all are sent first, as uploads that are not completed, and
            then completed one after the other, by one request each. If one of these requests fails, the objects before
            it are removed again; with ``overwrite`` they stay, and the same call replaces the others. Further objects
            below the URL stay.
        nodes: compute the last layer for these nodes only, given as ``input_nodes`` of a :class:`Loader`; row i of the
            result is that of the i-th of them. None is every node. In a tensor of a store the rows of other nodes are
            NaN.
        layers: the layers of the model as functions.
        tensor: the node-level tensor that is the input of the first layer, of every node type that has it.
        embeddings (Embedding, or dict of these by node type; default None): tables that learn
            (:class:`freshgo.nn.Embedding`), whose rows as they are now are the input of the first layer, in the place
            of ``tensor``. They are written to a directory beside the store, once, and removed in the end. A call goes
            on with what another began if the table was saved, and has not changed since.
        edge_weight, edge_attr: edge-level tensors that ``forward`` takes under these names, or with ``_dict`` behind.
        inputs: further parameters of ``forward``, and the tensor of the store that each is given:
            ``{"edge_type": "edge_type"}``. Tensors of nodes and of edges, or ``"edge_index"``; in a heterogeneous graph
            a dict by type.
        output: which entry of the tuple, list or dict that the model returns is written. A dict by node type is
            written whole.
        fallback: ``"batches"``: compute a model that cannot be cut over batches with all neighbours. Each row is then
            computed for every batch that needs it.
        depth: how many hops away the model reads, for ``fallback``: one for each message-passing layer, and one more
            where the degrees of neighbours count (GCN). It is tried on a small random graph first.
        memory: bytes, or a string such as ``"8GiB"``, for loading and for writing. The activations of a batch and the
            model come on top. Where rows are only added up, 4 bytes a node are needed, 8 more for GCN, and for an
            ``edge_weight`` that the store does not have by target (``weight_attr`` of :func:`convert`) 4 an edge, and
            while it is read its bytes too if it is not float32.
        batch_size: nodes per batch. Layers that only add rows up compute more at a time where rows are short.
        device: where the model is; batches go there. None is the device of its first parameter, or the CPU.
        dtype: ``torch.float32`` or ``torch.float16``: the type of the rows of all layers on disk.
        overwrite: replace ``out``, or the tensor of ``store``; it stays until the new one is complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``, in nodes.

    Returns:
        The path or URL of what was written; for a tensor, that of its store.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; ``out`` has another suffix than ``.npy`` and
            ``.parquet``, or is a store; a model that trains, that mixes the rows of nodes
            between its layers, or that cannot be traced; ``depth`` is too small; a layer that returns something else
            than a row for each of its nodes, or that fails because its rows have another dtype than the parameters of
            the model.
        StoreExistsError: ``out`` exists, and ``overwrite`` is false or it holds something else than such rows.
        LibraryError: pyarrow is not installed, and ``out`` is Parquet (``pip install 'freshgo[tables]'``).
        BudgetError: ``memory`` is too small; ``minimum`` works.
        BusyError: another process writes to ``out``.
        StoreNotFoundError, FormatError, CorruptError, ReadError, WriteError: as for :func:`convert`.
    """
    from freshgo._infer.learned import with_rows
    from freshgo._infer.outputs import output_of
    from freshgo._infer.planning import check_model, plan_of
    from freshgo._infer.run import Task
    from freshgo._traced.states import uncached

    replace = checks.flag("overwrite", overwrite)
    if dtype not in (torch.float32, torch.float16):
        raise DTypeError(f"dtype must be torch.float32 or torch.float16, got {dtype!r}")
    for name, value in (("tensor", tensor), ("edge_weight", edge_weight), ("edge_attr", edge_attr)):
        if not isinstance(value, str) and (value is not None or name == "tensor"):
            raise DTypeError(f"{name} must be the name of a tensor, got {checks.shown(value)}")
    if fallback is not None:
        checks.choice("fallback", fallback, ("batches",), optional=True)
    hops = None if depth is None else checks.count("depth", depth, 1)
    n_bytes = parse_size("memory", memory)
    check_model(model)
    with opened(store) as given, uncached(model):
        written = output_of(out, given, _types_of(given, nodes), overwrite=replace)
        with with_rows(given, embeddings, tensor, out, n_bytes) as (source, origin):
            where = _device(model, device)
            plan = plan_of(
                model,
                layers,
                source,
                tensor=tensor,
                edge_weight=edge_weight,
                edge_attr=edge_attr,
                inputs=inputs,
                output=output,
                fallback=fallback,
                depth=hops,
                memory=n_bytes,
                device=where,
            )
            with progress_of(progress) as report:
                task = Task(
                    source,
                    plan,
                    model,
                    nodes=nodes,
                    tensor=tensor,
                    memory=n_bytes,
                    batch_size=checks.count("batch_size", batch_size, 1),
                    device=where,
                    dtype=dtype,
                    report=report,
                    origin=origin,
                )
                method = _method(plan)(task, written.work)
                with method.run:
                    written.publish(method.complete(), n_bytes, report)
                what = f"tensor {out[1]!r}" if isinstance(out, tuple) else format_size(written.written_bytes())
                finish(report, written.target, what)
    return written.target


def _method(plan: Plan) -> type[Epochs | Streamed]:
    """Return how layers are computed: by streams of rows where all of them only add rows up."""
    from freshgo._infer.epochs import Epochs
    from freshgo._infer.streamed import Streamed

    return Epochs if plan.stream is None else Streamed


def _types_of(store: Store, nodes: Any) -> list[str]:
    """The node types whose rows are asked for."""
    if nodes is None or not store.node_types:
        return store.node_types or [""]
    if isinstance(nodes, str | tuple | list):
        nodes = [nodes] if isinstance(nodes, str) else nodes[:1]
    return [
        node_type for node_type in store.node_types if isinstance(nodes, Mapping | list | tuple) and node_type in nodes
    ]


def _device(model: torch.nn.Module | None, device: str | torch.device | None) -> str | torch.device | None:
    """Where batches go."""
    if device is not None or model is None:
        return device
    first = next(model.parameters(), None)
    return first.device if isinstance(first, Tensor) else None
