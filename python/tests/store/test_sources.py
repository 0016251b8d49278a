"""Graphs in sparse matrices and in data sets become the store that their edge lists would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from graphs import hetero_graph, pyg_data, random_graph
from store_oracle import check_store

from freshgo import Loader, convert, errors

pyg = pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, InMemoryDataset  # noqa: E402
from torch_geometric.transforms import ToSparseTensor  # noqa: E402

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}


def in_order_of_targets(edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The places of edges by target, then source, as a matrix has them."""
    return np.lexsort([edges[0], edges[1]])


def simple_graph() -> dict[str, Any]:
    """A graph that has no edge twice, with its edges in the order of a matrix."""
    graph = random_graph(500, 3000)
    edges = np.unique(graph["edge_index"][::-1], axis=1)[::-1].copy()
    edges = edges[:, in_order_of_targets(edges)]
    weight = np.arange(1, edges.shape[1] + 1, dtype=np.float32)
    return {"edge_index": edges, "x": graph["x"], "edge_weight": weight, "num_nodes": 500}


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo, torch.sparse_csc])
@pytest.mark.parametrize("weighted", [True, False])
def test_adj_t(tmp_path: Path, layout: torch.layout, weighted: bool) -> None:
    graph = simple_graph()
    if not weighted:
        del graph["edge_weight"]
    data = Data(**{k: torch.as_tensor(v) if k != "num_nodes" else v for k, v in graph.items()})
    attr = "edge_weight" if weighted else None
    data = ToSparseTensor(attr=attr, layout=None if layout == torch.sparse_csc else layout)(data)
    if layout == torch.sparse_csc:
        data.adj_t = data.adj_t.to_sparse_csc()
        order = np.lexsort(graph["edge_index"][::-1])  # by source
        graph["edge_index"] = graph["edge_index"][:, order]
        if weighted:
            graph["edge_weight"] = graph["edge_weight"][order]
    assert "edge_index" not in data and data.adj_t.layout == layout
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)


def test_adj_t_of_types(tmp_path: Path) -> None:
    graph = hetero_graph()
    for key, part in graph.items():
        if isinstance(key, tuple):
            edges = np.unique(part["edge_index"], axis=1)
            graph[key] = {"edge_index": edges[:, in_order_of_targets(edges)]}
    data = ToSparseTensor(layout=torch.sparse_csr)(pyg_data(graph))
    with convert(data, tmp_path / "g", **SMALL) as store:
        for key, part in graph.items():
            if isinstance(key, tuple):
                assert store.num_edges_dict[key] == part["edge_index"].shape[1]
    given = {key: part for key, part in graph.items() if isinstance(key, str)}
    given |= {key: {"edge_index": data[key].adj_t.to_sparse_coo().indices().flip(0)} for key in data.edge_types}
    with convert(given, tmp_path / "w", **SMALL) as want, convert(data, tmp_path / "h", **SMALL) as store:
        for name in (path.name for path in Path(want.path).glob("e*.bin")):
            assert (Path(store.path) / name).read_bytes() == (Path(want.path) / name).read_bytes()


@pytest.mark.parametrize("form", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array", "lil_matrix"])
def test_scipy(tmp_path: Path, form: str) -> None:
    graph = simple_graph()
    source, target = graph["edge_index"]
    matrix = scipy.sparse.coo_matrix((graph["edge_weight"], (source, target)), shape=(500, 500))
    given = getattr(scipy.sparse, form)(matrix)
    edges = given.tocoo()
    want = {
        "edge_index": np.stack([edges.row, edges.col]).astype(np.int64),
        "edge_weight": edges.data,
        "num_nodes": 500,
    }
    assert {*zip(*graph["edge_index"].tolist(), strict=True)} == {*zip(*want["edge_index"].tolist(), strict=True)}
    with convert(given, tmp_path / "g", **SMALL) as store:
        check_store(store, want)


def test_a_data_set_of_one_graph(tmp_path: Path) -> None:
    graph = simple_graph()

    class Graphs(InMemoryDataset):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            super().__init__(None)
            one = Data(**{k: torch.as_tensor(v) if k != "num_nodes" else v for k, v in graph.items()})
            self.data, self.slices = self.collate([one] * count)

    with convert(Graphs(1), tmp_path / "g", **SMALL) as store:
        check_store(store, graph)
    with pytest.raises(errors.InvalidArgumentError, match="Graphs has 2 graphs, expected one"):
        convert(Graphs(2), tmp_path / "h", **SMALL)
    with Loader(Graphs(1), [-1], batch_size=500) as loader:
        (batch,) = loader
    assert batch.edge_index.shape[1] == graph["edge_index"].shape[1]


def test_what_cannot_be(tmp_path: Path) -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    matrix = torch.sparse_coo_tensor(edges, torch.tensor([1.0, 2.0]), (2, 2))
    for given, message in (
        ({"adj_t": matrix, "edge_index": edges}, "edge_index and adj_t are both given"),
        ({"adj_t": matrix, "edge_weight": torch.ones(2)}, "edge_weight is given beside the values"),
        ({"adj_t": torch.ones(2, 2), "num_nodes": 2}, "adj_t must be a torch_sparse.SparseTensor"),
        (scipy.sparse.csr_matrix((2, 3)), "must be square"),
    ):
        with pytest.raises((errors.InvalidArgumentError, errors.DTypeError), match=message):
            convert(given, tmp_path / "g", **SMALL)
