"""Tables that learn as the input of the first layer: a store like the given one, with their rows as a tensor."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from freshgo._args import checks
from freshgo._args.learned import check_rows, type_of_table
from freshgo._args.npy_files import read_npy_header
from freshgo._args.parts import GraphParts, NodeParts
from freshgo._native import convert as native_convert
from freshgo._staging.workplace import workplace
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store


@contextlib.contextmanager
def with_rows(store: Store, embeddings: Any, tensor: str, out: Any, memory: int) -> Iterator[tuple[Store, str]]:
    """Yield the store that an inference reads, and a text that tells its rows from others.

    Without ``embeddings`` it is the given one. Otherwise it is beside that one while the inference runs, shares its
    files, and has the rows of the tables, as they are now, in the place of ``tensor``.

    Raises:
        InvalidArgumentError, DTypeError: there are no such nodes, or not as many as rows
        BusyError: another process infers from this store to the same place
        WriteError, StorePermissionError: the store cannot be written
    """
    if embeddings is None:
        yield store, store.uuid
        return
    tables = _tables(store, embeddings, tensor)
    told = [store.uuid]
    for node_type, emb in tables.items():
        rows = emb._rows
        rows.file.check_open()
        state = f"changed {uuid.uuid4()}" if rows.changed else rows.file.table.describe()["token"]
        told.append(f"{node_type}={state}")
    place = hashlib.sha256("\n".join(_named(out)).encode()).hexdigest()[:16]
    with workplace(store.path, f".{place}.rows") as work:
        parts = {}
        for at, (node_type, emb) in enumerate(tables.items()):
            path = work / f"{at}.npy"
            emb.export(path)
            parts[node_type] = NodeParts(emb.num_embeddings, {tensor: read_npy_header(path)}, {})
        beside = work / "store"
        native_convert.update(store._contents.native, beside, GraphParts(parts, {}), [], memory=memory)
        for at in range(len(tables)):
            (work / f"{at}.npy").unlink()
        with Store.open(beside) as source:
            yield source, " ".join(told)


def _named(out: Any) -> list[str]:
    """Return where a result goes, by its name alone."""
    of = out if isinstance(out, tuple) else (out,)
    names = (one.path if isinstance(one, Store) else one for one in of)
    return [os.path.abspath(os.fsdecode(name)) for name in names if isinstance(name, str | os.PathLike)]  # noqa: PTH100


def _tables(store: Store, given: Any, tensor: str) -> dict[str, Any]:
    """Return the tables by node type, checked."""
    types = store._contents.types
    found: dict[str, Any] = {}
    for key, emb in (given if isinstance(given, Mapping) else {None: given}).items():
        if not hasattr(getattr(emb, "_rows", None), "arrive"):
            raise DTypeError(
                f"embeddings must be a freshgo.nn.Embedding, or a dict of these by node type, got {checks.shown(given)}"
            )
        node_type = type_of_table(key, types)
        check_rows(emb._rows, node_type, types)
        there = (store[node_type] if node_type else store).tensors
        if tensor in there and there[tensor].level == "edge":
            raise InvalidArgumentError(
                f"tensor={tensor!r} is an edge-level tensor of the store: name the rows of the table otherwise"
            )
        found[node_type] = emb
    if not found:
        raise DTypeError(f"embeddings must name at least one table, got {checks.shown(given)}")
    return found
