"""What becomes of the rows of a table outside of it: a ``.npy`` file, a Parquet file with keys, a tensor of a store."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from freshgo._args import checks
from freshgo._args.hints import among
from freshgo._args.learned import check_rows
from freshgo._args.types import Types
from freshgo._args.urls import check_local, is_url, local_path, shown_url
from freshgo._nn.initial import blocks
from freshgo._nn.rows import TableRows
from freshgo._staging.parquet_rows import check_pyarrow, write_parquet
from freshgo._staging.workplace import sync, workplace, written
from freshgo.errors import OVERWRITE, DTypeError, InvalidArgumentError, StoreExistsError
from freshgo.store import Store, opened
from freshgo.update import update

_SUFFIXES = ("", ".npy", ".parquet")


def export(rows: TableRows, out: Any, store: Any, node_type: str | None, memory: int, *, overwrite: bool) -> None:
    """Write all rows as they are now: see :meth:`freshgo.nn.Embedding.export`."""
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], str):
        if store is not None:
            raise InvalidArgumentError(
                "store= gives the keys of a Parquet file; out=(store, name) names its store itself"
            )
        where = out[0].path if isinstance(out[0], Store) else out[0]
        check_local(where)
        with opened(out[0]) as into:
            _to_store(rows, into, out[1], _type_of(rows, into, node_type), memory, overwrite=overwrite)
        return
    if not isinstance(out, str | os.PathLike):
        raise DTypeError(
            f"out must be a path, or a store or its path with the name of a tensor, got {checks.shown(out)}"
        )
    if is_url(out):
        raise InvalidArgumentError(
            f"out={shown_url(str(out))!r} is a URL: export() writes to a local path, copy it there"
        )
    target = Path(local_path(os.fsdecode(out)))
    if target.suffix not in _SUFFIXES:
        raise InvalidArgumentError(
            f"out={str(out)!r} has the suffix {target.suffix!r}, expected .npy, .parquet, or none for .npy; a tensor "
            "of a store is written by out=(store, name)"
        )
    if target.suffix == ".parquet":
        check_pyarrow()
    elif store is not None or node_type is not None:
        raise InvalidArgumentError(
            f"store= and node_type= give the keys of a .parquet file, and {target.name} has no keys: omit them"
        )
    if target.is_dir():
        raise InvalidArgumentError(
            f"out={str(out)!r} is a directory: name a file in it; a tensor of a store is written by out=(store, name)"
        )
    if target.exists() and not overwrite:
        raise StoreExistsError(errno.EEXIST, OVERWRITE, str(target))
    with nullcontext() if store is None else opened(store) as keyed:
        keys = None if keyed is None else keyed.ids(_type_of(rows, keyed, node_type))
        if keyed is None and node_type is not None:
            raise InvalidArgumentError(f"node_type={node_type!r} needs store=, whose keys its nodes have")
        with workplace(target, ".export") as work, written(target):
            draft = work / "rows"
            if target.suffix == ".parquet":
                shape, dtype = (rows.file.num_rows, rows.file.form.dim), np.dtype(np.float32)

                def read(first: int, end: int) -> np.ndarray:
                    return rows.read(torch.arange(first, end)).float().numpy()

                write_parquet(draft, read, shape, dtype, nodes=None, keys=keys, memory=memory)
            else:
                write_npy(rows, draft)
            draft.replace(target)
            sync(target.parent)


def write_npy(rows: TableRows, path: Path) -> None:
    """Write all rows as they are now (float32 ``[num_embeddings, embedding_dim]``), in blocks."""
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows.file.num_rows, rows.file.form.dim)}
        np.lib.format.write_array_header_1_0(file, header)
        for first, count in blocks(rows.file.num_rows):
            file.write(rows.read(torch.arange(first, first + count)).float().numpy().data)
        file.flush()
        os.fsync(file.fileno())


def _type_of(rows: TableRows, store: Store, node_type: str | None) -> str:
    """Return the node type of a store that the rows belong to.

    Raises:
        InvalidArgumentError: there is no such type, or it has another number of nodes
    """
    types: Types = store._contents.types
    if types.homogeneous and node_type is None:
        node_type = ""
    elif types.homogeneous:
        raise InvalidArgumentError(f"the store {store.path} is homogeneous: omit node_type={node_type!r}")
    elif node_type not in types.num_nodes:
        raise InvalidArgumentError(
            f"node_type must be one of {among(str(node_type), types.num_nodes)}, the types of {store.path}, got "
            f"{node_type!r}"
        )
    check_rows(rows, node_type, types)
    return node_type


def _to_store(rows: TableRows, store: Store, name: str, node_type: str, memory: int, *, overwrite: bool) -> None:
    """Add the rows to a store as a tensor of its nodes."""
    there = (store[node_type] if node_type else store).tensors
    of = f" of {node_type!r}" if node_type else ""
    if name in there and there[name].level == "edge":
        raise InvalidArgumentError(f"out names {name!r}, an edge-level tensor of {store.path}: choose another name")
    if name in there and not overwrite:
        raise StoreExistsError(
            errno.EEXIST,
            f"the store has the tensor {name!r}{of} already; pass overwrite=True to replace it",
            str(store.path),
        )
    with workplace(store.path, ".export") as work:
        draft = work / "rows.npy"
        with written(draft):
            write_npy(rows, draft)
        given: Any = {name: draft}
        tensors = {node_type: given} if node_type else given
        update(store, store.path, tensors=tensors, memory=memory, overwrite=True, progress=False).close()
