"""What is wrong with tables is said with table, file, column, row and key, and nothing is left at the target."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from pyarrow import parquet  # noqa: E402

from freshgo import Store, Table, convert_tables, errors  # noqa: E402
from freshgo.cli import main  # noqa: E402

SMALL: dict[str, Any] = {"memory": "128MiB", "progress": False}
Error = errors.InvalidArgumentError


def converted(nodes: Any, edges: Any, path: Path, **options: Any) -> Store:
    return convert_tables(nodes, edges, path, **{**SMALL, **options})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def in_files(folder: Path, *parts: dict[str, Any]) -> str:
    folder.mkdir()
    for number, columns in enumerate(parts):
        parquet.write_table(pa.table(columns), folder / f"p{number}.parquet")
    return str(folder / "*.parquet")


NODES = {"id": ["a", "b"], "v": [1.0, 2.0]}, {"id": ["c", "d"], "v": [3.0, 4.0]}
EDGES = {"s": ["a", "b"], "d": ["c", "d"], "w": [1.0, 2.0]}, {"s": ["d"], "d": ["a"], "w": [0.5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("n", 1, "id", ["c", "a"]),
            r"nodes, column 'id', row 0 of .*p0\.parquet \(id 'a'\): the key 'a' occurs 2 times",
        ),
        (
            ("n", 1, "id", ["c", None]),
            r"nodes, column 'id', row 1 of .*p1\.parquet \(id None\): null, expected the key",
        ),
        (("n", 1, "v", [None, 1.0]), r"nodes, column 'v', row 0 of .*p1\.parquet \(id 'c'\): null, expected a value"),
        (("n", 0, "v", [1.0, 1e300]), r"nodes, column 'v', row 1 of .*p0\.parquet \(id 'b'\): .*too large for float32"),
        (
            ("e", 0, "s", ["a", "x"]),
            r"edges, column 's', row 1 of .*p0\.parquet \(s 'x', d 'd'\): no node has this key",
        ),
        (("e", 1, "d", ["x"]), r"edges, column 'd', row 0 of .*p1\.parquet \(s 'd', d 'x'\): no node has this key"),
        (("e", 1, "d", [None]), r"edges, column 'd', row 0 of .*p1\.parquet \(s 'd', d None\): null, expected the key"),
        (("e", 1, "w", [None]), r"edges, column 'w', row 0 of .*p1\.parquet \(s 'd', d 'a'\): null, expected a value"),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, change: tuple[str, int, str, Any], message: str) -> None:
    which, part, column, values = change
    parts: dict[str, Any] = {"n": [dict(p) for p in NODES], "e": [dict(p) for p in EDGES]}
    parts[which][part][column] = pa.array(values, pa.string() if isinstance(parts[which][0][column][0], str) else None)
    if isinstance(values[0], type(None)) and column == "w":
        parts[which][part][column] = pa.array(values, pa.float64())
    nodes = Table(in_files(tmp_path / "n", *parts["n"]), id="id", features="v")
    edges = Table(in_files(tmp_path / "e", *parts["e"]), src="s", dst="d", weight="w")
    with pytest.raises(Error, match=message):
        converted(nodes, edges, tmp_path / "g")
    assert names(tmp_path) == ["e", "n"]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            [[1.0], [2.0], [3.0, 4.0]],
            r"column 'v', row 2 \(id 3\): a list of length 2, expected 1 as in other rows",
        ),
        ([[1.0], None, [2.0]], r"column 'v', row 1 \(id 2\): null, expected a list"),
        ([[1.0], [None], [2.0]], r"column 'v', row 1 \(id 2\): a null in the list"),
        (pa.array([[], [], []], pa.list_(pa.float32())), r"column 'v', row 0 \(id 1\): an empty list"),
        ([[1.0], [2.0], [-1e39]], r"column 'v', row 2 \(id 3\): -1e\+39 is too large for float32"),
        ([["a"], ["b"], ["c"]], r"column 'v' holds VARCHAR\[\], expected numbers, or lists of numbers"),
        ([{"q": 1}] * 3, r"column 'v' holds STRUCT"),
        ([datetime.date(2020, 1, 1)] * 3, r"column 'v' holds DATE, expected numbers.*time= takes it"),
        (["x", "y", "z"], r"column 'v' holds VARCHAR, expected numbers.*tensors= stores strings"),
    ],
)
def test_columns_that_are_no_features(tmp_path: Path, lists: Any, message: str) -> None:
    nodes = Table(pa.table({"id": [1, 2, 3], "v": lists}), id="id", features="v")
    edges = Table(pa.table({"s": [1], "d": [2]}), src="s", dst="d")
    with pytest.raises((Error, errors.DTypeError), match=message):
        converted(nodes, edges, tmp_path / "g")
    assert not names(tmp_path)


def test_keys_that_cannot_be(tmp_path: Path) -> None:
    edges = Table(pa.table({"s": [1], "d": [2]}), src="s", dst="d")
    for keys, holds in (([1.0, 2.0], "DOUBLE"), ([True, False], "BOOLEAN"), ([datetime.date(2020, 1, 1)] * 2, "DATE")):
        with pytest.raises(errors.DTypeError, match=f"nodes, column 'id', holds {holds}, expected integers, strings"):
            converted(Table(pa.table({"id": keys}), id="id"), edges, tmp_path / "g")
    with pytest.raises(errors.DTypeError, match=r"'id', holds BIGINT\[\], expected .* as keys, one in each row$"):
        converted(Table({"id": [[1], [2]]}, id="id"), edges, tmp_path / "g")
    text = Table(pa.table({"id": ["1", "2", "01"]}), id="id")
    assert converted(text, edges, tmp_path / "t").ids().keys([0, 1, 2]) == ["01", "1", "2"]
    converted(Table(pa.table({"id": ["1", "2"]}), id="id", types={"id": "BIGINT"}), edges, tmp_path / "g")


def test_an_error_of_the_library_names_no_file_that_is_gone(tmp_path: Path) -> None:
    edges = Table({"s": [1, 2], "d": [2, 1], "w": [-1.0, 2.0]}, src="s", dst="d", weight="w")
    options: dict[str, Any] = {"missing": "add", "memory": "128MiB", "progress": False}
    with pytest.raises(Error, match=r"^edge_weight\[1\] is -1, expected a finite weight"):
        convert_tables(None, edges, tmp_path / "g", weight_attr="edge_weight", **options)
    for path in (None, 5):
        with pytest.raises(errors.DTypeError, match=r"the path of a store must be a string or an os\.PathLike, got"):
            convert_tables(None, edges, path, **options)  # type: ignore[arg-type]
    assert not names(tmp_path)


def test_what_a_table_lacks(tmp_path: Path) -> None:
    rows = pa.table({"uid": [1, 2], "age": [1, 2]})
    edges = Table(pa.table({"s": [1], "d": [2]}), src="s", dst="d")
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: Table(rows), Error, "nodes needs id="),
        (lambda: Table(rows, id="uld"), Error, "nodes has no column 'uld', it has .*did you mean 'uid'"),
        (lambda: Table(rows, id="uid", types="BIGINT"), errors.DTypeError, "types must be a mapping from columns to"),
        (lambda: Table(rows, id="uid", reverse="yes"), errors.DTypeError, "^nodes: reverse must be True or False"),
        (lambda: Table(rows, id="uid", features="aged"), Error, "no column 'aged'"),
        (lambda: Table(rows, id="uid", weight="age"), Error, "weight= is not for it"),
        (lambda: Table(rows, id="uid", reverse=True), Error, "reverse= is for edges"),
        (lambda: Table(rows, id="uid", tensors={"n_id": "age"}), Error, "the name 'n_id' in tensors is reserved"),
        (lambda: Table(rows, id="uid", nulls="zero"), Error, "nulls must be 'error', a number"),
        (lambda: Table(rows, id="uid", features="age", nulls={"age": "x"}), errors.DTypeError, "expected a number"),
        (lambda: Table(rows, id="uid", tensors={"age": "age"}, nulls=0.5), Error, "expected a whole number"),
        (lambda: Table(rows, id="uid", split="age"), errors.DTypeError, "split"),
        (lambda: Table(3, id="uid"), errors.DTypeError, "source must be a path"),
        (
            lambda: Table(tmp_path / "none.parquet", id="uid"),
            errors.StoreNotFoundError,
            "none.parquet: no such file or directory",
        ),
        (lambda: {"uid": [1]}, errors.DTypeError, "must be a"),
    ]
    for make, kind, message in cases:
        with pytest.raises(kind, match=message):
            converted(make(), edges, tmp_path / "g")
        assert not names(tmp_path)
    with pytest.raises(errors.BudgetError, match=r"at least 128 MiB"):
        converted(Table(rows, id="uid"), edges, tmp_path / "g", memory="1MiB")
    with pytest.raises(errors.StoreNotFoundError, match="create it first"):
        converted(Table(rows, id="uid"), edges, tmp_path / "none" / "g")
    converted(Table(rows, id="uid"), edges, tmp_path / "g")
    with pytest.raises(errors.StoreExistsError, match="overwrite"):
        converted(Table(rows, id="uid"), edges, tmp_path / "g")
    converted(Table(rows, id="uid"), edges, tmp_path / "g", overwrite=True)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").write_bytes(b"PAR1 and nothing else")
    edges = Table(pa.table({"s": [1], "d": [2]}), src="s", dst="d")
    with pytest.raises(errors.FreshgoError, match=r"nodes: .*d\.parquet"):
        converted(Table(tmp_path / "d.parquet", id="id"), edges, tmp_path / "g")
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(Error, match="all files are empty"):
        converted(Table(tmp_path / "e.csv", id="id"), edges, tmp_path / "g")
    (tmp_path / "b.jsonl").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises(errors.FreshgoError, match=r"nodes: .*b\.jsonl"):
        converted(Table(tmp_path / "b.jsonl", id="id"), edges, tmp_path / "g")
    assert names(tmp_path) == ["b.jsonl", "d.parquet", "e.csv"]


def test_what_is_taken_for_keys(tmp_path: Path) -> None:
    edges = Table(pa.table({"s": [1], "d": [2]}), src="s", dst="d")
    numbers = converted(Table(pa.table({"id": [1, 2]}), id="id"), edges, tmp_path / "g").ids()
    edges = Table(pa.table({"s": ["a"], "d": ["b"]}), src="s", dst="d")
    texts = converted(Table(pa.table({"id": ["a", "b"]}), id="id"), edges, tmp_path / "h").ids()
    assert numbers.lookup(list(numbers.keys([1, 0]))).tolist() == [1, 0]
    for ids in (numbers, texts):
        for keys in (2, np.array(2), torch.tensor(2), "ab", b"ab", None):
            with pytest.raises(errors.DTypeError, match="keys must be a list or an array of keys, got"):
                ids.lookup(keys)
    with pytest.raises(Error, match=r"keys\[1\] is '\\ud800', expected text that UTF-8 can hold"):
        texts.lookup(["a", "\ud800"])


def test_ids_and_categories_that_a_store_does_not_have(tmp_path: Path) -> None:
    edges = Table(pa.table({"s": [1], "d": [2]}), src="s", dst="d")
    store = converted(Table(pa.table({"id": [1, 2]}), id="id"), edges, tmp_path / "g")
    with pytest.raises(Error, match=r"keys\[1\] is 7, which no node has"):
        store.ids().lookup([1, 7])
    assert store.ids().lookup([2, 7, 1], missing=-1).tolist() == [1, -1, 0]
    with pytest.raises(errors.DTypeError, match="expected an integer"):
        store.ids().lookup(["1"])
    with pytest.raises(Error, match=r"ids\[0\] is 2, expected an id in \[0, 2\)"):
        store.ids().keys([2])
    with pytest.raises(Error, match="no column of strings 'color'"):
        store.categories("color")
    with pytest.raises(Error, match="homogeneous"):
        store.ids("user")


def test_a_killed_and_an_interrupted_conversion_leave_nothing_that_counts(tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import numpy as np, pyarrow as pa, freshgo
        ids = np.arange(300_000)[::-1].copy()
        nodes = pa.table({{"id": ids, "v": pa.FixedSizeListArray.from_arrays(np.zeros(16 * len(ids), np.float32), 16)}})
        edges = pa.table({{"s": ids, "d": ids}})
        print("begun", flush=True)
        def report(stage, done, total):
            print(stage, flush=True)
        freshgo.convert_tables(freshgo.Table(nodes, id="id", features="v"), freshgo.Table(edges, src="s", dst="d"),
                               {str(tmp_path / "g")!r}, memory="256MiB", progress=report, overwrite=True)
        print("ended", flush=True)
        """
    )
    for number, moment in ((signal.SIGINT, "reading nodes"), (signal.SIGKILL, "reading nodes")):
        child = warm.start(code)
        for line in child.stdout:
            if line.startswith(moment):
                os.kill(child.pid, number)
                break
        out, err = child.communicate()
        assert "ended" not in out, err
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in err and not names(tmp_path)
        else:
            assert names(tmp_path) == ["g.tables"]
    assert warm.run(code).endswith("ended\n")
    assert names(tmp_path) == ["g"]


