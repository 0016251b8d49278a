"""infer into Parquet with the keys of the tables, and into a tensor of a store."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import hetero_graph, random_graph
from seeds import seed as seed_of

import freshgo
from freshgo import Store, Table, convert, convert_tables, errors, infer, update

tg = pytest.importorskip("torch_geometric.nn")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.explore

NODES, EDGES = 3000, 12_000
HOW: dict[str, Any] = {"memory": "64MiB", "batch_size": 500, "progress": False}
INVALID, EXISTS = errors.InvalidArgumentError, errors.StoreExistsError


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(3)
    return tg.GraphSAGE(24, 16, 2, 5).eval()


@pytest.fixture(scope="module", params=["plain", "relaid"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outputs") / "graph"
    how = {"relayout": "community"} if request.param == "relaid" else {}
    convert(random_graph(NODES, EDGES, seed=8), path, progress=False, **how).close()
    return path


def embeddings(path: Path) -> tuple[list[Any], np.ndarray]:
    table = parquet.read_table(path)
    assert table.column_names == ["id", "embedding"]
    return table["id"].to_pylist(), np.array(table["embedding"].to_pylist(), np.float32)


@pytest.mark.parametrize("kind", ["strings", "numbers"])
def test_parquet_has_the_keys_of_the_tables(tmp_path: Path, model: Any, kind: str) -> None:
    pytest.importorskip("duckdb")
    rng = np.random.default_rng(seed_of(9))
    numbers = rng.permutation(9 * NODES)[:NODES]
    keys = [f"Käufer {key}" for key in numbers] if kind == "strings" else numbers.tolist()
    x = rng.standard_normal((NODES, 24)).astype(np.float32)
    nodes = {"key": keys, "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 24)}
    edges = rng.integers(NODES, size=(2, EDGES))
    ends = {"src": [keys[i] for i in edges[0]], "dst": [keys[i] for i in edges[1]]}
    made = convert_tables(
        Table(pa.table(nodes), id="key", features=["x"]),
        Table(pa.table(ends), src="src", dst="dst"),
        tmp_path / "graph",
        memory="128MiB",
        progress=False,
    )
    with made as store:
        out = infer(model, store, tmp_path / "out.parquet", **{**HOW, "memory": "7MiB"})
        found, rows = embeddings(out)
        assert found == sorted(keys)  # as of UTF-8, since all of them begin alike
        assert found == list(store.ids().keys(range(NODES)))
        with torch.no_grad():
            want = model(torch.from_numpy(x), torch.from_numpy(edges)).numpy()
        np.testing.assert_allclose(rows, want[[keys.index(key) for key in found]], atol=1e-4)
        some = infer(model, store, tmp_path / "some.parquet", nodes=[5, 0, 5], **HOW)
    chosen, few = embeddings(some)
    assert chosen == [found[5], found[0], found[5]]
    np.testing.assert_allclose(few, rows[[5, 0, 5]], atol=1e-5)


def test_parquet_without_keys_has_ids_in_groups_within_memory(path: Path, model: Any, tmp_path: Path) -> None:
    rows = np.load(infer(model, path, tmp_path / "out.npy", **HOW))
    how = {**HOW, "memory": "7MiB", "dtype": torch.float16}
    wide = tg.GraphSAGE(24, 16, 2, 1100).eval()
    with parquet.ParquetFile(infer(wide, path, tmp_path / "wide.parquet", **how)) as file:
        assert file.metadata.num_row_groups > 5
        assert file.metadata.num_rows == NODES
        assert file.schema_arrow.field("embedding").type == pa.list_(pa.float16(), 1100)
    ids, found = embeddings(infer(model, path, tmp_path / "out.parquet", **HOW))
    assert ids == list(range(NODES))
    np.testing.assert_array_equal(found, rows)
    assert sorted(of.name for of in tmp_path.iterdir()) == ["out.npy", "out.parquet", "wide.parquet"]


class StopError(Exception):
    pass


def test_parquet_goes_on_with_rows_that_are_complete(path: Path, model: Any, tmp_path: Path) -> None:
    stages: list[str] = []

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "rows to Parquet":
            raise StopError

    out = tmp_path / "out.parquet"
    with pytest.raises(StopError):
        infer(model, path, out, **{**HOW, "progress": stop})
    assert not out.exists()
    infer(model, path, out, **{**HOW, "progress": lambda stage, *_: stages.append(stage)})
    assert set(stages) == {"rows to Parquet"}
    _, found = embeddings(out)
    np.testing.assert_array_equal(found, np.load(infer(model, path, tmp_path / "out.npy", **HOW)))
    assert not (tmp_path / "out.parquet.partial").exists()


def test_what_others_have_at_the_path_and_beside_it_stays(path: Path, model: Any, tmp_path: Path) -> None:
    """With overwrite=True a directory of anything was replaced, and one with the name of infer's own was emptied."""
    convert(hetero_graph(150), tmp_path / "typed", progress=False).close()

    def layer(h: Any, batch: Any) -> Any:
        return {name: 2 * h[name][: batch[name].batch_size] for name in ("paper", "author") if name in h}

    cases: list[tuple[Any, dict[str, Any]]] = [((model, path), {}), ((None, tmp_path / "typed"), {"layers": [layer]})]
    for given, how in cases:
        for name, words in (
            ("out", "name another path"),
            ("out.partial", "is in the way"),
            ("out.replaced", "is in the way"),
        ):
            mine = tmp_path / name / "mine.txt"
            mine.parent.mkdir()
            mine.write_text("mine")
            if how or name != "out.replaced":  # a file takes the place of another in one step
                with pytest.raises(EXISTS, match=words):
                    infer(*given, tmp_path / "out", overwrite=True, **HOW, **how)
            assert mine.read_text() == "mine"
            shutil.rmtree(mine.parent)
    first = infer(*given, tmp_path / "rows", **HOW, **how)
    assert infer(*given, tmp_path / "rows", overwrite=True, **HOW, **how) == first
    assert sorted(file.name for file in first.iterdir()) == ["author.npy", "paper.npy"]


