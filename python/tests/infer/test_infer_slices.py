"""infer: layers that add rows up, by slices of columns and in streams, where memory is scarce."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from infer_jobs import said
from seeds import seed as seed_of

from freshgo import convert, infer
from freshgo._infer import input as infer_input

tg = pytest.importorskip("torch_geometric.nn")
from infer_models import assert_near, forward, looped_graph, made  # noqa: E402

pytestmark = pytest.mark.explore

NODES, EDGES = 2000, 16_000
HOW: dict[str, Any] = {"memory": "64MiB", "batch_size": 300, "progress": False}

WIDE: dict[str, Callable[[], Any]] = {
    "sage": lambda: tg.GraphSAGE(900, 1000, 3, 5),
    "sage, sums of wide rows": lambda: tg.GraphSAGE(900, 950, 2, 920, aggr="sum", bias=False),
    "sage, normal": lambda: tg.GraphSAGE(900, 200, 2, 5, normalize=True, root_weight=False),
    "gcn": lambda: tg.GCN(900, 950, 3, 5),
    "gcn, no loops": lambda: tg.GCN(900, 910, 2, 5, add_self_loops=False),
    "gin": lambda: tg.GIN(900, 950, 3, 150),
    "gin, norm": lambda: tg.GIN(900, 200, 2, 5, norm="BatchNorm", train_eps=True, jk="last"),
    "graph conv, norm": lambda: GraphConvs(900, 950, 3, 5, norm="BatchNorm", act="elu", act_first=True),
}


class GraphConvs(tg.models.basic_gnn.BasicGNN):
    """A BasicGNN of GraphConv, which PyG has none of."""

    supports_edge_weight = True
    supports_edge_attr = False

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> Any:
        return tg.GraphConv(in_channels, out_channels, aggr="mean")


@pytest.fixture(scope="module")
def wide() -> dict[str, Any]:
    x = np.random.default_rng(seed_of(4)).standard_normal((NODES, 900)).astype(np.float32)
    return {**looped_graph(NODES, EDGES), "x": x}


@pytest.fixture(scope="module", params=["plain", "relaid", "by target"])
def wide_path(request: pytest.FixtureRequest, wide: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("infer") / "wide"
    how = {"relaid": {"relayout": "community"}, "by target": {"weight_attr": "edge_weight"}}.get(request.param, {})
    convert(wide, path, progress=False, **how).close()
    return path


@pytest.mark.parametrize("memory", ["7MiB", pytest.param("12MiB", marks=pytest.mark.long), "64MiB"])
@pytest.mark.parametrize("kind", WIDE)
def test_rows_by_slices_and_whole(
    wide_path: Path, wide: dict[str, Any], tmp_path: Path, kind: str, memory: str
) -> None:
    model = made(WIDE[kind])
    named = {"edge_weight": "edge_weight"} if model.supports_edge_weight else {}
    out = infer(model, wide_path, tmp_path / "out.npy", **{**HOW, "memory": memory, **named})
    assert_near(out, forward(model, wide, named))
    assert list(tmp_path.iterdir()) == [out]
    chosen = torch.tensor([1999, 5, 5, 700])
    some = infer(model, wide_path, tmp_path / "some.npy", nodes=chosen, **{**HOW, "memory": memory})
    assert_near(some, forward(model, wide)[chosen])


def test_the_smallest_memory_divides_columns(wide_path: Path, tmp_path: Path) -> None:
    files: set[str] = set()

    def look(stage: str, done: int, total: int) -> None:
        files.update(file.name for file in (tmp_path / "out.npy.partial").iterdir())

    infer(made(WIDE["gin"]), wide_path, tmp_path / "out.npy", **{**HOW, "memory": "7MiB", "progress": look})
    assert {"messages0_1.npy", "sums0_1.npy", "messages1_1.npy"} <= files
    files.clear()
    how = {**HOW, "memory": "7MiB", "progress": look, "overwrite": True}
    infer(made(WIDE["gcn"]), wide_path, tmp_path / "out.npy", **how)
    assert {"messages0_1.npy", "messages1_1.npy"} <= files  # the first layer by columns
    assert not any(name.startswith("sums0") for name in files)
    files.clear()
    how = {**HOW, "memory": "64MiB", "progress": look}
    infer(made(WIDE["gin"]), wide_path, tmp_path / "out.npy", overwrite=True, **how)
    assert "messages1_0.npy" in files
    assert not any(name.startswith(("messages0", "sums", "messages1_1")) for name in files)


class StopError(Exception):
    pass


def test_the_first_slice_goes_from_the_input_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is ended before and after all of the input was read, for which there are several loaders."""
    monkeypatch.setattr(infer_input, "_NODES", 17_001)
    rng, nodes = np.random.default_rng(seed_of(7)), 40_000
    graph = {
        "x": rng.standard_normal((nodes, 64)).astype(np.float32),
        "edge_index": rng.integers(0, nodes, (2, 4 * nodes)),
    }
    convert(graph, tmp_path / "graph", progress=False, relayout="community").close()
    model, calls = made(lambda: tg.GraphSAGE(64, 64, 3, 8, norm="BatchNorm")), 0
    how: dict[str, Any] = {"memory": 11_840_000, "overwrite": True}
    work = tmp_path / "out.npy.partial"

    def filled(name: str) -> bool:
        return (work / name).exists() and (work / name).stat().st_blocks > 1024

    def look(stage: str, done: int, total: int) -> None:
        nonlocal calls
        calls += stage.startswith("layer")
        if calls == 3 or (calls > 3 and filled("messages1_0.npy")):
            assert filled("messages0_1.npy") and filled("own0_0.npy") and not filled("messages0_0.npy")
            raise StopError

    for _ in range(2):
        with pytest.raises(StopError):
            infer(model, tmp_path / "graph", tmp_path / "out.npy", progress=look, **how)
    found = infer(model, tmp_path / "graph", tmp_path / "out.npy", progress=False, **how)
    assert_near(found, forward(model, graph))


