"""History and gradients: which are summed, in which precision, and what is done with those that are no numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from history_models import loss_of, model_of, plain_loader, train
from history_oracle import FakeLoader

from freshgo.history import History

pytest.importorskip("torch_geometric")

pytestmark = pytest.mark.usefixtures("no_warnings")


def test_no_gradient_goes_upstream_of_a_hit() -> None:
    """A feature that only hits depend on has no gradient."""
    history = History(p_grad=1.0, t_stale=50, policy="gradient", keep="rows")
    model = model_of("GraphSAGE")
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        dead = 0
        for batch in loader:
            x = batch.x.clone().requires_grad_()
            loss_of(model(x, batch.edge_index), batch).backward()
            unused = torch.ones(len(x), dtype=torch.bool)
            unused[batch.levels.nodes[0]] = False
            assert x.grad is not None
            assert not x.grad[unused].any()
            assert not batch.x[unused][batch.batch_size :].any()  # they were not even loaded
            dead += int(unused.sum())
            history.update()
    assert dead > 50


def test_several_backward_passes_sum_their_gradients() -> None:
    model = model_of("GraphSAGE")
    norms = []
    for passes in (1, 2):
        history = History(policy="gradient", keep="rows")
        history.attach(model)
        with plain_loader() as plain:
            loader = FakeLoader(plain, history)
            batch = next(iter(loader))
            loss = loss_of(model(batch.x, batch.edge_index), batch)
            if passes == 1:
                (3 * loss).backward()
            else:
                loss.backward(retain_graph=True)
                (2 * loss).backward()
            history.update()
            norms.append([torch.tensor(c) for c, _ in loader.native.norms[0]])
        history.detach()
    for one, two in zip(*norms, strict=True):
        torch.testing.assert_close(one, two)
        assert one.any()


def test_scaled_half_precision_gradients_rank_alike() -> None:
    norms = {}
    for scale in (1.0, 1024.0):
        model, history = model_of("GraphSAGE"), History(policy="gradient", keep="rows")
        history.attach(model)
        with plain_loader() as plain:
            loader = FakeLoader(plain, history)
            batch = next(iter(loader))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(batch.x, batch.edge_index)
            (scale * loss_of(out, batch)).backward()
            history.update()
            assert history._entries.buffer().dtype == torch.bfloat16
            norms[scale] = [np.array(c) for c, _ in loader.native.norms[0]]
    for small, large in zip(*norms.values(), strict=True):
        np.testing.assert_array_equal(small * 1024, large)


def test_norms_of_half_precision_do_not_overflow() -> None:
    history = History(policy="gradient", keep="rows")
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        batch = next(iter(loader))
        h = batch.x
        for i, block in enumerate(batch.blocks()):
            h = history(h, block)
            h = torch.full((block.num_dst, 4), 0.5, dtype=torch.float16).requires_grad_() if i < 2 else h.sum()
        (h.float() * 60000).backward()
        history.update()
        (first, _), (second, _) = loader.native.norms[0]
    assert set(second) == {120000.0}  # 60000 in four columns: its square is beyond float16, and so is their root
    assert set(first) == {0.0}  # the loss did not depend on them


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_no_numbers_are_handed_on(bad: float) -> None:
    model, history = model_of("GraphSAGE"), History(p_grad=1.0, policy="gradient", keep="rows")
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        for i, batch in enumerate(loader):
            loss = loss_of(model(batch.x, batch.edge_index), batch)
            (loss * bad if i == 1 else loss).backward()
            history.update()
            if i == 1:
                norms = loader.native.norms[1]
                assert not any(math.isfinite(n) for c, _ in norms for n in c if n)
                assert all(a != 1 for _, a in loader.native.entries.values())
                model.zero_grad()


def test_frozen_layers_are_judged_too() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient", keep="rows")
    model.convs[0].requires_grad_(False)  # type: ignore[index, union-attr]
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        train(model, loader, history)
        assert any(loader.native.norms[-1][0][0])
