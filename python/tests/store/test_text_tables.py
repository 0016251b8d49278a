"""Text files become the nodes and edges that stand in them: nothing is a comment or a null unless the user says so."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from odd_text import rows_of, style, written
from seeds import seed as seed_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from freshgo import Store, Table, convert_tables, errors  # noqa: E402

SMALL: dict[str, Any] = {"memory": "128MiB", "progress": False}
Error = errors.InvalidArgumentError


def edges(path: Path, text: str | bytes, *, missing: str = "add", **options: Any) -> Store:
    """Convert a table of edges from ``s`` to ``d``, whose ends are all nodes."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    table = Table(path, **{"src": "s", "dst": "d", **options})
    return convert_tables(None, table, path.parent / "g", missing=missing, overwrite=True, **SMALL)  # type: ignore[arg-type]


def keys(store: Store) -> list[Any]:
    found = store.ids().keys(range(store.num_nodes))
    return found if isinstance(found, list) else found.tolist()


def check_files(folder: Path, count: int, rng: random.Random) -> None:
    """Convert many files at once, a type of nodes each, and compare keys and categories with the rows of csv."""
    nodes, wanted = {}, {}
    for number in range(count):
        how, columns, integers = style(rng), rng.randint(1, 4), rng.random() < 0.3
        begin = [f"{'' if integers else 'k'}{key}" for key in rng.sample(range(-20, 20), rng.randint(1, 9))]
        while True:
            text = written(rng, how, columns, len(begin), keys=begin)
            rows = rows_of(text, how)
            if rows is not None and len(rows) == len(begin) and len({row[0] for row in rows}) == len(rows):
                break
        path = folder / f"{number}.txt"
        path.write_bytes(text.encode())
        names = [f"c{place}" for place in range(columns)]
        nodes[f"t{number}"] = Table(
            path,
            id="c0",
            header=False,
            names=names,
            tensors={name: name for name in names[1:]},
            types=dict.fromkeys(names[1:], "VARCHAR"),
            nulls=dict.fromkeys(names[1:], ""),
            **vars(how),
        )
        wanted[f"t{number}"] = rows
    (folder / "e.csv").write_text("s,d\n")
    store = convert_tables(
        nodes, {("t0", "to", "t0"): Table(folder / "e.csv", src="s", dst="d")}, folder / "g", overwrite=True, **SMALL
    )
    for of, rows in wanted.items():
        given: list[Any] = [row[0] for row in rows]
        if all(key.removeprefix("-").isascii() and key == str(_integer(key)) for key in given):
            given = [int(key) for key in given]
        order = sorted(
            range(len(given)), key=lambda at: given[at] if isinstance(given[at], int) else given[at].encode()
        )
        found = store.ids(of).keys(range(len(given)))
        assert (found if isinstance(found, list) else found.tolist()) == [given[at] for at in order], (of, rows)
        for place in range(1, len(rows[0])):
            values = store.categories(f"c{place}", of)
            got = [values[at] for at in store[of][f"c{place}"].tolist()]
            assert got == [rows[at][place] for at in order], (of, rows)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def test_odd_files_are_read_as_csv_reads_them(tmp_path: Path) -> None:
    check_files(tmp_path, 60, random.Random(seed_of(0)))


@pytest.mark.explore
@pytest.mark.long
def test_many_odd_files_are_read_as_csv_reads_them(tmp_path: Path) -> None:
    rng = random.Random(seed_of(1))
    for _ in range(100):
        check_files(tmp_path, 100, rng)


@pytest.mark.parametrize(
    ("text", "count", "found"),
    [
        ("s,d\n#1,#2\n#2,#3\n7,8\n9,10\n", 4, ["#1", "#2", "#3", "10", "7", "8", "9"]),
        ("s,d\n0x10,16\n0x11,0x12\n", 2, ["0x10", "0x11", "0x12", "16"]),
        ("s,d\n1,-2\n10,9223372036854775807\n", 2, [-2, 1, 10, 2**63 - 1]),
        ("s,d\n1,9223372036854775808\n", 1, ["1", "9223372036854775808"]),
        ("s,d\n1,-0\n0,1\n", 2, ["-0", "0", "1"]),
        *(
            (f"s,d\n1,{odd}\n", 1, sorted(["1", odd]))
            for odd in ("+1", "01", "1_0", "1e3", " 1", "1 ", "0b1", "1.0", "٣")
        ),
        ("s,d\nNA,nan\nNULL,NA\n", 2, ["NA", "NULL", "nan"]),
        ('s,d\n1,""\n', 1, ["", "1"]),
        ("s,d\r\n1,2\n3,4\r5,6", 3, [1, 2, 3, 4, 5, 6]),
        ("s,d\n\u00e9,e\u0301\na\0b,a\0c\n", 2, ["a\0b", "a\0c", "e\u0301", "\u00e9"]),
        ("S,s,d\n9,1,2\n", 1, [1, 2]),
        ("\ufeffs,d\n1,2\n", 1, [1, 2]),
        ("s\td;x\n1\t2\n".replace("d;x", "d\tx;y").replace("1\t2", "1\t2\t3"), 1, [1, 2]),
    ],
)
def test_keys_are_the_text_that_stands_there(tmp_path: Path, text: str, count: int, found: list[Any]) -> None:
    store = edges(tmp_path / "e.csv", text)
    assert store.num_edges == count and keys(store) == found
    assert store.ids().lookup(found).tolist() == list(range(len(found)))


