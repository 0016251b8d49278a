"""Graphs in sparse matrices and in data sets become the store that their edge lists would."""

from __future__ import annotations

import ast
import collections
import datetime
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from graphs import hetero_graph, pyg_data, random_graph
from store_oracle import check_store

from freshgo import Loader, convert, errors

pyg = pytest.importorskip("torch_geometric")
from torch_geometric import EdgeIndex  # noqa: E402
from torch_geometric.data import Data, InMemoryDataset, OnDiskDataset  # noqa: E402
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


class SparseTensor:
    """What we use of torch_sparse's class of this name, which is known by its name: there is no wheel of it for every
    torch."""

    def __init__(self, row: Any, col: Any, value: Any) -> None:
        self._entries = row, col, value

    def coo(self) -> Any:
        return self._entries


@pytest.mark.parametrize("values", ["none", "weights", "rows"])
def test_adj_t_of_torch_sparse(tmp_path: Path, values: str) -> None:
    graph = simple_graph()
    weight = graph.pop("edge_weight")
    if values != "none":
        graph |= {"edge_weight": weight} if values == "weights" else {"edge_attr": np.stack([weight, -weight], 1)}
    given = {"weights": torch.as_tensor(weight), "rows": torch.as_tensor(graph.get("edge_attr", weight)), "none": None}
    sources, targets = torch.as_tensor(graph["edge_index"])
    data = Data(x=torch.as_tensor(graph["x"]), adj_t=SparseTensor(targets, sources, given[values]))
    with convert(data, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)
    with pytest.raises(errors.DTypeError, match=r"adj_t must be a torch_sparse\.SparseTensor"):
        convert({"adj_t": object(), "num_nodes": 2}, tmp_path / "h", **SMALL)


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


@pytest.mark.parametrize("told", ["csr", "coo", "edge_index", "n_id"])
@pytest.mark.parametrize("typed", [False, True])
def test_the_last_nodes_without_edges_count(tmp_path: Path, told: str, typed: bool) -> None:
    """Where no tensor has a row for each node, PyG takes their number from the matrix, the EdgeIndex or ``n_id``."""
    edges = torch.tensor([[0, 1], [1, 2]])
    by_matrix = torch.sparse_coo_tensor(edges.flip(0), torch.ones(2), (7, 9 if typed else 7)).coalesce()
    sizes = (9, 7) if typed else (7, 7)
    of_edges: dict[str, Any] = {
        "csr": {"adj_t": by_matrix.to_sparse_csr()},
        "coo": {"adj_t": by_matrix},
        "edge_index": {"edge_index": EdgeIndex(edges, sparse_size=sizes)},
        "n_id": {"edge_index": edges},
    }[told]
    numbered = [{"n_id": torch.arange(size)} if told == "n_id" else {} for size in sizes]
    data: Any = Data(**of_edges, **numbered[0])
    if typed:
        data = {"a": numbered[0], "b": numbered[1], ("a", "to", "b"): of_edges}
    else:
        assert data.num_nodes == 7
    for graph in (data, convert(data, tmp_path / "g", **SMALL)):
        loader = Loader(graph, [1], "b" if typed else None)
        assert len(loader) == 7
        assert len(Loader(graph, [1], "a" if typed else None)) == sizes[0]


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


@pytest.mark.parametrize("kind", ["array", "tensor", "file"])
def test_edges_alone(tmp_path: Path, kind: str) -> None:
    edges = simple_graph()["edge_index"]
    for place, given in enumerate((edges, np.ascontiguousarray(edges.T))):
        data: Any = given if kind == "array" else torch.from_numpy(given)
        if kind == "file":
            data = tmp_path / f"e{place}.npy"
            np.save(data, given)
        with convert(data, tmp_path / f"g{place}", **SMALL) as store:
            check_store(store, {"edge_index": edges, "num_nodes": int(edges.max()) + 1})
        if kind != "file":
            with Loader(data, [-1], batch_size=500) as loader:
                (batch,) = loader
            assert batch.edge_index.shape[1] == edges.shape[1]


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("values", [0, 1, 2])
def test_arrays_of_matrices(tmp_path: Path, form: str, values: int) -> None:
    graph = simple_graph()
    edges, weight = graph["edge_index"], graph["edge_weight"]
    matrix = getattr(scipy.sparse.coo_matrix((weight, edges), shape=(500, 500)), f"to{form}")()
    arrays = (matrix.row, matrix.col) if form == "coo" else (matrix.indptr, matrix.indices)
    entries = matrix.tocoo()
    want: dict[str, Any] = {"edge_index": np.stack([entries.row, entries.col]), "num_nodes": 500}
    if form == "coo":
        want["num_nodes"] = int(edges.max()) + 1
    if values:
        rows = entries.data if values == 1 else np.stack([entries.data, -entries.data], axis=1)
        arrays, want["edge_weight" if values == 1 else "edge_attr"] = (*arrays, rows), rows
    with pytest.raises(errors.InvalidArgumentError, match="source='csr'"):
        convert(arrays, tmp_path / "g", **SMALL)
    with convert(arrays, tmp_path / "g", source=form, **SMALL) as store:
        check_store(store, want)


