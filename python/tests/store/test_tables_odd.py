"""Odd tables: what they hold is kept as it stands, or an error says what came and what to do."""

from __future__ import annotations

import decimal
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
duckdb = pytest.importorskip("duckdb")

from freshgo import Loader, Table, convert_tables, errors  # noqa: E402

Source = Callable[[Path], Any]


def text(written: str | bytes, name: str = "e.csv") -> Source:
    def write(directory: Path) -> Path:
        path = directory / name
        path.write_bytes(written if isinstance(written, bytes) else written.encode())
        return path

    return write


def lines(*rows: dict[str, Any]) -> Source:
    return text("\n".join(map(json.dumps, rows)), "e.jsonl")


def frame(**columns: Any) -> Source:
    return lambda _: pytest.importorskip("pandas").DataFrame(columns)


def indexed(_: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"w": [1.0]}, index=pandas.MultiIndex.from_tuples([(1, 2)], names=["s", "d"]))


def unnamed(_: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame({0: [1], 1: [2]})


def of_128_bits(_: Path) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"s": polars.Series([2**70], dtype=polars.Int128), "d": [1]})


def enumerated(_: Path) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"s": polars.Series(["a", "b"], dtype=polars.Enum(["b", "a"])), "d": ["b", "c"]})


def cases(directory: Path) -> Path:
    parquet.write_table(pa.table([[1], [2], [3]], ["s", "d", "S"]), directory / "e.parquet")
    return directory / "e.parquet"


def nanoseconds(_: Path) -> Any:
    return pa.table({"s": [1, 2], "d": [2, 1], "t": pa.array([1000, 1001], pa.timestamp("ns"))})


def decimals(_: Path) -> Any:
    return pa.table({"s": [1], "d": [2], "w": pa.array([decimal.Decimal("1.50")], pa.decimal256(50, 2))})


def periods(_: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"s": [1], "d": [2], "w": pandas.period_range("2020", periods=1, freq="M")})


