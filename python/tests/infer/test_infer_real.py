"""infer on real graphs: against the forward over the whole graph, in memory, with the least memory, and ended on the
way."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from infer_jobs import StopError, Stops, said
from real_types import read_types, rows_of
from seeds import seed as seed_of

from freshgo import convert, errors, infer

tg = pytest.importorskip("torch_geometric.nn")
utils = pytest.importorskip("torch_geometric.utils")
pytestmark = [pytest.mark.explore, pytest.mark.filterwarnings("ignore:Sparse")]

MODELS = {
    "sage": "GraphSAGE({}, 32, 3, 8)",
    "gcn": "GCN({}, 32, 3, 8)",
    "gin": "GIN({}, 32, 2, 8)",
    "gat": "GAT({}, 16, 2, 8, heads=2)",
    "gatv2": "GAT({}, 16, 2, 8, heads=2, v2=True)",
    "edge cnn": "EdgeCNN({}, 4, 2, 8)",
}
HOW: dict[str, Any] = {"batch_size": 512, "progress": False}

Graph = tuple[torch.Tensor, torch.Tensor, Path]
"""Features, edges, and the store of both."""


@pytest.fixture(scope="module")
def stored(real_graph: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Graph]:
    made: dict[str, Graph] = {}

    def stored(name: str) -> Graph:
        if name not in made:
            directory = real_graph(name)
            arrays = {path.stem: np.load(path) for path in directory.glob("*.npy")}
            count = len(arrays["y"]) if "y" in arrays else int(arrays["edge_index"].max()) + 1
            x = arrays.get("x")
            if x is None and "x_indptr" in arrays:
                x = rows_of({f"x_n{key[1:]}": rows for key, rows in arrays.items() if key[:2] == "x_"}, "n", count)
            if x is None:
                x = np.random.default_rng(seed_of(1)).standard_normal((count, 128)).astype(np.float32)
            path = tmp_path_factory.mktemp("infer") / name
            graph = {"x": x.astype(np.float32), "edge_index": arrays["edge_index"], "num_nodes": count}
            convert(graph, path, progress=False).close()
            made[name] = torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"]), path
        return made[name]

    return stored


def modelled(kind: str, x: torch.Tensor) -> Any:
    torch.manual_seed(5)
    return eval(f"tg.{MODELS[kind].format(x.size(1))}").eval()


def forward(kind: str, model: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """PyG's, with a sparse matrix where its layers take one: so no message is written for each edge."""
    takes_matrix = kind in ("sage", "gcn", "gin")
    with torch.no_grad():
        matrix = utils.to_torch_csr_tensor(edges.flip(0), size=(x.size(0), x.size(0))) if takes_matrix else edges
        out: torch.Tensor = model(x, matrix)
        return out


def little(x: torch.Tensor, run: Callable[[int], Any], memory: int = 0) -> Any:
    """Infer with room for 5 % of the features, or the least that works."""
    memory = memory or x.numel() * x.element_size() // 20
    try:
        return run(memory)
    except errors.BudgetError as error:
        assert error.minimum > memory
        return little(x, run, error.minimum)


def assert_near(path: Path, want: torch.Tensor) -> None:
    found = torch.from_numpy(np.load(path))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4 * want.abs().max().item())


QUICK = [("cora", kind) for kind in ("sage", "gcn", "gin", "gat")] + [("tolokers", "sage"), ("tolokers", "gcn")]
LONG = [(name, kind) for name in ("tolokers", "amazon-computers", "ogbn-arxiv-nofeat") for kind in MODELS]
LONG = [(name, kind) for name, kind in LONG if kind != "edge cnn" or name == "tolokers"]  # else PyG takes gigabytes