def test_a_tensor_of_a_store_beside_it(path: Path, model: Any, tmp_path: Path) -> None:
    rows = torch.from_numpy(np.load(infer(model, path, tmp_path / "out.npy", **HOW)))
    made = infer(model, path, (tmp_path / "more", "emb"), **HOW)
    assert made == tmp_path / "more"
    with Store(made) as store, Store(path) as before:
        assert torch.equal(store["emb"], rows)
        assert torch.equal(store["x"], before["x"])
        assert "emb" not in before.tensors
        store.verify()
        with freshgo.Loader(store, [4], [7, 2999], batch_size=2, memory="64MiB") as loader:
            (batch,) = loader
            assert torch.equal(batch.emb, rows[batch.n_id])
    with pytest.raises(EXISTS, match="already exists; pass overwrite=True"):
        infer(model, path, (tmp_path / "more", "emb"), **HOW)


def test_a_tensor_of_the_store_itself(path: Path, model: Any, tmp_path: Path) -> None:
    rows = torch.from_numpy(np.load(infer(model, path, tmp_path / "out.npy", **HOW)))
    own = tmp_path / "own"
    with Store(path) as store:
        update(store, own, tensors={}, progress=False).close()
    nodes = torch.tensor([7, 2999, 7, 0])
    with Store(own) as store:
        assert infer(model, store, (store, "emb"), nodes=nodes, **HOW) == own
        with pytest.raises(errors.ClosedError, match="replaced by another while open"):
            freshgo.Loader(store, [4], memory="64MiB")
    with pytest.raises(EXISTS, match="the tensor 'emb' already; pass overwrite=True"):
        infer(model, own, (own, "emb"), **HOW)
    with Store(own) as store:
        found = store["emb"]
    rest = torch.ones(NODES, dtype=torch.bool)
    rest[nodes] = False
    assert found[rest].isnan().all()
    torch.testing.assert_close(found[nodes], rows[nodes])
    infer(model, own, (own, "emb"), overwrite=True, **HOW)
    changed = update(own, own, tensors={"x": torch.zeros(NODES, 24)}, overwrite=True, progress=False)
    with changed as store:
        torch.testing.assert_close(store["emb"], rows)  # a tensor like any other: changes of x do not touch it
        store.verify()
    assert sorted(of.name for of in tmp_path.iterdir()) == ["out.npy", "own"]


