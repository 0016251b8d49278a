"""Edges whose ends are no nodes, and tables whose column names the relation of each edge: as the tables would convert
that a few lines of Python make of them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed as seed_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from pyarrow import csv, parquet  # noqa: E402
from tables import checksums  # noqa: E402

from freshgo import Store, Table, cli, convert_tables, errors, update  # noqa: E402

SMALL: dict[str, Any] = {"memory": "128MiB", "progress": False}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(seed_of(0))


def keys_of(kind: str) -> list[Any]:
    """Keys of 40 nodes, and of as many that are none."""
    numbers = {"successive": range(80), "sparse": range(0, 800, 10), "text": [f"k{i}" for i in range(80)]}[kind]
    return list(numbers)


def edges_of(kind: str, rng: np.random.Generator, width: int, count: int = 600) -> dict[str, list[Any]]:
    """Edges of which a third has an end that is no node or null; these have values that would be errors."""
    keys = keys_of(kind)
    columns: dict[str, list[Any]] = {"s": [], "d": [], "w": [], "c": [], "v": []}
    for _ in range(count):
        ends = [keys[i] for i in rng.integers(40, size=2)]
        lost = rng.random() < 0.3
        if lost:
            ends[rng.integers(2)] = None if rng.random() < 0.4 else keys[rng.integers(40, 80)]
        row = [*ends, float(rng.integers(1000)), "lost" if lost else str(rng.choice(["a", "b"]))]
        row[2] = None if lost else row[2]
        row.append([0.0] if lost else rng.random(width).astype(np.float32).tolist())
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def kept(columns: dict[str, list[Any]], keys: list[Any]) -> dict[str, list[Any]]:
    """The rows of a table whose ends are both among keys."""
    rows = [i for i, ends in enumerate(zip(columns["s"], columns["d"], strict=True)) if set(ends) <= set(keys)]
    return {name: [column[i] for i in rows] for name, column in columns.items()}


@pytest.mark.parametrize(
    ("kind", "graph", "width"),
    [
        *(("successive", "homogeneous", 2), ("sparse", "reverse", 2), ("text", "types", 2)),
        *(("text", "homogeneous", 9), ("successive", "reverse", 9), ("sparse", "types", 9)),
    ],
)
def test_edges_are_dropped_with_all_that_they_have(
    tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture, kind: str, graph: str, width: int
) -> None:
    keys = keys_of(kind)[:40]
    nodes = Table(pa.table({"id": keys, "x": [float(i) for i in range(40)]}), id="id", tensors={"x": "x"})
    columns = edges_of(kind, rng, width)
    good = kept(columns, keys)
    parquet.write_table(pa.table(columns), tmp_path / "e.parquet", row_group_size=50)
    given: dict[str, Any] = {"src": "s", "dst": "d", "weight": "w", "tensors": {"c": "c", "v": "v"}}
    given["reverse"] = graph == "reverse"
    of = ("a", "to", "a")
    stores = []
    for name, source in (("got", tmp_path / "e.parquet"), ("want", pa.table(good))):
        edges = Table(source, **given)
        typed: Any = ({"a": nodes}, {of: edges}) if graph == "types" else (nodes, edges)
        with caplog.at_level(logging.INFO, "freshgo"):
            rule = "drop" if name == "got" else "error"
            stores.append(convert_tables(*typed, tmp_path / name, missing=rule, **SMALL))
    got, want = stores
    assert checksums(got) == checksums(want)
    assert got.categories("c", of if graph == "types" else "") == ["a", "b"]
    ends = list(zip(columns["s"], columns["d"], strict=True))
    lost, nulls = len(ends) - len(good["s"]), sum(None in pair for pair in ends)
    label = f"edges[{of!r}]" if graph == "types" else "edges"
    said = f"{label}: dropped {lost} of 600 edges ({nulls} with a null end, {lost - nulls} with an end that is no node)"
    assert [version.details for version in got.history] == [said]
    assert [version.details for version in want.history] == [""]
    assert [record.getMessage() for record in caplog.records].count(said) == 1
    with update(
        got,
        tmp_path / "next",
        tensors={"z": np.zeros(40)} if graph != "types" else {"a": {"z": np.zeros(40)}},
        progress=False,
    ) as later:
        assert later.history[0].details == said


def test_what_cannot_be_a_key_is_dropped_too(tmp_path: Path) -> None:
    """Ends outside the range of the keys of nodes; a table without such ends says that nothing was dropped."""
    nodes = Table(pa.table({"id": pa.array([-5, 7])}), id="id")
    large = pa.array([7, 2**63 + 1, 7], pa.uint64())
    edges = Table(pa.table({"s": large, "d": pa.array([-5, -5, 7])}), src="s", dst="d")
    with convert_tables(nodes, edges, tmp_path / "g", missing="drop", relayout="community", **SMALL) as store:
        assert store.num_edges == 2
        assert [version.details for version in store.history] == [
            "edges: dropped 1 of 3 edges (0 with a null end, 1 with an end that is no node)"
        ]
    with convert_tables(
        nodes, Table(pa.table({"s": [7], "d": [-5]}), src="s", dst="d"), tmp_path / "h", missing="drop", **SMALL
    ) as store:
        assert [version.details for version in store.history] == ["edges: dropped 0 of 1 edges"]
    none = Table(pa.table({"s": [1, None], "d": [1, 7], "v": [[1.0, 2.0], None]}), src="s", dst="d", tensors={"v": "v"})
    with convert_tables(nodes, none, tmp_path / "i", missing="drop", **SMALL) as store:
        assert store.num_edges == 0


def test_drop_in_a_description(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.csv").write_text("id\na\nb\n")
    (tmp_path / "e.csv").write_text("s,d,kind\na,b,x\n,b,x\nb,zz,y\nb,a,y\n")
    spec = {
        "missing": "drop",
        "nodes": {"thing": {"source": "n.csv", "id": "id"}},
        "edges": {"source": "e.csv", "src": "s", "dst": "d", "relation": "kind"},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    toml = 'missing = "drop"\n[nodes.thing]\nsource = "n.csv"\nid = "id"\n'
    toml += '[edges."thing__*__thing"]\nsource = "e.csv"\nsrc = "s"\ndst = "d"\nrelation = "kind"\n'
    (tmp_path / "spec.toml").write_text(toml)
    for form in ("json", "toml"):
        assert cli.main(["convert", "--tables", str(tmp_path / f"spec.{form}"), str(tmp_path / form)]) == 0
        with Store.open(tmp_path / form) as store:
            assert store.edge_types == [("thing", "x", "thing"), ("thing", "y", "thing")]
            assert [store[of].num_edges for of in store.edge_types] == [1, 1]
            assert "dropped 2 of 4 edges (1 with a null end, 1 with an end that is no node)" in store.history[0].details


def test_errors_say_all_that_missing_needs(tmp_path: Path) -> None:
    nodes = Table(
        pa.table({"id": [1, 9], "v": [0.5, 1.5], "c": ["a", "b"], "n": [1, 2]}),
        id="id",
        features=["v", "n"],
        tensors={"c": "c"},
        nulls={"n": 0},
    )
    edges = Table(pa.table({"s": [1, 4, 9], "d": [9, 1, None]}), src="s", dst="d")
    needs = r"nulls=\{'n': 0, 'v': \.\.\., 'c': \.\.\.\}"
    with pytest.raises(
        errors.InvalidArgumentError,
        match=rf"edges, column 's', row 1 \(s 4, d 1\): no node has this key \(missing='drop' leaves such edges out, "
        rf"missing='add' adds such nodes, with {needs} in nodes\)",
    ):
        convert_tables(nodes, edges, tmp_path / "g", **SMALL)
    with pytest.raises(
        errors.InvalidArgumentError, match=rf"1 node of edges without a row here, the first is 4: .*{needs}"
    ):
        convert_tables(nodes, edges, tmp_path / "g", missing="add", **SMALL)
    filled = Table(nodes.source, id="id", features=["v", "n"], tensors={"c": "c"}, nulls={"n": 0, "v": 7, "c": "a"})
    with pytest.raises(errors.InvalidArgumentError, match=r"column 'd', row 2 .*: null, .*missing='drop' leaves"):
        convert_tables(filled, edges, tmp_path / "g", missing="add", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match=r"missing must be one of .*'drop'"):
        convert_tables(filled, edges, tmp_path / "g", missing="skip", **SMALL)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="there is no table of nodes"):
        convert_tables(None, edges, tmp_path / "g", missing="drop", **SMALL)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("names", "form", "width"), [("text", "parquet", 9), ("text", "csv", 1), ("integers", "parquet", 1)]
)
def test_a_column_of_relations(tmp_path: Path, rng: np.random.Generator, names: str, form: str, width: int) -> None:
    """One table becomes the relations that as many tables would."""
    known: list[Any] = ["/people/person/nationality", "née", "a b", "zz", "10"] if names == "text" else [10, -3, 9]
    order = sorted(known, key=str.encode) if names == "text" else sorted(known)
    count, keys = 800, [f"n{i}" for i in range(50)]
    columns: dict[str, list[Any]] = {
        "h": [keys[i] for i in rng.integers(50, size=count)],
        "r": [known[i] for i in rng.integers(len(known), size=count)],
        "t": [keys[i] for i in rng.integers(50, size=count)],
        **{f"v{i}": rng.random(count).astype(np.float32).tolist() for i in range(width)},
    }
    table = pa.table(columns)
    path = tmp_path / f"e.{form}"
    parquet.write_table(table, path, row_group_size=100) if form == "parquet" else csv.write_csv(table, path)
    nodes = Table(pa.table({"id": keys}), id="id")
    given: dict[str, Any] = {"src": "h", "dst": "t", "tensors": {"v": [f"v{i}" for i in range(width)]}, "reverse": True}
    got = convert_tables({"e": nodes}, Table(path, relation="r", **given), tmp_path / "got", **SMALL)
    parts = {("e", str(name), "e"): Table(table.filter(pa.compute.equal(table["r"], name)), **given) for name in order}
    want = convert_tables({"e": nodes}, parts, tmp_path / "want", **SMALL)
    assert got.edge_types == want.edge_types and len(got.edge_types) == 2 * len(known)
    assert checksums(got) == checksums(want)


def test_relations_share_their_categories(tmp_path: Path) -> None:
    table = pa.table({"h": [1, 2, 3], "r": ["x", "y", "x"], "t": [2, 3, 3], "how": ["b", "a", "c"]})
    edges = Table(table, src="h", dst="t", relation="r", tensors={"how": "how"})
    with convert_tables(None, edges, tmp_path / "g", missing="add", **SMALL) as store:  # type: ignore[arg-type]
        assert store.node_types == ["entity"] and store.edge_types == [("entity", r, "entity") for r in "xy"]
        assert store.categories("how", ("entity", "y", "entity")) == ["a", "b", "c"]
        with pytest.raises(
            errors.InvalidArgumentError, match=r"of strings 'hwo' of .*, only 'how'; did you mean 'how'"
        ):
            store.categories("hwo", ("entity", "y", "entity"))
        assert store["entity", "y", "entity"]["how"].tolist() == [0]
        assert store["entity", "x", "entity"]["how"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("relations", "wrong"),
    [
        (["a", None], r"column 'r', row 1 \(h 1, t 2\): null, expected the name of a relation"),
        (["", "a"], r"column 'r', row 0 \(h 1, t 1\): '', expected the name of a relation"),
        (["a", "b\nc"], r"column 'r', row 1 \(h 1, t 2\): 'b\\nc', expected the name of a relation: printable"),
        (["a", "rev_a"], r"the edge type \('entity', 'rev_a', 'entity'\) is there twice"),
    ],
)
def test_names_that_no_relation_can_have(tmp_path: Path, relations: list[Any], wrong: str) -> None:
    edges = Table(pa.table({"h": [1, 1], "r": relations, "t": [1, 2]}), src="h", dst="t", relation="r", reverse=True)
    with pytest.raises(errors.InvalidArgumentError, match=wrong):
        convert_tables(None, edges, tmp_path / "g", missing="add", **SMALL)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_wrong_uses_of_relation(tmp_path: Path) -> None:
    table = pa.table({"h": [1, 1], "r": [0.5, 1.0], "t": [1, 2]})
    nodes = Table(pa.table({"id": [1, 2]}), id="id")
    edges = Table(table, src="h", dst="t", relation="r")
    with pytest.raises(errors.DTypeError, match="relation is the column 'r', which holds DOUBLE, expected strings or"):
        convert_tables(nodes, edges, tmp_path / "g", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match=r"give it as edges\[\('a', '\*', 'b'\)\]"):
        convert_tables({"a": nodes, "b": nodes}, {("a", "to", "b"): edges}, tmp_path / "g", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match=r"say between which types it leads"):
        convert_tables({"a": nodes, "b": nodes}, edges, tmp_path / "g", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match="has no column 'kind'"):
        convert_tables(nodes, Table(table, src="h", dst="t", relation="kind"), tmp_path / "g", **SMALL)
    many = pa.table({"h": [1] * 20_000, "t": [1] * 20_000, "r": range(20_000)})
    with pytest.raises(errors.InvalidArgumentError, match="more than 16384 different values"):
        convert_tables(nodes, Table(many, src="h", dst="t", relation="r"), tmp_path / "g", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match="the edge tables name no relation"):
        convert_tables(nodes, Table(many.slice(0, 0), src="h", dst="t", relation="r"), tmp_path / "g", **SMALL)
    assert not list(tmp_path.iterdir())
