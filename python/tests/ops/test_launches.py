"""What a step of three trimmed layers launches, as bench/ops/launches.py counts it, and that nothing else changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import scripts
import torch
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader
from freshgo.errors import InvalidArgumentError

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo._ops import conv
from freshgo.nn import accelerate

CALLS = {
    "SAGE": ({"fg_aggregate": 3}, {"fg_aggregate": 2}),
    "GCN": ({"fg_aggregate": 4}, {"fg_aggregate": 2}),
    "GIN": ({"fg_aggregate": 3}, {"fg_aggregate": 2}),
    "GAT": (
        {"fg_aggregate": 3, "fg_attention_forward": 3, "fg_heads_run": 6},
        {"fg_aggregate": 6, "fg_attention_back": 3, "fg_heads_run": 15},
    ),
}
"""Calls of the library, forward and backward: the first layer's rows need no gradient, and GCN adds degrees once."""

OPERATORS = {"SAGE": 34, "GCN": 38, "GIN": 54, "GAT": 39}
"""Operators of PyTorch beside them, the loss included. Those of PyG's layers: 71, 107, 72 and 209."""


@pytest.mark.parametrize("kind", CALLS)
def test_launches_of_a_step(kind: str) -> None:
    found = scripts.load("bench/ops/launches.py").counts(kind)
    ours = found["freshgo"]
    called = tuple({name: n for name, n in way.items() if name.startswith("fg_") and n} for way in ours)
    assert called == CALLS[kind]
    total = {name: sum(sum(way.values()) for way in both) for name, both in found.items()}
    beside = total["freshgo"] - sum(sum(way.values()) for way in called)
    assert beside <= OPERATORS[kind], ours  # an older PyTorch counts some as one
    if kind != "GIN":
        assert total["freshgo"] <= 0.55 * total["PyG"], found


def layer(**options: Any) -> Any:
    torch.manual_seed(seed_of(0))
    conv = pyg.SAGEConv(6, 4, **options)
    accelerate(conv)
    return conv