def test_a_tensor_goes_on_after_it_was_ended(path: Path, model: Any, tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if stage == "layer 2 of 2":
            raise StopError

    stages: list[str] = []
    with pytest.raises(StopError):
        infer(model, path, (tmp_path / "more", "emb"), **{**HOW, "progress": stop})
    infer(model, path, (tmp_path / "more", "emb"), **{**HOW, "progress": lambda stage, *_: stages.append(stage)})
    assert "layer 1 of 2" not in stages
    assert [of.name for of in tmp_path.iterdir()] == ["more"]
    with Store(tmp_path / "more") as store:
        assert np.array_equal(store["emb"].numpy(), np.load(infer(model, path, tmp_path / "out.npy", **HOW)))


@pytest.mark.parametrize("nodes", [None, {"author": [5, 1], "paper": range(400)}], ids=["all", "some"])
def test_types_of_nodes(tmp_path: Path, nodes: Any) -> None:
    convert(hetero_graph(150), tmp_path / "graph", progress=False).close()

    def layer(h: Any, batch: Any) -> Any:
        return {name: 2 * h[name][: batch[name].batch_size] for name in ("paper", "author") if name in h}

    given = (None, tmp_path / "graph")
    how = {**HOW, "layers": [layer], "nodes": nodes}
    plain = infer(*given, tmp_path / "out", **how)
    tables = infer(*given, tmp_path / "tables.parquet", **how)
    assert sorted(of.name for of in tables.iterdir()) == ["author.parquet", "paper.parquet"]
    stored = infer(*given, (tmp_path / "graph", "emb"), **how)
    with Store(stored) as store:
        assert [name for name in store.node_types if "emb" in store[name].tensors] == ["paper", "author"]
        for name in ("paper", "author"):
            rows = torch.from_numpy(np.load(plain / f"{name}.npy"))
            ids, found = embeddings(tables / f"{name}.parquet")
            np.testing.assert_array_equal(found, rows.numpy())
            assert ids == list(range(len(rows)) if nodes is None else nodes[name])
            assert torch.equal(store[name]["emb"][ids], rows)
            assert torch.equal(rows, 2 * store[name]["x"].float()[ids])
            assert store[name]["emb"].isnan().any() == (len(set(ids)) < store[name].num_nodes)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (("", 5), errors.DTypeError, "out must be a path, or a store or its path with the name of a tensor"),
        ((5, "emb"), errors.DTypeError, "out must be a path, or a store or its path with the name of a tensor"),
        (("{store}", "n_id"), INVALID, "the name 'n_id' of out is reserved for an attribute of the batch"),
        (("{store}", "edge_weight"), INVALID, "out names 'edge_weight', which is an edge-level tensor"),
        (("{store}", "y"), EXISTS, "the tensor 'y' already; pass overwrite=True"),
        (("/nowhere/store", "emb"), errors.StoreNotFoundError, "no such directory to write in"),
        ("/nowhere/out.parquet", errors.StoreNotFoundError, "no such directory to write in"),
        ("out.csv", INVALID, r"out='out.csv' has the suffix '.csv', expected .npy, .parquet, or none for .npy; .*name"),
        ("out.parqet", INVALID, r"the suffix '.parqet', .* did you mean '.parquet'\?; "),
        ("s3://bucket/out.pt", INVALID, r"the suffix '.pt'"),
        ("graph.freshgo", INVALID, r"the suffix '.freshgo', .*; a tensor of a store is written by out=\(store, name\)"),
    ],
    ids=str,
)
def test_bad_input(path: Path, model: Any, out: Any, error: type[Exception], words: str) -> None:
    given: Any = tuple(str(path) if of == "{store}" else of for of in out) if isinstance(out, tuple) else out
    computed: list[str] = []
    how: dict[str, Any] = {**HOW, "progress": lambda stage, *_: computed.append(stage)}
    with pytest.raises(error, match=words) as raised:
        infer(model, path, given, **how)
    assert isinstance(raised.value, errors.FreshgoError)
    assert not computed


@pytest.mark.parametrize("name", ["a/b", "../../b", "/b", "ü" * 130])
def test_node_types_become_no_paths(tmp_path: Path, name: str) -> None:
    """Rows went to a path outside of the directory, or all of them were computed before the error."""
    work = tmp_path / "below" / "work"
    work.mkdir(parents=True)
    x, ends = torch.ones(9, 2), torch.zeros(2, 0, dtype=torch.long)
    convert({name: {"x": x}, "b": {"x": x}, (name, "to", "b"): ends}, work / "g", progress=False).close()

    def layer(h: Any, batch: Any) -> Any:
        return {of: h[of][: batch[of].batch_size] for of in h if "batch_size" in batch[of]}

    how = {**HOW, "layers": [layer]}
    for out in ("out", "out.parquet", "memory://bucket/out.npy"):
        with pytest.raises(INVALID, match=r"cannot be the name of one; .* out=\(store, name\)$"):
            infer(None, work / "g", work / out if "//" not in out else out, **how)
    assert [of.relative_to(tmp_path).as_posix() for of in tmp_path.rglob("*") if of.suffix == ".npy"] == []
    infer(None, work / "g", work / "b", nodes=("b", range(9)), **how)
    assert [of.name for of in (work / "b").iterdir()] == ["b.npy"]
    infer(None, work / "g", (work / "g", "emb"), **how)
    assert sorted(of.name for of in work.iterdir()) == ["b", "g"]


def test_no_rows_take_the_place_of_a_store(path: Path, model: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(path, plain)
    with pytest.raises(INVALID, match=r"plain' is a store, .* out=\(store, name\)"):
        infer(model, path, plain, overwrite=True, **HOW)
    Store.open(plain).close()


def test_without_pyarrow(path: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(errors.LibraryError, match="a Parquet file needs pyarrow: pip install"):
        infer(model, path, tmp_path / "out.parquet", **HOW)


def test_a_full_disk_leaves_nothing_at_the_target(
    path: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = parquet.ParquetWriter.write_table

    def full(*given: Any, **how: Any) -> None:
        real(*given, **how)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", full)
    with pytest.raises(errors.WriteError, match="No space left") as error:
        infer(model, path, tmp_path / "out.parquet", **HOW)
    assert error.value.errno == 28
    assert not (tmp_path / "out.parquet").exists()
    monkeypatch.undo()
    assert math.isfinite(embeddings(infer(model, path, tmp_path / "out.parquet", **HOW))[1].sum())