def tensors(_: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame({"s": [1], "d": [2], "w": [torch.ones(2)]})


def durations(_: Path) -> Any:
    polars = pytest.importorskip("polars")
    return polars.LazyFrame({"s": [1], "d": [2], "w": [5]}).with_columns(w=polars.duration(days="w"))


def endless(_: Path) -> Any:
    return duckdb.sql(
        "SELECT 1 AS s, 2 AS d, '2020-01-01'::TIMESTAMP AS t UNION ALL SELECT 2, 1, 'infinity'::TIMESTAMP ORDER BY s"
    )


def failing(_: Path) -> Any:
    def batches() -> Any:
        yield pa.record_batch([[1], [2]], ["s", "d"])
        raise ValueError("no more rows")

    return pa.RecordBatchReader.from_batches(pa.schema([("s", pa.int64()), ("d", pa.int64())]), batches())


def converted(source: Any, path: Path, **options: Any) -> Any:
    table = Table(source, src="s", dst="d", **options)
    return convert_tables(None, table, path, missing="add", memory="128MiB", progress=False)


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        (text("\ufeffs,d\n1,2\n"), [1, 2]),
        (text(b"s,d\na\x00b,c\n"), ["a\0b", "c"]),
        (text("s,d,\n1,2,\n"), [1, 2]),
        (text("s,S,d\n1,9,2\n"), [1, 2]),
        (
            text("s,d\n12345678901234567890,1\n12345678901234567891,2\n"),
            ["1", "12345678901234567890", "12345678901234567891", "2"],
        ),
        (text("s,d\n1_000,1\n"), ["1", "1_000"]),
        (text("s,d\n\u0661\u0662,12\n"), ["12", "\u0661\u0662"]),
        (text("s,d\n+5,5\n"), ["+5", "5"]),
        (text("s,d\n 5 ,5\n"), [" 5 ", "5"]),
        (text("s,d\ne\u0301,\u00e9\n"), ["e\u0301", "\u00e9"]),
        (text(gzip.compress(b"s,d\n1,2\n") + gzip.compress(b"3,4\n"), "e.csv.gz"), [1, 2, 3, 4]),
        (lines({"s": "2020-01-01", "d": "2020-1-1"}), ["2020-01-01", "2020-1-1"]),
        (frame(s=np.array([1, 2], object), d=[2, 3]), [1, 2, 3]),
        (lambda _: {"s": np.array([2**64 - 1], np.uint64), "d": np.array([1], np.uint64)}, [1, 2**64 - 1]),
        (enumerated, ["a", "b", "c"]),
    ],
)
def test_keys_are_what_stands_there(source: Source, keys: list[Any], tmp_path: Path) -> None:
    with converted(source(tmp_path), tmp_path / "g") as store:
        found = store.ids().keys(range(store.num_nodes))
        got = found if isinstance(found, list) else found.tolist()
        assert got == keys


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (lambda _: pa.table({"s": [1], "d": [2], "w": pa.nulls(1)}), {"weight": "w"}, "'w' holds only nulls, which"),
        (lambda _: pa.table({"s": [1], "d": pa.nulls(1)}), {}, "'d' holds only nulls.*types={'d': 'DOUBLE'}"),
        (
            lines({"s": 2**63 + 7, "d": 1}),
            {},
            r"column 's': 9223372036854775815 does not fit INT64.*types=\{'s'",
        ),
        (text('{"s":1,"s":5,"d":2}\n', "e.jsonl"), {}, 'has duplicate key "s"$'),
        (indexed, {}, r"no column 's', it has \['w'\]; 's' is of its index: frame.reset_index\(\)"),
        (unnamed, {}, "must have strings as names, got 0: give others"),
        (of_128_bits, {}, "pyarrow does not have the type of one of the columns 's' of Int128"),
        (lambda _: {"s": [1], "d": [2], "w": np.array([1.5j])}, {"weight": "w"}, "64 bits.*got complex128"),
        (text("s,d,w\n1,2,0x1p3\n"), {"weight": "w"}, "line 2 of .*e.csv: '0x1p3', expected a number"),
        (text("s,d\n1,2\n"), {"types": {"w": "DOUBLE"}}, "types names the column 'w', which is not used; in use are"),
        (cases, {"weight": "S"}, "another column differs from 'S' in case alone: rename one"),
        (cases, {"weight": "S_1"}, "another column differs from 'S' in case alone: rename one"),
        (lambda _: {"s": torch.ones(1).to_sparse(), "d": [2]}, {}, "column 's': expected a list or .*a Tensor of"),
        (lambda _: {"s": torch.ones(1, device="meta"), "d": [2]}, {}, "column 's': expected a list or .*a Tensor of"),
        (endless, {"time": "t"}, r"column 't', row 1 \(s 2, d 1\): null, expected a value"),
        (decimals, {"weight": "w"}, r"the column 'w' holds decimal256\(50, 2\), which DuckDB does not read: convert"),
        (lambda p: decimals(p).to_reader(), {"weight": "w"}, r"the column 'w' holds decimal256\(50, 2\), which DuckDB"),
        (periods, {"weight": "w"}, r"the column 'w' holds period\[M\], which DuckDB does not read"),
        (tensors, {"tensors": {"w": "w"}}, r"column 'w', holds objects such as a Tensor of shape \[2\], expected"),
        (durations, {"weight": "w"}, r"the column 'w' holds Duration.*, expected numbers"),
        (failing, {}, "edges: reading the source failed: .*no more rows[^;]*$"),
        (nanoseconds, {"time": "t"}, "column 't', row 1 .*: .* does not convert exactly: time= is in microseconds"),
    ],
)
def test_what_is_refused(source: Source, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises((errors.InvalidArgumentError, errors.DTypeError), match=words):
        converted(source(tmp_path), tmp_path / "g", **options)
    assert not (tmp_path / "g").exists()


def test_members_of_lists_and_structs_are_no_columns(tmp_path: Path) -> None:
    """Messages leave them out, and a part of a path may have the name of one."""
    lists, structs = [[1.0, 2.0], [3.0, 4.0]], [{"year": 7, "at": {"d": 1}}, None]
    whole = pa.table({"s": [1, 2], "d": [2, 1], "w": lists, "when": structs, "z": [0, 0]})
    for year in (2020, 2021):
        (tmp_path / f"in/year={year}").mkdir(parents=True)
        parquet.write_table(whole, tmp_path / f"in/year={year}/e.parquet")
    with converted(tmp_path / "in", tmp_path / "g", tensors={"w": "w", "year": "year"}) as store:
        (batch,) = Loader(store, [-1], batch_size=2)
        assert sorted(batch.year.tolist()) == [2020, 2020, 2021, 2021]
    parquet.write_table(whole.drop_columns(["d"]), tmp_path / "in/year=2021/e.parquet")
    with pytest.raises(errors.InvalidArgumentError, match=r"no column 'd', it has \['s', 'w', 'when', 'z', 'year'\]$"):
        converted(tmp_path / "in", tmp_path / "other", weight="z")


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv", "dataset"])
def test_a_column_may_be_called_filename(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"e.{form}"
    table = pa.table({"s": ["1", "3"], "d": ["2", "4"], "filename": ["a.jpg", "b.jpg"]})
    if form in ("jsonl", "csv"):
        written = map(json.dumps, table.to_pylist()) if form == "jsonl" else ["s,d,filename", "1,2,a.jpg", "3,4,b.jpg"]
        path.write_text("\n".join(written))
    else:
        parquet.write_table(table, path)
    given = pytest.importorskip("pyarrow.dataset").dataset(path) if form == "dataset" else path
    with converted(given, tmp_path / "unused") as store:
        assert store.num_edges == 2
    with converted(given, tmp_path / "used", tensors={"image": "filename"}) as store:
        assert store.categories("filename") == ["a.jpg", "b.jpg"]


def test_tables_in_a_directory_are_not_left_out(tmp_path: Path) -> None:
    """Hive names files 000000_0, and some programs .parq."""
    table = pa.table({"s": [1, 3], "d": [2, 4]})
    (tmp_path / "in").mkdir()
    (tmp_path / "in/README.md").write_text("Edges of 2020.")
    for name in ("000000_0", "z.parq"):
        parquet.write_table(table, tmp_path / "in" / name)
        with pytest.raises(errors.InvalidArgumentError, match=f"{name} does not say its format, but it begins as Par"):
            converted(tmp_path / "in", tmp_path / "g")
        (tmp_path / "in" / name).rename(tmp_path / f"in/{name}.parquet")
    with converted(tmp_path / "in", tmp_path / "g") as store:
        assert store.num_edges == 4
    (tmp_path / "in/README.md").unlink()
    (tmp_path / "in/z.parq.parquet").rename(tmp_path / "in/z")
    with converted(tmp_path / "in", tmp_path / "h", format="parquet") as store:
        assert store.num_edges == 4


@pytest.mark.parametrize("source", [decimals, periods])
def test_columns_that_are_not_used_may_have_any_type(source: Source, tmp_path: Path) -> None:
    with converted(source(tmp_path), tmp_path / "g") as store:
        assert store.num_edges == 1


def test_features_beyond_int64(tmp_path: Path) -> None:
    values = np.array([2**64 - 1, 2**63 + 2**39 + 1, 1], np.uint64)
    for name, given in (
        ("a", values),
        ("b", pa.array([[value, 0] for value in values.tolist()], pa.list_(pa.uint64()))),
    ):
        with converted({"s": [1, 2, 3], "d": [1, 2, 3], "v": given}, tmp_path / name, features=["v"]) as store:
            assert store["edge_attr"][:, 0].tolist() == values.astype(np.float32).tolist()


def test_stripes_that_memory_cannot_hold(tmp_path: Path) -> None:
    orc = pytest.importorskip("pyarrow.orc")
    ends = np.random.default_rng(0).integers(0, 2**62, (2, 2_000_000))
    table = pa.table({"s": ends[0], "d": ends[1]})
    orc.write_table(table, tmp_path / "e.orc", stripe_size=1 << 30)
    with pytest.raises(errors.BudgetError, match=r"e.orc: memory=\"128MiB\" is too small: stripes of .*write_table"):
        converted(tmp_path / "e.orc", tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_a_column_of_nulls_with_a_type(tmp_path: Path) -> None:
    table = pa.table({"s": [1], "d": [2], "w": pa.nulls(1)})
    with converted(table, tmp_path / "g", weight="w", types={"w": "DOUBLE"}, nulls={"w": 0.5}) as store:
        assert store["edge_weight"].tolist() == [0.5]


@pytest.mark.parametrize(
    ("values", "options", "fill", "tensor"),
    [
        (pa.array([1, None]), {"weight": "v"}, 0.5, [1, 0.5]),
        (pa.array([1, None], pa.int8()), {"weight": "v"}, 300, [1, 300]),
        (pa.array([1, None], pa.uint8()), {"tensors": {"v": "v"}}, -1, [1, -1]),
        (pa.array([True, None]), {"tensors": {"v": "v"}}, 1, [True, True]),
        (pa.array([True, None]), {"weight": "v"}, 0.5, [1, 0.5]),
        (pa.array([1.5, float("nan")], pa.float16()), {"weight": "v"}, 1e6, [1.5, 1e6]),
        (pa.array([[1, None], [2, 3]]), {"features": "v"}, 0.5, [[1, 0.5], [2, 3]]),
    ],
)
def test_what_stands_for_nulls_is_not_rounded(
    values: Any, options: dict[str, Any], fill: float, tensor: Any, tmp_path: Path
) -> None:
    source = pa.table({"s": [1, 2], "d": [2, 3], "v": values})
    with converted(source, tmp_path / "g", nulls=fill, **options) as store:
        name = {"weight": "edge_weight", "features": "edge_attr"}.get(next(iter(options)), "v")
        assert store[name].tolist() == tensor


def test_null_integers_become_nan(tmp_path: Path) -> None:
    source = pa.table({"s": [1, 2], "d": [2, 3], "v": pa.array([1, None])})
    with converted(source, tmp_path / "g", nulls=float("nan"), weight="v") as store:
        assert store["edge_weight"].isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "options", "fill", "words"),
    [
        (pa.array([1.0, None]), {"weight": "v"}, 1e39, r"'v' are 1e\+39, expected a number of float32"),
        (pa.array([1, None]), {"tensors": {"v": "v"}}, 2**63, "'v' are 9223372036854775808, expected a whole number"),
        (pa.array([True, None]), {"tensors": {"v": "v"}}, 2, "'v' are 2, expected 0 or 1"),
    ],
)
def test_what_cannot_stand_for_nulls(
    values: Any, options: dict[str, Any], fill: float, words: str, tmp_path: Path
) -> None:
    source = pa.table({"s": [1, 2], "d": [2, 3], "v": values})
    with pytest.raises(errors.InvalidArgumentError, match=words):
        converted(source, tmp_path / "g", nulls=fill, **options)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e5m2"])
def test_tensors_of_types_that_numpy_does_not_have(kind: str, tmp_path: Path) -> None:
    weight = torch.tensor([1.5, -4]).to(getattr(torch, kind))
    with converted({"s": [1, 2], "d": [2, 3], "w": weight}, tmp_path / "g", weight="w") as store:
        assert store["edge_weight"].tolist() == [1.5, -4]


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow", "orc", "parquet"])
def test_a_column_that_a_directory_is_too(form: str, tmp_path: Path) -> None:
    path = tmp_path / "s=9" / f"e.{form}"
    path.parent.mkdir()
    text = {"csv": "s,d\n1,2\n", "jsonl": '{"s": 1, "d": 2}\n'}
    if form in text:
        path.write_text(text[form])
    else:
        feather, orc = (pytest.importorskip(f"pyarrow.{name}") for name in ("feather", "orc"))
        write = {"arrow": feather.write_feather, "orc": orc.write_table, "parquet": parquet.write_table}[form]
        write(pa.table({"s": [1], "d": [2]}), str(path))
    with pytest.raises(errors.InvalidArgumentError, match=r"has a column 's', and so has its directory s=9"):
        converted(path, tmp_path / "g")
    if form == "parquet":
        write(pa.table({"s": [9], "d": [2]}), str(path))
        with converted(path, tmp_path / "g") as store:
            assert store.ids().keys([0, 1]).tolist() == [2, 9]
