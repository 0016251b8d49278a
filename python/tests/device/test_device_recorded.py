"""A recorded step is the eager one: over a tape in place of a CUDA graph, which runs operators again and no Python."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from graphs import BACK, CITES, WRITES, handed, hetero_graph, random_graph
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from freshgo import Batch, HeteroBatch, Loader, TypeBatch, errors, propagate
from freshgo._nn import recorded
from freshgo.nn import accelerate, precomputed, record

pytest.importorskip("torch_geometric")
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, HeteroConv, SAGEConv

OPTIONS: dict[str, Any] = {"batch_size": 60, "shuffle": True, "seed": 5, "pad": True, "progress": False}


WAIT = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
"""Operators whose sizes or values the host must know."""


class Tape(TorchDispatchMode):
    """Keeps what is computed and where its results lie. Replaying writes the same memory, as a CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masks = [one for one in tree_leaves(args[1:]) if isinstance(one, Tensor) and one.dtype == torch.bool]
        if func in WAIT or (func is torch.ops.aten.index.Tensor and masks):
            raise RuntimeError(f"operation not permitted when stream is capturing\n{func}")
        result = func(*args, **(kwargs or {}))
        if "empty" not in func.name():  # it computes nothing, and what it made may have been made larger since
            self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, result in self.calls:
                for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Watched(TorchDispatchMode):
    """Beside it, accelerated layers make their step in parts, as below a tape."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Tapes:
    """As _CudaGraphs. A capture runs nothing: what the recorded step has written is put back."""

    made = 0

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    @contextmanager
    def apart(self) -> Iterator[None]:
        yield

    def record(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        written = [*self.model.parameters(), *self.model.buffers(), *(s for s in state if isinstance(s, Tensor))]
        before = [tensor.detach().clone() for tensor in written]
        with Tape() as tape:
            try:
                loss = step()
            except RuntimeError as error:
                at = error.__traceback__
                while at.tb_next.tb_frame.f_code.co_name != "__torch_dispatch__":
                    at = at.tb_next
                at.tb_next = None  # CUDA refuses where the operator is called
                raise
        with torch.no_grad():
            for tensor, value in zip(written, before, strict=True):
                tensor.copy_(value)
        Tapes.made += 1
        return tape.replay, loss


def make(monkeypatch: pytest.MonkeyPatch, model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer) -> record:
    Tapes.made = 0
    monkeypatch.setattr(recorded, "graphs", lambda device: Tapes(model, optimizer))
    return record(model, loss, optimizer)


def loss(model: nn.Module, batch: Any) -> Tensor:
    out = model(batch.x, batch.edge_index, **trimmed(batch))[: batch.batch_size]
    return nn.functional.cross_entropy(out, batch.y[: batch.batch_size])


def trimmed(batch: Any) -> dict[str, Any]:
    return {
        "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
        "num_sampled_edges_per_hop": batch.num_sampled_edges,
    }


def sgd(model: nn.Module, lr: Any = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr, momentum=0.9)


def eager(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, loss: Any = loss) -> Tensor:
    optimizer.zero_grad()
    value = loss(model, batch)
    value.backward()
    optimizer.step()
    return value.detach()


def compare(model: nn.Module, other: nn.Module) -> None:
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        assert mine.equal(its)


@pytest.mark.parametrize(
    ("kind", "accelerated"),
    [(GraphSAGE, False), (GIN, False), (GraphSAGE, True), (GCN, True), (GIN, True), (GAT, True)],
)
def test_losses_and_parameters_are_those_of_the_eager_loop(
    monkeypatch: pytest.MonkeyPatch, kind: Any, accelerated: bool
) -> None:
    torch.manual_seed(0)
    data = random_graph()
    model = kind(data["x"].shape[1], 16, num_layers=2, out_channels=7)
    other = copy.deepcopy(model)
    if accelerated:
        accelerate(model)
        accelerate(other)
    optimizer, its = sgd(model), sgd(other)
    step = make(monkeypatch, model, loss, optimizer)
    steps = odd = 0
    with Loader(data, [4, 3], "train", transpose=accelerated, **OPTIONS) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            for batch in loader:
                steps, odd = steps + 1, odd + (not batch.padded or batch.batch_size < OPTIONS["batch_size"])
                with Watched():
                    assert step(batch).equal(eager(other, its, batch))
                compare(model, other)
                grads = [(a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters(), strict=True)]
                assert all(a is b is None or a.equal(b) for a, b in grads)
    assert Tapes.made == 1
    assert step.replayed + step.eager == steps
    assert recorded.WARM + odd <= step.eager <= recorded.WARM + 2 * odd  # one may come before the recording


def typed(model: nn.Module, batch: Any) -> Tensor:
    out = model(batch.x_dict, batch.edge_index_dict)["paper"]
    size = batch["paper"].batch_size
    return nn.functional.cross_entropy(out[:size], batch["paper"].y[:size])


@pytest.mark.parametrize("of_pyg", [True, False])
def test_types(monkeypatch: pytest.MonkeyPatch, of_pyg: bool) -> None:
    """Also a tensor that a transform gives the whole batch."""
    data = handed(hetero_graph())
    used = {CITES: [3, 2], WRITES: [2, 2], BACK: [2, 2]}
    relations = {key: used.get(key, [0, 0]) for key in data if isinstance(key, tuple)}

    def of_batch(batch: Any) -> Any:
        if not of_pyg:
            batch = HeteroBatch(
                {key: TypeBatch(**dict(batch[key].items())) for key in (*batch.node_types, *batch.edge_types)},
                {"padded": batch.padded},
            )
            batch._whole["scale"] = batch["paper"].x.mean().exp()
        else:
            batch.scale = batch["paper"].x.mean().exp()
        return batch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = (
                HeteroConv({relation: SAGEConv((-1, -1), size) for relation in used}) for size in (8, 7)
            )

        def forward(self, x: Any, edges: Any) -> Any:
            h = {
                name: rows.relu()
                for name, rows in self.first(
                    {name: rows.float() for name, rows in x.items()}, {key: edges[key] for key in used}
                ).items()
            }
            return self.last(h, {key: edges[key] for key in used})

    with Loader(data, relations, {"paper": "train"}, transform=of_batch, **OPTIONS) as loader:
        batches = [*loader, *loader]
    torch.manual_seed(0)
    model = Net()
    typed(model, batches[0])  # which gives the parameters their sizes
    other = copy.deepcopy(model)
    optimizer, its = sgd(model), sgd(other)

    def scaled(model: nn.Module, batch: Any) -> Tensor:
        return typed(model, batch) * batch.scale

    step = make(monkeypatch, model, scaled, optimizer)
    for batch in batches:
        assert step(batch).equal(eager(other, its, batch, scaled))
    compare(model, other)
    assert step.replayed > len(batches) // 2


def test_a_first_layer_that_is_precomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = propagate(random_graph(), reduce="mean", progress=False)
    torch.manual_seed(0)
    model = GraphSAGE(24, 16, num_layers=2, out_channels=7)
    precomputed(model)
    other = copy.deepcopy(model)
    optimizer, its = sgd(model), sgd(other)

    def of_aggregates(model: nn.Module, batch: Any) -> Tensor:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        return nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    step = make(monkeypatch, model, of_aggregates, optimizer)
    with Loader(data, [4], "train", first_layer="mean", **OPTIONS) as loader:
        for batch in loader:
            assert step(batch).equal(eager(other, its, batch, of_aggregates))
    compare(model, other)
    assert step.replayed > 5


def test_batches_without_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = GraphSAGE(24, 16, num_layers=2, out_channels=7)
    other = copy.deepcopy(model)
    optimizer, its = sgd(model), sgd(other)
    step = make(monkeypatch, model, loss, optimizer)
    with Loader(random_graph(), [4, 3], "train", transform=lambda batch: Batch(**batch.to_dict()), **OPTIONS) as loader:
        for batch in loader:
            assert step(batch).equal(eager(other, its, batch))
    compare(model, other)
    assert step.replayed > 5


def test_what_layers_made_of_a_batch_before_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales and groups of edges are kept beside edge_index: a loss that has used a batch twice has made them."""

    def twice(model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            model(batch.x, batch.edge_index)
        return loss(model, batch)

    torch.manual_seed(0)
    data = random_graph()
    model = GraphSAGE(data["x"].shape[1], 16, num_layers=2, out_channels=7)
    other = copy.deepcopy(model)
    accelerate(model)
    optimizer, its = sgd(model), sgd(other)
    step = make(monkeypatch, model, twice, optimizer)
    with Loader(data, [4, 3], "train", **OPTIONS) as loader:
        for batch in loader:
            model(batch.x, batch.edge_index)
            torch.testing.assert_close(step(batch), eager(other, its, batch), rtol=1e-4, atol=1e-5)
    assert step.replayed > 5


def test_a_number_that_changes_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    data = random_graph()
    model = GraphSAGE(data["x"].shape[1], 16, num_layers=2, out_channels=7)
    other = copy.deepcopy(model)
    optimizer, its = sgd(model), sgd(other)
    step = make(monkeypatch, model, loss, optimizer)
    changes: dict[int, Callable[[nn.Module, torch.optim.Optimizer], Any]] = {
        8: lambda model, optimizer: optimizer.param_groups[0].update(lr=0.01),
        14: lambda model, optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),  # other memory
        20: lambda model, optimizer: model.eval(),
        26: lambda model, optimizer: model.convs[0].lin_l.weight.requires_grad_(False),
        32: lambda model, optimizer: optimizer.state.clear(),
    }
    made = []
    with Loader(data, [4, 3], "train", drop_last=True, **OPTIONS) as loader:
        batches = [batch for _ in range(4) for batch in loader][:38]
    with pytest.warns(UserWarning, match=r"changed 'lr' of parameter group 0 from 0.05 to 0.01"):
        for number, batch in enumerate(batches):
            for one, its_optimizer in ((model, optimizer), (other, its)):
                changes.get(number, lambda *given: None)(one, its_optimizer)
            assert step(batch).equal(eager(other, its, batch))
            compare(model, other)
            made.append(Tapes.made)
    assert made[7] == 1
    assert made[-1] == 1 + len(changes)


