"""Conversion to stores, their relayout and additions to them by the native library, as jobs that can be interrupted."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from freshgo._native import abi, dlpack, header
from freshgo._native.graph import raw_types
from freshgo._native.handle import encoded_path, run_job
from freshgo._native.options import filled
from freshgo._native.store import Store

if TYPE_CHECKING:
    import torch

    from freshgo._args.arrays import Array
    from freshgo._args.parts import GraphParts
    from freshgo._args.progress import Progress
    from freshgo._args.types import EdgeType

__all__ = ["append", "convert", "propagate", "relayout", "update"]


def convert(
    parts: GraphParts,
    path: str | os.PathLike[str],
    *,
    memory: int,
    overwrite: bool = False,
    relayout: str | None = None,
    weights: Mapping[EdgeType, str] | None = None,
    forms: Mapping[str | EdgeType, Mapping[str, str]] | None = None,
    clip: bool = False,
    attachments: Mapping[str, Array] | None = None,
    details: str = "",
    progress: Progress | None = None,
    stop: Callable[[], object] | None = None,
) -> Store | None:
    """Write a store at ``path`` within ``memory`` bytes. It appears whole or not at all.

    With an order for ``relayout`` it does not appear yet: what is returned can be read, :func:`relayout` finishes it,
    and closing it discards it.

    Inputs are tensors, arrays of any strides, or :class:`NpyFile`. An array that is a shared mapping of a file
    is read from the file, so that none of its pages are mapped in. A number of nodes that is None is derived from the
    data. Splits are int64 node ids or bool masks. ``weights`` are the edge tensors that are stored by position too,
    ``forms`` the tensors of types that are stored in fewer bytes, and how. ``attachments`` are arrays of the graph as a
    whole, with rows of their own, ``details`` a line in the history of the store. ``stop`` ends the pipes among the
    arrays when the conversion is interrupted.

    Raises:
        InvalidArgumentError, DTypeError: input that does not fit together; the message says where
        StoreExistsError, StorePermissionError, BusyError: the path cannot be written
        BudgetError: ``memory`` is too small; its ``minimum`` works
        ReadError, WriteError: the disk failed or is full
    """
    arrays = dlpack.ArrayList(map_files=True)
    options = {"memory": memory, "overwrite": overwrite, "relayout": relayout, "clip": clip, "details": details or None}
    raw = filled(header.ConvertInput, {**raw_types(parts, arrays, weights=weights, forms=forms), **options})
    raw.attachments, raw.num_attachments = arrays.many(attachments or {})
    arguments = (ctypes.byref(raw), encoded_path(path))
    draft = Store._adopt(None)  # before there is anything to own
    job = run_job("fg_convert_start", *arguments, discard=_discard_store, progress=progress, stop=stop)
    draft._pointer = job or None
    return None if draft._pointer is None else draft


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
    options = {"order": order, "scores": scores, "hot_rows": hot_rows, "memory": memory, "overwrite": overwrite}
    raw = filled(header.RelayoutInput, options)
    target = None if path is None else encoded_path(path)
    run_job("fg_relayout_start", store._handle(), ctypes.byref(raw), target, progress=progress)


def update(
    store: Store,
    path: str | os.PathLike[str],
    parts: GraphParts,
    drops: Sequence[tuple[str, int, str]],
    *,
    memory: int,
    overwrite: bool = False,
    attachments: Mapping[str, Array] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a store at ``path`` that is another with the tensors and splits of ``parts``, with ``attachments``, and
    without ``drops``: kind ("node", "edge", "split", "attachment"), place among the types of ``parts``, name.

    Raises:
        InvalidArgumentError, BudgetError, CorruptError, and the errors of :func:`convert` for the path
    """
    arrays = dlpack.ArrayList(map_files=True)
    kinds = {"split": header.SPLIT, "node": header.NODE_TENSOR, "edge": header.EDGE_TENSOR}
    kinds["attachment"] = header.ATTACHMENT
    dropped = (header.Drop * len(drops))(*(header.Drop(kinds[kind], at, name.encode()) for kind, at, name in drops))
    raw = filled(
        header.UpdateInput,
        {**raw_types(parts, arrays), "drops": dropped, "memory": memory, "overwrite": overwrite, "clip": False},
    )
    raw.attachments, raw.num_attachments = arrays.many(attachments or {})
    run_job("fg_update_start", store._handle(), ctypes.byref(raw), encoded_path(path), progress=progress)


def append(
    store: Store,
    path: str | os.PathLike[str],
    parts: GraphParts,
    *,
    memory: int,
    clip: bool = False,
    overwrite: bool = False,
    attachments: Mapping[str, Array] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a store at ``path`` that is another with the nodes and edges of ``parts`` behind its own, and with further
    rows of ``attachments``.

    Raises:
        InvalidArgumentError, DTypeError, BudgetError, CorruptError, and the errors of :func:`convert` for the path
    """
    arrays = dlpack.ArrayList(map_files=True)
    options = {"memory": memory, "overwrite": overwrite, "relayout": None, "clip": clip}
    raw = filled(header.ConvertInput, {**raw_types(parts, arrays), **options})
    raw.attachments, raw.num_attachments = arrays.many(attachments or {})
    run_job("fg_append_start", store._handle(), ctypes.byref(raw), encoded_path(path), progress=progress)


def propagate(
    store: Store,
    *,
    tensor: str,
    reduce: str,
    weight_attr: str | None,
    relations: Sequence[int] | None,
    hops: int,
    name: str,
    memory: int,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Add to the store at the path of an open one what the rows of in-neighbours add up to. ``relations`` are places of
    edge types, None for all.

    Raises:
        InvalidArgumentError, StoreExistsError, BudgetError, BusyError, CorruptError, ReadError, WriteError
    """
    options = {"tensor": tensor, "reduce": reduce, "weight_attr": weight_attr, "relations": relations, "hops": hops}
    raw = filled(header.PropagateInput, {**options, "name": name, "memory": memory, "overwrite": overwrite})
    run_job("fg_propagate_start", store._handle(), ctypes.byref(raw), progress=progress)