class Steps:
    """How often layers ran in one step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        forward = conv.Conv.forward

        def counted(*args: Any) -> Tensor:
            self.taken += 1
            return forward(*args)

        monkeypatch.setattr(conv.Conv, "forward", staticmethod(counted))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


X = torch.linspace(-1, 1, 60).view(10, 6)
EDGES = torch.tensor([[1, 2, 3, 9, 4, 4], [0, 0, 1, 2, 5, 0]])


def with_hook(sage: Any) -> None:
    sage.lin_l.register_forward_hook(lambda *_: None)


def with_root_hook(sage: Any) -> None:
    sage.lin_r.register_forward_pre_hook(lambda *_: None)


def with_another_map(sage: Any) -> None:
    class Own(pyg.Linear):  # type: ignore[misc, name-defined]
        pass

    sage.lin_r.__class__ = Own


def with_own_propagate(sage: Any) -> None:
    whole = sage.propagate
    sage.propagate = lambda *args, **options: whole(*args, **options)


def with_message_hook(sage: Any) -> None:
    sage.register_propagate_forward_hook(lambda *_: None)


@pytest.mark.parametrize(
    "change", [None, with_hook, with_root_hook, with_another_map, with_own_propagate, with_message_hook]
)
def test_layers_that_somebody_watches_run_in_parts(change: Callable[[Any], None] | None, steps: Steps) -> None:
    sage, plain = layer(), layer()
    plain.__class__ = pyg.SAGEConv
    if change is not None:
        change(sage)
    torch.testing.assert_close(sage(X, EDGES), plain(X, EDGES))
    assert steps.taken == (change is None)


def test_transforms_and_autocast_run_in_parts(steps: Steps) -> None:
    sage = layer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sage(X, EDGES).dtype == torch.bfloat16
    parameters = dict(sage.named_parameters())

    def loss(parameters: Any) -> Tensor:
        return torch.func.functional_call(sage, parameters, (X, EDGES)).square().sum()

    found = torch.func.grad(loss)(parameters)
    assert steps.taken == 0
    loss(parameters).backward()
    assert steps.taken == 1
    for name, parameter in parameters.items():
        torch.testing.assert_close(found[name], parameter.grad)


@pytest.mark.parametrize("shape", ["one", "pair", "fewer targets"])
@pytest.mark.parametrize("kind", ["mean", "sum", "narrow", "gcn", "gcn-narrow", "gcn-loopless", "gcn-plain", "gin"])
def test_derivatives_of_one_step(kind: str, shape: str, steps: Steps) -> None:
    torch.manual_seed(seed_of(0))
    columns = 2 if "narrow" in kind else 8
    if kind.startswith("gcn"):
        options = {"gcn-loopless": {"add_self_loops": False}, "gcn-plain": {"normalize": False}}.get(kind, {})
        made = pyg.GCNConv(6, columns, **options).double()
        if shape != "one":
            pytest.skip("GCNConv takes no pairs")
    elif kind == "gin":
        made = pyg.GINConv(nn.Linear(6, columns), eps=0.3).double()
        if shape != "one":
            pytest.skip("GINConv takes pairs in parts")
    else:
        made = pyg.SAGEConv(6, columns, aggr="sum" if kind == "sum" else "mean").double()
    accelerate(made)
    x = X.double().requires_grad_()
    target = {"pair": torch.randn(10, 6), "fewer targets": torch.randn(7, 6)}.get(shape, X).double().requires_grad_()
    names = list(dict(made.named_parameters()))

    def run(x: Tensor, target: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(made, given, (x if shape == "one" else (x, target), EDGES))

    inputs = (x, target, *(p.detach().clone().requires_grad_() for p in made.parameters()))
    if shape == "one":
        run = lambda x, *parameters, whole=run: whole(x, x, *parameters)  # noqa: E731
        inputs = (inputs[0], *inputs[2:])
    assert torch.autograd.gradcheck(run, inputs)
    for i in range(len(inputs)):  # each alone
        alone = [t if i == k else t.detach() for k, t in enumerate(inputs)]
        assert torch.autograd.gradcheck(run, alone)
    assert steps.taken > 0


def test_gin_runs_in_parts_where_its_rows_are_not_added_in_one_step(steps: Steps) -> None:
    def gin(x: Any, **options: Any) -> int:
        torch.manual_seed(seed_of(0))
        theirs = pyg.GINConv(nn.Linear(6, 4), **options)
        ours = copy.deepcopy(theirs)
        accelerate(ours)
        steps.taken = 0
        torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES))
        return steps.taken

    assert gin(X) == gin(X, eps=0.3) == gin(X, aggr="sum") == 1
    assert gin(X, train_eps=True) == gin(X, aggr="mean") == gin((X, X.flip(0))) == 0
    half = pyg.GINConv(nn.Identity())
    accelerate(half)
    assert half(X.half(), EDGES).dtype == pyg.GINConv(nn.Identity())(X.half(), EDGES).dtype
    assert steps.taken == 0


def test_one_step_has_no_second_derivative(steps: Steps) -> None:
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(layer()(x, EDGES).square().sum(), x, create_graph=True)
    assert steps.taken == 1
    with pytest.raises(InvalidArgumentError, match="no second derivatives"):
        grad.sum().backward()


@pytest.mark.parametrize("make", [pyg.GraphSAGE, pyg.GCN, pyg.GIN, pyg.GAT])
@pytest.mark.parametrize("transpose", [False, True])
def test_trimmed_models_equal_pygs(graph: dict[str, Any], make: Any, transpose: bool) -> None:
    """With rows beyond those that have edges, and without: trimmed by other numbers than those of hops."""
    torch.manual_seed(seed_of(0))
    theirs: nn.Module = make(24, 16, num_layers=3, out_channels=3).double()
    ours = copy.deepcopy(theirs)
    assert len(accelerate(ours).swapped) == 3
    with Loader(graph, [5, 4, 3], torch.arange(200), batch_size=100, transpose=transpose) as loader:
        for batch in loader:
            edges = list(batch.num_sampled_edges)
            for hops in (edges, [edges[0] - 1, edges[1] + 1, edges[2]]):
                results = []
                for model in (theirs, ours):
                    x = batch.x.double().requires_grad_()
                    model.zero_grad()
                    trimmed = {
                        "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
                        "num_sampled_edges_per_hop": hops,
                    }
                    out = model(x, batch.edge_index, **trimmed)
                    out[: batch.batch_size].square().sum().backward()
                    results.append((out[: batch.batch_size], x.grad, *(p.grad for p in model.parameters())))
                for mine, expected in zip(results[1], results[0], strict=True):
                    torch.testing.assert_close(mine, expected)
