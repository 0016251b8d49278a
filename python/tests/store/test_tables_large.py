"""Tables with very many columns, and in little memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from seeds import seed as seed_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from pyarrow import csv, parquet  # noqa: E402
from tables import checksums  # noqa: E402

from freshgo import Loader, Store, Table, convert_tables, errors  # noqa: E402

pytestmark = pytest.mark.explore

SMALL: dict[str, Any] = {"memory": "128MiB", "progress": False}
EDGES = Table(pa.table({"s": [7, 5], "d": [5, 9]}), src="s", dst="d")


def wide(path: Path, columns: int, encoding: str = "utf-8") -> None:
    """A table of nodes: keys 9, 5 and 7 behind the first half of the columns, and a name."""
    names = [f"c{i}" for i in range(columns)]
    half = columns // 2
    names = [*names[:half], "id", *names[half:], 'the "näme"']
    rows = [[*range(r, r + half), key, *range(r, r + columns - half), f"né {r}"] for r, key in enumerate((9, 5, 7))]
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    else:
        lines = [";".join([*names[:-1], '"the ""näme"""']), *(";".join(map(str, row)) for row in rows)]
        path.write_bytes(("\n".join(lines) + "\n").encode(encoding))


def check_wide(path: Path, columns: int, to: Path, **how: Any) -> None:
    last = f"c{columns - 1}"
    nodes = Table(path, id="id", features=[last, "c0"], tensors={"name": 'the "näme"'}, **how)
    with convert_tables(nodes, EDGES, to, overwrite=True, **SMALL) as store:
        end = columns - columns // 2 - 1
        assert store["x"].tolist() == [[1.0 + end, 1.0], [2.0 + end, 2.0], [0.0 + end, 0.0]]
        assert store.categories('the "näme"') == ["né 0", "né 1", "né 2"]
        assert store["name"].tolist() == [1, 2, 0]
    with pytest.raises(errors.InvalidArgumentError, match=r"nodes(: .*)? has no column 'c0x'"):
        convert_tables(Table(path, id="id", features="c0x", **how), EDGES, to, overwrite=True, **SMALL)


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_wide_tables(tmp_path: Path, form: str) -> None:
    """Many columns, of which few are used: a file of 2,000 and one of 3, whose types differ."""
    (tmp_path / "n").mkdir()
    wide(tmp_path / "n" / f"a.{form}", 2000)
    check_wide(tmp_path / "n", 2000, tmp_path / "g")
    if form == "csv":
        wide(tmp_path / "latin.csv", 1500, "latin-1")
        check_wide(tmp_path / "latin.csv", 1500, tmp_path / "g", encoding="latin-1")
        (tmp_path / "n" / "b.csv").write_text('id;c1999;c0;"the ""näme"""\n11;0.5;;x\n')
        nodes = Table(tmp_path / "n", id="id", features=["c1999", "c0"])
        with pytest.raises(
            errors.InvalidArgumentError, match=r"column 'c0', row 0 of .*b\.csv, line 2 \(id 11\): null"
        ):
            convert_tables(nodes, EDGES, tmp_path / "h", **SMALL)
        nodes = Table(tmp_path / "n", id="id", features=["c1999", "c0"], nulls={"c0": -1})
        with convert_tables(nodes, EDGES, tmp_path / "h", **SMALL) as store:
            assert store["x"].tolist() == [[1000.0, 1.0], [1001.0, 2.0], [999.0, 0.0], [0.5, -1.0]]


@pytest.mark.long
@pytest.mark.parametrize("columns", [100_000, 1_000_000])
def test_very_wide_csv(tmp_path: Path, columns: int) -> None:
    wide(tmp_path / "a.csv", columns)
    check_wide(tmp_path / "a.csv", columns, tmp_path / "g")