def test_a_hub_whose_list_is_longer_than_a_piece(tmp_path: Path) -> None:
    rng = np.random.default_rng(seed_of(6))
    edges = np.concatenate([rng.integers(0, 300, (2, 900)), np.stack([rng.integers(0, 300, 20_000), [7] * 20_000])], 1)
    graph = {"x": rng.standard_normal((300, 64)).astype(np.float32), "edge_index": edges}
    convert(graph, tmp_path / "graph", progress=False).close()
    model = made(lambda: tg.GCN(64, 32, 2, 5))
    assert_near(
        infer(model, tmp_path / "graph", tmp_path / "out.npy", **{**HOW, "memory": "7MiB"}), forward(model, graph)
    )


@pytest.mark.parametrize(
    ("model", "memory", "ended_by", "relayout"),
    [
        ("GAT(900, 16, 3, 5, jk='cat')", "64MiB", signal.SIGKILL, None),  # layers by a loader
        ("GCN(900, 950, 3, 5)", "7MiB", signal.SIGINT, None),  # in streams
        ("GCN(900, 950, 3, 5, jk='max')", "7MiB", signal.SIGKILL, "community"),  # in the order of the rows
        pytest.param("GAT(900, 16, 3, 5)", "64MiB", signal.SIGINT, "community", marks=pytest.mark.long),
        pytest.param("GCN(900, 950, 3, 5)", "7MiB", signal.SIGKILL, None, marks=pytest.mark.long),
    ],
)
def test_goes_on_after_it_was_ended(
    wide: dict[str, Any], tmp_path: Path, model: str, memory: str, ended_by: int, relayout: str | None
) -> None:
    path, out = tmp_path / "graph", tmp_path / "out.npy"
    convert(wide, path, progress=False, relayout=relayout).close()
    draw = random.Random(seed_of(int(ended_by)))
    heard = [said(path, out, draw.randrange(3, 25), ended_by, model=model, memory=memory) for _ in range(2)]
    assert not out.exists()
    heard.append(said(path, out, 0, ended_by, model=model, memory=memory))
    for before, after in itertools.pairwise(heard):
        assert after[0] >= before[-1]  # the last batch again, or the next one
    assert len(heard[-1]) > 3
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert_near(out, forward(eval(f"tg.{model}").eval(), wide))


@pytest.mark.parametrize("relayout", [None, "community"])
def test_the_input_takes_few_loaders_and_layers_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relayout: Any
) -> None:
    """However many nodes there are: a loader reads the offsets of all of them when it is opened."""
    nodes, rng = 40_000, np.random.default_rng(seed_of(8))
    graph = {
        "x": rng.standard_normal((nodes, 4)).astype(np.float32),
        "edge_index": rng.integers(0, nodes, (2, 2 * nodes)),
    }
    convert(graph, tmp_path / "graph", progress=False, relayout=relayout).close()
    monkeypatch.setattr(infer_input, "_NODES", 1000)
    opened, computed, opening, linear = 0, 0, infer_input.Input._open, torch.nn.functional.linear

    def counted_opening(self: Any, *arguments: Any) -> Any:
        nonlocal opened
        opened += arguments[2] > 1  # else it measures
        return opening(self, *arguments)

    def counted_linear(rows: Any, *others: Any) -> Any:
        nonlocal computed
        computed += rows.size(0) > 1  # else it tries the layer
        return linear(rows, *others)

    model = made(lambda: tg.GraphSAGE(4, 4, 2, 4))
    monkeypatch.setattr(infer_input.Input, "_open", counted_opening)
    how: dict[str, Any] = {"memory": "64MiB", "batch_size": 100, "progress": False}
    found = infer(model, tmp_path / "graph", tmp_path / "out.npy", **how)
    assert opened == (1 if relayout is None else 8)
    monkeypatch.setattr(torch.nn.functional, "linear", counted_linear)
    infer(model, tmp_path / "graph", tmp_path / "again.npy", **how)
    assert 0 < computed < 40  # 1,600 in batches of 100 rows; beside them the model on a small random graph
    monkeypatch.undo()
    assert_near(found, forward(model, graph))
