"""What infer refuses of models that people write themselves, and what it computes in batches instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from infer_models import (
    HOW,
    NODES,
    Branches,
    ByType,
    Decoder,
    Gin,
    Mixed,
    Relations,
    Sage,
    assert_near,
    forward,
    made,
)
from torch import Tensor, nn
from torch.nn import functional as F

from freshgo import errors, infer

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore

INVALID = errors.InvalidArgumentError


def branched(model: Any, h: Tensor, edges: Tensor) -> Tensor:
    if h.sum() > 0:
        return h
    return -h


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "mean": (lambda: Mixed(lambda m, h, e: h - h.mean(0)), r"`.*`\): mean mixes rows"),
    "mean, kept": (lambda: Mixed(lambda m, h, e: h - h.mean(dim=0, keepdim=True)), "mean mixes rows"),
    "max": (lambda: Mixed(lambda m, h, e: h / h.max()), "max mixes rows"),
    "softmax": (lambda: Mixed(lambda m, h, e: h.softmax(0)), "softmax mixes rows: a row depends on the others"),
    "sort": (lambda: Mixed(lambda m, h, e: h.sort(0)[0]), "sort"),
    "product": (lambda: Mixed(lambda m, h, e: h @ (h.t() @ h)), "matmul mixes rows"),
    "count": (lambda: Mixed(lambda m, h, e: h / h.size(0)), "mixes rows: a row depends on the others"),
    "cut": (lambda: Mixed(lambda m, h, e: torch.cat([h[:3], h[3:]])), "getitem mixes rows"),
    "pool": (lambda: Mixed(lambda m, h, e: h + tg.global_mean_pool(h, None)), "mean mixes rows"),
    "norm": (lambda: Mixed(lambda m, h, e: m.parts["n"](h), n=tg.GraphNorm(16)), "GraphNorm normalises over all nodes"),
    "pair norm": (lambda: Mixed(lambda m, h, e: m.parts["n"](h), n=tg.PairNorm()), "PairNorm normalises over all"),
    "batch norm": (
        lambda: Mixed(lambda m, h, e: m.parts["n"](h), n=nn.BatchNorm1d(16, track_running_stats=False)),
        "BatchNorm1d without running statistics normalises over all nodes",
    ),
    "dropout": (lambda: Mixed(lambda m, h, e: F.dropout(h, 0.5)), "dropout is random.*training=self.training"),
    "noise": (lambda: Mixed(lambda m, h, e: h + torch.randn_like(h)), "randn_like is not among the operations"),
    "in place": (lambda: Mixed(lambda m, h, e: h.relu_() + h), "changes a tensor in place that it reads later"),
    "attention": (
        lambda: Mixed(
            lambda m, h, e: m.parts["a"](h[None], h[None], h[None])[0][0],
            a=nn.MultiheadAttention(16, 2, batch_first=True),
        ),
        "MultiheadAttention mixes rows: a row depends on the others",
    ),
    "constant noise": (lambda: Mixed(lambda m, h, e: h + torch.randn(16)), "the model returns other rows"),
    "degree": (lambda: Mixed(lambda m, h, e: h * e[1].float().mean()), "getitem reads edge_index"),
    "data": (lambda: Mixed(branched), r"test_infer_refused\.py:\d+ \(`if h\.sum\(\) > 0:`\): sum mixes rows"),
    "hops": (
        lambda: Mixed(lambda m, h, e: h, tg.TAGConv(24, 16, K=2)),
        "TAGConv returns other rows .* one hop",
    ),
    "table": (
        lambda: Mixed(lambda m, h, e: m.conv(m.parts["t"].weight, e), t=nn.Embedding(NODES, 24)),
        "rows that come from no tensor of the store",
    ),
    "numbers": (lambda: Mixed(lambda m, h, e: torch.from_numpy(h.numpy())), "cannot be traced|numpy"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(path: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(INVALID, match=REFUSED[kind][1]) as error:
        infer(made(REFUSED[kind][0]), path, tmp_path / "out.npy", **HOW)
    assert "layers=" in str(error.value) and 'fallback="batches"' in str(error.value)
    if kind not in ("constant noise", "in place"):
        assert re.match(r"(test_infer_refused|infer_models)\.py:\d+ ", str(error.value))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "how", "words"),
    [
        (Branches, {}, r"Branches returns a dict with the entries 'out', 'hidden': choose one by output='out'"),
        (Decoder, {"output": 2}, r"output=2 is no entry of what Decoder returns: its entries are 0, 1"),
        (Sage, {"output": 0}, "it returns a tensor: omit output="),
        (Sage, {"edge_weight": "w"}, r"Sage takes no edge_weight: its forward\(\) takes x, edge_index"),
        (Relations, {"edge_attr": "w"}, r"forward\(\) of Relations takes 'edge_type'.* as inputs=\{'edge_type': "),
        (Relations, {"inputs": {"edge_type": "kind"}}, "takes 'edge_attr': name its tensor, as edge_attr='edge_attr'"),
        (Sage, {"inputs": {"z": "w"}}, r"inputs has 'z', but forward\(\) of Sage takes x, edge_index"),
        (Relations, {"inputs": {"edge_type": "z"}, "edge_attr": "w"}, "no tensor of the name 'z'"),
        (ByType, {}, r"takes 'x_dict', and the store is homogeneous"),
        (lambda: Sage((23, 8, 5)), {}, r"infer_models\.py:\d+ \(`x = conv\(x, edge_index\)`\): the model fails"),
        (lambda: Sage(conv=lambda a, b: tg.SAGEConv((-1, -1), b)), {}, "is uninitialized: call the model once"),
        (Sage, {"fallback": "whole"}, "fallback must be 'batches' or None"),
        (Sage, {"depth": 0}, "depth must be at least 1"),
    ],
)
def test_bad_input(path: Path, tmp_path: Path, model: Any, how: dict[str, Any], words: str) -> None:
    with pytest.raises(INVALID, match=words):
        infer(made(model), path, tmp_path / "out.npy", **HOW, **how)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_trains(path: Path, tmp_path: Path) -> None:
    model = made(Gin)
    model.norm.train()
    with pytest.raises(INVALID, match=r"norm \(BatchNorm1d\) of the model is in training mode"):
        infer(model, path, tmp_path / "out.npy", **HOW)


class Deep(nn.Module):
    """That cannot be traced: it reads the edges by itself. GCN reads the degrees of neighbours, one hop further."""

    def __init__(self, conv: Any = tg.GCNConv) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(24, 16), conv(16, 5)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if edge_index.size(1) == 0:
            return x.new_zeros(x.size(0), 5)
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_batches_with_all_neighbours(path: Path, flat: dict[str, Any], tmp_path: Path, typed: Any) -> None:
    model, out = made(Deep), tmp_path / "out.npy"
    how = {**HOW, "fallback": "batches"}
    with pytest.raises(
        INVALID, match=r"test_infer_refused\.py:\d+ .*edge_index\.size\(1\) == 0.*which line runs depends"
    ):
        infer(model, path, out, **HOW)
    with pytest.raises(INVALID, match='fallback="batches" needs depth='):
        infer(model, path, out, **how)
    with pytest.raises(INVALID, match=r"depth=2 is too small for Deep: .* depth=3 gives"):
        infer(model, path, out, depth=2, **how)
    assert_near(infer(model, path, out, depth=3, **how), forward(model, flat, {}))
    pooled = made(lambda: Mixed(lambda m, h, e: h - h.mean(0)))
    with pytest.raises(INVALID, match="Mixed returns other rows over neighbours up to any depth"):
        infer(pooled, path, tmp_path / "pooled.npy", depth=2, **how)
    tags = made(lambda: Mixed(lambda m, h, e: h, tg.SGConv(24, 16, K=2, add_self_loops=False)))
    nodes = [7, 399, 7]
    some = infer(tags, path, tmp_path / "tags.npy", depth=4, nodes=nodes, **how)
    assert_near(some, forward(tags, flat, {})[nodes])
