"""infer on a store with an order of its own: its lists by place, and the result in the order asked for."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from infer_jobs import StopError
from seeds import seed as seed_of

from freshgo import Store, convert, errors, infer
from freshgo._infer.files import Moved, Rows
from freshgo._infer.lists import lists_in, lists_of
from freshgo._infer.order import Order, order_of
from freshgo._infer.relaid import write_by_place
from freshgo._infer.result import Result

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore

NODES, EDGES = 700, 5000


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    """With nodes without edges, and one that has half of them."""
    made, rng = random_graph(NODES, EDGES, seed=8), np.random.default_rng(seed_of(2))
    hub = np.stack([rng.integers(0, NODES, EDGES), np.full(EDGES, 11)])
    edges = np.concatenate([made["edge_index"], hub], 1)
    edges = edges[:, (edges[1] % 7 != 3) | (edges[1] == 11)]
    return {"x": made["x"], "edge_index": edges, "w": rng.random(edges.shape[1]).astype(np.float32), "num_nodes": NODES}


@pytest.fixture(scope="module")
def path(graph: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("order") / "graph"
    convert(graph, path, progress=False, relayout="community").close()
    return path


@pytest.mark.parametrize("memory", [0, 13_000, 30_000, 1 << 20])
@pytest.mark.parametrize("weight", [None, "w"])
def test_lists_by_place(path: Path, graph: dict[str, Any], tmp_path: Path, memory: int, weight: str | None) -> None:
    """In windows of every size, each of which may be the last of a process."""
    moved, piece = Moved(), 256
    with Store(path) as store:
        order = order_of(store, moved)
        assert order is not None
        nodes, places = order.nodes(0, NODES), order.places()
        lists = lists_of(store, weight, piece, moved)
        sizes = {
            "indptr": NODES + 1,
            "indices": lists.num_edges,
            **({} if weight is None else {"weights": lists.num_edges}),
        }
        dtypes: dict[str, Any] = {"indptr": np.uint32, "indices": lists.edges(0, 1)[0].dtype, "weights": np.float32}
        done = windows = 0
        while done < lists.num_edges:
            files = {name: Rows(tmp_path / f"{name}.npy", (size,), dtypes[name], moved) for name, size in sizes.items()}
            for written in write_by_place(lists, order, files, memory, done):
                done, windows = written, windows + 1
                if windows % 300 == 7:
                    break
            for file in files.values():
                file.close()
        assert (windows == 1) == (memory == 1 << 20)
        by_place = lists_in(files, piece, moved)
        sources, weights = by_place.edges(0, lists.num_edges)
        for place, node in enumerate(nodes):
            mine = slice(int(by_place.ptr[place]), int(by_place.ptr[place + 1]))
            found = graph["edge_index"][1] == node
            np.testing.assert_array_equal(sources[mine], places[graph["edge_index"][0][found]])
            if weights is not None:
                np.testing.assert_array_equal(weights[mine], graph["w"][found])
        by_place.close()
        lists.close()


@pytest.mark.parametrize("seeds", [None, [], [5], [699, 3, 3, 0, 650, 3], range(NODES)])
@pytest.mark.parametrize("relaid", [True, False])
@pytest.mark.parametrize("memory", [0, 4000, 1 << 20])
def test_results_in_the_order_asked_for(path: Path, tmp_path: Path, seeds: Any, relaid: bool, memory: int) -> None:
    """However it is ended on the way."""
    chosen, moved = None if seeds is None else torch.tensor(list(seeds), dtype=torch.long), Moved()
    with Store(path) as store:
        order = order_of(store, moved) if relaid else None
    nodes = np.arange(NODES) if order is None else order.nodes(0, NODES)
    rows = torch.from_numpy(np.stack([nodes, nodes * 2], 1).astype(np.float32))

    def result() -> Result:
        return Result(tmp_path / "out.npy", NODES, 2, np.float32, order, chosen, memory)

    made = result()
    with Rows(made.arrival_path, made.shape, made.dtype, moved) as came:
        for first in range(0, NODES, 90):
            made = result() if first % 4 == 0 else made  # another process goes on
            assert made.has(first, first + 90) == bool(seeds is None or np.isin(nodes[first : first + 90], seeds).any())
            made.take(came, first, rows[first : first + 90])
        if not made.in_order:
            with Rows(made.path, made.shape, made.dtype, moved) as file:
                for _ in made.arrange(came, file, 0):
                    break
                went_on = result()
                assert list(went_on.arrange(came, file, min(1, len(made.buckets)))) == list(
                    range(2, len(made.buckets) + 1)
                )
    want = np.arange(NODES) if seeds is None else np.array(list(seeds), np.int64)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.stack([want, want * 2], 1).astype(np.float32))


@pytest.mark.parametrize("nodes", [None, [5, 3, 690, 3]])
def test_goes_on_wherever_it_was_ended(path: Path, graph: dict[str, Any], tmp_path: Path, nodes: Any) -> None:
    torch.manual_seed(3)
    model = tg.GCN(graph["x"].shape[1], 900, 2, 800).eval()
    out, how = tmp_path / "out.npy", {"memory": "7MiB", "batch_size": 50, "nodes": nodes, "edge_weight": "w"}
    stages: list[str] = []
    ended = 0

    def stop(stage: str, done: int, total: int) -> None:
        stages.append(stage)
        if len(stages) % 2 == 0:
            raise StopError

    while not out.exists():
        with contextlib.suppress(StopError):
            infer(model, path, out, progress=stop, **how)
            ended -= 1
        ended += 1
    assert ended > 3
    assert stages[0] == "places" and "degrees" in stages and stages[-1] == "layer 2 of 2"
    assert stages.count("places") == 1
    with torch.no_grad():
        want = model(
            torch.from_numpy(graph["x"]),
            torch.from_numpy(graph["edge_index"]),
            edge_weight=torch.from_numpy(graph["w"]),
        )
    want = want if nodes is None else want[nodes]
    torch.testing.assert_close(torch.from_numpy(np.load(out)), want, rtol=1e-4, atol=1e-4 * want.abs().max().item())


def test_what_reading_a_relaid_store_takes_is_in_the_memory(tmp_path: Path) -> None:
    """The first slice goes to memory only beside a loader, which has the places of all nodes."""
    nodes = 300_000
    rng = np.random.default_rng(seed_of(5))
    graph = {"x": rng.random((nodes, 64), np.float32), "edge_index": rng.integers(0, nodes, (2, 1000))}
    convert(graph, tmp_path / "graph", progress=False, relayout="community").close()
    torch.manual_seed(0)
    model = tg.GraphSAGE(64, 64, 3, 4).eval()
    out = infer(model, tmp_path / "graph", tmp_path / "out.npy", memory=47_300_000, batch_size=8192, progress=False)
    with torch.no_grad():
        want = model(torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"]))
    torch.testing.assert_close(torch.from_numpy(np.load(out)), want, rtol=1e-4, atol=1e-4 * want.abs().max().item())


def test_a_damaged_order(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "graph")
    file = tmp_path / "graph" / "order.bin"
    data = np.fromfile(file, np.uint32)
    at = int(data[:NODES].argmax())
    for value, words in ((NODES, r"holds node 700, expected nodes in \[0, 700\)"), (0, "lacks node 699")):
        data[at] = value
        data.tofile(file)
        with pytest.raises(errors.CorruptError, match=words) as error:
            Order(file, NODES, Moved()).places()
        assert error.value.filename == str(file)
    with pytest.raises(errors.CorruptError, match=r"order\.bin"):
        infer(tg.GCN(24, 9, 2, 8).eval(), tmp_path / "graph", tmp_path / "out.npy", progress=False)
