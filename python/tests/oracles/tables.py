"""Graphs as tables, and what must come of them: keys of several kinds, shards in several formats, rows in any order."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, feather, parquet

import freshgo

SHOP = ("user", "buys", "item")


def checksums(store: freshgo.Store) -> dict[str, bytes]:
    """The bytes of every file of a store but its manifest, whose uuid and time differ."""
    return {path.name: path.read_bytes() for path in Path(store.path).iterdir() if path.name != "manifest.pb"}


def keys_of(kind: str, count: int, rng: np.random.Generator) -> list[Any]:
    """Distinct keys, in the order that a store gives them."""
    if kind == "successive":
        return [int(key) + 5 for key in range(count)]
    if kind == "sparse":
        return sorted({int(key) for key in rng.integers(-(2**62), 2**62, count)})
    if kind == "unsigned":
        return sorted({int(key) for key in rng.integers(2**63, 2**64, count, dtype=np.uint64)})
    if kind == "uuid":
        return sorted(str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(count))
    assert kind == "text"
    letters = list("aZ0 ,\"'é日\n")
    return sorted({f"{''.join(rng.choice(letters, 4))}{key}" for key in range(count)}, key=str.encode)


def column(keys: list[Any]) -> pa.Array:
    """Keys as a column."""
    if isinstance(keys[0], str):
        return pa.array(keys)
    return pa.array(keys, pa.uint64() if max(keys) > 2**63 else pa.int64())


def shop(kind: str, rng: np.random.Generator, users: int = 300, items: int = 90, buys: int = 2000) -> dict[str, Any]:
    """A graph of two types: tables in canonical order, and the arrays that they are."""
    uids, skus = keys_of(kind, users, rng), keys_of("text", items, rng)
    users, items = len(uids), len(skus)
    ends = np.stack([rng.integers(users, size=buys), rng.integers(items, size=buys)])
    when = rng.integers(0, 50, size=buys)
    amount = rng.integers(0, 4, size=buys).astype(np.float32)
    order = np.lexsort([amount, when, ends[0], ends[1]])  # by target, source, time, weight
    ends, when, amount = ends[:, order], when[order], amount[order]
    age, embedding = rng.integers(0, 99, size=users), rng.standard_normal((users, 3), dtype=np.float32)
    label, split = rng.integers(5, size=users), rng.choice(["train", "val", "test", ""], size=users)
    color = rng.choice(["red", "green", "blue"], size=items)
    user = {
        "uid": column(uids),
        "age": pa.array(age, pa.int32()),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embedding.reshape(-1)), 3),
        "y": pa.array(label),
        "split": pa.array([name or None for name in split.tolist()]),
    }
    item = {"sku": column(skus), "color": pa.array(color), "price": pa.array(rng.random(items))}
    buy = {
        "uid": column(uids).take(pa.array(ends[0])),
        "sku": column(skus).take(pa.array(ends[1])),
        "amount": pa.array(amount),
        "ts": pa.array(when),
    }
    names = sorted(set(color.tolist()))
    arrays = {
        "user": {
            "x": np.concatenate([age[:, None].astype(np.float32), embedding], 1),
            "y": label,
            "splits": {name: np.flatnonzero(split == name) for name in ("test", "train", "val")},
        },
        "item": {
            "x": item["price"].to_numpy().astype(np.float32)[:, None],
            "color": np.array([names.index(name) for name in color.tolist()]),
        },
        SHOP: {"edge_index": ends, "time": when, "edge_weight": amount},
    }
    tables = {name: pa.table(columns) for name, columns in (("user", user), ("item", item), ("buys", buy))}
    return {"tables": tables, "arrays": arrays, "keys": {"user": uids, "item": skus}, "colors": names}


def convert_shop(sources: dict[str, Any], path: Path, **options: Any) -> freshgo.Store:
    """Convert the tables of a shop from wherever they are."""
    reverse = options.pop("reverse", False)
    return freshgo.convert_tables(
        {
            "user": freshgo.Table(sources["user"], id="uid", features=["age", "embedding"], label="y", split="split"),
            "item": freshgo.Table(sources["item"], id="sku", features="price", tensors={"color": "color"}),
        },
        {SHOP: freshgo.Table(sources["buys"], src="uid", dst="sku", weight="amount", time="ts", reverse=reverse)},
        path,
        **{"memory": "256MiB", "progress": False, **options},
    )


def shuffled(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The rows of a table in another order."""
    return table.take(pa.array(rng.permutation(table.num_rows)))


def write(table: pa.Table, folder: Path, form: str, rng: np.random.Generator, shards: int = 3) -> Path:
    """Write a table as so many files, one of them without rows."""
    folder.mkdir(parents=True)
    cuts = np.sort(rng.integers(0, table.num_rows + 1, shards - 1))
    parts = np.split(np.arange(table.num_rows), [*cuts, table.num_rows])
    for number, rows in enumerate(parts):
        part = table.take(pa.array(rows, pa.int64()))
        path = folder / f"part{number}.{form}"
        if form == "parquet":
            parquet.write_table(part, path, row_group_size=100)
        elif form == "arrow":
            feather.write_feather(part, str(path), compression="uncompressed")
        elif form == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in part.to_pylist()))
        else:
            csv.write_csv(part, path)
    return folder
