"""Models that people write, against their forward over the whole graph: inferred with, accelerated, precomputed; and
recorded while another thread computes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from infer_models import HOW, assert_near, forward, made
from torch import Tensor, nn
from written_models import MODELS

from freshgo import Loader, convert, errors, infer, propagate

tg = pytest.importorskip("torch_geometric.nn")
fast = pytest.importorskip("freshgo.nn")
pytestmark = pytest.mark.explore


@pytest.fixture(scope="module")
def stored(flat: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "graph"
    convert(flat, path, progress=False).close()
    for reduce in ("mean", "sum", "gcn"):
        propagate(path, "x", reduce=reduce, progress=False).close()
    return path


@pytest.mark.parametrize("kind", MODELS)
def test_infer_and_accelerate_give_the_rows_of_the_whole_graph(
    stored: Path, flat: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    model, how = made(MODELS[kind][0]), MODELS[kind][1]
    want = forward(model, flat, how)
    assert want.shape == (flat["num_nodes"], 5)
    assert_near(infer(model, stored, tmp_path / "out.npy", **HOW, **how), want)
    report = fast.accelerate(model)
    layers = {name: of for name, of in model.named_modules() if isinstance(of, tg.MessagePassing)}
    assert layers.keys() == report.swapped.keys() | report.left.keys()
    assert all("is not one of" in why or "aggr=" in why for why in report.left.values())
    torch.testing.assert_close(forward(model, flat, how), want, rtol=1e-4, atol=1e-4)
    assert_near(infer(model, stored, tmp_path / "fast.npy", **HOW, **how), want)


CANNOT = {
    "edge gat": r"GATv2Conv, cannot be precomputed: its coefficients depend on parameters",
    "gine": r"GINEConv, cannot be precomputed: it is none of SAGEConv, GraphConv, GINConv, GCNConv",
    "appnp": r"SimpleConv, cannot be precomputed: it is none of",
    "deeper gcn": r"GENConv, cannot be precomputed: it is none of",
    "transformers": r"TransformerConv, cannot be precomputed: its coefficients depend on parameters",
    "relations": r"RGCNConv, cannot be precomputed: .* make the relations edge types",
}
MAPPED = ("gated residual", "buffers", "twice", "twice, weights", "recurrent")
"""Whose first layer reads rows that the model has changed."""


@pytest.mark.parametrize("kind", MODELS)
def test_precomputed_takes_a_model_or_says_why_not(stored: Path, flat: dict[str, Any], kind: str) -> None:
    model, how = made(MODELS[kind][0]), MODELS[kind][1]
    if kind in CANNOT:
        with pytest.raises(errors.InvalidArgumentError, match=CANNOT[kind]):
            fast.precomputed(model)
        return
    want = forward(model, flat, how)
    report = fast.precomputed(model)
    rows = 0
    with Loader(stored, [-1], batch_size=150, first_layer=report.first_layer) as loader:
        for batch in loader:
            x = batch[f"x_{report.first_layer}"] if report.first_layer == "gcn" else batch.x
            with torch.no_grad():
                if kind in MAPPED:
                    with pytest.raises(errors.InvalidArgumentError, match=r"Conv got (targets|sources) of shape"):
                        model(x, batch.edge_index)
                    continue
                out = model(x, batch.edge_index)
            out = (out[how["output"]] if "output" in how else out)[: batch.batch_size]
            if report.first_layer == "gcn":  # degrees in its second layer are those of the batch
                assert out.shape == (batch.batch_size, 5)
                continue
            torch.testing.assert_close(out, want[batch.n_id[: batch.batch_size]], rtol=1e-4, atol=1e-4)
            rows += batch.batch_size
    assert rows == (0 if kind in MAPPED or report.first_layer == "gcn" else flat["num_nodes"])
    torch.testing.assert_close(forward(model, flat, how), want)


# Threads.


class Waiting(nn.Module):
    """Stops in the middle of ``forward`` until another thread has done something."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.a, self.b, self.between = tg.SAGEConv(24, 16), tg.SAGEConv(16, 5), between

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.a(x, edge_index)
        self.between()
        return self.b(h, edge_index)


@pytest.mark.parametrize("call", ["infer", "precomputed"])
def test_what_another_thread_computes_is_not_recorded(
    stored: Path, flat: dict[str, Any], tmp_path: Path, call: str
) -> None:
    """torch.fx lets every call of a module in the process come to the tracer while it records."""
    mine = threading.get_ident()
    found: list[Any] = []

    def compute() -> None:
        try:
            other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).eval()
            rows = torch.randn(5, 3)
            found.append(other(rows))
            found.append(model.a(torch.randn(4, 24), torch.zeros(2, 1, dtype=torch.long)))
        except BaseException as error:
            found.append(error)

    def between() -> None:
        if threading.get_ident() == mine:
            thread = threading.Thread(target=compute)
            thread.start()
            thread.join()

    model = made(lambda: Waiting(between))
    if call == "infer":
        want = forward(model, flat, {})
        assert_near(infer(model, stored, tmp_path / "out.npy", **HOW), want)
    else:
        assert fast.precomputed(model).layers == {"a": "SAGEConv"}
    assert found
    assert all(type(of) is Tensor for of in found), found


def test_models_are_recorded_one_at_a_time(stored: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    """Patches of torch.fx are undone in the reverse order, so that none stays."""
    before = nn.Module.__call__, nn.Module.__getattr__
    model = made(MODELS["gated residual"][0])
    want = forward(model, flat, {})
    done: list[Any] = []

    def run(place: int) -> None:
        try:
            mine = made(MODELS["gated residual"][0])
            path = tmp_path / f"{place}.npy"
            done.extend(np.load(infer(mine, stored, path, overwrite=True, **HOW)) for _ in range(3))
        except BaseException as error:
            done.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (nn.Module.__call__, nn.Module.__getattr__) == before
    for rows in done:
        assert isinstance(rows, np.ndarray), rows
        assert rows.shape == want.shape
    assert len(done) == 6
