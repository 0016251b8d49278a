"""Writing a graph to disk."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from freshgo._args import frames, whole
from freshgo._args.arrays import Array
from freshgo._args.checks import flag
from freshgo._args.choices import Order, SourceName
from freshgo._args.entry import entry
from freshgo._args.hints import among, no_weights
from freshgo._args.levels import Levels
from freshgo._args.narrow import forms_of
from freshgo._args.parts import GraphParts, graph_parts
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import UNNAMED, EdgeType
from freshgo._args.urls import check_local
from freshgo._data import link_splits
from freshgo._native import convert as native_convert
from freshgo._native.store import Store as NativeStore
from freshgo._sources.landing import landed
from freshgo._sources.opening import Opening
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.relayout import Relayout
from freshgo.store import Store, store_over, written

if TYPE_CHECKING:
    from freshgo._data.like import ConvertibleGraph


@entry
def convert(
    data: ConvertibleGraph,
    path: str | os.PathLike[str],
    *,
    source: SourceName | None = None,
    allow_pickle: bool | None = None,
    memory: int | str = "1GiB",
    relayout: Order | Mapping[str, Any] | None = None,
    weight_attr: str | Mapping[EdgeType, str] | None = None,
    edge_ids: bool | Mapping[EdgeType, bool] = True,
    node_level: Sequence[str] = (),
    edge_level: Sequence[str] = (),
    graph_level: Sequence[str] = (),
    links: str | Mapping[str, Any] = "train",
    dtype: Mapping[Any, Any] | None = None,
    clip: bool = False,
    isolated_nodes: bool = False,
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Write ``data`` as a store at ``path`` and open it.

    The conversion streams: whatever the size of the graph, it uses at most ``memory``. The store appears whole or not
    at all. What a killed conversion left behind is removed by the next one to the same path.

    The disk space is checked before the first byte is written. Beside the store, edges that are not sorted by target
    take at most 13 bytes each while they are sorted (below 2^40 edges and 2^32 nodes; 8 with ``edge_ids=False``), and
    nothing where the disk is short or where reading them again within ``memory`` is cheaper.

    Graphs that other programs keep are recognised by what they are: data sets and directories of OGB, of its MAG240M,
    of IGB and of GraphBolt, ``.npz`` archives, NetworkX, sparse matrices; and files of MatrixMarket (by SciPy) and of
    GraphML, GML, GEXF and Pajek (by NetworkX), which are read into memory as a whole. The table in ``docs/data.md``
    says what becomes of each. What one was taken for is the first stage of ``progress`` and a line of the logger
    ``freshgo``.

    Args:
        data: a PyG ``Data``; a mapping with ``edge_index`` (integers, ``[2, num_edges]``, row 0 the source and row 1
            the target, or ``[num_edges, 2]``) and further tensors; or a directory with ``edge_index.npy`` and further
            ``.npy`` files, where ``train_idx.npy`` is the split ``train``, and ``num_nodes.npy`` a number. The values
            of a mapping are torch tensors, NumPy arrays, paths of ``.npy`` files, or lists of such paths, whose rows
            (of ``edge_index``: edges) follow one another; files are read piece by piece, as are memory-mapped arrays.
            ``edge_index`` may also be one or several Parquet files with two columns of integers, sources and targets,
            which are copied beside the store for the time of the conversion; a list of files alone is a graph of
            these edges. Paths may be URLs that
            ``fsspec`` knows, such as ``"s3://bucket/x.npy"``, of ``.npy`` and ``.npz`` files, and of directories of
            ``.npy`` files (``pip install 'freshgo[remote]'``). Tensors with one row per node or per edge
            are kept and come with every batch. Bool tensors named ``<split>_mask``
            are also splits, each column of a two-dimensional one by itself: ``"train:3"`` is ``train_mask[:, 3]``.
            Further splits are in ``data["splits"]``, a mapping from names to node ids or masks. ``data["num_nodes"]``
            is needed only if nothing else determines it.

            Other tensors, numbers, strings, and lists, tuples and dicts of these belong to the graph as a whole
            (``class_weights``, ``mean [1, 2]``): every batch has them as they are, as in PyG
            (:meth:`Store.attributes`), and so has what ``__cat_dim__`` of a subclass of ``Data`` returns None for.
            ``x``, ``pos``, masks, ``edge_attr`` and ``edge_weight`` with another number of rows are errors. Links with
            labels, as ``RandomLinkSplit`` adds them, are no edges; they become a split of links (``links=``).

            A graph may have ``adj_t``, as PyG's ``ToSparseTensor`` makes it (a ``SparseTensor`` or a sparse tensor of
            torch), instead of ``edge_index``; its edges are then in the order of the matrix. A sparse matrix is a graph
            by itself: the entry in row i and column j is an edge from i to j, and its value the ``edge_weight``.

            A heterogeneous graph is a PyG ``HeteroData`` or a mapping from its types. A node type such as ``"paper"``
            is mapped to a mapping of what belongs to its nodes (tensors, ``num_nodes``, ``splits``; ``{}`` if there is
            nothing). An edge type such as ``("author", "writes", "paper")`` is mapped to its ``edge_index``, or to a
            mapping with ``edge_index`` and tensors with one row per edge. Values are as above, including paths::

                convert({
                    "paper": {"x": "paper_x.npy", "y": y, "splits": {"train": ids}},
                    "author": {"num_nodes": 1000},
                    ("author", "writes", "paper"): "writes.npy",
                    ("paper", "cites", "paper"): {"edge_index": cites, "time": years},
                }, "papers.freshgo")

            It may also be a directory that has a directory of ``.npy`` files for each type, such as ``paper`` or
            ``author__writes__paper``. Types are written one after the other within ``memory``. Times and weights are
            ordinary tensors.
        path: the directory to create. A symbolic link there is followed.
        source: what ``data`` are, if they are not to be recognised: ``"ogb"``, ``"mag240m"``, ``"igb"``,
            ``"graphbolt"``, ``"npz"``, ``"npy"``, ``"mtx"``, ``"graphml"``, ``"gml"``, ``"gexf"``, ``"pajek"``,
            ``"pyg"``, ``"networkx"``, ``"matrix"``, ``"edges"``, ``"tensors"``; ``"csr"``, ``"csc"`` or ``"coo"`` for a
            tuple of arrays, which is never recognised; or a data set of OGB, such as ``"ogbn-products"``, for a
            directory that is not named after it.
        allow_pickle: some sources have splits or tensors in pickles (``split_dict.pt``), and unpickling runs whatever
            code a file names. None: such a file is an error; False: it is left out; True: it is unpickled.
        memory: bytes, or a string such as ``"8GiB"``. Sources that are compressed take a few MiB beside it, URLs
            up to 24 MiB.
        relayout: store the rows of node tensors in the order of their use: an order, or a mapping with options of
            :func:`freshgo.relayout` (``order``, ``hotness``, ``num_neighbors``, ``input_nodes``, ``batch_size``,
            ``hot_rows``). This is done in place before the store appears. On disk it needs the store and once more its
            largest node tensor, or twice if that is larger than three times ``memory``.
        weight_attr: the edge tensor by which a loader will draw (``weight_attr=`` of :class:`freshgo.Loader`): a number
            for each edge, finite and at least 0. It is then also stored by target, with sums, in 4.5 or 8.5 bytes an
            edge: if weights do not fit into memory, a draw reads a few pages of a long list instead of the whole list.
            In a heterogeneous graph, the tensor of this name of every edge type that has it, or a mapping from edge
            types to names. Batches are the same with and without it.
        edge_ids: False leaves out the numbers of edges, 4 bytes each (5 from 2^32 edges on): the conversion sorts fewer
            bytes, and a loader needs ``return_edge_id=False``, for batches have no ``e_id``. Edges with tensors need
            their numbers, and edges that come sorted by target take none in any case. A mapping from edge types to
            bools says it for some of them.
        node_level, edge_level, graph_level: names of tensors that belong to nodes, to edges, or to the graph as a
            whole, where their rows do not decide it: in a graph with as many edges as nodes, or where a tensor of the
            whole graph happens to have a row for each. A tensor that ``weight_attr`` names belongs to edges.
        links: what the labelled links of ``data`` are called, ``store.links("train")``; or a mapping from names to
            graphs, such as the three of ``RandomLinkSplit``, whose links alone are taken, or to mappings with
            ``edge_label_index``, ``edge_label`` and ``edge_label_time``: ``{"train": train_data, "val": val_data}``.
            :func:`freshgo.update` adds further ones.
        dtype: tensors of floats to store in fewer bytes, and as what: ``{"x": "float16"}``. A name means the tensor of
            every type that has it; ``{"paper": {"x": "int8"}}`` names a node type, and an edge type is named likewise.
            ``"float16"`` and ``"bfloat16"`` (also :class:`torch.dtype`) round to the nearest. ``"int8-per-row"`` and
            ``"int8-per-column"`` store 255 steps between the least and the greatest number of the row or column, with
            a float32 scale and offset; ``"int8"`` takes whichever has the smaller square error. Loaders deliver these
            tensors as float32 (``feature_dtype`` of :class:`Loader`), and :func:`quantization_error` tells what was
            lost. A tensor that is narrow already is stored as it is.
        isolated_nodes: confirm a ``num_nodes`` that is far more than edges and tensors can name: above 2^24, above a
            thousand times the ends of all edges, and of a node type without a tensor or a mask of that length. Such a
            graph takes at least 8 bytes a node, and the number is more often a mistake.
        clip: numbers that ``"float16"`` or ``"bfloat16"`` cannot hold become the largest that it can, instead of an
            error.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``.

    Raises:
        InvalidArgumentError: shapes that do not fit together, ids out of range (the message names file, type and
            position), rows without columns, an empty graph, a
            ``num_nodes`` that needs ``isolated_nodes``, an edge type whose node types do not exist, a
            ``weight_attr`` that is not an edge tensor or holds values that cannot be weights, tensors of edges with
            ``edge_ids=False``, more than 2^32 - 1 nodes, a tensor that may belong
            to nodes or to edges (the message names it and the option that decides), a ``dtype`` that cannot
            hold a number (the message names row and column) or the tensor; a pickle that nobody allowed; a ``source``
            that ``data`` are not; a ``path`` inside the directory of a store.
        DTypeError: dtypes that cannot be used, pickled arrays.
        FormatError, CorruptError: a file that is not what its source has; the message names file and member or row.
        StoreNotFoundError: a file that the source needs is missing.
        LibraryError: a package is missing: the one of a file system at a URL; PyYAML, which ``metadata.yaml`` of
            GraphBolt needs; SciPy or NetworkX, which the file needs.
        StoreExistsError: ``path`` exists and ``overwrite`` is false.
        BudgetError: ``memory`` is too small; the message and ``minimum`` name the smallest that works or, where
            ``relayout`` needs more, more than was given.
        BusyError: another process is converting to ``path``.
        StorePermissionError, WriteError, ReadError: the operating system refused, the disk is full, or it has less room
            than the store needs: the message names both and the option that needs less; ...
    """
    n_bytes = parse_size("memory", memory)
    check_local(path)
    from freshgo._sources.recognise import graph_of

    wanted = None if relayout is None else Relayout.of(relayout)
    named = {weight_attr} if isinstance(weight_attr, str) else set()
    levels = dataclasses.replace(Levels.given(node_level, edge_level, graph_level), weights=frozenset(named))
    if isinstance(data, Store):
        raise DTypeError(f"data is already the store {data.path!r}: pass it to a Loader, or copy it with relayout")
    allowed = None if allow_pickle is None else flag("allow_pickle", allow_pickle)
    overwrite = flag("overwrite", overwrite)
    with progress_of(progress) as report, Opening(path, allowed, overwrite, report, n_bytes) as opening:
        graph = graph_of(data, opening, source)
        parts = graph_parts(graph.data, levels.or_else(graph.levels))
        _leave_out_numbers(parts, edge_ids)
        if not flag("isolated_nodes", isolated_nodes):
            _check_isolated(parts)
        attachments = {
            **graph.attachments,
            **whole.written(parts.attributes),
            **link_splits.attached(data, parts, links),
        }
        return write_parts(
            parts,
            path,
            memory=n_bytes,
            relayout=wanted,
            weight_attr=weight_attr,
            dtype=dtype,
            clip=clip,
            overwrite=overwrite,
            progress=report,
            attachments=attachments,
            opening=opening,
        )


