"""Tables become the store that their arrays would, whatever they are stored in and in whatever order."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tables import SHOP, checksums, convert_shop, keys_of, shop, shuffled, write  # noqa: E402

from freshgo import Loader, Store, Table, convert, convert_tables, errors  # noqa: E402

SMALL: dict[str, Any] = {"memory": "256MiB", "progress": False}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(seed_of(0))


def check_shop(store: Store, made: dict[str, Any]) -> None:
    """Compare a store with the arrays of its tables, and the keys that it keeps with theirs."""
    for node_type, keys in made["keys"].items():
        ids = store.ids(node_type)
        assert len(ids) == len(keys)
        found = ids.keys(range(len(keys)))
        assert (found if isinstance(found, list) else found.tolist()) == keys
        some = keys[::-3]
        assert ids.lookup(some).tolist() == [keys.index(key) for key in some]
    assert store.categories("color", "item") == made["colors"]
    store.verify()


@pytest.mark.parametrize("kind", ["successive", "sparse", "unsigned", "uuid", "text"])
def test_tables_arrays_and_shuffled_shards_are_equal(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    made = shop(kind, rng)
    arrays = checksums(convert(made["arrays"], tmp_path / "arrays", memory="64MiB", progress=False))
    store = convert_shop(made["tables"], tmp_path / "tables")
    check_shop(store, made)
    tables = checksums(store)
    assert {name: data for name, data in tables.items() if not name.startswith("attached")} == arrays
    mixed = {name: shuffled(table, rng) for name, table in made["tables"].items()}
    folders = {name: write(table, tmp_path / name, "parquet", rng) for name, table in mixed.items()}
    assert checksums(convert_shop(folders, tmp_path / "shards")) == tables
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays", "buys", "item", "shards", "tables", "user"]


@pytest.mark.parametrize(
    "form", ["csv", "jsonl", "arrow", "dataset", "duckdb", "pandas", "polars", "files", "hive", "reader"]
)
def test_every_source_gives_the_same_store(form: str, tmp_path: Path, rng: np.random.Generator) -> None:
    made = shop("text" if form == "csv" else "sparse", rng)
    want = checksums(convert_shop(made["tables"], tmp_path / "want"))
    tables = {name: shuffled(table, rng) for name, table in made["tables"].items()}
    sources: dict[str, Any] = {}
    for name, table in tables.items():
        if form == "csv":
            plain = table.select([c for c in table.column_names if c != "embedding"])
            sources[name] = write(plain if name != "user" else table, tmp_path / name, "parquet", rng)
            if name != "user":
                sources[name] = write(plain, tmp_path / f"{name}.csv", "csv", rng)
        elif form in ("jsonl", "arrow"):
            sources[name] = write(table, tmp_path / name, form, rng)
        elif form == "dataset":
            from pyarrow import dataset

            sources[name] = dataset.dataset(write(table, tmp_path / name, "parquet", rng))
        elif form == "duckdb":
            import duckdb

            sources[name] = duckdb.connect().from_arrow(table)
        elif form == "pandas":
            pytest.importorskip("pandas")
            sources[name] = table.to_pandas()
        elif form == "polars":
            sources[name] = pytest.importorskip("polars").from_arrow(table)
        elif form == "files":
            folder = write(table, tmp_path / name, "parquet", rng)
            sources[name] = sorted(map(str, folder.iterdir()))[::-1]
        elif form == "hive":
            folder = tmp_path / name
            if name == "user":
                for age in set(table["age"].to_pylist()):
                    part = table.filter(pa.compute.equal(table["age"], age)).drop_columns(["age"])
                    write(part, folder / f"age={age}", "parquet", rng, 1)
            else:
                write(table, folder, "parquet", rng)
            sources[name] = str(folder)
        else:
            sources[name] = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(50))
    assert checksums(convert_shop(sources, tmp_path / "got")) == want


def test_a_homogeneous_graph_and_the_keys_of_a_batch(tmp_path: Path, rng: np.random.Generator) -> None:
    names = keys_of("text", 100, rng)
    x = rng.standard_normal((len(names), 4))
    ends = rng.integers(len(names), size=(2, 500))
    users = {"name": names, "vector": x.tolist(), "kind": rng.choice(["a", "b"], len(names)).tolist()}
    follows = {"a": [names[i] for i in ends[0]], "b": [names[i] for i in ends[1]], "n": list(range(500))}
    store = convert_tables(
        Table(pa.table(users), id="name", features="vector", label="kind"),
        Table(pa.table(follows), src="a", dst="b", tensors={"n": "n"}, reverse=True),
        tmp_path / "g",
        **SMALL,
    )
    assert store.num_nodes == len(names) and store.num_edges == 1000 and store.node_types == []
    assert store.categories("kind") == ["a", "b"]
    np.testing.assert_array_equal(store["x"], x.astype(np.float32))
    edges = {(a, b, n) for a, b, n in zip(follows["a"], follows["b"], follows["n"], strict=True)}
    edges |= {(b, a, n) for a, b, n in edges}
    with Loader(store, [-1], batch_size=10, shuffle=True) as loader:
        seen = 0
        for batch in loader:
            keys = store.ids().keys(batch.n_id)
            assert isinstance(keys, list)
            assert [names.index(key) for key in keys] == batch.n_id.tolist()
            assert batch.x.equal(store["x"][batch.n_id])
            for (source, target), n in zip(batch.edge_index.T.tolist(), batch.n.tolist(), strict=True):
                assert (keys[source], keys[target], n) in edges
                seen += 1
    assert seen == 1000


def test_reverse_edges_have_the_tensors_of_theirs(tmp_path: Path, rng: np.random.Generator) -> None:
    made = shop("sparse", rng)
    store = convert_shop(made["tables"], tmp_path / "g", reverse=True)
    assert store.edge_types == [SHOP, ("item", "rev_buys", "user")]
    back = made["arrays"][SHOP] | {"edge_index": made["arrays"][SHOP]["edge_index"][::-1].copy()}
    want = convert(made["arrays"] | {("item", "rev_buys", "user"): back}, tmp_path / "w", **SMALL)
    got = {name: data for name, data in checksums(store).items() if not name.startswith("attached")}
    assert got == checksums(want)


def test_keys_survive_a_relayout(tmp_path: Path, rng: np.random.Generator) -> None:
    made = shop("text", rng)
    store = convert_shop(made["tables"], tmp_path / "g", relayout="community")
    assert store.reordered
    check_shop(store, made)


def test_nodes_that_only_edges_name(tmp_path: Path) -> None:
    nodes, edges = pa.table({"id": [1, 9], "v": [0.5, 1.5]}), pa.table({"s": [1, 4, 9], "d": [9, 1, 4]})
    with pytest.raises(
        errors.InvalidArgumentError, match=r"edges, column 's', row 1 \(s 4, d 1\): no node has this key"
    ):
        convert_tables(Table(nodes, id="id"), Table(edges, src="s", dst="d"), tmp_path / "g", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match="node of edges without a row here"):
        convert_tables(
            Table(nodes, id="id", features="v"), Table(edges, src="s", dst="d"), tmp_path / "g", missing="add", **SMALL
        )
    store = convert_tables(
        Table(nodes, id="id", features="v", nulls=-1),
        Table(edges, src="s", dst="d"),
        tmp_path / "g",
        missing="add",
        **SMALL,
    )
    assert store.ids().keys([0, 1, 2]).tolist() == [1, 4, 9]  # type: ignore[union-attr]
    assert store["x"].tolist() == [[0.5], [-1.0], [1.5]]
    typed = nodes.append_column("c", pa.array(["b", "a"])).append_column("part", pa.array([None, "train"]))
    store = convert_tables(
        Table(typed, id="id", tensors={"c": "c"}, split="part", nulls={"c": "none"}),
        Table(edges, src="s", dst="d"),
        tmp_path / "t",
        missing="add",
        **SMALL,
    )
    assert store.categories("c") == ["a", "b", "none"] and store["c"].tolist() == [1, 2, 0]
    assert store.split("train").tolist() == [2]
    bare = convert_tables(None, Table(edges, src="s", dst="d"), tmp_path / "b", missing="add", **SMALL)  # type: ignore[arg-type]
    assert bare.num_nodes == 3 and bare.num_edges == 3
    with pytest.raises(errors.InvalidArgumentError, match="there is no table of nodes"):
        convert_tables(None, Table(edges, src="s", dst="d"), tmp_path / "c", **SMALL)  # type: ignore[arg-type]


def test_types_of_columns(tmp_path: Path) -> None:
    day, moment = datetime.date(1970, 1, 3), datetime.datetime(1970, 1, 1, 0, 0, 1, 5)
    nodes = pa.table(
        {
            "id": pa.array([3, 1], pa.int8()),
            "dec": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-7.5")]),
            "big": pa.array([2**40, 1]),
            "yes": [True, False],
            "half": [1.5, 2.5],
            "day": [day, day],
            "moment": [moment, moment],
            "ints": [[1, 2], [3, 4]],
            "kind": pa.array(["b", "a"]).dictionary_encode(),
        }
    )
    table = Table(
        nodes,
        id="id",
        features=["dec", "yes", "half"],
        label="kind",
        time="day",
        tensors={"big": ["big", "yes"], "flags": "yes", "lists": "ints", "mixed": ["ints", "half"]},
    )
    edges = Table(pa.table({"s": [1, 3], "d": [3, 1], "at": [moment, moment]}), src="s", dst="d", tensors={})
    store = convert_tables(table, edges, tmp_path / "g", **SMALL)
    assert store["x"].tolist() == [[-7.5, 0.0, 2.5], [1.25, 1.0, 1.5]] and store["x"].dtype == torch.float32
    assert store["y"].tolist() == [0, 1] and store["y"].dtype == torch.int64
    assert store["time"].tolist() == [2 * 86_400_000_000] * 2
    assert store["big"].tolist() == [[1, 0], [2**40, 1]]
    assert store["flags"].tolist() == [False, True] and store["flags"].dtype == torch.bool
    assert store["lists"].tolist() == [[3, 4], [1, 2]] and store["lists"].dtype == torch.int64
    assert store["mixed"].tolist() == [[3.0, 4.0, 2.5], [1.0, 2.0, 1.5]]
    timed = convert_tables(
        Table(nodes, id="id"), Table(edges.source, src="s", dst="d", time="at"), tmp_path / "t", **SMALL
    )
    assert timed["time"].tolist() == [1_000_005] * 2


def test_policies_for_nulls(tmp_path: Path) -> None:
    nodes = pa.table(
        {
            "id": [1, 2, 3],
            "v": [None, 1.0, 2.0],
            "l": [[1.0, 2.0], None, [None, 4.0]],
            "c": ["b", None, "a"],
            "y": [1, None, 3],
        }
    )
    table = Table(
        nodes,
        id="id",
        features=["v", "l"],
        label="y",
        tensors={"c": "c"},
        nulls={"v": float("nan"), "l": 9, "c": "none", "y": -1},
    )
    edges = Table(pa.table({"s": [1], "d": [3]}), src="s", dst="d")
    store = convert_tables(table, edges, tmp_path / "g", **SMALL)
    np.testing.assert_array_equal(store["x"], np.array([[np.nan, 1, 2], [1, 9, 9], [2, 9, 4]], np.float32))
    assert store["y"].tolist() == [1, -1, 3]
    assert store.categories("c") == ["a", "b", "none"] and store["c"].tolist() == [1, 2, 0]


def test_csv_as_people_have_it(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "a.csv").write_text('id,name,v\n007,"Doe, ""J""",1\n12,"two\nlines",2\n')
    (tmp_path / "n" / "b.csv").write_text("v,id,name\n2.5,x1,plain\n")
    (tmp_path / "n" / "empty.csv").write_text("")
    (tmp_path / "n" / "header.csv").write_text("id,name,v\n")
    (tmp_path / "n" / "_SUCCESS").write_text("")
    (tmp_path / "e.csv").write_bytes("s,d,who\nx1,007,Zo\xeb\n12,x1,Bo\n".encode("latin-1"))
    nodes = Table(tmp_path / "n", id="id", features="v", tensors={"name": "name"})
    edges = Table(tmp_path / "e.csv", src="s", dst="d", tensors={"who": "who"}, encoding="latin-1")
    store = convert_tables(nodes, edges, tmp_path / "g", **SMALL)
    assert store.ids().keys([0, 1, 2]) == ["007", "12", "x1"]
    assert store["x"].tolist() == [[1.0], [2.0], [2.5]]
    assert store.categories("name") == ['Doe, "J"', "plain", "two\nlines"]
    assert store.categories("who") == ["Bo", "Zoë"]
    utf8 = Table(tmp_path / "e.csv", src="s", dst="d")
    with pytest.raises(errors.InvalidArgumentError, match=r"edges: .*e\.csv, line 2: not utf-8"):
        convert_tables(nodes, utf8, tmp_path / "bad", **SMALL)
    assert not list(tmp_path.glob("bad*"))


