"""The rows of a table that the current batch holds: a view of the batch's memory. Whatever is written there before the
loader's next batch is the new content of the table."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.optim.optimizer import register_optimizer_step_pre_hook

from freshgo._host.table import StepPart
from freshgo._nn.table_file import TableFile, Trained
from freshgo._ops import kernels
from freshgo.errors import InvalidArgumentError


class Trainer(Protocol):
    """The tables of a loader."""

    def flush(self, *, batch: bool) -> None:
        """Write the current rows of all its tables to their files. ``batch``: the loop has one, which stays."""

    def change(self, what: str, change: Callable[[], None]) -> None:
        """Close the native loader, call ``change``, and take the tables as they are then."""

    def step(self, rows: Any, part: StepPart) -> int | None:
        """Take part in a step over a table that ranks share. Return its number, None where no rank has a gradient."""


class TableRows:
    """A table, the parameter that holds the rows of the current batch, and what was looked up of them."""

    def __init__(self, file: TableFile) -> None:
        _guard_steps()
        self.file = file
        self.parameter = nn.Parameter(file.form.embeddings(0))
        # Weak: a cycle would keep the file open after the module is gone.
        self.parameter._freshgo_rows = weakref.ref(self)  # type: ignore[attr-defined]
        self.batch = 0  # numbers the batches that have come and gone
        self.unsaved = False
        self.has_readers = False  # whether a loader was opened that reads the table, beside the one that trains it
        self._trainer: weakref.ref[Trainer] | None = None
        self._buffer: Tensor | None = None  # the rows of the batch, with the library's bytes
        self._ids: tuple[Tensor, int, bool]  # of the batch, their version, and whether none comes twice
        self._unread: Tensor | None = None  # which nodes have no rows: a history has pruned the batch; None: all have
        self._sorted: tuple[Tensor, Tensor] | None = None
        self._touched: Tensor | None = None  # which rows have a gradient; None: all
        self._pending = False  # whether a gradient was not applied yet
        self._lost = False  # whether the batch of such a gradient has gone
        self.unwritten = False  # whether the file may lack what the batches have
        self._version = 0  # of the parameter, when what was written to it was last noted

    # The batches of a loader.

    def bind(self, trainer: Trainer) -> None:
        """Belong to a loader, until it is closed or gone."""
        assert not self.has_loader, "a table has one loader that trains it"
        self._trainer = weakref.ref(trainer)

    @property
    def has_loader(self) -> bool:
        """Whether a loader trains the table."""
        return self._owner() is not None

    def unbind(self) -> None:
        """Belong to no loader."""
        self.leave()
        self._trainer = None

    def _owner(self) -> Trainer | None:
        return None if self._trainer is None else self._trainer()

    def arrive(self, buffer: Tensor, ids: Tensor, distinct: bool, unread: Tensor | None = None) -> None:
        """Take the rows of the next batch. Those of the nodes in the mask ``unread`` are zeros."""
        self.leave()
        self.parameter.data = self.file.form.embedding(buffer)
        self._buffer, self._ids, self._unread = buffer, (ids, ids._version, distinct), unread
        self._version = self.parameter._version

    def leave(self) -> None:
        """Let go of the batch, whose rows the library takes now."""
        if self._buffer is None:
            return
        self._note_writes()
        self._lost = self._lost or (self._pending and self.parameter.grad is not None)
        self._pending = False
        self.parameter.grad = None
        self.parameter.data = self.file.form.embeddings(0)
        self._buffer = self._sorted = self._touched = self._unread = None
        self.batch += 1

    def _note_writes(self) -> None:
        if self._buffer is not None and self.parameter._version != self._version:
            if self.file.shared:
                self._version = self.parameter._version
                raise InvalidArgumentError(
                    f"the rows of {self.file.path}, which ranks share, were written by hand, and other ranks have "
                    "copies of them: the optimisers of freshgo.optim alone change them"
                )
            self._version, self.unwritten, self.unsaved = self.parameter._version, True, True

    def _here(self) -> bool:
        """Return whether a batch is here; not where its loader was collected, which has taken the rows."""
        if self._trainer is not None and self._trainer() is None:
            self.unbind()
        return self._buffer is not None

    # Lookups.

    def find(self, ids: Tensor, *, zeros: bool) -> tuple[Tensor | None, Tensor | None]:
        """Return the rows of the batch with these ids, None for all in their order; and the ids that it lacks, or
        None. Of a node that occurs several times the first row counts. With ``zeros`` those count that were not
        read."""
        if not self._here():
            return None, ids
        (own, version, distinct), unread = self._ids, None if zeros else self._unread
        if distinct and ids is own and own._version == version and unread is None:
            return None, None
        if self._sorted is None:
            values, order = torch.sort(own, stable=True)
            self._sorted = values, order
        values, order = self._sorted
        if not values.numel():
            return (None, ids) if ids.numel() else (order, None)
        place = torch.searchsorted(values, ids.contiguous()).clamp_(max=values.numel() - 1)
        missing, index = values[place] != ids, order[place]
        if unread is not None:
            missing |= unread[index]
        return (index, None) if not missing.any() else (None, ids[missing])

    def take(self, index: Tensor | None) -> Tensor:
        """Return a copy of rows of the batch, with their gradient where autograd records."""
        taken: Tensor = _Lookup.apply(self.parameter, self, index)
        return taken

    def accumulate(self, batch: int, index: Tensor | None, grad: Tensor) -> None:
        """Add the gradient of a lookup to the parameter's, row after row. Of a node that is looked up several times,
        gradients are summed in the order of the lookup: PyTorch's ``coalesce`` sums them in the order of an unstable
        sort."""
        if batch != self.batch or not self._here():
            raise InvalidArgumentError(
                "backward() came after the loader had gone on from the batch of these rows: call it before the next "
                "batch is taken, and keep no loss beyond its batch"
            )
        parameter, first = self.parameter, self.parameter.grad is None
        if first:
            parameter.grad = kernels.empty(parameter, parameter.size(0), parameter.size(1), parameter.dtype)
        assert parameter.grad is not None
        if index is None:
            self._touched = None
            parameter.grad.copy_(grad) if first else parameter.grad.add_(grad)
        else:
            if first:
                parameter.grad.zero_()
                self._touched = torch.zeros(parameter.size(0), dtype=torch.bool)
            parameter.grad.index_add_(0, index, grad)
            if self._touched is not None:
                self._touched[index] = True
        self._pending = True

    def read(self, ids: Tensor) -> Tensor:
        """Return rows of the whole table, as they are now."""
        self.flush()
        return self.file.read(ids)

    def flush(self, *, always: bool = False) -> None:
        """Write the current rows to the file, where training has changed any since."""
        self._note_writes()
        owner = self._owner()
        if owner is not None and (always or self.unwritten) and not self.file.shared:
            owner.flush(batch=self._here())
        self.unwritten = False

    # Steps of an optimiser.

    def check_step(self) -> None:
        """Raise where a gradient can be applied no longer."""
        if self._lost:
            raise InvalidArgumentError(
                "a gradient of an earlier batch was neither applied by step() nor dropped by zero_grad() before the "
                "next batch: gradients of tables cannot be accumulated across batches, whose rows have gone; call "
                "step() for every batch, and zero_grad() to drop what is left"
            )

    def update(self, rule: Callable[[Tensor, Tensor, Tensor], None]) -> None:
        """Apply the rule of an optimiser to the rows that have a gradient: see ``Form.update``."""
        buffer, grad, form = self._buffer, self.parameter.grad, self.file.form
        assert buffer is not None and grad is not None, "a gradient belongs to a batch"
        touched = self._touched
        if self._unread is not None:
            touched = ~self._unread if touched is None else touched & ~self._unread
        if touched is None:
            form.update(buffer, grad, rule)
            return
        words = buffer.view(torch.int32)
        for places in torch.split(touched.nonzero().squeeze(1), form.piece):
            some = words.index_select(0, places)
            form.update(some.view(torch.uint8), grad.index_select(0, places), rule)
            words.index_copy_(0, places, some)

    def end_step(self) -> None:
        """Note that the rows have changed."""
        assert self.file.trained is not None
        self.file.trained = dataclasses.replace(self.file.trained, step=self.file.trained.step + 1)
        self._pending = False
        self.unwritten = self.unsaved = True

    def not_numbers(self) -> list[int]:
        """Return the nodes whose gradients are not numbers."""
        assert self.parameter.grad is not None
        ids: Tensor = self._ids[0][self.parameter.grad.isnan().any(1)]
        return ids.tolist()

    def dropped(self) -> None:
        """Note that ``zero_grad`` has dropped the gradients."""
        self._lost = self._pending = False
        grad = self.parameter.grad
        self._touched = None if grad is None else torch.zeros(grad.size(0), dtype=torch.bool)

    # The file.

    def adopt(self, name: str, width: int, fill: float, *, reset: bool) -> None:
        """Belong to an optimiser with ``width`` numbers of state a row, which begin as ``fill``.

        Raises:
            InvalidArgumentError: another optimiser has trained the table, or a new state is needed in mid-epoch
        """
        file = self.file
        if file.trained is not None and not reset:
            if file.trained.name != name:
                raise InvalidArgumentError(
                    f"the table {file.path} was trained with {file.trained.name} and has its state, got {name}: "
                    f"go on with {file.trained.name}, or give {name} reset_state=True, which begins its state anew"
                )
            return
        if file.form.state != width or file.trained is not None or fill:
            form = dataclasses.replace(file.form, state=width)
            self._change("a new state of its optimiser", lambda: file.rebuild(form, fill, Trained(name)))
            self.unsaved = False
        file.trained = Trained(name)

    def save(self) -> str:
        """Publish the current rows, and return the token of this state."""
        self.flush(always=True)
        token = self.file.save()
        self.unsaved = False
        return token

    def restore(self, token: object) -> None:
        """Go back to a saved state.

        Raises:
            InvalidArgumentError: the table is not the one that was saved, or has moved on since
        """
        if self.file.is_last(token) and not self.changed:
            return
        self._change("restoring a saved state", lambda: self.file.restore(str(token)))
        self.unsaved = self.unwritten = self._lost = False

    @property
    def changed(self) -> bool:
        """Whether rows have changed since the last save."""
        self._note_writes()
        return self.unsaved or self.file.unsaved

    def _change(self, what: str, change: Callable[[], None]) -> None:
        """Change the file while no loader has it."""
        owner = self._owner()
        if owner is not None and self.file.shared:
            raise InvalidArgumentError(
                f"{what} is refused while a loader trains the table {self.file.path}, which ranks share: do it before "
                "the loader is opened"
            )
        if owner is not None:
            owner.change(what, change)
        else:
            change()

    def close(self) -> None:
        """Close the file."""
        if self.file.table.closed:
            return
        if self._owner() is not None:
            raise InvalidArgumentError(f"a loader trains the embedding {self.file.path}: close the loader first")
        self.unbind()
        self.file.table.close()


def step_of_ranks(rows: TableRows, part: StepPart) -> None:
    """Make a step together with the ranks that share the table and have a batch. Nothing happens without one."""
    owner = rows._owner()
    if not rows._here() or owner is None:
        return
    grad, index = rows.parameter.grad, None if rows._touched is None else rows._touched.nonzero().squeeze(1)
    if grad is not None and part.error is None:
        of_rows = grad if index is None else grad[index]
        part = dataclasses.replace(
            part,
            grad=of_rows.contiguous().view(torch.uint8).numpy(),
            touched=None if index is None else index.numpy(),
        )
    step = owner.step(rows, part)
    rows._pending = False
    if step is not None:
        assert rows.file.trained is not None
        rows.file.trained = dataclasses.replace(rows.file.trained, step=step)


@functools.cache
def _guard_steps() -> None:
    """Refuse steps of PyTorch's optimisers over tables: their state would belong to the place of a row in its batch."""

    def guard(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                rows = getattr(parameter, "_freshgo_rows", lambda: None)()
                if rows is not None and not hasattr(optimizer, "takes_tables"):
                    raise InvalidArgumentError(
                        f"torch.optim.{type(optimizer).__name__} cannot train the table {rows.file.path}, whose rows "
                        "have other places in every batch: use SGD, Adagrad, RowAdagrad or SparseAdam of freshgo.optim"
                    )

    register_optimizer_step_pre_hook(guard)


class _Lookup(torch.autograd.Function):
    """Copies rows of a batch. Its derivative is added to the parameter's gradient in place."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, rows: TableRows, index: Tensor | None) -> Tensor:
        ctx.rows, ctx.batch, ctx.index = rows, rows.batch, index
        values, count = parameter.detach(), parameter.size(0) if index is None else index.numel()
        out = kernels.empty(values, count, values.size(1), values.dtype)
        return out.copy_(values) if index is None else torch.index_select(values, 0, index, out=out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        ctx.rows.accumulate(ctx.batch, ctx.index, grad)
        return None, None, None