def test_the_command_reads_a_description(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users, items = pa.table({"u": ["b", "a"], "v": [2.0, 1.0]}), pa.table({"i": [7, 5]})
    bought = pa.table({"u": ["a", "b"], "i": [5, 7]})
    for name, table in (("u", users), ("i", items), ("b", bought)):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    toml = """
        [nodes.user]
        source = "u.parquet"
        id = "u"
        features = ["v"]
        [nodes.item]
        source = ["i.parquet"]
        id = "i"
        [edges.user__buys__item]
        source = "b.parquet"
        src = "u"
        dst = "i"
        reverse = true
    """
    alone = {"edges": {"source": "b.parquet", "src": "i", "dst": "i"}, "missing": "add"}
    (tmp_path / "s.json").write_text(json.dumps(alone))
    assert main(["convert", "--tables", str(tmp_path / "s.json"), str(tmp_path / "h"), "--memory", "128MiB"]) == 0
    assert Store(tmp_path / "h").num_nodes == 2
    if sys.version_info >= (3, 11):
        (tmp_path / "s.toml").write_text(textwrap.dedent(toml))
        assert main(["convert", "--tables", str(tmp_path / "s.toml"), str(tmp_path / "g"), "--memory", "128MiB"]) == 0
        store = Store(tmp_path / "g")
        assert store.edge_types == [("user", "buys", "item"), ("item", "rev_buys", "user")]
        assert store["user"]["x"].tolist() == [[1.0], [2.0]]
    capsys.readouterr()
    for content, message in (
        ("{", "expected JSON"),
        ("[]", "expected nodes, edges"),
        ('{"edges": {"user": {}}}', "has the type 'user'"),
        ('{"edges": {"source": "b", "srk": "u"}}', "edges: unknown key 'srk'; did you mean 'src'?"),
        ('{"edges": {"source": "b", "lable": "u"}}', "edges: unknown key 'lable'; did you mean 'label'?"),
        ('{"edges": {"source": [3]}}', "must be a path"),
    ):
        (tmp_path / "bad.json").write_text(content)
        assert main(["convert", "--tables", str(tmp_path / "bad.json"), str(tmp_path / "x")]) == 1
        assert message in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "x")]) == 2
    assert "expected SOURCE STORE, --edges" in capsys.readouterr().err
    assert main(["convert", "--tables", str(tmp_path / "none.json"), str(tmp_path / "x")]) == 1