def write_parts(
    parts: GraphParts,
    path: str | os.PathLike[str],
    *,
    memory: int,
    relayout: Relayout | None,
    weight_attr: str | Mapping[EdgeType, str] | None,
    dtype: Mapping[Any, Any] | None,
    clip: bool,
    overwrite: bool,
    progress: Progress | None,
    attachments: Mapping[str, Array] | None = None,
    details: str = "",
    opening: Opening | None = None,
) -> Store:
    """Write the parts of a graph as a store and open it: :func:`convert` once it knows what it was given.
    ``attachments`` are arrays of the graph as a whole, ``details`` a line in the history of the store; ``opening`` is
    where streams wait that are read twice."""
    weights, forms = _weights(parts, weight_attr), forms_of(parts, dtype)
    attached = dict(attachments or {})
    if parts.frames:
        attached[frames.ATTACHMENT] = frames.written(parts.frames)
    again: dict[Any, set[str]] = {key: set(names) for key, names in forms.items()}
    for key, name in weights.items():
        again.setdefault(key, set()).add(name)
    with landed(parts, attached, again, opening) as stop:
        draft = native_convert.convert(
            parts,
            path,
            memory=memory,
            overwrite=overwrite,
            relayout=None if relayout is None else relayout.order,
            weights=weights,
            forms=forms,
            clip=flag("clip", clip),
            attachments=attached,
            details=details,
            progress=progress,
            stop=stop,
        )
    _put_in_order(draft, relayout, memory, progress)
    return written(path, progress)


