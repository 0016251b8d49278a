"""History in the model: what a step reads, what it keeps, and that plain batches are left alone; over a loader in
dictionaries (history_oracle), so that every decision is known."""

from __future__ import annotations

import copy
import io
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import history_oracle
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from history_oracle import FakeLoader
from torch import Tensor, nn

from freshgo import Loader
from freshgo._historyfigure import figure
from freshgo.history import History

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate

HOPS = [4, 3, 3]


def small_graph(num_nodes: int = 300, num_edges: int = 2400, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    source = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    target = (num_nodes * rng.random(num_edges) ** 1.5).astype(np.int64)
    target[:100] = source[:100]  # self-loops
    return {
        "num_nodes": num_nodes,
        "edge_index": np.stack([source, target]),
        "x": rng.standard_normal((num_nodes, 12), dtype=np.float32),
        "y": rng.integers(5, size=num_nodes),
        "edge_type": rng.integers(3, size=num_edges),
        "edge_attr": rng.standard_normal((num_edges, 4), dtype=np.float32),
        "edge_weight": rng.random(num_edges, dtype=np.float32),
    }


GRAPH = small_graph()


def plain_loader(**options: Any) -> Loader:
    return Loader(GRAPH, HOPS, **{"batch_size": 40, "seed": 5, **options})


class Compose(nn.Module):
    """Layers called in order with the batch's edges; ``extra`` names a tensor of edges."""

    def __init__(self, convs: list[Any], extra: str | None = None) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList([nn.LayerNorm(8) for _ in convs[1:]])
        self.extra = extra

    def forward(self, x: Tensor, edge_index: Tensor, extra: Tensor | None = None) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index) if extra is None else conv(x, edge_index, extra)
            if i < len(self.convs) - 1:
                x = self.norms[i](x).relu()
        return x


def compose(make: Callable[..., Any], extra: str | None = None) -> Callable[[], nn.Module]:
    return lambda: Compose([make(12, 8), make(8, 8), make(8, 5)], extra)


def mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


def pna(**options: Any) -> nn.Module:
    degrees = torch.tensor([1, 2, 8, 5, 3])
    return pyg.PNA(
        12, 8, 3, 5, aggregators=["mean", "max"], scalers=["identity", "amplification"], deg=degrees, **options
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GraphSAGE": lambda: pyg.GraphSAGE(12, 8, 3, 5),
    "GraphSAGE-max-project": lambda: pyg.GraphSAGE(12, 8, 3, 5, aggr="max", project=True, norm="batch_norm"),
    "GraphSAGE-lstm": lambda: pyg.GraphSAGE(12, 8, 3, 5, aggr="lstm"),
    "GraphSAGE-last": lambda: pyg.GraphSAGE(12, 8, 3, 5, jk="last", norm="layer_norm", norm_kwargs={"mode": "node"}),
    "GCN": lambda: pyg.GCN(12, 8, 3, 5),
    "GCN-loopless": lambda: pyg.GCN(12, 8, 3, 5, add_self_loops=False),
    "GCN-improved": lambda: pyg.GCN(12, 8, 3, 5, improved=True, cached=False),
    "GAT": lambda: pyg.GAT(12, 8, 3, 5, heads=2),
    "GATv2": lambda: pyg.GAT(12, 8, 3, 5, heads=2, v2=True),
    "GIN": lambda: pyg.GIN(12, 8, 3, 5, norm="layer_norm", norm_kwargs={"mode": "node"}),
    "EdgeCNN": lambda: pyg.EdgeCNN(12, 8, 3, 5),
    "PNA": pna,
    "GAT-edges": lambda: pyg.GAT(12, 8, 3, 5, heads=2, edge_dim=4),
    "SAGEConv": compose(pyg.SAGEConv),
    "TransformerConv": compose(lambda a, b: pyg.TransformerConv(a, b, edge_dim=4), "edge_attr"),
    "RGCNConv": compose(lambda a, b: pyg.RGCNConv(a, b, 3), "edge_type"),
    "GraphConv": compose(pyg.GraphConv, "edge_weight"),
    "GCNConv-given": compose(lambda a, b: pyg.GCNConv(a, b, normalize=False), "edge_weight"),
    "GINEConv": compose(lambda a, b: pyg.GINEConv(mlp(a, b), edge_dim=4), "edge_attr"),
    "ResGatedGraphConv": compose(pyg.ResGatedGraphConv),
}


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(1)
    return MODELS[kind]()