def test_a_column_of_integers_that_ends_in_text(tmp_path: Path) -> None:
    """Integers of earlier pieces become the text that they were, also in other columns for the same nodes."""
    rows = "".join(f"{i},{i * 7}\n" for i in range(400_000))
    store = edges(tmp_path / "e.csv", f"s,d\n{rows}007,7\n")
    assert keys(store) == sorted({"007", *map(str, range(400_000)), *(str(i * 7) for i in range(400_000))})
    nodes = Table(pa.table({"id": [7, 10]}), id="id")
    (tmp_path / "f.csv").write_text("s,d\n7,a\n")
    with pytest.raises(Error, match=r"column 'd', row 0 of .*f\.csv, line 2 \(s 7, d 'a'\): no node has this key"):
        convert_tables(nodes, Table(tmp_path / "f.csv", src="s", dst="d"), tmp_path / "h", **SMALL)


def test_lists_of_edges_as_they_come(tmp_path: Path) -> None:
    snap = "# Directed graph\n# Nodes: 3 Edges: 2\n# From\tTo\n0\t11\n0\t2\n"
    assert keys(edges(tmp_path / "a.txt", snap, header=False, names=["s", "d"], comment="#")) == [0, 2, 11]
    konect = "% bip weighted\n% 2 3\n1 2  1 99\n3\t4 5 100 \n"
    given: dict[str, Any] = {"header": False, "names": ["s", "d", "w", "t"], "weight": "w", "time": "t"}
    store = edges(tmp_path / "out.konect", konect, comment="%", delimiter="whitespace", **given)
    assert (keys(store), store["edge_weight"].tolist(), store["time"].tolist()) == ([1, 2, 3, 4], [1, 5], [99, 100])
    store = edges(tmp_path / "b.edgelist", "a  b\nb  c\n", header=False, names=["s", "d"], delimiter=" ")
    assert keys(store) == ["a", "b", "c"]
    triples = "a\tknows\tb\nb\tlikes\tc\n"
    store = edges(tmp_path / "t.tsv", triples, header=False, names=["s", "r", "d"], tensors={"r": "r"})
    assert store.num_edges == 2 and store.categories("r") == ["knows", "likes"]
    named = edges(tmp_path / "n.csv", "head,tail\n1,2\n", header=True, names=["s", "d"])
    assert keys(named) == [1, 2]
    assert keys(edges(tmp_path / "q.csv", "s,d\n'a,b',\"c\n", quote="'")) == ['"c', "a,b"]
    assert keys(edges(tmp_path / "q.csv", 's,d\n"a,b"\n', quote=None)) == ['"a', 'b"']
    assert keys(edges(tmp_path / "q.csv", "s,d\na\\,b,c\n", escape="\\")) == ["a,b", "c"]
    assert keys(edges(tmp_path / "l.csv", "s,d\n1,\u00e9\n".encode("utf-16"), encoding="utf-16")) == ["1", "\u00e9"]
    assert keys(edges(tmp_path / "l.csv.gz", gzip.compress(b"s,d\n1,2\n"))) == [1, 2]