def test_types_that_differ_between_files(tmp_path: Path) -> None:
    from pyarrow import feather, parquet

    for form, save in (("parquet", parquet.write_table), ("arrow", feather.write_feather)):
        folder = tmp_path / form
        folder.mkdir()
        save(pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.int64())}), str(folder / f"a.{form}"))
        save(pa.table({"v": pa.array([2.5]), "id": pa.array([2**40])}), str(folder / f"b.{form}"))
        edges = Table(pa.table({"s": pa.array([1], pa.int16()), "d": [2**40]}), src="s", dst="d")
        store = convert_tables(Table(folder, id="id", features="v"), edges, tmp_path / f"{form}.g", **SMALL)
        assert store.ids().keys([0, 1]).tolist() == [1, 2**40]  # type: ignore[union-attr]
        assert store["x"].tolist() == [[1.0], [2.5]]


def test_a_progress_bar_that_is_off_is_left_alone(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Jupyter without ipywidgets DuckDB has its bar off and refuses every setting of it."""
    from freshgo._tables import database

    real = database.duckdb()

    class Connection:
        def __init__(self, *args: Any, **options: Any) -> None:
            self.inner = real.connect(*args, **options)
            self.inner.execute("SET enable_progress_bar = false")

        def execute(self, statement: str, *args: Any) -> Any:
            assert not statement.startswith("SET enable_progress_bar")
            return self.inner.execute(statement, *args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    class Module:
        connect = Connection

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(database, "duckdb", Module)
    check_shop(convert_shop((made := shop("successive", rng))["tables"], tmp_path / "store"), made)


def test_csv_whose_names_look_like_values(tmp_path: Path) -> None:
    """A first line of names that are numbers or booleans, with rows and alone."""
    nodes = tmp_path / "n.csv"
    nodes.write_text("id,0,1\na,5,6\nb,7,8\n")
    edges = tmp_path / "e.csv"
    edges.write_text("s,d,w,t\n")
    given = Table(edges, src="s", dst="d", weight="w", time="t")
    with convert_tables(Table(nodes, id="id", features=["0", "1"]), given, tmp_path / "g", **SMALL) as store:
        assert store["x"].tolist() == [[5, 6], [7, 8]]
        assert (store.num_edges, store.tensors["edge_weight"].shape, store.tensors["time"].shape) == (0, (0,), (0,))
    nodes.write_text("id,v\na,1\nb,2,3\n")
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"nodes: .*n\.csv, line 3: 3 fields, expected 2 as in its first row: \['b', '2', '3'\]",
    ):
        convert_tables(Table(nodes, id="id", features="v"), given, tmp_path / "h", **SMALL)
