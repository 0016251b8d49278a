"""Tables in every format and object that holds rows: the same rows give the same store."""

from __future__ import annotations

import bz2
import datetime
import errno
import gzip
import json
import lzma
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from seeds import seed as seed_of

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

from pyarrow import feather, orc, parquet  # noqa: E402
from tables import checksums, convert_shop, keys_of, shop, shuffled  # noqa: E402

from freshgo import Table, convert_tables, errors  # noqa: E402

SMALL: dict[str, Any] = {"memory": "128MiB", "progress": False}
EDGES = {"s": ["a", "b", "é"], "d": ["b", "é", "é"], "w": [0.5, 2.0, -1.5], "n": [3, 1, 2]}
NODES = Table({"id": ["a", "b", "é"]}, id="id")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(seed_of(0))


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)  # type: ignore[no-any-return]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def as_sqlite(table: Any, path: Path, name: str = "rows") -> Path:
    with sqlite3.connect(path) as opened:
        opened.execute(f"CREATE TABLE {name} ({', '.join(table.column_names)})")
        marks = ", ".join("?" * table.num_columns)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        opened.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    opened.close()
    return path


def as_duckdb(table: Any, path: Path, name: str = "rows") -> Path:
    with duckdb.connect(str(path)) as opened:
        opened.register("given", table)
        opened.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return path


def as_stream(table: Any, path: Path) -> Path:
    with pa.ipc.new_stream(path, table.schema) as out:
        out.write_table(table, 70)
    return path


def json_of(table: Any, form: str) -> bytes:
    rows = table.to_pylist()
    if form == "array":
        return json.dumps(rows).encode()
    if form == "indented":
        return b"\xef\xbb\xbf\n" + json.dumps(rows, indent=1, ensure_ascii=False).encode()
    return "\n".join(json.dumps(row, indent=2 if form == "objects" else None) for row in rows).encode()


def source_of(form: str, table: Any, path: Path) -> Any:
    """A table as a file or an object of a kind."""
    if form in ("array", "indented", "objects", "lines"):
        path.with_suffix(".json").write_bytes(json_of(table, form))
        return path.with_suffix(".json")
    if form == "orc":
        orc.write_table(
            pa.table({n: c.cast(_plain(c.type)) for n, c in zip(table.column_names, table.columns, strict=True)}),
            path.with_suffix(".orc"),
        )
        return path.with_suffix(".orc")
    if form == "stream":
        return as_stream(table, path.with_suffix(".arrows"))
    if form == "stream named arrow":  # as Hugging Face's datasets writes them, beside a file that is none
        path.mkdir()
        as_stream(table.slice(0, 50), path / "a.arrow")
        feather.write_feather(table.slice(50), str(path / "b.arrow"), compression="uncompressed")
        return path
    if form == "duckdb":
        return as_duckdb(table, path.with_suffix(".duckdb"))
    if form == "reader":
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(50))
    if form == "capsule":

        class Rows:
            def __arrow_c_stream__(self, wanted: Any = None) -> Any:
                return table.__arrow_c_stream__(wanted)

        return Rows()
    if form == "lazy":
        return pytest.importorskip("polars").from_arrow(table).lazy()
    if form == "columns":
        columns = {name: table[name].to_pylist() for name in table.column_names}
        return columns | ({"embedding": np.array(columns["embedding"], np.float32)} if "embedding" in columns else {})
    assert form == "tensors"
    columns = {name: table[name].to_pylist() for name in table.column_names}
    numbers = {n: torch.tensor(v) for n, v in columns.items() if not any(isinstance(x, str | None) for x in v)}
    return columns | numbers


def _plain(of: Any) -> Any:
    """The type that ORC has for one of Arrow."""
    return pa.list_(of.value_type) if pa.types.is_fixed_size_list(of) else of


