"""From whatever holds a graph to a store, and back."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from graphs import Form, Graph, num_nodes, pyg_data, random_graph
from oracle import check_batch
from seeds import seed as seed_of
from store_oracle import check_store

import freshgo
from freshgo import Loader, Store, convert, errors

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}


def test_mapping(form: Form) -> None:
    with Store.open(form.path) as store:
        check_store(store, form.graph)
        store.verify()
        seeds = np.arange(0, num_nodes(form.graph)[form.node_type], 7)
        with Loader(store, [3, 2], form.inputs(seeds), batch_size=100) as loader:
            for batch in loader:
                check_batch(batch, form.graph, form.fanouts([3, 2]), {form.node_type: seeds})


def test_a_homogeneous_store_has_no_types(store: Store) -> None:
    for action in (lambda: store.read("x", "paper"), lambda: store.split("test", "paper")):
        with pytest.raises(errors.InvalidArgumentError, match=r"is homogeneous, got the node type 'paper'"):
            action()
    with pytest.raises(errors.InvalidArgumentError, match="is homogeneous, got the edge type"):
        store["a", "b", "c"]


def test_tensors_and_strides(graph: dict[str, Any], tmp_path: Path) -> None:
    data = {**graph, "edge_index": torch.from_numpy(graph["edge_index"].T.copy()).T, "x": np.asfortranarray(graph["x"])}
    data["half"] = torch.from_numpy(np.repeat(graph["half"], 2, axis=1))[:, ::2]
    data["y"] = graph["y"][::-1].copy()[::-1]
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)


@pytest.mark.parametrize("how", ["paths", "memmap", "fortran"])
def test_npy(form: Form, tmp_path: Path, how: str) -> None:
    def saved(array: np.ndarray[Any, Any], name: str) -> Any:
        path = tmp_path / f"{name}.npy"
        np.save(path, np.asfortranarray(array) if how == "fortran" else array)
        return np.load(path, mmap_mode="r" if array.size else None) if how == "memmap" else path

    data: Graph = {}
    for i, (key, part) in enumerate(form.graph.items()):
        data[key] = {name: saved(of, f"{i}{name}") if hasattr(of, "shape") else of for name, of in part.items()}
        if "splits" in part:
            data[key]["splits"] = {name: saved(ids, f"{i}{name}_idx") for name, ids in part["splits"].items()}
    with convert(form.handed(data), tmp_path / "g", **SMALL) as store:
        check_store(store, form.graph)


def test_directory(form: Form, tmp_path: Path) -> None:
    want: Graph = {}  # types and tensors in the order of their names
    for key, part in sorted(form.graph.items(), key=lambda item: "__".join(as_tuple(item[0]))):
        folder = tmp_path / "source" / "__".join(as_tuple(key)) if form.node_type else tmp_path / "source"
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {name: of for name, of in sorted(part.items()) if hasattr(of, "shape")}
        for name, array in {**arrays, **{f"{name}_idx": ids for name, ids in part.get("splits", {}).items()}}.items():
            np.save(folder / f"{name}.npy", array)
        want[key] = arrays | ({"splits": part["splits"]} if "splits" in part else {})
    for node_type in num_nodes(form.graph):
        if not want[node_type]:  # nothing but edges tells how many there are
            ends = [want[r]["edge_index"][end] for r in form.relations for end in (0, 1) if r[2 * end] == node_type]
            want[node_type]["num_nodes"] = 1 + max(int(ids.max()) for ids in ends)
    with convert(tmp_path / "source", tmp_path / "g", **SMALL) as store:
        check_store(store, want)


def test_a_directory_with_a_number_of_nodes(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.array([[0, 1], [1, 2]]))
    np.save(folder / "num_nodes.npy", np.int32(7))
    with convert(folder, tmp_path / "g", **SMALL) as store:
        assert (store.num_nodes, store.attributes()) == (7, {})
    for wrong in (np.array([7]), np.float64(7)):
        np.save(folder / "num_nodes.npy", wrong)
        with pytest.raises(errors.DTypeError, match=r"num_nodes\.npy: expected one integer, got .*64 of shape"):
            convert(folder, tmp_path / "h", **SMALL)


def as_tuple(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def test_edges_alone(form: Form, tmp_path: Path) -> None:
    counts = num_nodes(form.graph)
    graph: Graph = {node_type: {"num_nodes": count} for node_type, count in counts.items()}
    graph |= {key: {"edge_index": form.graph[key]["edge_index"]} for key in form.relations}
    bare = {key: part.get("edge_index", part) for key, part in graph.items()} if form.node_type else form.handed(graph)
    with convert(bare, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)


def test_pyg_objects(form: Form, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    want: Graph = {}
    counts: dict[Any, int] = num_nodes(form.graph)
    for key, part in form.graph.items():  # in which splits are masks
        want[key] = {name: of for name, of in part.items() if name != "splits"}
        for name, ids in part.get("splits", {}).items():
            want[key][f"{name}_mask"] = np.isin(np.arange(counts[key]), ids)
    with convert(pyg_data(form.graph), tmp_path / "g", **SMALL) as store:
        check_store(store, want)


def test_a_plain_object(graph: dict[str, Any], tmp_path: Path) -> None:
    data = SimpleNamespace(**{k: torch.from_numpy(v) for k, v in graph.items() if isinstance(v, np.ndarray)})
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, {name: of for name, of in graph.items() if name != "splits"})


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


@pytest.mark.parametrize("how", ["pipe", "full", "closed", "none"])
def test_a_bar_that_nobody_sees(
    graph: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An hour of work does not end because its log is on a full disk."""
    stream: Any = None
    if how == "pipe":
        read, write = os.pipe()
        os.close(read)
        stream = os.fdopen(write, "w", buffering=1)
    elif how != "none":
        stream = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    if how == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with convert(graph, tmp_path / "g", memory="64MiB", progress=True) as store:
        store.verify()
    if how in ("pipe", "full"):
        with contextlib.suppress(OSError):  # what was not written
            stream.close()


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
        graph: dict[Any, Any] = {("a", f"to{i}", "a"): np.array([[0, 1], [1, 2]]) for i in range(99)}
        graph["a"] = {"num_nodes": 2**32 - 1}  # 34 GB of offsets for each type of edges
        convert(graph, tmp_path / "g", isolated_nodes=True, progress=False)
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path) in str(caught.value.filename)
    assert list(tmp_path.iterdir()) == []