def attach(history: History, model: nn.Module) -> None:
    history.attach(model, layers=None if isinstance(model, pyg.models.basic_gnn.BasicGNN) else model.convs)


def run(model: Any, batch: Any, kind: str) -> Tensor:
    extra = {"GAT-edges": "edge_attr"}.get(kind, getattr(model, "extra", None))
    if extra is None:
        return model(batch.x, batch.edge_index)
    if kind == "GAT-edges":
        return model(batch.x, batch.edge_index, edge_attr=batch[extra])
    return model(batch.x, batch.edge_index, batch[extra])


def loss_of(out: Tensor, batch: Any) -> Tensor:
    return F.cross_entropy(out[: batch.batch_size].float(), batch.y[: batch.batch_size])


def train(model: Any, loader: Any, history: History | None, epochs: int = 1, kind: str = "") -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(run(model, batch, kind), batch)
            loss.backward()
            optimizer.step()
            if history is not None:
                history.update()
            losses.append(float(loss.detach()))
    return losses


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", module="torch")
        yield


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
    history = History(p_grad=1.0, t_stale=10**6, policy="gradient")
    attach(history, model)
    with plain_loader() as plain, plain_loader() as same:
        loader = FakeLoader(plain, history)
        native, hits = loader._native, 0
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


def hidden_rows(model: Any, batch: Any, kind: str) -> list[Tensor]:
    """What each layer but the first of a model without history reads of a plain batch."""
    seen: list[Tensor] = []
    hooks = [conv.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for conv in model.convs]
    run(model, batch, kind)
    for hook in hooks:
        hook.remove()
    return seen[1:]


@pytest.mark.parametrize("how", ["attach", "blocks"])
def test_hits_are_the_stored_rows_and_pass_no_gradient(how: str) -> None:
    torch.manual_seed(0)
    convs = nn.ModuleList([pyg.SAGEConv(12, 8), pyg.SAGEConv(8, 6), pyg.SAGEConv(6, 5)])
    history = History(p_grad=0.7, t_stale=50, policy="gradient")
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
        native, checked = loader._native, 0
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


def levels_norms(gradient: Tensor, levels: Any, level: int) -> tuple[Tensor, Tensor]:
    norms = gradient.double().square().sum(1).sqrt().float()
    return norms[levels.computed[level]], norms[levels.hit[level]]


def observed(history: History, level: int) -> tuple[Tensor, Tensor]:
    assert history._step is not None
    return history._step.observed()[2][level - 1]


def test_no_gradient_goes_upstream_of_a_hit() -> None:
    """A feature that only hits depend on has no gradient."""
    history = History(p_grad=1.0, t_stale=50, policy="gradient")
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


@pytest.mark.parametrize(
    "options", [{"p_grad": 0.0}, {"t_stale": 0}, {"start": 10**9}, {"start": math.inf}], ids=lambda o: str(o)
)
def test_what_never_begins_changes_no_bit(options: dict[str, Any]) -> None:
    theirs, ours = model_of("GraphSAGE"), model_of("GraphSAGE")
    history = History(**options)
    history.attach(ours)
    with plain_loader(shuffle=True) as plain:
        expected = train(theirs, plain, None, 2)
    with plain_loader(shuffle=True) as plain:
        assert train(ours, FakeLoader(plain, history), history, 2) == expected
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.equal(other)


