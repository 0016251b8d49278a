"""Tables with very many columns, and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed as seed_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from pyarrow import parquet  # noqa: E402

from freshgo import Table, convert_tables, errors  # noqa: E402

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
        with pytest.raises(errors.InvalidArgumentError, match=r"column 'c0', row 0 of .*/n/b\.csv \(id 11\): null"):
            convert_tables(nodes, EDGES, tmp_path / "h", **SMALL)
        nodes = Table(tmp_path / "n", id="id", features=["c1999", "c0"], nulls={"c0": -1})
        with convert_tables(nodes, EDGES, tmp_path / "h", **SMALL) as store:
            assert store["x"].tolist() == [[1000.0, 1.0], [1001.0, 2.0], [999.0, 0.0], [0.5, -1.0]]


@pytest.mark.long
@pytest.mark.parametrize("columns", [100_000, 1_000_000])
def test_very_wide_csv(tmp_path: Path, columns: int) -> None:
    wide(tmp_path / "a.csv", columns)
    check_wide(tmp_path / "a.csv", columns, tmp_path / "g")


GROWTH = """
import resource, sys, pyarrow, duckdb, numpy, torch, freshgo
from freshgo import Table
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
def convert(nodes, edges, path, memory):
    freshgo.convert_tables(Table(nodes, id="id", features="v"), Table(edges, src="s", dst="d"), path, memory=memory,
                           progress=False).close()
convert({small!r} + "/n.parquet", {small!r} + "/e.parquet", {small!r} + "/g", "128MiB")
before = peak()
convert({large!r} + "/n.parquet", {large!r} + "/e.parquet", {large!r} + "/g", {memory!r})
print(peak() - before)
"""


def tables_of(folder: Path, count: int, width: int, edges: int) -> None:
    """Nodes with features of 256 values, which Parquet stores in a quarter of their bytes, written piece by piece."""
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
    parquet.write_table(pa.table({"s": ends[0], "d": ends[1]}), folder / "e.parquet", row_group_size=100_000)


def growth(tmp_path: Path, count: int, width: int, edges: int, memory: str) -> int:
    """By how much the peak of resident memory grows, beyond that of a small conversion, in bytes."""
    tables_of(tmp_path / "small", 100, 4, 1000)
    tables_of(tmp_path / "large", count, width, edges)
    code = GROWTH.format(small=str(tmp_path / "small"), large=str(tmp_path / "large"), memory=memory)
    done = subprocess.run([sys.executable, "-I", "-c", textwrap.dedent(code)], check=True, capture_output=True)
    return int(done.stdout)


def test_memory(tmp_path: Path) -> None:
    """40 MB of features and 800,000 edges: what is resident grows by no more than the budget."""
    assert growth(tmp_path, 80_000, 120, 800_000, "128MiB") <= 128 << 20


@pytest.mark.long
@pytest.mark.parametrize(("count", "width", "memory"), [(65_536, 1024, "128MiB"), (500_000, 1024, "256MiB")])
def test_memory_of_wide_rows(tmp_path: Path, count: int, width: int, memory: str) -> None:
    """256 MB of features within 128 MiB, and 2 GB within 256 MiB."""
    assert growth(tmp_path, count, width, 10 * count, memory) <= int(memory[:-3]) << 20