_FEW_NODES, _NODES_PER_END = 1 << 24, 1000
"""Nodes, and nodes for each end of an edge, that are taken without a question. Arbitrary."""


def _check_isolated(parts: GraphParts) -> None:
    """Refuse a number of nodes that nothing in the graph comes near."""
    for node_type, nodes in parts.nodes.items():
        count = nodes.num_nodes
        ends = sum(
            int(edges.edge_index.shape[1])
            for (source, _, target), edges in parts.edges.items()
            for end in (source, target)
            if end == node_type and len(edges.edge_index.shape) == 2
        )
        told = bool(nodes.tensors) or any(split.shape[:1] == (count,) for split in nodes.splits.values())
        if count is not None and not told and count > max(_FEW_NODES, _NODES_PER_END * ends):
            label = f"{node_type}." if node_type else ""
            raise InvalidArgumentError(
                f"{label}num_nodes is {count}, but edges name at most {ends} nodes and no tensor has a row for each: "
                "give isolated_nodes=True if this many nodes without edges are meant"
            )


def _leave_out_numbers(parts: GraphParts, edge_ids: bool | Mapping[EdgeType, bool]) -> None:
    """Note the edge types whose edges are stored without their numbers."""
    if not isinstance(edge_ids, Mapping):
        edge_ids = dict.fromkeys(parts.edges, flag("edge_ids", edge_ids))
    for edge_type, numbered in edge_ids.items():
        if edge_type not in parts.edges:
            known = among(edge_type, parts.edges)
            raise InvalidArgumentError(f"edge_ids has the unknown edge type {edge_type!r}, expected {known}")
        parts.edges[edge_type].numbered = flag(f"edge_ids[{edge_type!r}]", numbered)