@pytest.mark.parametrize(
    "form",
    [
        *("array", "indented", "objects", "lines", "orc", "stream", "stream named arrow", "duckdb", "reader"),
        *("capsule", "lazy", "columns", "tensors"),
    ],
)
def test_every_format_gives_the_same_store(form: str, tmp_path: Path, rng: np.random.Generator) -> None:
    made = shop("sparse" if form != "objects" else "text", rng)
    want = checksums(convert_shop(made["tables"], tmp_path / "want"))
    sources = {n: source_of(form, shuffled(t, rng), tmp_path / n) for n, t in made["tables"].items()}
    with convert_shop(sources, tmp_path / "got") as store:
        assert checksums(store) == want


@pytest.mark.parametrize("kind", ["sparse", "text"])
def test_sqlite_gives_the_same_store(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    keys = keys_of(kind, 200, rng)
    ends = rng.integers(len(keys), size=(2, 900))
    edges = pa.table(
        {
            "s": [keys[i] for i in ends[0]],
            "d": [keys[i] for i in ends[1]],
            "w": rng.choice([1.5, 2, 7], 900).tolist(),
            "c": [None if i % 7 == 0 else f"c{i % 5}" for i in range(900)],
        }
    )
    nodes = Table({"id": keys}, id="id")
    given: dict[str, Any] = {"src": "s", "dst": "d", "weight": "w", "tensors": {"c": "c"}, "nulls": {"c": "none"}}
    want = convert_tables(nodes, Table(edges, **given), tmp_path / "want", **SMALL)
    paths = [as_sqlite(edges.slice(0, 400), tmp_path / "a.sqlite"), as_sqlite(edges.slice(400), tmp_path / "b.db")]
    with sqlite3.connect(paths[0]) as opened:
        opened.execute("CREATE TABLE other (x)")
    opened.close()
    got = convert_tables(nodes, Table(paths, table="rows", **given), tmp_path / "got", **SMALL)
    assert checksums(got) == checksums(want)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("form", ["jsonl", "json", "csv"])
def test_compressed_text(form: str, packer: str, tmp_path: Path) -> None:
    path = tmp_path / f"e.{form}{packer}"
    rows = zip(*EDGES.values(), strict=True)
    text = "\n".join([",".join(EDGES), *(",".join(map(str, row)) for row in rows)]).encode()
    plain = text if form == "csv" else json_of(pa.table(EDGES), "lines" if form == "jsonl" else "array")
    path.write_bytes(PACKERS[packer](plain))
    edges = Table(path, src="s", dst="d", weight="w")
    with convert_tables(NODES, edges, tmp_path / "g", **SMALL) as store:
        assert store["edge_weight"].tolist() == [0.5, 2.0, -1.5]
    if packer:
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(errors.FreshgoError, match=rf"edges: .*e\.{form}"):
            convert_tables(NODES, edges, tmp_path / "h", **SMALL)


@pytest.mark.parametrize(
    "form",
    [
        "arrow",
        "feather",
        "stream",
        "reader",
        "dataset",
        "polars",
        "lazy",
        "columns",
        "pandas",
        "pandas of arrow",
        "parquet",
    ],
)
def test_float16(form: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Plain, in lists, in lists of one length, with nulls."""
    plain = rng.standard_normal(40).astype(np.float16)
    rows = rng.standard_normal((40, 3)).astype(np.float16)
    flat = pa.array(rows.reshape(-1))
    columns = {
        "id": pa.array(range(40)),
        "p": pa.array([None if i == 5 else value for i, value in enumerate(plain)], pa.float16()),
        "f": pa.FixedSizeListArray.from_arrays(flat, 3),
        "l": pa.ListArray.from_arrays(pa.array(range(0, 121, 3), pa.int32()), flat),
        "b": pa.LargeListArray.from_arrays(pa.array(range(0, 121, 3)), flat),
    }
    table: Any = pa.table(columns)
    source: Any = table
    if form in ("arrow", "feather"):
        source = tmp_path / f"n.{form}"
        feather.write_feather(table, str(source), compression="uncompressed")
    elif form == "stream":
        source = as_stream(table, tmp_path / "n.arrows")
    elif form == "parquet":
        source = tmp_path / "n.parquet"
        parquet.write_table(table, source)
    elif form == "dataset":
        source = pa.dataset.dataset(table)
    elif form == "reader":
        source = table.to_reader(7)
    elif form in ("polars", "lazy"):
        source = pytest.importorskip("polars").from_arrow(table)
        source = source.lazy() if form == "lazy" else source
    elif form == "columns":
        source = {name: table[name].combine_chunks() for name in table.column_names} | {"f": rows, "l": list(rows)}
    elif form == "pandas of arrow":
        source = table.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)
    elif form == "pandas":
        source = pytest.importorskip("pandas").DataFrame(
            {"id": range(40), "p": columns["p"].to_pandas(), "f": list(rows), "l": list(rows), "b": list(rows)}
        )
    nodes = Table(source, id="id", features=["p", "f", "l", "b"], nulls={"p": 7})
    with convert_tables(nodes, Table({"s": [1], "d": [2]}, src="s", dst="d"), tmp_path / "g", **SMALL) as store:
        want = np.concatenate([plain[:, None], rows, rows, rows], 1).astype(np.float32)
        want[5, 0] = 7
        np.testing.assert_array_equal(store["x"], want)


def test_text_in_json_stays_text(tmp_path: Path) -> None:
    """Keys that look like dates, times and UUIDs; moments alone are read as such."""
    keys = [
        "2020-01-02",
        "2020-01-02 ",
        "10:00:00",
        "5F9619FF-8B86-D011-B42D-00CF4FC964FF",
        "5f9619ff-8b86-d011-b42d-00cf4fc964ff",
    ]
    for name, some in (("dates", keys[:1]), ("times", keys[2:3]), ("uuids", keys[3:]), ("all", keys)):
        rows = [{"id": key, "at": "2021-03-04 05:06:07"} for key in some]
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
        edges = Table({"s": some[:1], "d": some[-1:]}, src="s", dst="d")
        nodes = Table(tmp_path / f"{name}.json", id="id", time="at")
        with convert_tables(nodes, edges, tmp_path / f"{name}.g", **SMALL) as store:
            assert store.ids().keys(range(len(some))) == sorted(some)
            moment = datetime.datetime(2021, 3, 4, 5, 6, 7, tzinfo=datetime.timezone.utc)
            assert store["time"].tolist() == [int(moment.timestamp()) * 10**6] * len(some)


def test_wrong_json(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    edges = Table(path, src="s", dst="d")
    for text, wrong in (
        (
            "[[1, 2], [3, 4]]",
            r"edges: .*e\.json holds .*expected an array of objects, or an object on each line, such as",
        ),
        ('["a", "b"]', r"edges: .*e\.json holds \"a\", expected an array of objects"),
        ('[{"s": 1, "d": 2}, {"s": 1, "d"', r"edges: .*e\.json"),
        ('[{"src": 1, "d": 2}]', r"edges has no column 's', it has .*'src'"),
        ('{"edges": [{"s": 1, "d": 2}]}', r"edges has no column 's', it has .*'edges'"),
        (
            '[{"s": 1, "d": 2}, {"s": "1", "d": 2}]',
            r"e\.json: the column 's' holds numbers and strings, expected one",
        ),
        ('{"s": 1, "d": 2}\n{"s": 1,\n', r"edges: .*e\.json"),
    ):
        path.write_text(text)
        with pytest.raises(errors.FreshgoError, match=wrong):
            convert_tables(Table({"id": [1, 2]}, id="id"), edges, tmp_path / "g", **SMALL)
    path.write_text("[]")
    with convert_tables(Table({"id": [1, 2]}, id="id"), edges, tmp_path / "g", **SMALL) as store:
        assert store.num_edges == 0
    (tmp_path / "f.json").write_text('{"s": 1, "d": 2}')
    path.write_text('[{"s": 1, "d": 2}]')
    both = Table([path, tmp_path / "f.json"], src="s", dst="d")
    with pytest.raises(errors.InvalidArgumentError, match=r"files of .*arrays.*: give a Table one of these"):
        convert_tables(Table({"id": [1, 2]}, id="id"), both, tmp_path / "h", **SMALL)


def test_tables_of_a_file(tmp_path: Path) -> None:
    """Which of several, views and schemas; and what is wrong with a file."""
    edges = pa.table(EDGES)
    lite, duck = as_sqlite(edges, tmp_path / "a.db"), as_duckdb(edges, tmp_path / "b.duckdb")
    with sqlite3.connect(lite) as opened:
        opened.execute("CREATE VIEW few AS SELECT * FROM rows WHERE n < 3")
        opened.execute("CREATE TABLE mixed AS SELECT 1 AS s, 'b' AS d UNION ALL SELECT 'a', 'b'")
        opened.execute("CREATE TABLE bytes AS SELECT x'00' AS s, 'b' AS d")
    opened.close()
    with duckdb.connect(str(duck)) as opened:
        opened.execute("CREATE SCHEMA k; CREATE TABLE k.few AS SELECT * FROM rows WHERE n < 3")

    def convert(path: Path, table: str | None, **how: Any) -> Any:
        edges = Table(path, src="s", dst="d", table=table, **how)
        return convert_tables(NODES, edges, tmp_path / "g", overwrite=True, **SMALL)

    for path, few in ((lite, "few"), (duck, "k.few")):
        with convert(path, few, weight="w") as store:
            assert store["edge_weight"].tolist() == [2.0, -1.5]
        with pytest.raises(
            errors.InvalidArgumentError,
            match=rf"edges: .*{path.name} holds several tables: table= must be one of .*'{few}'",
        ):
            convert(path, None)
        with pytest.raises(
            errors.InvalidArgumentError, match=rf"{path.name} has no table 'fow': table= must be one of"
        ):
            convert(path, "fow")
    with pytest.raises(
        errors.DTypeError, match=r"edges: .*a\.db, table 'mixed': the column 's' holds integers \(1\) and text \('a'\)"
    ):
        convert(lite, "mixed")
    with sqlite3.connect(lite) as opened:
        opened.execute(
            f"CREATE TABLE large AS SELECT 'a' AS s, 'b' AS d, {2**53 + 1} AS w UNION ALL SELECT 'b', 'a', 1.5"
        )
        opened.execute("CREATE TABLE exact AS SELECT s, d, w - 1 AS w FROM large")
    opened.close()
    with pytest.raises(errors.InvalidArgumentError, match=rf"'w' holds floats, and the integer {2**53 + 1}, which may"):
        convert(lite, "large", weight="w")
    with convert(lite, "exact", weight="w") as store:
        assert store["edge_weight"].tolist() == [0.5, 2.0**53]
    long = {"s": ["a", "b"], "d": ["b", "a"], "c": ["x" * (1 << 20), None]}
    wide = as_sqlite(pa.table(long), tmp_path / "wide.sqlite")
    with convert(wide, None, tensors={"c": "c"}, nulls={"c": ""}) as store:
        assert store.categories("c") == ["", long["c"][0]]
    with sqlite3.connect(wide) as opened:
        opened.execute("UPDATE rows SET c = zeroblob(1 << 27) WHERE s = 'a'")
        opened.execute("CREATE TABLE longer AS SELECT 'a' AS s, 'b' AS d, printf('%.*c', 1 << 25, 'x') AS c")
    opened.close()
    with pytest.raises(errors.DTypeError, match=r"the column 'c' holds blobs \(b'.{,200}\), expected"):
        convert(wide, "rows", tensors={"c": "c"})
    with pytest.raises(errors.BudgetError, match=r"table 'longer': .* the longest text needs at least 257 MiB"):
        convert(wide, "longer", tensors={"c": "c"})
    sqlite3.connect(tmp_path / "empty.db3").close()
    (tmp_path / "empty.db3").touch()
    with pytest.raises(errors.InvalidArgumentError, match=r"empty\.db3 holds no tables"):
        convert(tmp_path / "empty.db3", None)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"column 's', row 0 of .*a\.db \(s '1', d 'b'\): no node has this key"
    ):
        convert(lite, "mixed", types={"s": "VARCHAR"})
    with pytest.raises(errors.DTypeError, match=r"the column 's' holds blobs \(b'.x00'\), expected numbers, or text"):
        convert(lite, "bytes")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"edges: table='rows' names a table of a file of SQLite or DuckDB"
    ):
        convert_tables(NODES, Table(EDGES, src="s", dst="d", table="rows"), tmp_path / "h", **SMALL)
    for path in (lite, duck):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
        with pytest.raises(errors.FreshgoError, match=rf"edges.*{path.name}"):
            convert(path, "rows")
        path.write_text("s,d\n" * 1000)
        with pytest.raises(errors.FreshgoError, match=rf"edges: .*{path.name}"):
            convert(path, "rows", format="sqlite" if path is lite else None)
    with pytest.raises(errors.InvalidArgumentError, match=r"a\.db does not say its format: expected \.parquet"):
        convert(lite, None)


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "stream", "orc", "duckdb", "sqlite"])
def test_one_of_several_files_lacks_a_column(form: str, tmp_path: Path) -> None:
    """An end, or a column where a null is an error: not rows that missing="drop" leaves out."""
    paths = []
    for name, columns in (("a", {"s": ["a"], "d": ["b"], "w": [0.5]}), ("b", {"s": ["é"], "e": ["b"]})):
        table = pa.table(columns)
        path = tmp_path / f"{name}.{form}"
        if form == "csv":
            path.write_text("\n".join(map(",".join, (columns, ([str(v[0]) for v in columns.values()])))))
        elif form == "parquet":
            parquet.write_table(table, path)
        elif form == "arrow":
            feather.write_feather(table, str(path), compression="uncompressed")
        else:
            path = as_sqlite(table, path) if form == "sqlite" else Path(source_of(form, table, path))
        paths.append(path)
    with pytest.raises(errors.InvalidArgumentError, match=r"edges.*b\.\w+ has no column 'd'|no column 'd', it has"):
        convert_tables(NODES, Table(paths, src="s", dst="d"), tmp_path / "g", missing="drop", **SMALL)
    given: dict[str, Any] = {"src": "s", "dst": "s", "weight": "w"}
    if form != "sqlite":  # whose files have the same columns
        with convert_tables(NODES, Table(paths, nulls={"w": 7}, **given), tmp_path / "g", **SMALL) as store:
            assert store["edge_weight"].tolist() == [0.5, 7]
    with pytest.raises(errors.InvalidArgumentError, match=r"no column 'w'"):
        convert_tables(NODES, Table(paths, **given), tmp_path / "h", **SMALL)


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow", "columns"])
def test_nan_among_keys_is_a_missing_end(form: str, tmp_path: Path) -> None:
    columns = {"s": [1.0, float("nan")], "d": [2, 1]}
    frames = {"pandas": "DataFrame", "polars": "DataFrame", "arrow": "table"}
    module = {"arrow": "pyarrow"}.get(form, form)
    source = getattr(pytest.importorskip(module), frames[form])(columns) if form in frames else columns
    nodes, edges = Table({"id": [1, 2]}, id="id"), Table(source, src="s", dst="d", types={"s": "BIGINT"})
    with convert_tables(nodes, edges, tmp_path / "g", missing="drop", **SMALL) as store:
        assert store.num_edges == 1 and "1 with a null end" in store.history[0].details
    with pytest.raises(errors.InvalidArgumentError, match=r"column 's', row 1 \(s None, d 1\): null, expected the key"):
        convert_tables(nodes, edges, tmp_path / "h", **SMALL)


@pytest.mark.parametrize("damage", ["truncated", "changed", "cut out"])
def test_a_damaged_parquet_file_is_named(tmp_path: Path, damage: str) -> None:
    """DuckDB's error about the footer or a page names no file."""
    for part in range(3):
        parquet.write_table(pa.table(EDGES), tmp_path / f"part{part}.parquet", compression="none")
    damaged = tmp_path / "part1.parquet"
    whole = damaged.read_bytes()
    if damage == "truncated":
        damaged.write_bytes(whole[: len(whole) // 2])
    elif damage == "changed":
        damaged.write_bytes(whole[:-60] + b"\xff" * 40 + whole[-20:])
    else:
        damaged.write_bytes(whole[:20] + whole[40:])
    with pytest.raises(errors.InvalidArgumentError, match=r"^edges: .*part1\.parquet"):
        convert_tables(NODES, Table(tmp_path / "part*.parquet", src="s", dst="d"), tmp_path / "g", **SMALL)


def test_a_truncated_file_of_duckdb_is_as_a_damaged_one(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "e.duckdb")) as connection:
        connection.execute("CREATE TABLE edges AS SELECT 'a' AS s, 'b' AS d, hash(range) AS n FROM range(200000)")
    whole = (tmp_path / "e.duckdb").read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2)):
        (tmp_path / "e.duckdb").write_bytes(damaged)
        edges = Table(tmp_path / "e.duckdb", src="s", dst="d", tensors={"n": "n"})
        with pytest.raises(errors.InvalidArgumentError, match=r"^edges: .*e\.duckdb|^edges: Corrupt database file"):
            convert_tables(NODES, edges, tmp_path / "g", **SMALL)


def test_a_file_counts_once(tmp_path: Path) -> None:
    """Rows neither count once where a file is named twice, nor twice: it is an error."""
    (tmp_path / "parts").mkdir()
    for name in ("e.csv", "parts/f.csv"):
        (tmp_path / name).write_text("s,d\na,b\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "e.csv")
    e, parts = tmp_path / "e.csv", tmp_path / "parts"
    for source, words in (
        ([e, e], r"the source has the file .*e\.csv twice: leave one out"),
        ([e, tmp_path / "link.csv"], r"has the file .*link\.csv twice, once as .*e\.csv"),
        ([parts, parts / "*.csv"], r"has the file .*f\.csv twice"),
        ([os.path.relpath(e), e], r"has the file .*e\.csv twice, once as \.\."),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            convert_tables(NODES, Table(source, src="s", dst="d"), tmp_path / "g", **SMALL)


def test_directories_that_a_pattern_matches(tmp_path: Path) -> None:
    """As writers of partitions leave them; among files, which they are meant is not to be known."""
    for part in range(2):
        (tmp_path / f"in/{part}.parquet").mkdir(parents=True)
        parquet.write_table(pa.table(EDGES), tmp_path / f"in/{part}.parquet/part.parquet")
        (tmp_path / f"in/{part}.parquet/_SUCCESS").touch()
    edges = Table(tmp_path / "in/*.parquet", src="s", dst="d")
    with convert_tables(NODES, edges, tmp_path / "g", **SMALL) as store:
        assert store.num_edges == 6
    with convert_tables(NODES, Table(tmp_path / "in/**/*.parquet", src="s", dst="d"), tmp_path / "h", **SMALL) as store:
        assert store.num_edges == 6
    parquet.write_table(pa.table(EDGES), tmp_path / "in/2.parquet")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"matches files, and the directory of .*0\.parquet/part\.par"
    ):
        convert_tables(NODES, edges, tmp_path / "i", **SMALL)


def test_damaged_files_and_wrong_objects(tmp_path: Path) -> None:
    table = pa.table(EDGES)
    orc.write_table(table, tmp_path / "e.orc")
    with pytest.raises(errors.InvalidArgumentError, match=r"^edges has no column 'dd', it has .*did you mean 'd'"):
        convert_tables(NODES, Table(tmp_path / "e.orc", src="s", dst="dd"), tmp_path / "g", **SMALL)
    as_stream(table, tmp_path / "e.arrows")
    for name, words in (("e.orc", "ORC"), ("e.arrows", "Arrow IPC")):
        whole = (tmp_path / name).read_bytes()
        for damaged in (whole[: len(whole) // 2], b"nonsense" * 40):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(
                errors.InvalidArgumentError, match=rf"edges: .*{name} is not a (whole )?file of {words}"
            ):
                convert_tables(NODES, Table(tmp_path / name, src="s", dst="d"), tmp_path / "g", **SMALL)
    for given, wrong in (
        ({"s": ["a"], "d": ["b", "a"]}, r"the columns differ in length: \{'s': 1, 'd': 2\}"),
        ({"s": ["a", 1], "d": ["b", "a"]}, r"column 's': expected a list or an array of numbers, strings or lists"),
        ({"s": ["a"], 7: ["b"]}, "the columns of a mapping must have strings as names, got 7"),
        ({"s": ["a"]}, r"edges has no column 'd', it has \['s'\]"),
        (pytest.importorskip("pandas").Series([1]), r"source is .*, which holds no rows"),
        (42, r"source must be a path, .*a mapping from names to columns, .*frame, got 42"),
    ):
        with pytest.raises(errors.FreshgoError, match=wrong):
            convert_tables(NODES, Table(given, src="s", dst="d"), tmp_path / "g", **SMALL)
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame(EDGES).with_columns(s=polars.col("nothing"))
    with pytest.raises(errors.InvalidArgumentError, match=r"edges: polars: .*nothing"):
        convert_tables(NODES, Table(lazy, src="s", dst="d"), tmp_path / "g", **SMALL)
    lazy = polars.scan_csv(tmp_path / "nothing.csv")
    with pytest.raises(errors.StoreNotFoundError, match=r"edges: polars: .*nothing\.csv"):
        convert_tables(NODES, Table(lazy, src="s", dst="d"), tmp_path / "g", **SMALL)
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(400))
    with pytest.raises(errors.InvalidArgumentError, match=r"old\.feather is not a file .* begins as the first version"):
        convert_tables(NODES, Table(tmp_path / "old.feather", src="s", dst="d"), tmp_path / "g", **SMALL)
    (tmp_path / "e.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(errors.InvalidArgumentError, match=r"e\.xlsx does not say its format: .*read it with pandas"):
        convert_tables(NODES, Table(tmp_path / "e.xlsx", src="s", dst="d"), tmp_path / "g", **SMALL)


def test_a_full_disk_below_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error was a ReadError of the file that is read, or of none."""
    (tmp_path / "e.json.xz").write_bytes(lzma.compress(json.dumps([{"s": "a", "d": "b"}] * 9).encode()))
    monkeypatch.setattr("freshgo._tables.database.Database.new_file", lambda _, word: Path("/dev/full"))
    for source in (tmp_path / "e.json.xz", pytest.importorskip("polars").LazyFrame(EDGES)):
        with pytest.raises(errors.WriteError, match=r"/dev/full: .*No space left") as full:
            convert_tables(NODES, Table(source, src="s", dst="d"), tmp_path / "g", **SMALL)
        assert full.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["e.json.xz"]


GROWTH = """
import pyarrow, duckdb, numpy, torch, freshgo
from freshgo import Table
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
def convert(path):
    table = Table(path, src="s", dst="d", weight="w", tensors={{"c": "c"}})
    freshgo.convert_tables(None, table, {to!r}, missing="add", memory="128MiB", progress=False, overwrite=True).close()
convert({small!r})
before = peak()
convert({large!r})
print(peak() - before)
"""


@pytest.mark.long
@pytest.mark.parametrize("form", ["array", "lines", "stream", "duckdb", "sqlite"])
def test_memory_of_formats(form: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Two million edges, of 100 MB as JSON: what is resident grows by no more than the budget."""
    paths = []
    for count in (1000, 2_000_000):
        ends = rng.integers(200_000, size=(2, count))
        words = np.array(["aa", "bb", "cc"])[rng.integers(3, size=count)]
        table = pa.table({"s": ends[0], "d": ends[1], "w": rng.random(count), "c": words})
        path = tmp_path / f"t{count}"
        if form in ("array", "lines"):
            path = path.with_suffix(".json")
            duckdb.from_arrow(table).query("t", f"COPY t TO '{path}' (FORMAT json, ARRAY {form == 'array'})")
        else:
            path = as_sqlite(table, path.with_suffix(".db")) if form == "sqlite" else source_of(form, table, path)
        paths.append(str(path))
    code = GROWTH.format(small=paths[0], large=paths[1], to=str(tmp_path / "g"))
    assert int(warm.run(code, timeout=1200)) <= 128 << 20
