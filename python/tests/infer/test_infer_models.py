"""infer of models that people write themselves, against their forward over the whole graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from infer_jobs import StopError
from infer_models import (
    HOW,
    NODES,
    Branches,
    Decoder,
    Gat,
    Gcn,
    Gin,
    Jumping,
    Mixed,
    Own,
    Relations,
    Residual,
    Sage,
    Shared,
    TwoInputs,
    assert_near,
    forward,
    made,
    sage_max,
)
from seeds import seed as seed_of
from torch import Tensor, nn
from torch.nn import functional as F

from freshgo import convert, errors, infer

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore


def sequential() -> Any:
    layers = [
        (tg.SAGEConv(24, 16), "x, edge_index -> h"),
        (nn.ReLU(), "h -> h"),
        (tg.SAGEConv(16, 5), "h, edge_index -> x"),
    ]
    return tg.Sequential("x, edge_index", layers)


class OtherNames(Sage):
    def forward(self, features: Tensor, graph: Tensor) -> Tensor:
        return super().forward(features, graph)


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "sage": (Sage, {}),
    "sage, max": (lambda: Sage(conv=lambda a, b: tg.SAGEConv(a, b, aggr="max")), {}),
    "residual": (lambda: Residual(lambda size: tg.SAGEConv(size, size)), {}),
    "residual, own layer": (lambda: Residual(Own), {}),
    "dense": (lambda: Jumping("dense", tg.SAGEConv), {}),
    "dense, gat": (lambda: Jumping("dense", tg.GATConv), {}),
    "jumping, cat": (lambda: Jumping("cat", tg.GCNConv), {}),
    "jumping, max": (lambda: Jumping("max", tg.GraphConv), {}),
    "jumping, lstm": (lambda: Jumping("lstm", tg.SAGEConv), {}),
    "jumping, lstm, max": (lambda: Jumping("lstm", sage_max), {}),
    "gat": (Gat, {}),
    "gin": (Gin, {}),
    "gcn": (Gcn, {}),
    "gcn, weights": (Gcn, {"edge_weight": "w"}),
    "gcn, computed weights": (lambda: Gcn(computed=True), {"edge_weight": "w"}),
    "two inputs": (TwoInputs, {}),
    "shared": (lambda: Shared(tg.SAGEConv), {}),
    "shared, max": (lambda: Shared(sage_max), {}),
    "sequential": (sequential, {}),
    "other names": (OtherNames, {"inputs": {"features": "x", "graph": "edge_index"}}),
    "branches": (Branches, {"output": "out"}),
    "relations": (Relations, {"inputs": {"edge_type": "kind"}, "edge_attr": "w"}),
    "numbers": (Decoder, {"output": 0}),
    "embeddings": (Decoder, {"output": 1}),
    **{
        f"basic, jk={jk}": (lambda jk=jk: tg.GraphSAGE(24, 16, 2, 5, jk=jk, norm="BatchNorm"), {})  # type: ignore[misc]
        for jk in ("cat", "lstm")
    },
    "basic, pna": (
        lambda: tg.PNA(
            24, 15, 2, 5, aggregators=["mean", "std"], scalers=["amplification"], deg=torch.tensor([1, 4, 9])
        ),
        {},
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_equals_the_forward_over_the_whole_graph(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model, how = made(MODELS[kind][0]), MODELS[kind][1]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attributes = set(vars(model))
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW, **how), want := forward(model, flat, how))
    assert set(vars(model)) == attributes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    nodes = torch.tensor([399, 7, 7, 100, 101, 3])
    assert_near(infer(model, path, tmp_path / "some.npy", nodes=nodes, **HOW, **how), want[nodes])


@pytest.mark.parametrize("kind", ["dense", "shared, max"])
def test_goes_on_wherever_it_was_ended(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model, out = made(MODELS[kind][0]), tmp_path / "out.npy"
    said, ended, stages = 0, 0, []

    def stop(stage: str, done: int, total: int) -> None:
        nonlocal said
        said += 1
        stages.extend([stage] if stage.startswith("layer") else [])
        if said % 2 == 0:
            raise StopError

    while not out.exists():
        with contextlib.suppress(StopError):
            infer(model, path, out, **{**HOW, "progress": stop})
            ended -= 1
        ended += 1
    assert ended > 1
    assert stages == sorted(stages)  # never back
    assert_near(out, forward(model, flat, {}))


def test_values_live_as_long_as_something_reads_them(path: Path, tmp_path: Path) -> None:
    """On disk, where the first of four is read by the last layer alone, and the second by the third."""
    for model, names in ((Shared(tg.SAGEConv), "beside"), (Shared(sage_max), "value")):
        seen: dict[str, set[str]] = {}

        def look(stage: str, done: int, total: int, names: str = names, seen: Any = seen) -> None:
            there = {file.name for file in (tmp_path / "out.npy.partial").iterdir() if file.name.startswith(names)}
            seen.setdefault(stage, set()).update(there)

        infer(model.eval(), path, tmp_path / "out.npy", overwrite=True, **{**HOW, "progress": look})
        layers = {stage: files for stage, files in seen.items() if stage.startswith("layer")}
        assert len(layers["layer 3 of 3"]) == 3
        assert len(layers["layer 1 of 3"]) <= 2


def test_float16_and_values_that_are_no_floats(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = sage_max(24, 16), sage_max(16, 16)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.a(x, edge_index)
            mask, place = h > 0, h.argmax(dim=1)
            return self.b(h, edge_index).masked_fill(mask, 0.5) + F.one_hot(place, 16)

    model = made(Masks)
    want = forward(model, flat, {})
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW), want)
    half = np.load(infer(model, path, tmp_path / "half.npy", dtype=torch.float16, **HOW))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.astype(np.float32), want.numpy(), atol=0.02 * want.abs().max().item())


def test_layers_that_keep_a_graph(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    """Of which the model neither uses nor loses anything."""
    for conv, name in ((tg.GCNConv, "_cached_edge_index"), (tg.SGConv, "_cached_x")):
        model = made(lambda conv=conv: Mixed(lambda m, h, e: h, conv(24, 16, cached=True)))
        want = forward(model, flat, {})
        kept = getattr(model.conv, name)
        assert kept is not None
        if conv is tg.GCNConv:
            assert_near(infer(model, path, tmp_path / "out.npy", **HOW), want)
        else:
            with pytest.raises(errors.InvalidArgumentError, match="SGConv returns other rows"):
                infer(model, path, tmp_path / "sg.npy", **HOW)
        assert getattr(model.conv, name) is kept and model.conv.cached


def test_numbers_of_nodes(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    """Also far behind the rows that were counted."""

    class Counted(Sage):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            count, columns = x.shape
            assert columns == 24 and x.dim() == 2 and x.dtype == torch.float32 and isinstance(x, Tensor)
            out = super().forward(x, edge_index)
            return (out.view(count * 1, 5) + x.new_ones(count, 1)).reshape(-1, out.size(1))

    for conv in (tg.SAGEConv, sage_max):
        model = made(lambda conv=conv: Counted(conv=conv))
        assert_near(infer(model, path, tmp_path / "out.npy", overwrite=True, **HOW), forward(model, flat, {}))


def test_rows_of_integers(flat: dict[str, Any], tmp_path: Path) -> None:
    """That an embedding table turns into rows."""

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = nn.Embedding(9, 8), tg.SAGEConv(16, 5)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.table(x).flatten(1), edge_index)

    graph = {**flat, "x": np.random.default_rng(seed_of(5)).integers(0, 9, (NODES, 2))}
    convert(graph, tmp_path / "graph", progress=False).close()
    model = made(Embedded)
    assert_near(infer(model, tmp_path / "graph", tmp_path / "out.npy", **HOW), forward(model, graph, {}))
