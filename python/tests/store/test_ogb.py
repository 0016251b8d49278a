"""OGB's data sets: their directories give the store of their arrays, and that of what the package reads from them."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import pytest
import torch
from seeds import seed as seed_of
from store_oracle import check_store

from freshgo import Loader, convert, errors

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}


@pytest.mark.parametrize("name", ["ogbn_arxiv", "ogbn_products", "ogbl_collab_pyg", "proteins"])
def test_csv(tmp_path: Path, name: str) -> None:
    graph = layouts.ogb_graph(seed_of(1), integers=name == "proteins")
    root = layouts.write_ogb_csv(tmp_path / name, graph)
    if name == "proteins":  # OGB's own name for the file
        (root / "raw" / "node_year.csv.gz").rename(root / "raw" / "species.csv.gz")
        graph[""]["node_species"] = graph[""].pop("node_year")
    with convert(root, tmp_path / "g", **SMALL) as store:
        compare(store, graph if name == "ogbn_arxiv" else layouts.both_ways(graph))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", name]


def compare(store: Any, want: layouts.Graph) -> None:
    """Compare a store with a graph whose tensors may be in another order."""
    for key, part in want.items():
        stored = store if key in ("", ("", "", "")) else store[key]
        names = [
            name for name, info in stored.tensors.items() if info.level == ("node" if isinstance(key, str) else "edge")
        ]
        want[key] = {**{name: part[name] for name in names}, **{k: v for k, v in part.items() if k not in names}}
    check_store(store, want)


def test_a_name_that_is_not_known(tmp_path: Path) -> None:
    graph = layouts.ogb_graph(seed_of(2))
    root = layouts.write_ogb_csv(tmp_path / "mine", graph)
    with pytest.raises(errors.InvalidArgumentError, match="name the data set, as source='ogbn-products'"):
        convert(root, tmp_path / "g", **SMALL)
    with convert(root, tmp_path / "once", source="ogb", **SMALL) as store:
        compare(store, graph)
    with convert(root / "raw", tmp_path / "twice", source="ogbn-products", **SMALL) as store:
        compare(store, layouts.both_ways(graph))


@pytest.mark.parametrize("typed", [False, True])
def test_rows_that_are_missing(tmp_path: Path, typed: bool) -> None:
    """The file says that the tensor is of nodes, so that other rows do not make it one of the graph."""
    graph = layouts.typed_graph(seed_of(9)) if typed else layouts.ogb_graph(seed_of(9))
    part = graph["paper" if typed else ""]
    years = part["node_year"]
    part["node_year"] = years[:-1]
    write = layouts.write_ogb_types if typed else layouts.write_ogb_csv
    root = write(tmp_path / ("ogbn_mag" if typed else "ogbn_arxiv"), graph)
    said = rf"node_year in node_year\.csv\.gz has shape \[{len(years) - 1}, 1\], but there are {len(years)} nodes"
    with pytest.raises(errors.InvalidArgumentError, match=said):
        convert(root, tmp_path / "g", **SMALL)
    with convert(root, tmp_path / "g", graph_level=["node_year"], **SMALL) as store:
        whole = store.attributes("paper") if typed else store.attributes()
        assert np.array_equal(whole["node_year"], years[:-1])


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"dtype": {"x": "float16"}}, {"weight_attr": "edge_attr"}, {"relayout": "hot"}]
)
def test_archives(tmp_path: Path, compressed: bool, options: dict[str, Any]) -> None:
    graph = layouts.ogb_graph(seed_of(3))
    graph["", "", ""]["edge_attr"] = graph["", "", ""]["edge_attr"][:, 0].copy()
    root = layouts.write_ogb_npz(tmp_path / "ogbn_papers100M", graph, compressed)
    given = {**graph[""], **graph["", "", ""]}
    with (
        convert(root, tmp_path / "g", **SMALL, **options) as store,
        convert(given, tmp_path / "w", **SMALL, **options) as want,
    ):
        assert store.num_edges == want.num_edges and store.splits == want.splits
        assert sorted(store.tensors) == sorted(want.tensors)
        for name in want.tensors:
            assert torch.equal(store[name], want[name]), name
        store.verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "ogbn_papers100M", "w"]


@pytest.mark.parametrize("write", [layouts.write_ogb_types, layouts.write_ogb_types_npz])
def test_types(tmp_path: Path, write: Any) -> None:
    graph = layouts.typed_graph(seed_of(4))
    with convert(write(tmp_path / "ogbn_mag", graph), tmp_path / "g", **SMALL) as store:
        compare(store, graph)
        assert store.split("train", "paper").numel() == 60


def test_splits_of_links(tmp_path: Path) -> None:
    rng = np.random.default_rng(seed_of(5))
    graph = layouts.ogb_graph(seed_of(5))
    root = layouts.write_ogb_csv(tmp_path / "ogbl_collab", {**graph, "": {**graph[""], "splits": {}}})
    directory = root / "split" / "time"
    directory.mkdir(parents=True)
    splits = {
        name: {"edge": torch.from_numpy(rng.integers(300, size=(30, 2))), "weight": rng.random(30)}
        for name in ("train", "valid", "test")
    }
    for name, arrays in splits.items():
        torch.save(arrays, directory / f"{name}.pt")
    with pytest.raises(errors.InvalidArgumentError, match=r"test\.pt is a pickle.*allow_pickle=True"):
        convert(root, tmp_path / "g", **SMALL)
    with convert(root, tmp_path / "without", allow_pickle=False, **SMALL) as store:
        assert store.link_splits == []
    with convert(root, tmp_path / "g", allow_pickle=True, **SMALL) as store:
        assert sorted(store.link_splits) == ["test", "train", "valid"]
        for name, arrays in splits.items():
            found = store.links(name)
            assert found.keys() == arrays.keys()
            assert all(np.array_equal(found[key], value) for key, value in arrays.items())
        with pytest.raises(errors.InvalidArgumentError, match="no split of links 'validation'"):
            store.links("validation")


def test_node_splits_in_a_pickle(tmp_path: Path) -> None:
    graph = layouts.ogb_graph(seed_of(6))
    root = layouts.write_ogb_csv(tmp_path / "ogbn_arxiv", {**graph, "": {**graph[""], "splits": {}}})
    (root / "split" / "time").mkdir(parents=True)
    torch.save(graph[""]["splits"], root / "split" / "time" / "split_dict.pt")
    with pytest.raises(errors.InvalidArgumentError, match=r"split_dict\.pt is a pickle"):
        convert(root, tmp_path / "g", **SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ogbn_arxiv"]
    with convert(root, tmp_path / "g", allow_pickle=True, **SMALL) as store:
        compare(store, graph)


@pytest.mark.parametrize("pyg", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_the_package_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pyg: bool, typed: bool) -> None:
    """The data sets of ``ogb``, where it is installed: the store of the object is that of the directory."""
    nodeproppred = pytest.importorskip("ogb.nodeproppred")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # ogb loads what it pickled itself
    name = "ogbn-mag" if typed else "ogbn-products"
    root = tmp_path / name.replace("-", "_")
    graph = layouts.typed_graph(seed_of(7)) if typed else layouts.ogb_graph(seed_of(7))
    if typed:
        layouts.write_ogb_types(root, graph)
    else:
        del graph[""]["node_year"], graph["", "", ""]["edge_attr"]  # which ogb does not read of this data set
        layouts.write_ogb_csv(root, graph, "sales_ranking")
    (root / "processed").mkdir()  # as in OGB's archives
    make = nodeproppred.PygNodePropPredDataset if pyg else nodeproppred.NodePropPredDataset
    opened = make(name=name, root=str(tmp_path))
    with convert(opened, tmp_path / "o", **SMALL) as got, convert(root, tmp_path / "d", **SMALL) as want:
        assert_same(got, want)


def assert_same(got: Any, want: Any) -> None:
    """Compare two stores of the same graph."""
    assert got.num_nodes_dict == want.num_nodes_dict and got.num_edges == want.num_edges
    for key in [*want.node_types, *want.edge_types] or [None]:
        a, b = (got, want) if key is None else (got[key], want[key])
        assert sorted(a.tensors) == sorted(b.tensors), key
        for tensor in b.tensors:
            assert torch.equal(a[tensor], b[tensor]), (key, tensor)
        for split in getattr(b, "splits", {}):
            assert torch.equal(a.split(split), b.split(split)), (key, split)
    for file in ("indptr", "indices", "edge_ids"):
        for path in Path(want.path).glob(f"*{file}.bin"):
            assert path.read_bytes() == (Path(got.path) / path.name).read_bytes()
    assert sorted(got.link_splits) == sorted(want.link_splits)
    for split in want.link_splits:
        a, b = got.links(split), want.links(split)
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in b), split


@pytest.mark.parametrize("pyg", [False, True])
@pytest.mark.parametrize("name", ["ogbl-collab", "ogbl-citation2", "ogbl-biokg"])
def test_the_package_reads_the_same_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pyg: bool, name: str
) -> None:
    """Its data sets for links, with their splits."""
    linkproppred = pytest.importorskip("ogb.linkproppred")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    rng, root = np.random.default_rng(seed_of(9)), tmp_path / name.replace("-", "_")
    if name == "ogbl-biokg":
        graph = layouts.typed_graph(seed_of(9))
        layouts.write_ogb_types(root, graph)
        for left in (root / "raw" / "node-label", root / "raw" / "node-feat", root / "split"):
            shutil.rmtree(left)
        (root / "raw" / "nodetype-has-label.csv.gz").unlink()
        (root / "RELEASE_v2.txt").rename(root / "RELEASE_v1.txt")
        ends = {"head_type": ["author", "paper"] * 10, "tail_type": ["paper", "institution"] * 10}
        splits = {split: {**ends, "head": rng.integers(10, size=20)} for split in ("train", "valid", "test")}
    else:
        graph = layouts.ogb_graph(seed_of(9))
        nodes, edges = graph[""], graph["", "", ""]
        del nodes["y"], nodes["splits"], edges["edge_attr"]
        if name == "ogbl-collab":
            del nodes["node_year"]
            edges |= {name: rng.integers(1, 9, size=(900, 1)) for name in ("edge_weight", "edge_year")}
        layouts.write_ogb_csv(root, graph)
        splits = {
            split: {"edge": torch.from_numpy(rng.integers(300, size=(30, 2))), "weight": rng.random(30)}
            for split in ("train", "valid", "test")
        }
    directory = root / "split" / ("random" if name == "ogbl-biokg" else "time")
    directory.mkdir(parents=True)
    for split, arrays in splits.items():
        torch.save(arrays, directory / f"{split}.pt")
    (root / "processed").mkdir()
    opened = (linkproppred.PygLinkPropPredDataset if pyg else linkproppred.LinkPropPredDataset)(name, str(tmp_path))
    with convert(opened, tmp_path / "o", **SMALL) as got:
        assert got.link_splits == ["train", "valid", "test"]
        with convert(root, tmp_path / "d", allow_pickle=True, **SMALL) as want:
            assert_same(got, want)


def test_the_package_reads_the_same_mag240m(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lsc = pytest.importorskip("ogb.lsc")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    root = layouts.write_mag240m(tmp_path / "mag240m_kddcup2021", layouts.typed_graph(seed_of(10)))
    (root / "RELEASE_v1.txt").touch()
    opened = lsc.MAG240MDataset(str(tmp_path))
    with convert(opened, tmp_path / "o", **SMALL) as got:
        assert set(got["paper"].splits) == {"train", "valid", "test-whole", "test-dev", "test-challenge"}
        for split, ids in opened.get_idx_split().items():
            assert got.split(split, "paper").tolist() == ids.tolist()
        with convert(tmp_path, tmp_path / "d", allow_pickle=True, source="mag240m", **SMALL) as want:
            for name in ("train", "valid"):
                assert torch.equal(got.split(name, "paper"), want.split(name, "paper"))
            for key in want.node_types + want.edge_types:
                assert got[key].tensors == want[key].tensors
                assert all(torch.equal(got[key][tensor], want[key][tensor]) for tensor in want[key].tensors)


def test_data_sets_are_known_by_their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of a class of ``ogb`` is one of its data sets; a loader takes it, too."""
    module = types.ModuleType("ogb.nodeproppred")
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)
    graph = layouts.ogb_graph(seed_of(8))
    nodes, edges = graph[""], graph["", "", ""]

    class NodePropPredDataset:
        __module__ = "ogb.nodeproppred"
        name, is_hetero = "ogbn-mine", False

        def __len__(self) -> int:
            return 1

        def __getitem__(self, at: int) -> Any:
            return {
                "edge_index": edges["edge_index"],
                "node_feat": nodes["x"],
                "num_nodes": 300,
                "edge_feat": None,
            }, nodes["y"]

        def get_idx_split(self) -> dict[str, Any]:
            return dict(nodes["splits"])

    want = {
        "": {key: nodes[key] for key in ("num_nodes", "x", "y", "splits")},
        ("", "", ""): {"edge_index": edges["edge_index"]},
    }
    with convert(NodePropPredDataset(), tmp_path / "g", **SMALL) as store:
        compare(store, want)
    with Loader(NodePropPredDataset(), [-1], input_nodes="train", batch_size=150) as loader:
        (batch,) = loader
    assert torch.equal(batch.input_id.sort().values, torch.arange(150))