def test_several_backward_passes_sum_their_gradients() -> None:
    model = model_of("GraphSAGE")
    norms = []
    for passes in (1, 2):
        history = History(policy="gradient")
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
            norms.append([torch.tensor(c) for c, _ in loader._native.norms[0]])
        history.detach()
    for one, two in zip(*norms, strict=True):
        torch.testing.assert_close(one, two)
        assert one.any()


def test_scaled_half_precision_gradients_rank_alike() -> None:
    norms = {}
    for scale in (1.0, 1024.0):
        model, history = model_of("GraphSAGE"), History(policy="gradient")
        history.attach(model)
        with plain_loader() as plain:
            loader = FakeLoader(plain, history)
            batch = next(iter(loader))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(batch.x, batch.edge_index)
            (scale * loss_of(out, batch)).backward()
            history.update()
            assert history._buffer().dtype == torch.bfloat16
            norms[scale] = [np.array(c) for c, _ in loader._native.norms[0]]
    for small, large in zip(*norms.values(), strict=True):
        np.testing.assert_array_equal(small * 1024, large)


def test_norms_of_half_precision_do_not_overflow() -> None:
    history = History(policy="gradient")
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        batch = next(iter(loader))
        h = batch.x
        for i, block in enumerate(batch.blocks()):
            h = history(h, block)
            h = torch.full((block.num_dst, 4), 0.5, dtype=torch.float16).requires_grad_() if i < 2 else h.sum()
        (h.float() * 60000).backward()
        history.update()
        (first, _), (second, _) = loader._native.norms[0]
    assert set(second) == {120000.0}  # 60000 in four columns: its square is beyond float16, and so is their root
    assert set(first) == {0.0}  # the loss did not depend on them


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_no_numbers_are_handed_on(bad: float) -> None:
    model, history = model_of("GraphSAGE"), History(p_grad=1.0, policy="gradient")
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        for i, batch in enumerate(loader):
            loss = loss_of(model(batch.x, batch.edge_index), batch)
            (loss * bad if i == 1 else loss).backward()
            history.update()
            if i == 1:
                norms = loader._native.norms[1]
                assert not any(math.isfinite(n) for c, _ in norms for n in c if n)
                assert all(a != 1 for _, a in loader._native.entries.values())
                model.zero_grad()


def test_frozen_layers_are_judged_too() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient")
    model.convs[0].requires_grad_(False)  # type: ignore[index, union-attr]
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        train(model, loader, history)
        assert any(loader._native.norms[-1][0][0])


def test_the_rows_that_are_stored() -> None:
    model, history = model_of("GraphSAGE"), History(p_grad=0.5, policy="gradient")
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        batch = next(iter(loader))
        hidden = hidden_rows(copy.deepcopy(model), next(iter(plain_loader())), "GraphSAGE")
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        history.update()
        rows = history_oracle.slots_view(loader._native, 32)
        assert loader._native.entries
        n_id = batch.n_id.tolist()
        for (level, node), (slot, _) in loader._native.entries.items():
            torch.testing.assert_close(rows[slot], hidden[level - 1][n_id.index(node)])


def test_update_is_forgiving_but_says_so() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient")
    history.update()  # nothing was handed over
    history.attach(model)
    with plain_loader() as plain:
        loader = FakeLoader(plain, history)
        batches = iter(loader)
        batch = next(batches)
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        history.update()
        history.update()
        assert loader._native.updates == [0]
        batch = next(batches)
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        with pytest.warns(UserWarning, match=r"update\(\) was not called") as caught:
            batch = next(batches)
        assert len(caught) == 1
        assert caught[0].filename.endswith("history_oracle.py")  # the first code outside of freshgo
        batch = next(batches)  # once is enough
        loss_of(model(batch.x, batch.edge_index), batch).backward()
        history.update()
        assert loader._native.updates == [0, 3]


def test_evaluation_stands_aside() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient")
    history.attach(model)
    with plain_loader() as plain, plain_loader() as other:
        loader = FakeLoader(plain, history)
        train(model, loader, history)
        entries, updates = dict(loader._native.entries), list(loader._native.updates)
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
        assert loader._native.entries == entries
        assert loader._native.updates == updates
        train(model, loader, history)
        assert len(loader._native.updates) > len(updates)


