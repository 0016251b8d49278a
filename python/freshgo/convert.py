"""Writing a graph to disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from freshgo import _native
from freshgo._inputs import graph_parts, is_typed
from freshgo._progress import Progress, progress_of
from freshgo._size import parse_size
from freshgo._typed_inputs import typed_parts
from freshgo.errors import InvalidArgumentError
from freshgo.relayout import Relayout
from freshgo.store import Store


def convert(
    data: object,
    path: str | os.PathLike[str],
    *,
    memory: int | str = "1GiB",
    relayout: str | Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Write ``data`` as a store at ``path`` and open it.

    The conversion streams: whatever the size of the graph it uses no more than ``memory``. The store appears
    whole or not at all; what a killed conversion left behind is removed by the next one to the same path.

    Args:
        data: a PyG ``Data``; a mapping with ``edge_index`` (integers, ``[2, num_edges]``, row 0 the source and row 1
            the target) and further tensors; or a directory with ``edge_index.npy`` and further ``.npy`` files, where
            ``train_idx.npy`` is the split ``train``. The values of a mapping are torch tensors, NumPy arrays or
            paths of ``.npy`` files; files are read piece by piece, memory-mapped arrays too. Tensors with one row
            per node or per edge are kept and come with every batch. One-dimensional bool tensors named
            ``<split>_mask`` are also splits; further ones are in ``data["splits"]``, a mapping from names to node
            ids or masks. ``data["num_nodes"]`` is needed only when nothing else tells it.

            A heterogeneous graph is a PyG ``HeteroData`` or a mapping from its types: a node type such as ``"paper"``
            to a mapping of what belongs to its nodes (tensors, ``num_nodes``, ``splits``; ``{}`` where there is
            nothing), an edge type such as ``("author", "writes", "paper")`` to its ``edge_index`` or to a mapping with
            ``edge_index`` and tensors with one row per edge. Values are as above, paths included::

                convert({
                    "paper": {"x": "paper_x.npy", "y": y, "splits": {"train": ids}},
                    "author": {"num_nodes": 1000},
                    ("author", "writes", "paper"): "writes.npy",
                    ("paper", "cites", "paper"): {"edge_index": cites, "time": years},
                }, "papers.freshgo")

            Or a directory that has a directory of ``.npy`` files for each type, ``paper`` or
            ``author__writes__paper``. Types are written one after the other within ``memory``. Times and weights are
            tensors like others.
        path: the directory to create.
        memory: bytes, or a string such as ``"8GiB"``.
        relayout: store the rows of node tensors in the order of their use: an order, or a mapping with options of
            :func:`freshgo.relayout` (``order``, ``hotness``, ``num_neighbors``, ``input_nodes``, ``batch_size``,
            ``hot_rows``). It is done in place before the store appears: on the disk it needs the store and once more
            its largest node tensor, twice if that is larger than three times ``memory``. For homogeneous graphs.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar; or a callable that is called with ``(stage, done, total)``.

    Raises:
        InvalidArgumentError: shapes that do not fit together, ids out of range (names file, type and position), labels
            that are NaN where a split needs them, an empty graph, an edge type whose node types do not exist,
            ``relayout`` of a heterogeneous graph.
        DTypeError: dtypes that cannot be used, pickled arrays.
        StoreExistsError: ``path`` exists and ``overwrite`` is false.
        BudgetError: ``memory`` is too small; the message and ``minimum`` name the smallest that works.
        BusyError: another process converts to ``path`` now.
        StorePermissionError, WriteError, ReadError: the operating system refused, the disk is full, ...
    """
    n_bytes = parse_size("memory", memory)
    wanted = None if relayout is None else Relayout.of(relayout)
    if is_typed(data):
        if wanted is not None:
            raise InvalidArgumentError("relayout is for homogeneous graphs, this one has types of nodes")
        with progress_of(progress) as report:
            _native.convert_types(typed_parts(data), path, memory=n_bytes, overwrite=overwrite, progress=report)
        return Store.open(path)
    parts = graph_parts(data)
    with progress_of(progress) as report:
        draft = _native.convert(
            path,
            num_nodes=parts.num_nodes,
            edge_index=parts.edge_index,
            node_tensors=parts.node_tensors,
            edge_tensors=parts.edge_tensors,
            splits=parts.splits,
            memory=n_bytes,
            overwrite=overwrite,
            relayout=None if wanted is None else wanted.order,
            progress=report,
        )
        if wanted is not None and draft is not None:
            with contextlib.closing(draft):
                scores = wanted.scores(Store._of(draft), n_bytes)
                _native.relayout(
                    draft,
                    None,
                    order=wanted.order,
                    scores=scores,
                    hot_rows=wanted.hot_rows,
                    memory=n_bytes,
                    progress=report,
                )
    return Store.open(path)
