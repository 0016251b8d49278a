"""The optimisers of tables against PyTorch's over ``torch.nn.Embedding(sparse=True)``, to the bit, on batches made by
hand."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from freshgo import nn, optim
from freshgo._native.table import Table
from freshgo.errors import DTypeError, InvalidArgumentError, WriteError

ROWS = 300

OPTIMISERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.3},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.25},
    "RowAdagrad": {"lr": 0.1},
    "SparseAdam": {"lr": 0.02, "betas": (0.8, 0.95)},
}


@pytest.fixture
def emb(tmp_path: Path) -> Iterator[nn.Embedding]:
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=ROWS, embedding_dim=8) as made:
        yield made


def everything(emb: nn.Embedding) -> Tensor:
    emb._rows.leave()
    with torch.no_grad():
        return emb(torch.arange(emb.num_embeddings))


@contextlib.contextmanager
def batch(emb: nn.Embedding, ids: Tensor, *, distinct: bool = True) -> Iterator[None]:
    """Do what a loader does with a batch of these nodes."""
    rows, width = emb._rows, emb._rows.file.form.row_bytes
    every = rows.file.table.read(torch.arange(ROWS), width)
    buffer = torch.cat([every[ids], torch.zeros(len(ids), 8, dtype=torch.uint8)], 1)
    rows.arrive(buffer, ids, distinct)
    yield
    rows.leave()
    for i in reversed(range(len(ids))):  # the first of equal nodes counts
        every[ids[i]] = buffer[i, :width]
    rows.file.table.write(0, every)


def row_adagrad(weight: Tensor, grad: Tensor, state: dict[str, Tensor], lr: float, eps: float = 1e-10) -> None:
    """Row-wise Adagrad as FBGEMM's ``rowwise_adagrad`` computes it, over the rows that were looked up."""
    total = state.setdefault("sum", torch.zeros(len(weight)))
    values = grad.coalesce()
    for row, g in zip(values.indices()[0], values.values(), strict=True):
        total[row] += (g * g).mean()
        multiplier = -lr / (total[row].sqrt() + eps)
        weight[row] += multiplier * g


class Reference:
    """A table in memory, and an optimiser of PyTorch, or the one above."""

    def __init__(self, emb: nn.Embedding, name: str, **options: Any) -> None:
        self.table = torch.nn.Embedding(ROWS, emb.embedding_dim, sparse=True, _weight=everything(emb).float())
        self.options, self.state = options, {}  # type: ignore[var-annotated]
        self.optimizer = (
            None if name == "RowAdagrad" else getattr(torch.optim, name)(self.table.parameters(), **options)
        )

    def __call__(self, ids: Tensor) -> Tensor:
        unique, inverse = ids.unique(return_inverse=True)
        found: Tensor = self.table(unique).index_select(0, inverse)
        return found

    def step(self) -> None:
        weight = self.table.weight
        assert weight.grad is not None
        weight.grad = weight.grad.coalesce()
        if self.optimizer is not None:
            self.optimizer.step()
        else:
            with torch.no_grad():
                row_adagrad(weight, weight.grad, self.state, self.options["lr"])
        weight.grad = None


def loss_of(found: Tensor, by: Tensor) -> Tensor:
    return torch.relu(found @ by).pow(2).sum()


@pytest.mark.parametrize("dim", [1, 8, 33, 128])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_rows_equal_those_of_pytorch(tmp_path: Path, name: str, dim: int) -> None:
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=ROWS, embedding_dim=dim) as emb:
        reference = Reference(emb, name, **OPTIMISERS[name])
        optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
        by = torch.randn(dim, 5)
        for step in range(8):
            ids = torch.randperm(ROWS)[:50]
            some = ids if step % 2 else ids[torch.randperm(50)[:20]]  # all nodes of the batch, or a part of them
            with batch(emb, ids):
                optimizer.zero_grad()
                for _ in range(1 + (step == 5)):  # once with two backward passes
                    loss_of(emb(some), by).backward()
                    loss_of(reference(some), by).backward()
                optimizer.step()
                reference.step()
        assert torch.equal(everything(emb), reference.table.weight)
        assert not torch.equal(everything(emb), torch.zeros(ROWS, dim))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_nodes_that_occur_several_times_sum_their_gradients_in_order(emb: nn.Embedding, name: str) -> None:
    reference = Reference(emb, name, **OPTIMISERS[name])
    optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
    by = torch.randn(8, 5)
    for _ in range(5):
        ids = torch.randint(20, (60,))
        with batch(emb, ids, distinct=False):
            for values in (emb(ids), reference(ids)):
                loss_of(values * torch.linspace(0, 1, 60)[:, None], by).backward()
            optimizer.step()
            reference.step()
            optimizer.zero_grad()
            assert torch.equal(emb(ids).detach(), reference(ids).detach()), "equal nodes have equal rows after the step"
    assert torch.equal(everything(emb), reference.table.weight)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_rows_of_bfloat16_are_computed_in_float32_and_rounded(tmp_path: Path, name: str) -> None:
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=ROWS, embedding_dim=5, dtype=torch.bfloat16) as emb:
        reference = Reference(emb, name, **OPTIMISERS[name])
        optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
        by = torch.randn(5, 3).bfloat16()
        for step in range(6):
            ids = torch.randperm(ROWS)[:40]
            some = ids if step % 2 else ids[:15]
            with batch(emb, ids):
                optimizer.zero_grad()
                loss_of(emb(some), by).backward()
                loss_of(reference(some).bfloat16(), by).backward()
                optimizer.step()
                reference.step()
                bits = reference.table.weight.data.view(torch.int32)  # to the nearest, ties to even
                bits += 0x7FFF + (bits >> 16 & 1)
                bits &= ~0xFFFF
        assert torch.equal(everything(emb).float(), reference.table.weight)