@pytest.mark.parametrize("width", [4, 5, 40])
@pytest.mark.parametrize("kind", ["plain", "both", "types", "csv"])
def test_wide_edges(tmp_path: Path, kind: str, width: int) -> None:
    """Edges of so many numbers that they are not sorted: those between two nodes in any order of the rows."""
    rng = np.random.default_rng(seed_of(2))
    names, count = [f"v{i}" for i in range(width)], 3000
    ends = rng.integers(0, 40, (2, count)) * 7
    rows = rng.random((count, width), dtype=np.float32)
    rows[::5] = rows[0]  # edges that are alike, and edges between the same nodes that differ
    table = pa.table({"s": ends[0], "d": ends[1], **{n: rows[:, i] for i, n in enumerate(names)}})
    shuffled = table.take(pa.array(rng.permutation(count)))
    given: dict[str, Any] = {"src": "s", "dst": "d", "tensors": {"edge_attr": names}}
    given["reverse"] = kind in ("both", "types")
    nodes: Any = Table(pa.table({"id": np.arange(40) * 7}), id="id")
    of: Any = ("a", "to", "a")
    paths: list[Any] = []
    for at, each in enumerate((table, shuffled)):
        source: Any = each
        if kind == "csv":
            source = tmp_path / f"{at}.csv"
            csv.write_csv(each, source)
        typed = kind == "types"
        edges = Table(source, **given)
        paths.append(tmp_path / f"g{at}")
        convert_tables({"a": nodes} if typed else nodes, {of: edges} if typed else edges, paths[-1], **SMALL).close()
    first, second = (Store.open(path) for path in paths)
    with first, second:
        assert checksums(first) == checksums(second)
        with Loader(first, [-1], "a" if kind == "types" else None, batch_size=40) as loader:
            (batch,) = loader
        forth = [(*pair, *row) for pair, row in zip((ends // 7).T.tolist(), rows.tolist(), strict=True)]
        back = [(d, s, *row) for s, d, *row in forth]
        if kind != "types":
            assert edges_of(batch.n_id, batch) == sorted(forth + back if kind == "both" else forth)
        else:
            assert edges_of(batch["a"].n_id, batch[of]) == sorted(forth)
            assert edges_of(batch["a"].n_id, batch["a", "rev_to", "a"]) == sorted(back)


def edges_of(n_id: Any, edges: Any) -> list[tuple[float, ...]]:
    """The ends and the rows of edges, sorted."""
    pairs = n_id[edges.edge_index].T.tolist()
    return sorted((*pair, *row) for pair, row in zip(pairs, edges.edge_attr.tolist(), strict=True))


def test_wrong_wide_edges(tmp_path: Path) -> None:
    wide_rows = pa.FixedSizeListArray.from_arrays(np.arange(400, dtype=np.float32), 100)
    nodes = Table(pa.table({"id": [1, 2, 3]}), id="id")
    for d, v, wrong in (
        ([2, 3, 9, 1], wide_rows, "column 'd', row 2 .*: no node has this key"),
        ([2, 3, None, 1], wide_rows, "column 'd', row 2 .*: null"),
        ([2, 3, 1, 1], pa.array([[1.0] * 100, None, [1.0] * 100, [1.0] * 100]), "column 'v', row 1 .*: null"),
        ([2, 3, 1, 1], pa.array([[1.0] * 100, [2.0] * 99, *[[1.0] * 100] * 2]), "column 'v', row 1 .*99"),
    ):
        edges = Table(pa.table({"s": [1, 1, 2, 3], "d": d, "v": v}), src="s", dst="d", tensors={"edge_attr": "v"})
        with pytest.raises(errors.InvalidArgumentError, match=wrong):
            convert_tables(nodes, edges, tmp_path / "g", **SMALL)
    assert not list(tmp_path.iterdir())
    table = pa.table({"s": [1, 1, 2, 3], "d": [2, 3, 9, 1], "v": wide_rows})
    edges = Table(table, src="s", dst="d", tensors={"w": "v"})
    with convert_tables(nodes, edges, tmp_path / "g", missing="add", **SMALL) as store:
        assert store["w"][:, 0].tolist() == [300, 0, 100, 200]  # by target
    empty = Table(table.slice(0, 0), src="s", dst="d", tensors={"w": "v"})
    with convert_tables(nodes, empty, tmp_path / "h", **SMALL) as store:
        assert store.num_edges == 0


GROWTH = """
import resource, sys, pyarrow, duckdb, numpy, torch, freshgo
from freshgo import Table
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
def convert(nodes, edges, path, memory):
    edges = Table(edges, src="s", dst="d", tensors={tensors!r})
    freshgo.convert_tables(Table(nodes, id="id", features="v"), edges, path, memory=memory, progress=False).close()
convert({small!r} + "/n.parquet", {small!r} + "/e.parquet", {small!r} + "/g", "128MiB")
before = peak()
convert({large!r} + "/n.parquet", {large!r} + "/e.parquet", {large!r} + "/g", {memory!r})
print(peak() - before)
"""


def tables_of(folder: Path, count: int, width: int, edges: int, edge_width: int = 0) -> None:
    """Nodes, and edges, with rows of 256 values, which Parquet stores in a quarter of their bytes, in pieces."""
    folder.mkdir()
    values = np.random.default_rng(seed_of(1)).random(256, dtype=np.float32)
    rng = np.random.default_rng(seed_of(0))
    ids = rng.permutation(count) * 5
    schema = pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32(), width)})
    with parquet.ParquetWriter(folder / "n.parquet", schema, compression="none") as out:
        for part in np.array_split(ids, max(count // 5000, 1)):
            rows = values[rng.integers(256, size=len(part) * width, dtype=np.uint8)]
            out.write_table(
                pa.table({"id": part, "v": pa.FixedSizeListArray.from_arrays(rows, width)}, schema), row_group_size=5000
            )
    ends = ids[rng.integers(count, size=(2, edges))]
    if not edge_width:
        parquet.write_table(pa.table({"s": ends[0], "d": ends[1]}), folder / "e.parquet", row_group_size=100_000)
        return
    schema = pa.schema({"s": pa.int64(), "d": pa.int64(), "v": pa.list_(pa.float32(), edge_width)})
    with parquet.ParquetWriter(folder / "e.parquet", schema, compression="none") as out:
        for part in np.array_split(ends, max(edges // 5000, 1), axis=1):
            rows = values[rng.integers(256, size=part.shape[1] * edge_width, dtype=np.uint8)]
            columns = [part[0], part[1], pa.FixedSizeListArray.from_arrays(rows, edge_width)]
            out.write_table(pa.table(columns, schema=schema), row_group_size=5000)


def growth(tmp_path: Path, count: int, width: int, edges: int, memory: str, edge_width: int = 0) -> int:
    """By how much the peak of resident memory grows, beyond that of a small conversion, in bytes."""
    tables_of(tmp_path / "small", 100, 4, 1000, edge_width)
    tables_of(tmp_path / "large", count, width, edges, edge_width)
    tensors = {"w": "v"} if edge_width else {}
    code = GROWTH.format(small=str(tmp_path / "small"), large=str(tmp_path / "large"), memory=memory, tensors=tensors)
    return int(warm.run(code, timeout=1200))


def test_memory(tmp_path: Path) -> None:
    """40 MB of features and 800,000 edges: what is resident grows by no more than the budget."""
    assert growth(tmp_path, 80_000, 120, 800_000, "128MiB") <= 128 << 20


@pytest.mark.long
@pytest.mark.parametrize(("count", "width", "memory"), [(65_536, 1024, "128MiB"), (500_000, 1024, "256MiB")])
def test_memory_of_wide_rows(tmp_path: Path, count: int, width: int, memory: str) -> None:
    """256 MB of features within 128 MiB, and 2 GB within 256 MiB."""
    assert growth(tmp_path, count, width, 10 * count, memory) <= int(memory[:-3]) << 20


def test_memory_of_wide_edges(tmp_path: Path) -> None:
    """200 MB of edge tensors, whose rows DuckDB could not sort within 128 MiB."""
    assert growth(tmp_path, 20_000, 4, 100_000, "128MiB", 512) <= 128 << 20
