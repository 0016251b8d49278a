"""A model with History attached: evaluation, copies, accelerate, compile, and the model given back."""

from __future__ import annotations

import copy
import io
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from history_models import loss_of, model_of, plain_loader, train
from history_oracle import FakeLoader
from torch import nn

from freshgo._batch.structure import recall
from freshgo.history import History

pytest.importorskip("torch_geometric")
import torch_geometric.nn as pyg

from freshgo.nn import accelerate

pytestmark = pytest.mark.usefixtures("no_warnings")


def test_evaluation_stands_aside() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient", keep="rows")
    history.attach(model)
    with plain_loader() as plain, plain_loader() as other:
        loader = FakeLoader(plain, history)
        train(model, loader, history)
        entries, updates = dict(loader.native.entries), list(loader.native.updates)
        for leave, back in ((model.eval, model.train), (history.eval, history.train)):
            leave()
            reference = model_of("GraphSAGE")
            reference.load_state_dict(model.state_dict())
            reference.train(model.training)
            with torch.no_grad():
                other.set_epoch(plain.state_dict()["epoch"])
                for batch, same in zip(loader, other, strict=True):
                    assert batch.n_id.equal(same.n_id)
                    expected = reference(same.x, same.edge_index)
                    assert model(batch.x, batch.edge_index).equal(expected)
                    history.update()
            back()
        assert loader.native.entries == entries
        assert loader.native.updates == updates
        train(model, loader, history)
        assert len(loader.native.updates) > len(updates)


def test_detach_gives_the_model_back() -> None:
    model, history = model_of("GCN"), History(policy="gradient", keep="rows")
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    history.attach(model)
    history.detach()
    history.detach()
    for name, module in model.named_modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
        assert set(module.__dict__) == set(before[name])
    history.attach(model)


def test_a_copy_of_the_model_refuses_pruned_batches_and_takes_plain_ones() -> None:
    model, history = model_of("GCN"), History(policy="gradient", keep="rows")
    history.attach(model)
    other = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        batch = next(iter(loader))
        model(batch.x, batch.edge_index)
        for one in (other, saved):
            with pytest.raises(ValueError, match="copy of the model"):
                one(batch.x, batch.edge_index)
    with plain_loader() as plain:
        batch = list(plain)[-1]
        for one in (other, saved):
            assert one(batch.x, batch.edge_index).equal(model(batch.x, batch.edge_index))


@pytest.mark.parametrize("norm", ["BatchNorm", nn.BatchNorm1d(8)], ids=["of PyG", "of PyTorch"])
def test_a_single_row_is_normalized_by_the_running_statistics(norm: Any) -> None:
    """In training it has no variance, and PyTorch's batch norm refuses it."""
    model, history = pyg.GraphSAGE(12, 8, 3, 5, norm=norm), History(0.95, 10_000, policy="gradient", keep="rows")
    history.attach(model)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    singles = 0
    with plain_loader(batch_size=10) as plain:
        loader = FakeLoader(plain, history)
        for batch in itertools.chain.from_iterable(loader for _ in range(4)):
            known = recall(batch.edge_index)
            counts = [] if known is None else [len(some) for some in known.levels.computed[1:3]]
            before = [module.running_mean.clone() for module in norms]
            loss_of(model(batch.x, batch.edge_index), batch).backward()
            for count, module, mean in zip(counts, norms, before, strict=False):
                assert module.training
                assert (count > 1) == (not mean.equal(module.running_mean))
            singles += counts.count(1)
            history.update()
    assert singles
    history.detach()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in norms)


@pytest.mark.parametrize("order", ["before", "after"])
def test_accelerated_before_and_after(order: str) -> None:
    losses = []
    for fast in (False, True):
        model, history = model_of("GCN"), History(policy="gradient", keep="rows")
        if fast and order == "before":
            accelerate(model)
        history.attach(model)
        if fast and order == "after":
            assert len(accelerate(model).swapped) == 3
        with plain_loader() as plain:
            loader = FakeLoader(plain, history)
            losses.append(train(model, loader, history, 2))
            assert sum(map(len, loader.native.hits)) > 100
        assert all(conv.normalize for conv in model.convs)  # type: ignore[union-attr]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "backend", "order"),
    [
        ("GraphSAGE", "aot_eager", "before"),
        ("GCN", "eager", "after"),
    ],
)
def test_a_compiled_model_has_the_numbers_of_the_eager_one(kind: str, backend: str, order: str) -> None:
    results = []
    for compiled in (False, True):
        torch._dynamo.reset()
        model, history = model_of(kind), History(policy="gradient", keep="rows")
        called: Any = model
        if compiled and order == "before":
            called = torch.compile(model, backend=backend)
        history.attach(called)
        if compiled and order == "after":
            called = torch.compile(model, backend=backend)
        with plain_loader(batch_size=100) as plain:
            loader = FakeLoader(plain, history)
            losses = train(called, loader, history, 2)
            results.append((losses, [sorted(some) for some in loader.native.hits]))
            assert sum(map(len, loader.native.hits)) > 50
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    if backend == "eager":
        assert results[0] == results[1]


def test_trimming_arguments_are_ignored() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient", keep="rows")
    history.attach(model)
    with plain_loader() as plain:
        for batch in FakeLoader(plain, history):
            trims = (batch.num_sampled_nodes, batch.num_sampled_edges)
            out = model(
                batch.x, batch.edge_index, num_sampled_nodes_per_hop=trims[0], num_sampled_edges_per_hop=trims[1]
            )
            assert out.equal(model(batch.x, batch.edge_index))
            loss_of(out, batch).backward()
            history.update()


def test_edges_that_were_copied_are_recognised() -> None:
    losses = []
    for moved in (False, True):
        model, history = model_of("GAT"), History(policy="gradient", keep="rows")
        history.attach(model)
        with plain_loader() as plain:
            loader, some = FakeLoader(plain, history), []
            for batch in loader:
                edge_index = batch.edge_index.clone() if moved else batch.edge_index
                loss = loss_of(model(batch.x, edge_index), batch)
                loss.backward()
                history.update()
                some.append(float(loss.detach()))
        losses.append(some)
    assert losses[0] == losses[1]