def _put_in_order(draft: NativeStore | None, wanted: Relayout | None, memory: int, report: Progress | None) -> None:
    """Finish a store that was converted for a relayout, and so is not published yet."""
    if wanted is None or draft is None:
        return
    with contextlib.closing(draft):
        scores = wanted.scores(store_over(draft, draft.describe()), memory)
        native_convert.relayout(
            draft, None, order=wanted.order, scores=scores, hot_rows=wanted.hot_rows, memory=memory, progress=report
        )


def _weights(parts: GraphParts, weight_attr: str | Mapping[EdgeType, str] | None) -> dict[EdgeType, str]:
    """Return the tensor of each edge type that is also stored by target."""
    if weight_attr is None:
        return {}
    if isinstance(weight_attr, str):
        found = {name: weight_attr for name, edges in parts.edges.items() if weight_attr in edges.tensors}
        if not found:
            known = {name for edges in parts.edges.values() for name in edges.tensors}
            raise no_weights(weight_attr, known)
        return found
    if UNNAMED in parts.edges:
        raise no_weights(weight_attr, parts.edges[UNNAMED].tensors)
    if not isinstance(weight_attr, Mapping):
        raise DTypeError(f"weight_attr must be a name or a mapping from edge types to names, got {weight_attr!r}")
    for edge_type, name in weight_attr.items():
        if edge_type not in parts.edges:
            known_types = among(edge_type, parts.edges)
            raise InvalidArgumentError(f"weight_attr has the unknown edge type {edge_type!r}, expected {known_types}")
        if name not in parts.edges[edge_type].tensors:
            raise no_weights(name, parts.edges[edge_type].tensors, edge_type)
    return dict(weight_attr)