def test_detach_gives_the_model_back() -> None:
    model, history = model_of("GCN"), History(policy="gradient")
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
    model, history = model_of("GCN"), History(policy="gradient")
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


@pytest.mark.parametrize("order", ["before", "after"])
def test_accelerated_before_and_after(order: str) -> None:
    losses = []
    for fast in (False, True):
        model, history = model_of("GCN"), History(policy="gradient")
        if fast and order == "before":
            accelerate(model)
        history.attach(model)
        if fast and order == "after":
            assert len(accelerate(model).swapped) == 3
        with plain_loader() as plain:
            loader = FakeLoader(plain, history)
            losses.append(train(model, loader, history, 2))
            assert sum(map(len, loader._native.hits)) > 100
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
        model, history = model_of(kind), History(policy="gradient")
        called: Any = model
        if compiled and order == "before":
            called = torch.compile(model, backend=backend)
        history.attach(called)
        if compiled and order == "after":
            called = torch.compile(model, backend=backend)
        with plain_loader(batch_size=100) as plain:
            loader = FakeLoader(plain, history)
            losses = train(called, loader, history, 2)
            results.append((losses, [sorted(some) for some in loader._native.hits]))
            assert sum(map(len, loader._native.hits)) > 50
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    if backend == "eager":
        assert results[0] == results[1]


def test_trimming_arguments_are_ignored() -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient")
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
        model, history = model_of("GAT"), History(policy="gradient")
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


def test_repeated_seeds_and_random_graphs_agree_with_the_oracle_for_many_iterations() -> None:
    model, history = model_of("GraphSAGE"), History(p_grad=0.8, t_stale=7, policy="gradient")
    history.attach(model)
    seeds = np.random.default_rng(0).integers(300, size=200)
    with plain_loader(input_nodes=seeds, shuffle=True) as plain:
        loader = FakeLoader(plain, history, n_bytes=32 * 1000)  # the ring wraps
        train(model, loader, history, 20)
        ages = [age for some in loader._native.hits for _, _, age in some]
        assert set(ages) == set(range(1, 8))


class TestSampledError:
    def trained(self, lr: float) -> History:
        model, history = model_of("GraphSAGE"), History(p_grad=1.0, policy="gradient", sample_error=0.25)
        history.attach(model)
        assert history._settings.probe_every == 4
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        with plain_loader() as plain:
            loader = FakeLoader(plain, history, probe_every=4)
            for _ in range(3):
                for batch in loader:
                    optimizer.zero_grad()
                    loss_of(model(batch.x, batch.edge_index), batch).backward()
                    optimizer.step()
                    history.update()
            self.stats = history.stats()
        return history

    def test_deterministic_and_by_age(self) -> None:
        first = self.trained(0.05).stats()["error"]
        assert first == self.trained(0.05).stats()["error"]
        assert first
        for row in first:
            assert row["to"] == 2 * row["age"] - 1
            assert -1 <= row["cosine"] <= 1
            assert row["relative"] >= 0
            assert row["rows"] > 0

    def test_learning_faster_makes_it_larger(self) -> None:
        slow, fast = (self.trained(lr).stats()["error"] for lr in (0.001, 0.5))
        mean = [sum(r["relative"] * r["rows"] for r in some) / sum(r["rows"] for r in some) for some in (slow, fast)]
        assert mean[0] < mean[1]

    def test_of_rows_that_differ_as_told(self) -> None:
        history = History()
        exact = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
        stored = torch.tensor([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [-2.0, 0.0]])
        history._estimation.add(1, exact, stored, torch.tensor([1, 2, 3, 3, 1]))
        assert history.stats()["error"] == [
            {"age": 1, "to": 1, "rows": 2, "cosine": 0.0, "relative": 1.0},
            {"age": 2, "to": 3, "rows": 3, "cosine": pytest.approx(1 / 3), "relative": pytest.approx(math.sqrt(5))},
        ]