def test_a_sparse_tensor(tmp_path: Path) -> None:
    graph = simple_graph()
    edges = torch.from_numpy(graph["edge_index"])
    matrix = torch.sparse_coo_tensor(edges, torch.from_numpy(graph["edge_weight"]), (500, 500))
    with convert(matrix, tmp_path / "g", **SMALL) as store:
        check_store(store, {key: graph[key] for key in ("edge_index", "edge_weight", "num_nodes")})


@pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
@pytest.mark.parametrize("names", ["numbers", "others", "strings", "tuples"])
def test_networkx(tmp_path: Path, kind: str, names: str) -> None:
    rng = np.random.default_rng(3)
    called: dict[str, Any] = {
        "numbers": lambda i: i,
        "others": lambda i: 7 * i - 50,
        "strings": lambda i: f"n\u00f6{i}",
        "tuples": lambda i: (i, "a"),
    }
    name = called[names]
    graph = getattr(networkx, kind)()
    x = rng.standard_normal((60, 3)).astype(np.float32)
    for i in rng.permutation(60).tolist():
        graph.add_node(name(i), x=x[i], train_mask=bool(i % 3), kind="paper")
    for a, b in rng.integers(60, size=(200, 2)).tolist():
        graph.add_edge(name(a), name(b), weight=a + b / 64)
    ordered = {"strings": str.encode, "tuples": lambda node: repr(node).encode()}.get(names, int)
    numbers = {node: place for place, node in enumerate(sorted(graph.nodes, key=ordered))}
    edges, weight = [], []
    for a, b, of in graph.edges(data=True):
        for ends in dict.fromkeys(
            [(numbers[a], numbers[b])] + ([] if graph.is_directed() else [(numbers[b], numbers[a])])
        ):
            edges.append(ends)
            weight.append(of["weight"])
    back = {place: node for node, place in numbers.items()}
    want = {
        "num_nodes": 60,
        "edge_index": np.array(edges).T,
        "train_mask": np.array([graph.nodes[back[i]]["train_mask"] for i in range(60)]),
        "x": np.array([graph.nodes[back[i]]["x"] for i in range(60)]),
        "edge_weight": np.array(weight, np.float32),
    }
    with pytest.warns(UserWarning, match="ignores attributes of nodes that are not numbers: kind"):
        store = convert(graph, tmp_path / "g", **SMALL)
    with store:
        check_store(store, want)
        keys = store.ids().keys(torch.arange(60))
        listed = [ast.literal_eval(key) for key in keys] if names == "tuples" else keys
        assert [numbers[key] for key in (listed if isinstance(listed, list) else listed.tolist())] == list(range(60))
        assert store.ids().lookup(keys).tolist() == list(range(60))


NODES: dict[str, list[Any]] = {
    "numbers and texts": [1, "1", 2.0, "2.0", "'1'", -3],
    "hash equal": [True, 0, 2],
    "nested": [(1, ("a", None)), (1, "a"), ("1", "a"), (), (1,), "()"],
    "others": ["None", b"x", "b'x'", 1.5, 1e300, -0.5, 1j, True],
    "large": [2**63, 2**64 + 5, -(2**70)],
    "of NumPy": [np.int64(4), np.float64(2.5), np.str_("s"), (np.int32(1),)],
    "named": [collections.namedtuple("P", "a b")(1, 2), (2, 1)],
    "empty": ["", " ", "\n", "\0"],
}


@pytest.mark.parametrize("kind", NODES)
def test_nodes_of_networkx_keep_their_names(tmp_path: Path, kind: str) -> None:
    """Python reads back the node from its name, whatever the nodes beside it are."""
    nodes = NODES[kind]
    graph = networkx.DiGraph([(nodes[0], node) for node in nodes])
    with convert(graph, tmp_path / "g", **SMALL) as store:
        assert store.num_nodes == len(nodes) == graph.number_of_nodes()
        names = store.ids().keys(range(store.num_nodes))
        names = names if isinstance(names, list) else names.tolist()
        plain = kind in ("hash equal", "empty") and all(type(node) in (str, int) for node in nodes)
        read = names if plain else [ast.literal_eval(name) for name in names]
        assert set(read) == set(nodes) and len(set(names)) == len(nodes)
        root = read.index(nodes[0])
        (batch,) = Loader(store, [-1], torch.tensor([read.index(nodes[-1])]), batch_size=1)
        assert batch.n_id.tolist() == [read.index(nodes[-1]), root]


