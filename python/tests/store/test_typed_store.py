"""Heterogeneous graphs to a store and back."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from real_types import read_types
from seeds import seed as seed_of
from store_oracle import check_store, reader

from freshgo import Loader, Store, convert, errors, hotness
from freshgo._args.parts import graph_parts
from freshgo._native.graph import Graph as NativeGraph
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import loader_options, relations
from freshgo._native.process import counters
from freshgo.cli import main

pytestmark = pytest.mark.explore

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}

Graph = dict[Any, dict[str, Any]]

DTYPES = [np.float32, np.float16, np.int64, np.uint8, np.bool_, np.float64, np.int16]


def random_types(seed: int, scale: int = 200) -> Graph:
    """A graph of a random schema: types with and without nodes, tensors, splits, edges."""
    rng = np.random.default_rng(seed_of(seed))

    def tensor(rows: int) -> Any:
        shape = (rows, *rng.integers(1, 30, size=rng.integers(3)))
        return rng.integers(0, 100, size=shape).astype(rng.choice(DTYPES))

    graph: Graph = {}
    names = ["paper", "author", "a type/with: odd names", "été"][: rng.integers(1, 5)]
    for name in names:
        count = int(rng.integers(scale)) if rng.random() < 0.9 else 0
        graph[name] = {f"x{i}": tensor(count) for i in range(rng.integers(3))}
        graph[name]["num_nodes"] = count
        if rng.random() < 0.5:
            graph[name]["val_mask"] = rng.random(count) < 0.5
        if rng.random() < 0.5 and count:
            graph[name]["splits"] = {"train": rng.integers(count, size=10)}
    for i in range(rng.integers(1, 6)):
        source, target = rng.choice(names), rng.choice(names)
        counts = graph[source]["num_nodes"], graph[target]["num_nodes"]
        num_edges = int(rng.integers(4 * scale)) if min(counts) else 0
        edges = np.stack([rng.integers(max(count, 1), size=num_edges) for count in counts])
        part = {f"w{i}": tensor(num_edges) for i in range(rng.integers(3))}
        graph[(str(source), f"to {i}", str(target))] = {"edge_index": edges, **part}
    return graph


@pytest.mark.parametrize("seed", range(12))
def test_random_schemas(seed: int, tmp_path: Path) -> None:
    graph = random_types(seed)
    with convert(graph, tmp_path / "g", **SMALL) as store:
        store.verify()
        check_store(store, graph)


def test_directory(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for key, part in (
        ("user", {"x": np.zeros((3, 2)), "train_idx": np.array([2])}),
        ("item", {}),
        ("user__likes__item", {"edge_index": np.array([[0, 1], [4, 0]]), "time": np.array([7, 8])}),
    ):
        (source / key).mkdir(parents=True)
        for name, value in part.items():
            np.save(source / key / f"{name}.npy", value)
    (source / "README.txt").write_text("ignored", encoding="utf-8")
    assert main(["convert", str(source), str(tmp_path / "g"), "--memory", "64MiB"]) == 0
    with Store.open(tmp_path / "g") as store:
        graph = {"item": {"num_nodes": 5}, "user": {"num_nodes": 3, "x": np.zeros((3, 2)), "splits": {"train": [2]}}}
        graph[LIKES] = {"edge_index": np.array([[0, 1], [4, 0]]), "time": np.array([7, 8])}
        check_store(store, graph)
    (source / "user__item").mkdir()
    with pytest.raises(errors.InvalidArgumentError, match="user__item must be named as a node type or as source__rel"):
        convert(source, tmp_path / "h", **SMALL)


def test_numbers_of_nodes(tmp_path: Path) -> None:
    edges = np.array([[3, 0], [1, 5]])
    data = {"user": {}, "item": {"x": np.zeros((9, 2))}, ("user", "likes", "item"): edges}
    with convert(data, tmp_path / "g", **SMALL) as store:
        assert store.num_nodes_dict == {"user": 4, "item": 9}


def test_what_is_ignored_is_named(tmp_path: Path) -> None:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["paper"].num_nodes, data["paper"].title = 3, "a title"
    data["paper", "cites", "paper"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    data["paper"].model, data.source = torch.nn.Linear(1, 1), "somewhere"
    with (
        pytest.warns(UserWarning, match=r"ignores attributes that a store cannot hold: paper.model \(Linear\)"),
        convert(data, tmp_path / "g", **SMALL) as store,
    ):
        assert store.node_types == ["paper"]
        assert (store.attributes(), store.attributes("paper")) == ({"source": "somewhere"}, {"title": "a title"})


LIKES = ("user", "likes", "item")
INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError


def small() -> Any:
    return {
        "user": {"x": np.zeros((3, 2), np.float32), "splits": {"train": [0, 2]}},
        "item": {"num_nodes": 4},
        ("user", "likes", "item"): {"edge_index": np.array([[0, 2], [3, 1]]), "time": np.array([5, 6])},
    }


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {("user", "likes", "itm"): np.zeros((2, 0), int)},
            INVALID,
            "unknown node type 'itm', the node types are 'user', 'item'",
        ),
        ({("user", "item"): np.zeros((2, 0), int)}, DTYPE, r"got \('user', 'item'\)"),
        ({7: {}}, DTYPE, "got 7"),
        ({"": {}}, INVALID, "printable characters, got ''"),
        ({"a\0b": {}}, INVALID, "printable"),
        ({"user": np.zeros((3, 2))}, DTYPE, "node type 'user' must be a mapping"),
        ({LIKES: {}}, INVALID, r"\('user', 'likes', 'item'\) has no 'edge_index'"),
        ({LIKES: {"adj_t": 1}}, DTYPE, "adj_t must be a torch_sparse.SparseTensor"),
        (
            {LIKES: np.zeros((3, 3), int)},
            INVALID,
            r"\(user, likes, item\).edge_index must have shape \[2, num_edges\] or \[num_edges, 2\], got \[3, 3\]",
        ),
        ({LIKES: np.zeros((2, 2))}, DTYPE, "must hold integers, got float64"),
        (
            {LIKES: np.array([[3], [0]])},
            INVALID,
            r"\(user, likes, item\).edge_index\[0, 0\] is 3, expected an id in \[0, 3\)",
        ),
        ({LIKES: np.array([[2], [4]])}, INVALID, r"edge_index\[1, 0\] is 4, expected an id in \[0, 4\)"),
        (
            {LIKES: {"edge_index": np.zeros((2, 2), int), "time": np.zeros(3)}},
            INVALID,
            r"\(user, likes, item\).time has shape \[3\], but there are 2 edges of this type",
        ),
        (
            {"user": {"num_nodes": 3, "x": np.zeros((4, 2))}},
            INVALID,
            r"user.x has shape \[4, 2\], but there are 3 nodes of this type",
        ),
        ({"user": {"num_nodes": 3.0}}, DTYPE, "user.num_nodes must be an int"),
        ({"user": {"n_id": np.zeros(3)}}, INVALID, "'user.n_id' is reserved for an attribute"),
        ({"user": {"num_nodes": 3, "splits": {"train": [3]}}}, INVALID, r"element 0 of split 'user\.train' is 3"),
        (
            {"user": {"num_nodes": 3, "splits": {"train": [0.5]}}},
            DTYPE,
            r"user.splits\['train'\] must hold integers or bools",
        ),
        (
            {"user": {"train_mask": np.ones(3, bool), "splits": {"train": [0]}}},
            INVALID,
            "split 'user.train' is given twice",
        ),
    ],
)
def test_bad_input(change: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        convert({**small(), **change}, tmp_path / "g", **SMALL)
    assert not list(tmp_path.iterdir())


def test_an_edge_out_of_range_in_a_file_names_it(tmp_path: Path) -> None:
    np.save(tmp_path / "likes.npy", np.array([[0, 1, 2], [1, 2, 9]]))
    data = small() | {("user", "likes", "item"): tmp_path / "likes.npy"}
    with pytest.raises(errors.InvalidArgumentError, match=r"edge_index\[1, 2\] in .*likes.npy is 9, expected"):
        convert(data, tmp_path / "g", **SMALL)


def test_refusals(tmp_path: Path) -> None:
    only_nodes = {k: v for k, v in small().items() if isinstance(k, str)}
    with pytest.raises(errors.InvalidArgumentError, match="has no 'edge_index'"):
        convert(only_nodes, tmp_path / "g", **SMALL)
    with pytest.raises(errors.BudgetError) as error:
        convert(small(), tmp_path / "g", memory=1000, progress=False)
    convert(small(), tmp_path / "g", memory=error.value.minimum, progress=False).close()
    with pytest.raises(errors.StoreExistsError):
        convert(small(), tmp_path / "g", **SMALL)
    for data in (tmp_path / "g", small()):
        with pytest.raises(errors.DTypeError, match="input_nodes must be a node type such as 'user'"):
            Loader(data, [2])
        scores = hotness(data, "degree")
        assert {name: len(of) for name, of in scores.items()} == {"user": 3, "item": 4}


def test_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "g"
    stages = []
    with convert(small(), path, memory="64MiB", progress=lambda stage, *_: stages.append(stage)) as store:
        assert stages
        nodes = "{user: 3, item: 4}"
        assert repr(store) == f"Store({str(path)!r}, nodes {nodes}, edges {{(user, likes, item): 2}})"
        assert repr(store["user"]) == "StoredNodes('user', num_nodes=3, tensors=[x])"
        assert repr(store["user", "likes", "item"]) == (
            "StoredEdges(('user', 'likes', 'item'), num_edges=2, tensors=[time])"
        )
        with pickle.loads(pickle.dumps(store)) as again:
            assert again.uuid == store.uuid
            assert again.metadata() == store.metadata()
        for action, message in (
            (lambda: store["usr"], "no node type 'usr', only 'user', 'item'"),
            (lambda: store["user", "likes", "user"], r"no edge type .*, only \('user', 'likes', 'item'\)"),
            (lambda: store.read("x"), "the tensor 'x' needs its node type or edge type, one of 'user', 'item', "),
            (lambda: store.split("train"), "the split 'train' needs its node type, one of 'user', 'item'"),
            (lambda: store["user"]["y"], "node type 'user' has no tensor 'y', only 'x'"),
            (lambda: store.read("y", ("user", "likes", "item")), "has no tensor 'y', only 'time'"),
            (lambda: store.split("train", "item"), "node type 'item' has no split 'train': it has none"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=message):
                action()
    with pytest.raises(errors.ClosedError):
        store["user"]["x"]
    assert main(["verify", str(path)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "  nodes    7",
        "  edges    2",
        "  nodes of type 'user': 3",
        "    node     x: float32 [3, 2], 24 B",
        "    split    train: 2 nodes",
        "  nodes of type 'item': 4",
        "  edges of type ('user', 'likes', 'item'): 2",
        "    edge     time: int64 [2], 16 B",
    ]


def test_damage_is_found(tmp_path: Path) -> None:
    convert(small(), tmp_path / "g", **SMALL).close()
    (name,) = (tmp_path / "g").glob("*time.bin")
    with name.open("r+b") as file:
        file.write(b"\xff")
    with Store.open(tmp_path / "g") as store, pytest.raises(errors.CorruptError, match=r"time\.bin"):
        store.verify()


def test_graphs_in_memory() -> None:
    before = counters()
    parts = graph_parts({**random_types(3), ("paper", "to itself", "paper"): np.zeros((2, 3), int)})
    with contextlib.closing(NativeGraph(parts)) as graph:
        assert counters()["graphs"] == before["graphs"] + 1
        with contextlib.closing(
            NativeLoader(graph, loader_options(batch_size=1, **relations([[2]] * len(parts.edges))))
        ):
            assert counters()["loaders"] == before["loaders"] + 1
    assert counters() == before
    parts.edges["paper", "to itself", "paper"].edge_index[0, 1] = 1 << 40
    with pytest.raises(
        errors.InvalidArgumentError, match=r"\(paper, to itself, paper\).edge_index\[0, 1\] is 1099511627776"
    ):
        NativeGraph(parts)
    assert counters() == before


KILLED = """
import os, signal, sys
import freshgo
from freshgo._native import handle as native_handle
native_handle.POLL_MS = 1
stages = ["partitioning edges of liked", "sorting edges of liked", "partitioning edges of likes"]
def progress(stage, done, total):
    # A stage that is over before anybody looked is killed in the next.
    if stage in stages[stages.index(sys.argv[3]):]:
        os.kill(os.getpid(), signal.SIGKILL)
