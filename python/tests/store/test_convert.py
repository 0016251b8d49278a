"""From whatever holds a graph to a store, and back."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from oracle import check_batch
from seeds import seed as seed_of

from freshgo import Loader, Store, convert, errors

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}


def check_store(store: Store, graph: dict[str, Any]) -> None:
    assert store.num_nodes == graph["num_nodes"]
    assert store.num_edges == graph["edge_index"].shape[1]
    for name, expected in graph.items():
        if name not in ("num_nodes", "edge_index", "splits"):
            np.testing.assert_array_equal(store[name], expected, err_msg=name)
            level = "edge" if name.startswith("edge") else "node"
            assert store.tensors[name][:3] == (store[name].dtype, expected.shape, level)
    for name, ids in graph["splits"].items():
        np.testing.assert_array_equal(store.split(name), ids)
    seeds = np.arange(0, graph["num_nodes"], 7)
    with Loader(store, [3, 2], seeds, batch_size=100) as loader:
        for batch in loader:
            check_batch(batch, graph, [3, 2], seeds)


def test_mapping(graph: dict[str, Any], store: Store) -> None:
    check_store(store, graph)
    assert store.splits == {"train": int(graph["train_mask"].sum()), "test": len(graph["splits"]["test"])}
    np.testing.assert_array_equal(store.split("train"), np.flatnonzero(graph["train_mask"]))
    store.verify()


def test_tensors_and_strides(graph: dict[str, Any], tmp_path: Path) -> None:
    data = {**graph, "edge_index": torch.from_numpy(graph["edge_index"].T.copy()).T, "x": np.asfortranarray(graph["x"])}
    data["half"] = torch.from_numpy(np.repeat(graph["half"], 2, axis=1))[:, ::2]
    data["y"] = graph["y"][::-1].copy()[::-1]
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)


@pytest.mark.parametrize("form", ["paths", "memmap", "fortran", "directory"])
def test_npy(graph: dict[str, Any], tmp_path: Path, form: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    arrays = {k: v for k, v in graph.items() if isinstance(v, np.ndarray)}
    for name, array in arrays.items():
        np.save(source / f"{name}.npy", np.asfortranarray(array) if form == "fortran" else array)
    np.save(source / "test_idx.npy", graph["splits"]["test"])
    data: Any = source
    if form == "memmap":
        data = {name: np.load(source / f"{name}.npy", mmap_mode="r") for name in arrays}
        data["splits"] = {"test": np.load(source / "test_idx.npy", mmap_mode="r")}
    elif form != "directory":
        data = {name: str(source / f"{name}.npy") for name in arrays}
        data["splits"] = {"test": source / "test_idx.npy"}
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)


@pytest.mark.parametrize("form", ["pyg", "plain object"])
def test_data_objects(graph: dict[str, Any], tmp_path: Path, form: str) -> None:
    items = {k: torch.from_numpy(v) for k, v in graph.items() if isinstance(v, np.ndarray)}
    if form == "pyg":
        data = pytest.importorskip("torch_geometric.data").Data(**items)
    else:
        data = SimpleNamespace(**items)
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, {**graph, "splits": {"train": np.flatnonzero(graph["train_mask"])}})


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"],
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (1500,)], ids=str)
def test_dtypes_and_rows_of_any_width(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    num_nodes = 200
    torch.manual_seed(seed_of(0))
    x = (torch.rand(num_nodes, *shape) * 100 - 20).to(getattr(torch, dtype))
    edge_index = torch.randint(num_nodes, (2, 1000))
    with convert({"edge_index": edge_index, "feature": x, "num_nodes": num_nodes}, tmp_path / "g", **SMALL) as store:
        assert store["feature"].dtype == x.dtype
        assert store["feature"].equal(x)
        with Loader(store, [3], batch_size=50) as loader:
            for batch in loader:
                assert batch.feature.dtype == x.dtype
                assert batch.feature.equal(x[batch.n_id])
    with Loader({"edge_index": edge_index, "feature": x, "num_nodes": num_nodes}, [3], batch_size=50) as loader:
        for batch in loader:
            assert batch.feature.equal(x[batch.n_id])


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint8", "uint16", "uint32"])
def test_edges_of_any_integer(tmp_path: Path, dtype: str) -> None:
    edge_index = np.array([[0, 200, 3], [200, 0, 0]], dtype)
    with convert({"edge_index": edge_index, "num_nodes": 201}, tmp_path / "g", **SMALL) as store:
        with Loader(store, [-1], [0], batch_size=1) as loader:
            (batch,) = loader
    assert batch.n_id.tolist() == [0, 200, 3]
    assert batch.e_id.tolist() == [1, 2]


def test_num_nodes_comes_from_the_edges_when_nothing_else_tells(tmp_path: Path) -> None:
    edge_index = np.array([[0, 5], [1, 2]])
    with convert({"edge_index": edge_index, "edge_attr": np.ones((2, 3))}, tmp_path / "g", **SMALL) as store:
        assert store.num_nodes == 6
        assert store.tensors["edge_attr"].level == "edge"


def test_two_dimensional_masks_are_plain_tensors(tmp_path: Path) -> None:
    masks = np.eye(4, 2, dtype=bool)
    edge_index = np.array([[0, 1], [1, 2]])
    with convert({"edge_index": edge_index, "train_mask": masks, "num_nodes": 4}, tmp_path / "g", **SMALL) as store:
        assert store.splits == {}
        np.testing.assert_array_equal(store["train_mask"], masks)


def test_as_many_edges_as_nodes(tmp_path: Path) -> None:
    edge_index = np.array([[0, 1, 2], [1, 2, 0]])
    data = {"edge_index": edge_index, "x": np.arange(3.0), "edge_attr": np.arange(3.0), "num_nodes": 3}
    with convert(data, tmp_path / "g", **SMALL) as store:
        assert {name: tensor.level for name, tensor in store.tensors.items()} == {"x": "node", "edge_attr": "edge"}


def test_progress(graph: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[str, int, int]] = []
    convert(graph, tmp_path / "a", memory="64MiB", progress=lambda *call: calls.append(call)).close()
    assert calls
    assert all(0 <= done <= total for _, done, total in calls)
    assert capsys.readouterr().err == ""
    convert(graph, tmp_path / "b", memory="64MiB", progress=True).close()


def test_little_memory_gives_the_same_graph(tmp_path: Path) -> None:
    graph = random_graph(20_000, 1_000_000, seed=3)
    with convert(graph, tmp_path / "g", memory="8MiB", progress=False) as store:
        check_store(store, graph)
        store.verify()


def test_each_conversion_has_its_own_uuid(graph: dict[str, Any], tmp_path: Path) -> None:
    with convert(graph, tmp_path / "a", **SMALL) as one, convert(graph, tmp_path / "b", **SMALL) as other:
        assert one.uuid != other.uuid


def test_inspect(store: Store) -> None:
    text = store.inspect()
    for part in (store.uuid, "3,000", "30,000", "x: float32 [3000, 24], 281.2 KiB", "split    train:"):
        assert part in text


def test_too_large_for_the_disk(tmp_path: Path) -> None:
    with pytest.raises(errors.WriteError, match=r"takes \d+ bytes, the file system has \d+ free") as caught:
        convert({"num_nodes": 2**40, "edge_index": np.array([[0, 1], [1, 2]])}, tmp_path / "g", progress=False)
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path) in str(caught.value.filename)
    assert list(tmp_path.iterdir()) == []