def test_numbers_dates_and_categories(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    text = "s;d;w;t;c;b;f\n1;2;1,5;31/03/2020;007;true;0,25\n1;3;;01/04/2020;7;false;-1e-3\n"
    store = edges(
        path,
        text,
        weight="w",
        time="t",
        tensors={"c": "c", "b": "b", "f": "f"},
        decimal=",",
        date_format="%d/%m/%Y",
        nulls={"w": -1},
    )
    assert store["edge_weight"].tolist() == [1.5, -1] and store["f"].tolist() == pytest.approx([0.25, -0.001])
    assert store["time"].tolist() == [1585612800000000, 1585699200000000]
    assert store.categories("c") == ["007", "7"] and store["b"].tolist() == [True, False]
    points = edges(path, "s,d,f\n1,2,.5\n1,3,5.\n1,4,+1.5\n", tensors={"f": "f"})
    assert points["f"].tolist() == [0.5, 5, 1.5]
    zoned = "s,d,t\n1,2,2020-03-31T01:00:00+01:00\n1,3,2020-03-31 00:00:00Z\n"
    assert edges(path, zoned, time="t")["time"].tolist() == [1585612800000000] * 2
    mixed = "s,d,t\n1,2,2020-03-31\n1,3,2020-03-31 00:00:01\n"
    assert edges(path, mixed, time="t")["time"].tolist() == [1585612800000000, 1585612801000000]
    nulls = "s,d,w,c\nNA,b,NA,x\na,b,1,NA\n"
    store = edges(path, nulls, weight="w", tensors={"c": "c"}, null="NA", nulls={"w": 9, "c": "none"})
    assert keys(store) == ["NA", "a", "b"] and store["edge_weight"].tolist() == [9, 1]
    assert store.categories("c") == ["none", "x"]
    with pytest.raises(Error, match=r"column 's', row 0 of .*, line 2 \(s None, d 'b'\): null, expected the key"):
        edges(path, nulls, null={"s": "NA"})


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("s,d\n1,2\n1,2,3\n", {}, r"e\.csv, line 3: 3 fields, expected 2 as in its first row: \['1', '2', '3'\]"),
        ("s,d\n" + "1,2\n" * 30000 + "3\n", {}, r"e\.csv, line 30002: 1 field, expected 2"),
        ('s,d\n"\n",2\n#1\n', {}, r"line 4: 1 field, .*\(comment='#' leaves such lines out\)"),
        ("a\tb\n", {}, r"no column 's', it has \['a', 'b'\] in its first row \(if that is data, pass header=False"),
        ("# a comment\n1\t2\n", {}, r"no column 's', it has .*if it is a comment, pass comment='#'\)"),
        ("s d\n1 2\n", {}, r"no column 's', it has \['s d'\].*if spaces separate its fields, pass delimiter=' '\)"),
        ("# a\n1\t2\n", {"header": False, "names": ["s", "d"]}, r"line 1: 1 field, but .*\(comment='#' leaves such"),
        (gzip.compress(b"s,d\n1,2\n"), {}, r"no column 's', it has .*, but it begins as gzip: name it \*\.gz"),
        (b"PAR1\x15\x04", {}, r"no column 's', it has .*, but it begins as Parquet: format='parquet' reads it"),
        ("PAR1,d\n1,2\n", {}, r"no column 's', it has \['PAR1', 'd'\] in its first row"),
        ("s,dd\n1,2\n", {}, r"no column 'd', it has \['s', 'dd'\]; did you mean 'dd'\?"),
        ("s,d,s\n1,2,3\n", {}, "edges has 2 columns 's', expected one"),
        ("1,2\n", {"names": ["s", "d"]}, "names= needs header=: header=False where the first row is data"),
        ("1,2\n", {"header": False}, "header=False needs names="),
        ("1,2,3\n", {"header": False, "names": ["s", "d"]}, r"line 1: 3 fields, but names= has 2: \['1', '2', '3'\]"),
        ("1;2,3\n", {"header": False, "names": ["s", "d"]}, "',' or ';' may separate its fields, .* delimiter="),
        ("s,d,w\n1,2,NA\n", {"weight": "w"}, r"column 'w', line 2 of .*e\.csv: 'NA', expected a number \(null='NA'"),
        ("s,d,w\n1,2,0x10\n", {"weight": "w"}, "line 2 of .*'0x10', expected a number"),
        ("s,d,w\n1,2,1\n1,3,inf\n", {"weight": "w"}, r"line 3 of .*'inf', expected a number \(types="),
        ("s,d,w\n1,2,1,5\n".replace("1,5", '"1,5"'), {"weight": "w"}, r"'1,5', .*decimal=',' .* as 1\.5\)"),
        ('s,d,w\n1,2,"1,000.5"\n', {"weight": "w"}, "'1,000.5', expected a number without marks between thousands"),
        ("s;d;w\n1;2;1.000,5\n", {"weight": "w", "decimal": ","}, "'1.000,5', .* without marks between thousands"),
        ("s;d;w\n1;2;0.5\n", {"weight": "w", "decimal": ","}, r"'0\.5', .*takes no point before the fraction"),
        ("s,d,w\n1,2,true\n1,3,1\n", {"weight": "w"}, "line 3 of .*'1', .*or all values true or false, written in one"),
        ("s;d;w\n1;2;3\n1;3;0,5\n", {"tensors": {"w": "w"}}, "line 3 of .*'0,5' may be a number or text: decimal=','"),
        ("s,d,w\n1,2,1.5\n1,3,1e400\n", {"tensors": {"w": "w"}}, "line 3 of .*'1e400' is too large for a number"),
        ("s,d,w\n1,2,1\n1,3,nan\n", {"tensors": {"w": "w"}}, "line 3 of .*'nan' among numbers: null= of the Table"),
        ("s,d,w\n1,2,1\n1,3,1e3\n", {"tensors": {"w": "w"}}, r"line 3 of .*'1e3' may be a number or text: types="),
        ("s,d,t\n1,2,03/04/2020\n", {"time": "t"}, "line 2 of .*'03/04/2020', expected whole numbers or dates.*date_f"),
        ("s,d,t\n1,2,2020-02-30\n", {"time": "t"}, "line 2 of .*'2020-02-30', expected whole numbers or dates"),
        (
            "s,d,t\n1,2,3/4/20\n1,2,x\n",
            {"time": "t", "date_format": "%d/%m/%y"},
            "column 't', row 1 .*, line 3 .*: 'x' does not convert exactly: date_format= of the Table is '%d/%m/%y'",
        ),
        (
            "s,d\n1.5,2\n",
            {"types": {"s": "BIGINT"}},
            "row 0 .*, line 2 .*: '1.5' does not convert exactly: types= .*BIGINT",
        ),
        ("s,d\n1,2\n", {"types": {"s": "BIGNT"}}, "types= of the column 's' is 'BIGNT', which DuckDB does not have"),
        ('[{"s": 1}]', {}, "no column 's'.*is it JSON"),
        (
            "s,d\n1,\u00e9\n".encode("latin-1"),
            {},
            r"e\.csv, line 2: not utf-8: .*encoding= if it is in another, such as latin-1",
        ),
        ("s,d\n1,2\n".encode("utf-16"), {}, "encoding='utf-16' reads it"),
        ("s,d\n1,\u00e9\n", {"encoding": "ascii"}, "line 1 or later: not ascii"),
        ("s,d\n1,2\n", {"encoding": "klingon"}, "encoding='klingon' is not known"),
        ("s,d\n1,2\n", {"encoding": "rot13"}, "encoding='rot13' is not known"),
        ("s,d\n1,2\n", {"encoding": "base64"}, "encoding='base64' is not known"),
        ("s,d,w\n1,2, 1\n", {"weight": "w"}, "line 2 of .*' 1', expected a number without spaces around it"),
        ("s,d,w\n1,2,1.5\n1,3,-inf\n", {"tensors": {"w": "w"}}, "line 3 of .*'-inf' among numbers: .* as NaN or inf"),
        ("s,d,w\n1,2,1\n1,3,+1\n", {"tensors": {"w": "w"}}, r"line 3 of .*'\+1' may be a number or text: types="),
        ("x" * (17 << 20), {}, "e.csv, line 1: a row of more than 16 MiB, which memory= does not hold"),
        ("\n\n", {}, "is empty, expected the names of columns"),
        ("s,d\n1,2\n", {"delimiter": "whitspace"}, "got 'whitspace'; did you mean 'whitespace'"),
        ("s,d\n1,2\n", {"delimiter": ",,"}, "delimiter must be one ASCII character or 'whitespace', got ',,'"),
        ("s,d\n1,2\n", {"delimiter": '"'}, "delimiter and quote are both"),
        ("s,d\n1,2\n", {"comment": ""}, "comment must be the beginning of a line"),
        ("s,d\n1,2\n", {"decimal": "'"}, "decimal must be one of"),
        ("s,d\n1,2\n", {"null": {"x": "NA"}}, "null names the column 'x', which is not used"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, text: str | bytes, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Error, match=said):
        edges(tmp_path / "e.csv", text, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_files_that_are_no_tables_of_text(tmp_path: Path) -> None:
    for name, said in (
        ("a.mtx", "is a graph, not a table: freshgo.convert"),
        ("a.foo", "does not say its format: .*format="),
    ):
        with pytest.raises(Error, match=said):
            edges(tmp_path / name, "s,d\n1,2\n")
    for name, data in (
        ("e.csv.gz", gzip.compress(b"s,d\n1,2\n")[:-5]),
        *((f"e.csv.{packed}", b"s,d\n1,2\n") for packed in ("gz", "bz2", "xz", "zst")),
    ):
        with pytest.raises(Error, match=rf"{name}: not a whole compressed file"):
            edges(tmp_path / name, data)
    (tmp_path / "none").mkdir()
    with pytest.raises(errors.StoreNotFoundError, match="none: no table in this directory; it is the source of edges"):
        convert_tables(None, Table(tmp_path / "none", src="s", dst="d"), tmp_path / "g", missing="add", **SMALL)


def test_empty_files_without_a_header_have_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").write_text("\n")
    nodes = Table({"id": [1, 2]}, id="id")
    for name in ("a.csv", "b.csv"):
        table = Table(tmp_path / name, src="s", dst="d", header=False, names=["s", "d"])
        assert convert_tables(nodes, table, tmp_path / name[0], **SMALL).num_edges == 0


def test_rows_of_text_do_not_stay_in_memory(tmp_path: Path) -> None:
    """Five pieces, whose numbers have 16 MiB each."""
    (tmp_path / "e.csv").write_bytes(b"s,d\n" + b"1,2\n" * (5 << 20))
    before, seen = pa.total_allocated_bytes(), []

    def report(stage: str, done: int, total: int) -> None:
        seen.append((stage.partition(" ")[0], pa.total_allocated_bytes() - before))

    edges, options = Table(tmp_path / "e.csv", src="s", dst="d"), {**SMALL, "progress": report}
    convert_tables(None, edges, tmp_path / "g", missing="add", **options)
    assert 0 < max(held for stage, held in seen if stage == "reading") <= 48 << 20


def test_a_comma_may_be_text(tmp_path: Path) -> None:
    text = "s;d;c\n1;2;3\n1;3;1,2\n1;4;a\n"
    assert edges(tmp_path / "e.csv", text, tensors={"c": "c"}).categories("c") == ["1,2", "3", "a"]
    text = text.removesuffix("1;4;a\n")
    store = edges(tmp_path / "e.csv", text, tensors={"c": "c"}, types={"c": "VARCHAR"})
    assert store.categories("c") == ["1,2", "3"]
    assert edges(tmp_path / "e.csv", text, tensors={"c": "c"}, decimal=",")["c"].tolist() == pytest.approx([3, 1.2])


@pytest.mark.parametrize(
    ("values", "kind", "bad"),
    [
        ([1.5, 2.5, 4.0], "BIGINT", 1.5),
        ([2.0, 4.0], "BIGINT", None),
        ([2**53 + 1, 1], "DOUBLE", 2**53 + 1),
        ([0.5, 0.1], "FLOAT", 0.1),
        ([300, 1], "TINYINT", 300),
        (["1", "0x10"], "BIGINT", "0x10"),
        (["1", "1.50"], "DECIMAL(4,1)", None),
        (["1", "1.25"], "DECIMAL(4,1)", "1.25"),
        (["1", "16777217"], "FLOAT", "16777217"),
        (["1", "16777217.0"], "FLOAT", "16777217.0"),
        (["1", "1e39"], "FLOAT", "1e39"),
        (["1", "1e400"], "DOUBLE", "1e400"),
        (["1", "1e3"], "DOUBLE", None),
        (["1", "inf"], "DOUBLE", None),
        (["1", "1.25"], "DEC(4,1)", "1.25"),
        (["1", " 2"], "INT64", " 2"),
        (["2020-01-01", "2020-01-01 10:00:00.5"], "TIMESTAMP_S", "2020-01-01 10:00:00.5"),
        (["2020-01-01", "2020-01-01 10:00:00.1230"], "TIMESTAMP_MS", None),
        (["2020-01-01", "2020-01-01 10:00:00.1234567"], "TIMESTAMP_US", "2020-01-01 10:00:00.1234567"),
        (["2020-01-01", "01/02/2020"], "TIMESTAMP_US", "01/02/2020"),
        (["2020-01-01", "01/02/2020"], "DATE", "01/02/2020"),
    ],
)
def test_types_never_round(tmp_path: Path, values: list[Any], kind: str, bad: Any) -> None:
    nodes = Table(pa.table({"id": range(len(values)), "v": values}), id="id", time="v", types={"v": kind})
    if kind not in ("DATE", "BIGINT", "INT64") and "TIME" not in kind:
        nodes = Table(nodes.source, id="id", features="v", types={"v": kind})
    ends = Table(pa.table({"s": [0], "d": [1]}), src="s", dst="d")
    if bad is None:
        assert convert_tables(nodes, ends, tmp_path / "g", **SMALL).num_nodes == len(values)
        return
    row = values.index(bad)
    with pytest.raises(Error, match=rf"nodes, column 'v', row {row} \(id {row}\): .*does not convert exactly: types="):
        convert_tables(nodes, ends, tmp_path / "g", **SMALL)