freshgo.convert(sys.argv[1], sys.argv[2], memory="4MiB", overwrite=True, progress=progress)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of types whose conversion takes long enough to be seen at work."""
    rng, source = np.random.default_rng(seed_of(1)), tmp_path_factory.mktemp("large")
    arrays = {
        "user/x": rng.random((100_000, 16), dtype=np.float32),
        "item/x": rng.random((50_000, 8), dtype=np.float32),
        "user__likes__item/edge_index": np.stack([rng.integers(n, size=1_500_000) for n in (100_000, 50_000)]),
        "item__liked__user/edge_index": np.stack([rng.integers(n, size=1_500_000) for n in (50_000, 100_000)]),
    }
    for name, array in arrays.items():
        path = source / f"{name}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, array)
    return source


@pytest.mark.parametrize("stage", ["partitioning edges of liked", "sorting edges of liked"])
def test_killed(large: Path, tmp_path: Path, stage: str) -> None:
    convert(small(), tmp_path / "g", **SMALL).close()
    warm.killed(KILLED, large, tmp_path / "g", stage)
    assert {path.name for path in tmp_path.iterdir()} == {"g", "g.partial"}
    with Store.open(tmp_path / "g") as store:
        assert store.num_nodes_dict == {"user": 3, "item": 4}
    with convert(large, tmp_path / "g", memory="4MiB", overwrite=True, progress=False) as store:
        store.verify()
        for name in ("user", "item"):
            np.testing.assert_array_equal(store[name]["x"], np.load(large / name / "x.npy"))
        plain = reader()(store.path)["item", "liked", "user"]
        edges = np.load(large / "item__liked__user" / "edge_index.npy")
        np.testing.assert_array_equal(plain["indices"], edges[0][plain["edge_ids"]])
    assert {path.name for path in tmp_path.iterdir()} == {"g"}


@pytest.mark.parametrize("name", ["hetero-dblp", "hetero-acm", "lastfm-hetero"])
def test_real_graphs(name: str, real_graph: Any, tmp_path: Path) -> None:
    graph = read_types(real_graph(name))
    with convert(graph, tmp_path / "g", **SMALL) as store:
        store.verify()
        check_store(store, graph)
