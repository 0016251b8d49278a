"""Conversion to stores and their relayout by the native library, as jobs that can be interrupted."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from freshgo._native import abi, dlpack, header
from freshgo._native.graph import raw_types
from freshgo._native.handle import encoded_path, run_job
from freshgo._native.options import pointer_to
from freshgo._native.store import Store

if TYPE_CHECKING:
    import torch

    from freshgo._args.arrays import ArrayLike, NpyFile
    from freshgo._args.hetero_parts import TypedParts
    from freshgo._args.progress import Progress

__all__ = ["convert", "convert_types", "relayout"]


def convert(
    path: str | os.PathLike[str],
    *,
    num_nodes: int | None,
    edge_index: ArrayLike | NpyFile,
    node_tensors: Mapping[str, ArrayLike | NpyFile],
    edge_tensors: Mapping[str, ArrayLike | NpyFile],
    splits: Mapping[str, ArrayLike | NpyFile],
    memory: int,
    overwrite: bool = False,
    relayout: str | None = None,
    weights: str | None = None,
    progress: Progress | None = None,
) -> Store | None:
    """Write a store at ``path`` within ``memory`` bytes. It appears whole or not at all.

    With an order for ``relayout`` it does not appear yet: what is returned can be read, :func:`relayout` finishes it,
    and closing it discards it.

    Inputs are tensors, arrays of any strides, or :class:`NpyFile`. An array that is a shared mapping of a file
    is read from the file, so that none of its pages are mapped in. ``num_nodes=None`` derives it from the data.
    Splits are int64 node ids or bool masks. ``weights`` is the edge tensor that is stored by position too.

    Raises:
        InvalidArgumentError, DTypeError: input that does not fit together; the message says where
        StoreExistsError, StorePermissionError, BusyError: the path cannot be written
        BudgetError: ``memory`` is too small; its ``minimum`` works
        ReadError, WriteError: the disk failed or is full
    """
    arrays = dlpack.ArrayList(map_files=True)
    raw = header.ConvertInput(
        struct_size=ctypes.sizeof(header.ConvertInput),
        overwrite=int(overwrite),
        num_nodes=-1 if num_nodes is None else num_nodes,
        memory=memory,
    )
    raw.edge_index = arrays.one("edge_index", edge_index)
    raw.node_tensors, raw.num_node_tensors = arrays.many(node_tensors)
    raw.edge_tensors, raw.num_edge_tensors = arrays.many(edge_tensors)
    raw.splits, raw.num_splits = arrays.many(splits)
    raw.relayout = None if relayout is None else relayout.encode()
    names = _names([weights])
    raw.weights = names
    return _converted(raw, path, progress)


def convert_types(
    parts: TypedParts,
    path: str | os.PathLike[str],
    *,
    memory: int,
    overwrite: bool = False,
    relayout: str | None = None,
    weights: Mapping[tuple[str, str, str], str] | None = None,
    progress: Progress | None = None,
) -> Store | None:
    """Write a heterogeneous graph as a store at ``path``: as :func:`convert`, one type after the other.
    ``weights`` names the tensors of edge types that are stored by position too."""
    arrays = dlpack.ArrayList(map_files=True)
    nodes, edges = raw_types(parts, arrays)
    names = _names([(weights or {}).get(edge_type) for edge_type in parts.edges])
    raw = header.ConvertInput(
        struct_size=ctypes.sizeof(header.ConvertInput),
        overwrite=int(overwrite),
        num_nodes=-1,
        memory=memory,
        node_types=nodes,
        edge_types=edges,
        num_node_types=len(nodes),
        num_edge_types=len(edges),
        weights=names,
        relayout=None if relayout is None else relayout.encode(),
    )
    return _converted(raw, path, progress)


def _converted(raw: ctypes.Structure, path: str | os.PathLike[str], progress: Progress | None) -> Store | None:
    """Write a store, and return it where it is not published yet."""
    arguments = (ctypes.byref(raw), encoded_path(path))
    draft = Store._adopt(None)  # before there is anything to own
    draft._pointer = run_job("fg_convert_start", *arguments, discard=_discard_store, progress=progress) or None
    return None if draft._pointer is None else draft


def _names(names: Sequence[str | None]) -> ctypes.Array[ctypes.c_char_p]:
    """Names as the library takes them, NULL for None. It holds their memory."""
    return (ctypes.c_char_p * len(names))(*(None if name is None else name.encode() for name in names))


def _discard_store(pointer: int) -> None:
    abi.call("fg_store_close", pointer)


def relayout(
    store: Store,
    path: str | os.PathLike[str] | None,
    *,
    order: str,
    scores: torch.Tensor | None,
    hot_rows: int | None,
    memory: int,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a store with the rows of the node tensors in another order at ``path``, which is None for a store that
    :func:`convert` did not publish: it is finished in place. ``scores`` is float32, one for each node of one type
    after the other, contiguous.

    Raises:
        InvalidArgumentError, BudgetError, CorruptError, and the errors of :func:`convert` for the path
    """
    raw = header.RelayoutInput(
        struct_size=ctypes.sizeof(header.RelayoutInput),
        overwrite=int(overwrite),
        memory=memory,
        hot_rows=header.AUTO if hot_rows is None else hot_rows,
        order=order.encode(),
    )
    if scores is not None:
        raw.scores, raw.num_scores = pointer_to(scores, ctypes.c_float), scores.numel()
    target = None if path is None else encoded_path(path)
    run_job("fg_relayout_start", store._handle(), ctypes.byref(raw), target, progress=progress)
