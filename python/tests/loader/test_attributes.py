"""What scripts for PyG read from a loader, and what the public objects say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import freshgo
from freshgo import Auto, Belady, Disk, LinkLoader, Loader, Ranks, Store, Table, convert

GRAPH: dict[str, Any] = {"edge_index": torch.arange(40).view(2, 20) % 13, "x": torch.arange(26.0).view(13, 2)}
TYPED: dict[Any, Any] = {
    "user": {"num_nodes": 5},
    "item": {"num_nodes": 7},
    ("user", "rates", "item"): {"edge_index": torch.arange(12).view(2, 6) % 5},
}


@pytest.mark.parametrize("stored", [False, True])
def test_what_scripts_read(tmp_path: Path, stored: bool) -> None:
    data = convert(GRAPH, tmp_path / "g", progress=False).path if stored else GRAPH
    with Loader(data, [3, 2], [5, 3, 1], batch_size=2, ranks=Ranks(rank=0, world_size=2)) as loader:
        assert (loader.batch_size, loader.num_neighbors) == (2, [3, 2])
        assert (len(loader.dataset), list(loader.dataset)) == (3, [0, 1, 2])
        assert isinstance(loader.input_nodes, torch.Tensor)
        assert loader.input_nodes.tolist() == [5, 3, 1]
    assert len(loader.dataset) == 3, "of a closed loader too"
    mask = torch.zeros(13, dtype=torch.bool)
    mask[[2, 4]] = True
    with Loader(data, [3], mask) as loader:
        assert loader.input_nodes.tolist() == [2, 4]  # type: ignore[union-attr]
    with Loader(data, [3]) as loader:
        assert (len(loader.dataset), loader.input_nodes) == (13, None)
    with LinkLoader(data, [3], torch.tensor([[1, 2, 3], [4, 5, 6]]), neg_sampling="binary") as links:
        assert (len(links.dataset), links.batch_size) == (3, 1)
        assert not hasattr(links, "input_nodes")
    with LinkLoader(data, [3]) as links:
        assert len(links.dataset) == 20


def test_what_scripts_read_of_types(tmp_path: Path) -> None:
    for data in (TYPED, convert(TYPED, tmp_path / "g", progress=False)):
        with Loader(data, [2], {"item": [6, 0], "user": None}, batch_size=4) as loader:
            nodes = loader.input_nodes
            assert isinstance(nodes, dict)
            assert {name: ids.tolist() for name, ids in nodes.items()} == {  # type: ignore[union-attr]
                "item": [6, 0],
                "user": [0, 1, 2, 3, 4],
            }
            assert loader.num_neighbors == {("user", "rates", "item"): [2]}
            assert len(loader.dataset) == 7


def test_reprs_show_paths_and_counts(tmp_path: Path) -> None:
    with convert(GRAPH, tmp_path / "graph.freshgo", progress=False) as store:
        assert repr(store) == f"Store('{tmp_path}/graph.freshgo', num_nodes=13, num_edges=20)"
        with Loader(store, [2], batch_size=5) as loader:
            said = f"Loader('{tmp_path}/graph.freshgo', num_nodes=13, num_edges=20, num_neighbors=[2], 3 batches of 5)"
            assert repr(loader) == said
            assert store.uuid not in loader._repr_html_()
        with LinkLoader(store, [2], batch_size=5) as loader:
            assert repr(loader) == f"Link{said.replace('3 batches', '4 batches')}"
    with Loader(GRAPH, [2], batch_size=5) as loader:
        assert repr(loader).startswith("Loader(graph in memory, num_nodes=13, num_edges=20, num_neighbors=[2], 3 ")
    assert repr(loader).endswith("closed)")
    with convert(TYPED, tmp_path / "typed", progress=False) as store, Loader(store, [2], "user") as loader:
        counts = "nodes {user: 5, item: 7}, edges {(user, rates, item): 6}"
        assert f"'{tmp_path}/typed', {counts}" in repr(store)
        assert f"'{tmp_path}/typed', {counts}" in repr(loader)
    assert repr(Ranks(share="host")) == "Ranks(share='host')"
    assert repr(Disk()) == "Disk()"
    assert repr(Auto(scratch_size=0)) == "Auto(scratch_size=0)"
    assert repr(Belady(4, reorder=True)) == "Belady(superbatch=4, reorder=True)"


def test_tables_do_not_show_their_rows() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"s": [123456, 2], "d": [3, 4]})
    assert repr(Table(frame, src="s", dst="d")) == (
        "Table(source=<pandas.DataFrame of 2 rows and 2 columns>, src='s', dst='d')"
    )
    assert "<pyarrow.Table of 2 rows and 2 columns>" in repr(Table(pyarrow.table(dict(frame)), src="s", dst="d"))
    assert repr(Table("users/*.parquet", id="uid")) == "Table(source='users/*.parquet', id='uid')"
    assert repr(Table(["a.csv", Path("b.csv")], id="uid")) == "Table(source=<'a.csv' and 1 more>, id='uid')"
    columns = Table({"s": [123456], "d": [3]}, src="s", dst="d", features=["w"], nulls={"w": 0})
    assert "source=<columns 's', 'd'>" in repr(columns)
    assert "123456" not in repr(columns)


def test_completion_of_the_package_shows_public_names_alone() -> None:
    names = dir(freshgo)
    assert set(freshgo.__all__) <= set(names)
    assert {"nn", "policies", "options", "distributed"} <= set(names)
    assert not {"Any", "importlib", "annotations", "TYPE_CHECKING", "sys"} & set(names)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert all(getattr(freshgo, name) is not None for name in names)
    assert isinstance(freshgo.Store, type) and freshgo.Store is Store