def test_nodes_of_networkx_of_other_classes(tmp_path: Path) -> None:
    day = datetime.date(2020, 1, 2)
    graph = networkx.Graph([(frozenset({"b", "a"}), day), (day, frozenset())])
    with convert(graph, tmp_path / "g", **SMALL) as store:
        assert store.ids().keys([0, 1, 2]) == ["datetime.date(2020, 1, 2)", "frozenset()", "frozenset({'a', 'b'})"]
    graph = networkx.Graph([(float("nan"), 1), (float("nan"), 1)])
    with pytest.raises(errors.InvalidArgumentError, match="two nodes are both written nan, expected names that differ"):
        convert(graph, tmp_path / "h", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match="has a name that UTF-8 cannot hold"):
        convert(networkx.Graph([("a", "\ud800")]), tmp_path / "h", **SMALL)


def test_networkx_attributes_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'edge_index' is reserved"):
        convert(networkx.Graph([(0, 1, {"edge_index": 3})]), tmp_path / "g", **SMALL)
    graph = networkx.path_graph(4)
    graph.nodes[2]["x"] = 1.0
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"the node 0 has no attribute 'x', which node 2 has: give it to all",
    ):
        convert(graph, tmp_path / "g", **SMALL)
    networkx.set_node_attributes(graph, {i: [1.0] * (1 + i % 2) for i in range(4)}, "x")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"'x' of nodes has several shapes, expected one: \[\(1,\), \(2,\)\]"
    ):
        convert(graph, tmp_path / "g", **SMALL)
    networkx.set_node_attributes(graph, 1.0, "x")
    networkx.set_edge_attributes(graph, 1.0, "x")
    with pytest.raises(errors.InvalidArgumentError, match="nodes and edges both have an attribute 'x'"):
        convert(graph, tmp_path / "g", **SMALL)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 1e300], r"the node 1 has x=1e\+300, which is too large for float32"),
        ([[0, 1.0], [1e39, 1]], r"the node 1 has x=1e\+39, which is too large for float32"),
        ([2**63, 1], "the node 0 has x=9223372036854775808, which is too large for int64"),
        ([1, 2**64], "the node 1 has x=18446744073709551616, which is too large for int64"),
        ([1, float("inf")], None),
        ([2**53 + 1, -(2**63)], None),
    ],
)
def test_numbers_of_networkx_are_not_rounded_to_infinity(values: list[Any], said: str | None, tmp_path: Path) -> None:
    graph = networkx.DiGraph([(0, 1)])
    networkx.set_node_attributes(graph, dict(enumerate(values)), "x")
    if said is None:
        assert convert(graph, tmp_path / "g", **SMALL)["x"].tolist() == values
        return
    with pytest.raises(errors.InvalidArgumentError, match=said):
        convert(graph, tmp_path / "g", **SMALL)


def test_a_data_set_on_disk(tmp_path: Path) -> None:
    graph = simple_graph()
    one = Data(**{k: torch.as_tensor(v) if k != "num_nodes" else v for k, v in graph.items()})
    on_disk = OnDiskDataset(str(tmp_path / "set"), backend="sqlite")
    on_disk.append(one)
    with convert(on_disk, tmp_path / "g", **SMALL) as store:
        check_store(store, graph)
    on_disk.close()


def test_a_source_that_is_forced(tmp_path: Path) -> None:
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    with convert(edges, tmp_path / "g", source="edges", **SMALL) as store:
        assert store.num_edges == 3
    for data, source, kind, message in (
        (
            edges,
            "ogb",
            errors.InvalidArgumentError,
            "source='ogb' expects a directory of OGB or a data set .*, got a ndarray of shape",
        ),
        (
            {"edge_index": edges, "x": edges},
            "ogb",
            errors.InvalidArgumentError,
            "got a mapping of edge_index, x",
        ),
        (edges, "parquet", errors.InvalidArgumentError, "source must be one of ogb, mag240m"),
        (edges, 3, errors.DTypeError, "source must be one of ogb, mag240m"),
        (
            (edges[0], edges[1]),
            "csr",
            errors.InvalidArgumentError,
            "csr: the offsets must ascend from 0 to the 3 edges",
        ),
        ((edges[0], edges[1, :2]), "coo", errors.InvalidArgumentError, "of equal lengths"),
        (edges, "csc", errors.DTypeError, "csc must be"),
        (tmp_path / "none", "mag240m", errors.InvalidArgumentError, "source='mag240m' .*none, which does not exist"),
        (tmp_path / "none", "ogb", errors.StoreNotFoundError, "no such directory"),
        (tmp_path, "ogb", errors.StoreNotFoundError, "no edge.csv.gz"),
        (
            tmp_path,
            "igb",
            errors.InvalidArgumentError,
            f"expects .* processed/paper.*, got {tmp_path}, which is not",
        ),
        (tmp_path, None, errors.InvalidArgumentError, f"{tmp_path} is not recognised: it has no .npy files"),
    ):
        with pytest.raises(kind, match=message):
            convert(data, tmp_path / "h", source=source, **SMALL)
    with pytest.raises(errors.DTypeError, match="allow_pickle"):
        convert(edges, tmp_path / "h", allow_pickle="yes", **SMALL)


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