def test_a_learning_rate_that_is_a_tensor_is_read_by_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    data = random_graph()
    model = GraphSAGE(data["x"].shape[1], 16, num_layers=2, out_channels=7)
    other = copy.deepcopy(model)
    optimizer, its = (
        torch.optim.SGD(one.parameters(), torch.tensor(0.05), momentum=0.9, fused=True) for one in (model, other)
    )
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (optimizer, its)]
    step = make(monkeypatch, model, loss, optimizer)
    with Loader(data, [4, 3], "train", drop_last=True, **OPTIONS) as loader:
        for batch in loader:
            assert step(batch).equal(eager(other, its, batch))
            compare(model, other)
            for schedule in schedules:
                schedule.step()
    assert Tapes.made == 1


def waits(model: nn.Module, batch: Any) -> Tensor:
    value = loss(model, batch)
    return value if value.item() < 1e9 else value * 2


def test_what_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_graph()
    columns = data["x"].shape[1]
    model = GraphSAGE(columns, 16, num_layers=2, out_channels=7)
    with pytest.raises(errors.InvalidArgumentError, match="CUDA device, its parameters are on 'cpu'"):
        record(model, loss, sgd(model))
    with pytest.raises(errors.InvalidArgumentError, match="a model with parameters"):
        record(nn.ReLU(), loss, sgd(model))
    with pytest.raises(errors.InvalidArgumentError, match=r"Adam\(\.\.\., capturable=True\)"):
        make(monkeypatch, model, loss, torch.optim.Adam(model.parameters()))
    gat = GAT(columns, 16, num_layers=2, out_channels=7)
    adagrad = torch.optim.Adagrad(model.parameters())
    with Loader(data, [4, 3], "train", **OPTIONS) as loader:
        batches = list(loader)[:5]
        for net, of, optimizer, words in (
            (
                model,
                waits,
                sgd(model),
                r"return value if value.item\(\) < 1e9.* cannot be recorded: operation not perm",
            ),
            (gat, loss, sgd(gat), r"loop.py:\d+ \(`.*`\) cannot be recorded"),
            (model, loss, adagrad, "cannot be recorded: operation not permitted"),
        ):
            step = make(monkeypatch, net, of, optimizer)
            with pytest.raises(errors.InvalidArgumentError, match=words) as caught:
                for batch in batches:
                    step(batch)
            assert isinstance(caught.value.__cause__, RuntimeError)
            assert all(parameter.grad is None for parameter in net.parameters())
        step = make(monkeypatch, model, lambda model, batch: model(batch.x, batch.edge_index), sgd(model))
        with pytest.raises(errors.InvalidArgumentError, match=r"scalar tensor, got a tensor of shape \[\d+, 7\]"):
            step(batches[0])
    with Loader(data, [4, 3], "train", batch_size=60, progress=False) as loader:
        with pytest.raises(errors.InvalidArgumentError, match="no attribute 'padded'"):
            step(next(iter(loader)))
    with Loader(data, [4, 3], "train", edge_index="EdgeIndex", **OPTIONS) as loader:
        with pytest.raises(errors.InvalidArgumentError, match=r"an? EdgeIndex: make it with edge_index='tensor'"):
            step(next(iter(loader)))
