"""History in the model: what a step reads, what it keeps, and that plain batches are left alone; over a loader in
dictionaries (history_oracle), so that every decision is known."""

from __future__ import annotations

import copy
import math
from typing import Any

import history_oracle
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from history_models import (
    HOPS,
    MODELS,
    Compose,
    attach,
    hidden_rows,
    levels_norms,
    loss_of,
    model_of,
    observed,
    plain_loader,
    run,
    train,
)
from history_oracle import FakeLoader
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo.history import History

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate

pytestmark = pytest.mark.usefixtures("no_warnings")


@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("kind", MODELS)
def test_with_rows_of_this_iteration_a_pruned_batch_equals_the_plain_one(kind: str, fast: bool) -> None:
    """Every entry is refreshed with what the plain batch computes, then the pruned batch must compute the same."""
    if fast and not kind.startswith(("GraphSAGE", "GCN", "GAT", "GIN")):
        pytest.skip("nothing of it is accelerated")
    model = model_of(kind)
    if kind == "GraphSAGE-max-project":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):  # batch statistics are those of the rows that are computed
                module.track_running_stats, module.momentum = True, 0.0
                module.forward = lambda x, m=module: F.batch_norm(  # type: ignore[method-assign]
                    x, m.running_mean, m.running_var, m.weight, m.bias, False
                )
    if fast:
        accelerate(model)
    reference = copy.deepcopy(model)
    history = History(p_grad=1.0, t_stale=10**6, policy="gradient", keep="rows")
    attach(history, model)
    with plain_loader() as plain, plain_loader() as same:
        loader = FakeLoader(plain, history)
        native, hits = loader.native, 0
        for batch, whole in zip(loader, same, strict=True):
            pruned = loader.pruned[-1]
            hidden = hidden_rows(reference, whole, kind)
            for level in range(1, len(HOPS)):
                for row, slot in pruned.hits[level].items():
                    values = hidden[level - 1][row]
                    history_oracle.slots_view(native, native.row_bytes)[slot, : values.numel()] = values.detach()
                    hits += 1
            out, expected = run(model, batch, kind), run(reference, whole, kind)
            torch.testing.assert_close(out, expected[: whole.batch_size], rtol=1e-4, atol=1e-5)
            loss_of(out, batch).backward()
            history.update()
    assert hits > 100
    assert len(native.updates) == len(native.hits)


@pytest.mark.parametrize("how", ["attach", "blocks"])
def test_hits_are_the_stored_rows_and_pass_no_gradient(how: str) -> None:
    torch.manual_seed(seed_of(0))
    convs = nn.ModuleList([pyg.SAGEConv(12, 8), pyg.SAGEConv(8, 6), pyg.SAGEConv(6, 5)])
    history = History(p_grad=0.7, t_stale=50, policy="gradient", keep="rows")
    inputs: list[Tensor] = []

    def keep(_: Any, args: Any, kwargs: Any = None) -> None:
        x = (kwargs or {}).get("x", args[0] if args else None)
        table = x[0] if isinstance(x, tuple) else x
        if table.requires_grad:
            table.retain_grad()
        inputs.append(table)

    model = Compose(list(convs))
    model.norms = nn.ModuleList([nn.Identity(), nn.Identity()])
    if how == "attach":
        history.attach(model, layers=model.convs)
    for conv in convs:
        conv.register_forward_pre_hook(keep, with_kwargs=True)

    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        native, checked = loader.native, 0
        for _ in range(3):
            for batch in loader:
                inputs.clear()
                stored = native.buffer.clone()
                if how == "attach":
                    out = model(batch.x, batch.edge_index)
                else:
                    out = batch.x
                    for i, (conv, block) in enumerate(zip(convs, batch.blocks(), strict=True)):
                        out = history(out, block)
                        out = conv((out, out[: block.num_dst]), block.edge_index)
                        out = out.relu() if i < 2 else out
                loss_of(out, batch).backward()
                levels = batch.levels
                assert inputs[0].equal(batch.x[levels.nodes[0]])
                for level in (1, 2):
                    table, hit, slot = inputs[level], levels.hit[level], levels.slot[level]
                    rows = stored[: len(stored) // 32 * 32].view(torch.float32).view(-1, 8)
                    if hit.numel():
                        assert table[hit].equal(rows[slot, : table.size(1)])
                        checked += 1
                    gradient = table.grad
                    norms = [*levels_norms(gradient, levels, level)]
                    for mine, theirs in zip(norms, observed(history, level), strict=True):
                        torch.testing.assert_close(mine, theirs)
                history.update()
    assert checked > 10
    assert max(age for some in native.hits for _, _, age in some) <= 50
    assert min(age for some in native.hits for _, _, age in some) >= 1


@pytest.mark.parametrize(
    "options", [{"p_grad": 0.0}, {"t_stale": 0}, {"start": 10**9}, {"start": math.inf}], ids=lambda o: str(o)
)
def test_what_never_begins_changes_no_bit(options: dict[str, Any]) -> None:
    theirs, ours = model_of("GraphSAGE"), model_of("GraphSAGE")
    history = History(keep="rows", **options)
    history.attach(ours)
    with plain_loader(shuffle=True) as plain:
        expected = train(theirs, plain, None, 2)
    with plain_loader(shuffle=True) as plain:
        assert train(ours, FakeLoader(plain, history), history, 2) == expected
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.equal(other)


def test_the_rows_that_are_stored() -> None:
    model, history = model_of("GraphSAGE"), History(p_grad=0.5, policy="gradient", keep="rows")
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        batch = next(iter(loader))
        hidden = hidden_rows(copy.deepcopy(model), next(iter(plain_loader())), "GraphSAGE")
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        history.update()
        rows = history_oracle.slots_view(loader.native, 32)
        assert loader.native.entries
        n_id = batch.n_id.tolist()
        for (level, node), (slot, _) in loader.native.entries.items():
            torch.testing.assert_close(rows[slot], hidden[level - 1][n_id.index(node)])


def test_update_is_forgiving_but_says_so() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient", keep="rows")
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        history.update()  # nothing was handed over
        batches = iter(loader)
        batch = next(batches)
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        history.update()
        history.update()
        assert loader.native.updates == [0]
        batch = next(batches)
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        with pytest.warns(UserWarning, match=r"update\(\) was not called") as caught:
            batch = next(batches)
        assert len(caught) == 1
        assert caught[0].filename.endswith("history_oracle.py")  # the first code outside of freshgo
        batch = next(batches)  # once is enough
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        history.update()
        assert loader.native.updates == [0, 3]


def test_repeated_seeds_and_random_graphs_agree_with_the_oracle_for_many_iterations() -> None:
    model, history = model_of("GraphSAGE"), History(p_grad=0.8, t_stale=7, policy="gradient", keep="rows")
    history.attach(model)
    seeds = np.random.default_rng(seed_of(0)).integers(300, size=200)
    with plain_loader(input_nodes=seeds, shuffle=True) as plain:
        loader = FakeLoader(plain, history, n_bytes=32 * 1000)  # the ring wraps
        train(model, loader, history, 20)
        ages = [age for some in loader.native.hits for _, _, age in some]
        assert set(ages) == set(range(1, 8))