def test_far_more_nodes_than_anything_names_are_confirmed(tmp_path: Path) -> None:
    edges = np.array([[0, 1], [1, 2]])
    for count in (2**24 + 1, 2**40):
        for graph, name in (
            ({"num_nodes": count, "edge_index": edges}, "num_nodes"),
            ({"num_nodes": count, "edge_index": edges, "splits": {"train": np.array([5])}}, "num_nodes"),
            ({"a": {"num_nodes": count}, "b": {"num_nodes": 9}, ("b", "to", "b"): edges}, "a.num_nodes"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=rf"^{name} is {count}.*isolated_nodes=True"):
                convert(graph, tmp_path / "g", progress=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.DTypeError, match="isolated_nodes"):
        convert({"edge_index": edges}, tmp_path / "g", isolated_nodes=1, progress=False)
    convert({"num_nodes": 2**20, "edge_index": edges}, tmp_path / "few", progress=False).close()
    mask = np.zeros(2**24 + 1, bool)
    told = {"num_nodes": len(mask), "edge_index": edges, "train_mask": mask}
    convert(told, tmp_path / "told", progress=False).close()
    meant = {"num_nodes": 2**24 + 1, "edge_index": edges}
    with convert(meant, tmp_path / "meant", isolated_nodes=True, progress=False) as store:
        assert store.num_nodes == 2**24 + 1


def _filled(value: float, path: Path, **options: Any) -> None:
    convert({"x": torch.full((9, 2), value), "edge_index": torch.zeros(2, 0)}, path, **SMALL, **options).close()


def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader over a store that was opened by a relative path looked for its files below the current directory."""
    for name, value in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        _filled(value, tmp_path / name / "g")
    monkeypatch.chdir(tmp_path / "one")
    with Store.open("g") as store:
        monkeypatch.chdir(tmp_path / "two")
        assert store.path == str(tmp_path / "one" / "g") and store["x"].unique().tolist() == [1]
        with Loader(store, [1]) as loader:
            assert next(iter(loader)).x.unique().tolist() == [1]


def test_a_link_to_a_store(tmp_path: Path) -> None:
    """The store was written in the place of the link, and what the link led to was emptied."""
    link, target = tmp_path / "link", tmp_path / "disk" / "g"
    target.parent.mkdir()
    link.symlink_to(target)
    _filled(1.0, link)  # as a file that is opened for writing
    with pytest.raises(errors.StoreExistsError):
        _filled(2.0, link)
    with Store.open(link) as store, Loader(store, [1]) as loader:
        _filled(3.0, link, overwrite=True)
        assert next(iter(loader)).x.unique().tolist() == [1]
        store_now = Store.open(f"{link}/")
    assert link.is_symlink() and store_now["x"].unique().tolist() == [3] and store_now.path == str(target)
    assert sorted(path.name for path in tmp_path.rglob("*g*")) == ["g"] and len(list(tmp_path.iterdir())) == 2
    store_now.close()


def test_a_path_inside_a_store(tmp_path: Path) -> None:
    """What was written there went with the store when that was replaced."""
    outer = tmp_path / "g"
    _filled(1.0, outer)
    files = {file.name: file.read_bytes() for file in outer.iterdir()}
    text = tmp_path / "edges.csv"
    text.write_text("s,d\n0,1\n")
    said = f"{outer / 'h'} is inside the store {outer}: write it elsewhere"
    for write in (
        lambda: _filled(2.0, outer / "h"),
        lambda: freshgo.relayout(outer, outer / "h", order="hot", progress=False),
        lambda: freshgo.update(outer, outer / "h", drop=["x"], progress=False),
        lambda: freshgo.convert_tables(None, freshgo.Table(text, src="s", dst="d"), outer / "h", missing="add"),
        lambda: freshgo.fetch(f"file://{outer}", outer / "h", progress=False),
    ):
        with pytest.raises(errors.InvalidArgumentError) as refused:
            write()
        assert str(refused.value) == said
    assert {file.name: file.read_bytes() for file in outer.iterdir()} == files


def test_a_path_that_utf8_cannot_hold(tmp_path: Path) -> None:
    """Whatever reads the files of a store by its path, such as infer, did not find them."""
    path = tmp_path / os.fsdecode(b"g\xff")
    _filled(1.0, path, relayout="hot")
    with Store.open(path) as store:
        assert store.path == str(path)
        freshgo.infer(None, store, (store, "twice"), layers=[_twice], overwrite=True, progress=False)
    with Store.open(path) as store:
        assert store["twice"].unique().tolist() == [2]


def _twice(rows: torch.Tensor, batch: Any) -> torch.Tensor:
    return 2 * rows[: batch.batch_size]