@pytest.mark.parametrize("waits", [False, True])
def test_a_resumed_run_continues_identically(waits: bool) -> None:
    def start() -> tuple[Any, History, Any, Any]:
        model, history = model_of("GraphSAGE"), History(p_grad=0.8, policy="gradient", memory="1MiB")
        history.attach(model)
        plain = plain_loader(shuffle=True)
        return model, history, plain, FakeLoader(plain, history)

    model, history, plain, loader = start()
    train(model, loader, history)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "history": history.state_dict(), "loader": plain.state_dict()}, file)
    expected = train(model, loader, history, 2)
    hits = loader._native.hits

    file.seek(0)
    state = torch.load(file, weights_only=True)
    other, resumed, again, second = start()
    other.load_state_dict(state["model"])
    if waits:
        resumed = History(p_grad=0.8, policy="gradient", memory="1MiB")
        resumed.load_state_dict(state["history"])
        assert resumed.state_dict()["settings"] == state["history"]["settings"]
        second = FakeLoader(again, resumed)
        attach_to, resumed_model = resumed, model_of("GraphSAGE")
        resumed_model.load_state_dict(state["model"])
        attach_to.attach(resumed_model)
        other = resumed_model
    else:
        resumed.load_state_dict(state["history"])
    again.load_state_dict(state["loader"])
    assert train(other, second, resumed, 2) == expected
    assert second._native.hits[len(plain) :] == hits[len(plain) :]
    assert resumed.stats()["saving"] == history.stats()["saving"]


def test_what_is_saved_and_its_picture(tmp_path: Path) -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient")
    history.attach(model)
    with plain_loader() as plain:
        train(model, FakeLoader(plain, history), history, 3)
        with plain_loader() as same:
            whole = [(len(batch.n_id), batch.edge_index.size(1)) for _ in range(3) for batch in same]
    stats = history.stats()
    saving = stats["saving"]
    assert [(row["plain_rows"], row["plain_edges"]) for row in saving] == whole
    assert stats["rows_saved"] == sum(row["plain_rows"] - row["loaded"] for row in saving) > 500
    assert stats["edges_saved"] == sum(row["plain_edges"] - row["edges"] for row in saving) > 500
    assert stats["bytes_saved"] == 48 * stats["rows_saved"]
    pytest.importorskip("matplotlib")
    layers = [{"hits": 3, "misses": 1, "live": 7}, {"hits": 0, "misses": 0, "live": 0}]
    errors = [{"age": 1, "to": 1, "rows": 2, "cosine": 0.5, "relative": 1.0}]
    for error in ([], errors):
        figure({**stats, "layers": layers, "ages": [1, 2, 3], "error": error}).savefig(tmp_path / "a.png")
        text = (tmp_path / "a.png").read_bytes()
        assert text.startswith(b"\x89PNG")
        assert len(text) > 10_000


def test_a_trail_keeps_its_sums_and_its_size() -> None:
    from freshgo._estimation import _POINTS, Trail

    trail = Trail()
    block = history_oracle.Namespace(edge=torch.tensor([5]))
    for i in range(5 * _POINTS):
        trail.add(
            history_oracle.Namespace(
                index=i,
                hit=[None, torch.arange(i % 3)],
                computed=[None, torch.arange(2)],
                layers=[block],
                loaded=i,
                plain_nodes=2 * i,
                edges=6,
                plain_edges=7,
            )
        )
    rows = trail.rows()
    assert _POINTS <= len(rows) < 2 * _POINTS
    assert sum(row["batches"] for row in rows) == 5 * _POINTS
    assert sum(row["loaded"] for row in rows) == sum(range(5 * _POINTS))
    assert [row["iteration"] for row in rows] == sorted(row["iteration"] for row in rows)
    other = Trail()
    other.load(trail.save())
    assert other.rows() == rows