def test_schedulers_scalers_and_clipping_work(emb: nn.Embedding) -> None:
    reference = Reference(emb, "SGD", lr=0.5)
    optimizer = optim.SGD(emb.tables(), lr=0.5)
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (optimizer, reference.optimizer)]  # type: ignore[arg-type]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(3):
        ids = torch.randperm(ROWS)[:50]
        with batch(emb, ids):
            scaler.scale(emb(ids).pow(2).sum()).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(emb.tables(), 2.0)
            (grad,) = (one.grad for one in emb.tables())
            reference(ids).pow(2).sum().backward()
            expected = reference.table.weight.grad.coalesce().to_dense()[ids]  # type: ignore[union-attr]
            assert math.isclose(norm, expected.norm(), rel_tol=1e-6)
            assert torch.equal(grad, expected * (2.0 / (norm + 1e-6)))
            reference.table.weight.grad = torch.sparse_coo_tensor(ids[None], grad, (ROWS, 8), check_invariants=False)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            reference.step()
        for scheduler in schedulers:
            scheduler.step()
    assert torch.equal(everything(emb), reference.table.weight)


def test_only_parameters_of_tables_are_taken(emb: nn.Embedding) -> None:
    with pytest.raises(DTypeError, match=r"torch\.optim"):
        optim.SGD(torch.nn.Linear(2, 2).parameters())
    assert list(emb.parameters()) == []
    assert isinstance(next(emb.tables()), torch.nn.Parameter)
    assert isinstance(optim.SGD(emb.tables()), torch.optim.Optimizer)
    for options in ({"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": float("nan")}):
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            optim.SparseAdam(emb.tables(), **options)  # type: ignore[arg-type]
    for wrong in ("0.1", None):
        with pytest.raises(DTypeError, match="lr must be a number"):
            optim.SGD(emb.tables(), lr=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Adam", "SGD", "Adagrad"])
def test_optimisers_of_pytorch_are_refused(emb: nn.Embedding, name: str) -> None:
    dense = torch.nn.Linear(8, 2)
    before = everything(emb)
    optimizer = getattr(torch.optim, name)([*dense.parameters(), *emb.tables()], lr=0.1)
    with batch(emb, torch.arange(9)):
        dense(emb(torch.arange(9))).sum().backward()
        with pytest.raises(InvalidArgumentError, match=f"torch.optim.{name} cannot train the table .*freshgo.optim"):
            optimizer.step()
        getattr(torch.optim, name)(dense.parameters(), lr=0.1).step()
    assert torch.equal(everything(emb), before)


def test_another_optimiser_needs_a_new_state(emb: nn.Embedding) -> None:
    before, path = everything(emb), emb._rows.file.path
    optimizer = optim.Adagrad(emb.tables(), lr=0.1)
    ids = torch.arange(50)
    with batch(emb, ids):
        emb(ids).sum().backward()
        optimizer.step()
    trained = everything(emb)
    assert not torch.equal(trained, before)
    with pytest.raises(InvalidArgumentError, match=r"was trained with Adagrad.* got SparseAdam.*reset_state=True"):
        optim.SparseAdam(emb.tables())
    optim.Adagrad(emb.tables())
    optim.SparseAdam(emb.tables(), reset_state=True)
    assert torch.equal(everything(emb), trained), "a new state leaves the rows"
    assert emb._rows.file.table.describe()["row_bytes"] == 4 * 3 * 8
    assert not emb._rows.file.form.states(emb._rows.file.table.read(torch.arange(ROWS), 96)).any()
    optim.Adagrad(emb.tables(), initial_accumulator_value=0.5, reset_state=True)
    assert (emb._rows.file.form.states(emb._rows.file.table.read(torch.arange(ROWS), 64)) == 0.5).all()
    emb.close()
    with nn.Embedding(path) as again:
        assert torch.equal(everything(again), trained)
        assert again._rows.file.trained is not None and again._rows.file.trained.name == "Adagrad"


def test_a_state_that_cannot_be_written_leaves_the_table(emb: nn.Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise WriteError(errno.ENOSPC, "no space left on device")

    before, path = everything(emb), emb._rows.file.path
    with monkeypatch.context() as patched:
        patched.setattr(Table, "write", full)
        with pytest.raises(WriteError, match="no space"):
            optim.Adagrad(emb.tables())
    assert torch.equal(everything(emb), before)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    optim.SGD(emb.tables())


def test_a_gradient_without_a_step_is_not_carried_over(emb: nn.Embedding) -> None:
    optimizer = optim.SGD(emb.tables(), lr=1.0)
    ids = torch.arange(50)
    before = everything(emb)
    with batch(emb, ids):
        emb(ids).sum().backward()
    with batch(emb, ids):
        emb(ids).sum().backward()
        with pytest.raises(InvalidArgumentError, match=r"neither applied by step\(\) nor dropped by zero_grad\(\)"):
            optimizer.step()
    assert torch.equal(everything(emb), before)
    with batch(emb, ids):
        optimizer.zero_grad()  # as loops do that begin with it
        emb(ids).sum().backward()
        optimizer.step()
    with batch(emb, ids):
        optimizer.zero_grad()
        optimizer.step()  # nothing to apply
        emb(ids).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()
    with batch(emb, ids):
        optimizer.step()
    expected = before.clone()
    expected[:50] -= 1
    assert torch.equal(everything(emb), expected)


def test_a_loss_of_an_earlier_batch_has_no_backward(emb: nn.Embedding) -> None:
    ids = torch.arange(50)
    with batch(emb, ids):
        kept = emb(ids).sum()
    with batch(emb, ids), pytest.raises(InvalidArgumentError, match="before the next batch"):
        kept.backward()
    with pytest.raises(InvalidArgumentError, match="before the next batch"):
        kept.backward()


def test_gradients_that_are_not_numbers_are_named(emb: nn.Embedding) -> None:
    optimizer = optim.SparseAdam(emb.tables(), check_nan=True)
    before, ids = everything(emb), torch.arange(100, 150)
    with batch(emb, ids):
        some = ids[10:]
        (emb(some) * torch.where(some == 117, torch.nan, 1.0)[:, None]).sum().backward()
        with pytest.raises(InvalidArgumentError, match=r"gradients of rows 117 of .* are not numbers"):
            optimizer.step()
        optimizer.zero_grad()
        (emb(ids) * torch.nan).sum().backward()
        with pytest.raises(InvalidArgumentError, match="rows 100, 101, 102, 103, 104 and 45 more of"):
            optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(everything(emb), before)


def test_the_number_of_steps_goes_with_the_table(emb: nn.Embedding) -> None:
    ids, path = torch.arange(50), emb._rows.file.path

    def train(optimizer: optim.SparseAdam, steps: int) -> None:
        for _ in range(steps):
            with batch(emb, ids):
                optimizer.zero_grad()
                emb(ids).pow(2).sum().backward()
                optimizer.step()

    optimizer = optim.SparseAdam(emb.tables(), lr=0.1)
    train(optimizer, 3)
    emb.save()
    state, model = optimizer.state_dict(), emb.state_dict()
    assert state["state"][0] == {"step": 3}
    train(optimizer, 2)
    expected = everything(emb)
    stale = optimizer.state_dict()
    emb.close()
    with nn.Embedding(path) as emb:
        other = optim.SparseAdam(emb.tables())
        other.load_state_dict(stale)
        with batch(emb, ids), pytest.raises(InvalidArgumentError, match=r"of step 5, and the table .* of step 3"):
            other.step()
        other = optim.SparseAdam(emb.tables())
        other.load_state_dict(state)
        assert other.param_groups[0]["lr"] == 0.1
        emb.load_state_dict(model)
        train(other, 2)
        assert torch.equal(everything(emb), expected)