@pytest.mark.parametrize(
    ("name", "kind"), [*QUICK, *(pytest.param(*of, marks=pytest.mark.long) for of in LONG if of not in QUICK)]
)
def test_in_memory_and_with_little_and_ended(
    stored: Callable[[str], Graph], tmp_path: Path, name: str, kind: str
) -> None:
    x, edges, path = stored(name)
    model = modelled(kind, x)
    want = forward(kind, model, x, edges)
    assert_near(infer(model, path, tmp_path / "in_memory.npy", memory="1GiB", **HOW), want)
    draw = random.Random(seed_of(2))

    def ended(memory: int) -> Path:
        for _ in range(3):
            try:
                infer(model, path, tmp_path / "out.npy", memory=memory, **{**HOW, "progress": Stops(draw, 20)})
                break
            except StopError:
                assert not (tmp_path / "out.npy").exists()
        return infer(model, path, tmp_path / "out.npy", memory=memory, overwrite=True, **HOW)

    assert_near(little(x, ended), want)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_killed_ten_times(stored: Callable[[str], Graph], tmp_path: Path, kind: str) -> None:
    x, edges, path = stored("amazon-computers")
    memory = (96 if kind == "gat" else 24) << 20  # attention reads whole rows of all neighbours
    how: dict[str, Any] = {"model": MODELS[kind].format(x.size(1)), "memory": memory, "batch_size": 512}
    draw, out, heard = random.Random(seed_of(3)), tmp_path / "out.npy", [("", 0)]
    for _ in range(10):
        now = said(path, out, draw.randrange(2, 6), signal.SIGKILL, **how)
        assert now[0] >= heard[-1]
        heard = now
        assert not out.exists()
    said(path, out, 0, signal.SIGKILL, **how)
    assert_near(out, forward(kind, modelled(kind, x), x, edges))


@pytest.mark.parametrize("name", ["hetero-acm", pytest.param("hetero-dblp", marks=pytest.mark.long)])
def test_relational_convolutions(real_graph: Any, tmp_path: Path, name: str) -> None:
    """R-GCN: a mean along each relation with a matrix of its own, and another of the node itself."""
    graph = read_types(real_graph(name))
    draw = np.random.default_rng(seed_of(4))
    for key, of in graph.items():
        if isinstance(key, str):
            given = of.get("x", draw.standard_normal((of["num_nodes"], 8)))
            graph[key] = {"num_nodes": of["num_nodes"], "x": np.ascontiguousarray(given[:, :300], np.float32)}
    relations = [key for key in graph if isinstance(key, tuple)]
    x = {key: torch.from_numpy(of["x"]) for key, of in graph.items() if isinstance(key, str)}
    edges = {key: torch.from_numpy(np.ascontiguousarray(graph[key]["edge_index"])) for key in relations}
    torch.manual_seed(6)
    convs = [
        tg.HeteroConv({of: tg.SAGEConv((-1, -1), width, root_weight=i == 0) for i, of in enumerate(relations)}).eval()
        for width in (16, 4)
    ]
    with torch.no_grad():
        hidden = {key: rows.relu() for key, rows in convs[0](x, edges).items()}
        want = convs[1](hidden, edges)

    def layer(place: int) -> Callable[[Any, Any], Any]:
        def compute(h: Any, batch: Any) -> Any:
            block = batch.blocks()[0]
            out = convs[place](block.pairs(h, relations), {of: block.edge_index_dict[of] for of in relations})
            return {key: rows.relu() if place == 0 else rows for key, rows in out.items()}

        return compute

    convert(graph, tmp_path / "graph", progress=False).close()
    how = {"layers": [layer(0), layer(1)], **HOW}
    whole = infer(None, tmp_path / "graph", tmp_path / "whole", memory="1GiB", **how)
    rows = torch.cat([of.reshape(-1) for of in x.values()]).view(-1, 1)

    def ended(memory: int) -> Path:
        with pytest.raises(StopError):
            stops = {**how, "progress": Stops(random.Random(seed_of(5)), 12)}
            infer(None, tmp_path / "graph", tmp_path / "out", memory=memory, **stops)
        return infer(None, tmp_path / "graph", tmp_path / "out", memory=memory, **how)

    out = little(rows, ended)
    for key, of in want.items():
        assert_near(whole / f"{key}.npy", of)
        assert_near(out / f"{key}.npy", of)
