"""infer of models that are one layer or have hooks, under settings of torch, and of what models return beside rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from infer_models import HOW, TYPES, Gat, Gcn, Gin, Mixed, Sage, assert_near, forward, made
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import convert, errors, infer

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore


@pytest.fixture(scope="module")
def path(flat: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "graph"
    convert(flat, path, progress=False).close()
    return path


LAYERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "sage": (lambda: tg.SAGEConv(24, 5), {}),
    "gcn, weights": (lambda: tg.GCNConv(24, 5), {"edge_weight": "w"}),
    "gat": (lambda: tg.GATConv(24, 5, edge_dim=1), {"edge_attr": "w"}),
    "relations": (lambda: tg.RGCNConv(24, 5, 3), {"inputs": {"edge_type": "kind"}}),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_is_a_model(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    layer, how = made(LAYERS[kind][0]), LAYERS[kind][1]
    assert_near(infer(layer, path, tmp_path / "out.npy", **HOW, **how), forward(layer, flat, how))


@pytest.mark.parametrize("kind", ["gcn, weights", "gat", "two layers"])
def test_weights_of_float64(flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    """Layers are given them as float32; PyTorch's error about two dtypes came through."""
    convert({**flat, "w": flat["w"].astype(np.float64)}, tmp_path / "graph", progress=False).close()
    layer, how = LAYERS.get(kind, (lambda: tg.GCN(24, 8, 2, 5), {"edge_weight": "w"}))
    model = made(layer)
    want = forward(model, flat, how)
    assert_near(infer(model, tmp_path / "graph", tmp_path / "out.npy", **HOW, **how), want)
    how = {**how, "fallback": "batches", "depth": 3}
    if kind == "gat":  # GCN takes the degrees of a batch
        assert_near(infer(model, tmp_path / "graph", tmp_path / "batches.npy", **HOW, **how), want)


def test_layers_of_types_are_models(typed: Any, tmp_path: Path) -> None:
    path, x, edges = typed
    widths = {"paper": 12, "author": 6}
    hetero = made(lambda: tg.HeteroConv({of: tg.SAGEConv((widths[of[0]], widths[of[2]]), 5) for of in TYPES}))
    hgt = made(lambda: tg.HGTConv(widths, 6, (list(widths), TYPES), heads=2))
    for layer in (hetero, hgt):
        with torch.no_grad():
            want = layer(x, edges)
        out = Path(infer(layer, path, tmp_path / type(layer).__name__, **HOW))
        for of in want:
            assert_near(out / f"{of}.npy", want[of])
    stranger = made(lambda: tg.HeteroConv({("a", "b", "c"): tg.SAGEConv((12, 12), 5)}))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"HeteroConv returns no rows .* \('author', 'writes', 'paper'\)"
    ):
        infer(stranger, path, tmp_path / "none", **HOW)


def test_hooks_of_a_model_are_called(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    model = made(Sage)
    model.register_forward_pre_hook(lambda _, args, named: (args, {**named, "x": named["x"] * 2}), with_kwargs=True)
    model.register_forward_hook(lambda _, __, out: out + 1)
    doubled = {**flat, "x": flat["x"] * 2}
    with torch.no_grad():
        plain = made(Sage)
        want = forward(plain, doubled, {}) + 1
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW), want)


@pytest.mark.parametrize("model", [Sage, Gin, Gcn, Gat])
def test_under_autocast(path: Path, flat: dict[str, Any], tmp_path: Path, model: Any) -> None:
    model = made(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = forward(model, flat, {}).float()
        found = np.load(infer(model, path, tmp_path / "out.npy", **HOW))
    assert found.dtype == np.float32
    torch.testing.assert_close(torch.from_numpy(found), want, rtol=0.05, atol=0.05 * want.abs().max().item())
    assert not np.allclose(found, forward(model, flat, {}).numpy(), rtol=1e-6, atol=0), "in half precision"


@pytest.fixture
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64_by_default")
@pytest.mark.parametrize("model", [Sage, Gin, Gcn, Gat])
def test_with_another_default_dtype(path: Path, flat: dict[str, Any], tmp_path: Path, model: Any) -> None:
    model = made(model).float()
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW), forward(model, flat, {}))


WEIGHED = """
import sys, torch
from pathlib import Path
import torch_geometric.nn as tg
from freshgo import errors, infer

def status(name):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) << 10

model = tg.GCNConv(4, 4).eval()
given, out = sys.argv[1:]
infer(model, given, f"{out}0.npy", progress=False)  # imports what it needs
try:
    infer(model, given, f"{out}1.npy", edge_weight="w", memory="48MiB", progress=False)
    least = 48 << 20
except errors.BudgetError as error:
    least = error.minimum
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = status("VmRSS:")
infer(model, given, f"{out}2.npy", edge_weight="w", memory=least, progress=False)
print(status("VmHWM:") - before, least)
"""


def test_weights_are_read_within_the_memory(tmp_path: Path) -> None:
    """64 MB of float64 are in memory while they are read, and 32 MB as float32 from then on."""
    rng, nodes, edges = np.random.default_rng(seed_of(5)), 50_000, 8_000_000
    graph = {"x": np.zeros((nodes, 4), np.float32), "edge_index": rng.integers(nodes, size=(2, edges))}
    convert({**graph, "w": rng.random(edges)}, tmp_path / "g", progress=False).close()
    growth, least = map(int, warm.run(WEIGHED, tmp_path / "g", tmp_path / "out").split())
    assert growth <= least + (32 << 20)


class WithCounts(Sage):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return super().forward(x, edge_index), x.size(0), edge_index.size(1)


def test_counts_beside_rows(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    model = made(WithCounts)
    assert_near(infer(model, path, tmp_path / "out.npy", output=0, **HOW), forward(model, flat, {"output": 0}))
    with pytest.raises(errors.InvalidArgumentError, match="WithCounts returns count, expected a row for each node"):
        infer(model, path, tmp_path / "count.npy", output=1, **HOW)


EDGES_READ: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "size": lambda m, h, e: h * e.shape[1],
    "numel": lambda m, h, e: h / e.numel(),
    "max": lambda m, h, e: h + (e[1].max() + 1),
    "flip": lambda m, h, e: m.parts["c"](h, e.flip(0)),
    "ones": lambda m, h, e: m.parts["c"](h, e, torch.ones_like(e[0], dtype=torch.float32)),
}


@pytest.mark.parametrize("kind", EDGES_READ)
def test_what_is_made_of_edges_outside_of_layers_reaches_no_rows(path: Path, tmp_path: Path, kind: str) -> None:
    model = made(lambda: Mixed(EDGES_READ[kind], c=tg.GraphConv(16, 16)))
    word = {"ones": "getitem", "max": "getitem"}.get(kind, kind)
    with pytest.raises(errors.InvalidArgumentError, match=rf"test_infer_settings.py:\d+ .*: {word} reads edge_index"):
        infer(model, path, tmp_path / "out.npy", **HOW)


class Branch(nn.Module):
    """Rows of one type, of a model that cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = tg.SAGEConv((6, 12), 5)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        edges = edge_index_dict["author", "writes", "paper"]
        if edges.size(1) == 0:
            edges = edges[:, :0]
        return self.conv((x_dict["author"], x_dict["paper"]), edges)


def test_batches_of_rows_of_one_type(typed: Any, tmp_path: Path) -> None:
    path, x, edges = typed
    model = made(Branch)
    with torch.no_grad():
        want = model(x, edges)
    out = infer(model, path, tmp_path / "out", fallback="batches", depth=1, **HOW)
    assert_near(Path(out) / "paper.npy", want)
