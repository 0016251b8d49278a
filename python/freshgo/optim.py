"""Optimisers for the tables of :class:`freshgo.nn.Embedding`.

    optimizer = freshgo.optim.RowAdagrad(emb.tables(), lr=0.05)

They are :class:`torch.optim.Optimizer` objects: schedulers, ``GradScaler`` and ``clip_grad_norm_`` work with them. A
step touches the rows whose nodes were looked up, as with ``torch.nn.Embedding(sparse=True)``. The state of a row lies
beside it in the table, and is read and written with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._host.table import StepPart
from freshgo._nn.rows import TableRows, step_of_ranks
from freshgo.errors import DTypeError, InvalidArgumentError

__all__ = ["SGD", "Adagrad", "RowAdagrad", "SparseAdam"]

_SHOWN = 5
"""Rows that an error names."""


class _TableOptimizer(Optimizer):
    """What the optimisers have in common: their parameters, and the rows that a step changes."""

    takes_tables = True

    def __init__(
        self, params: Iterable[Any], defaults: dict[str, Any], *, check_nan: bool, reset_state: bool, fill: float = 0.0
    ) -> None:
        for name, value in defaults.items():
            for number in value if isinstance(value, tuple) else (value,):
                if not isinstance(number, Tensor):
                    checks.number(name, number)
                if not number >= 0:
                    raise InvalidArgumentError(f"{name} must not be negative, got {checks.shown(value)}")
        self._check_nan = checks.flag("check_nan", check_nan)
        self._reset, self._fill = checks.flag("reset_state", reset_state), fill
        self._tables: dict[Tensor, TableRows] = {}
        self._loaded: dict[Tensor, int] = {}  # the steps of a state that was loaded
        super().__init__(params, defaults)

    def _width(self, dim: int) -> int:
        """Return the numbers of state of a row."""
        raise NotImplementedError

    @staticmethod
    def _update(rows: Tensor, state: Tensor, grad: Tensor, group: dict[str, Any], step: int) -> None:
        """Change rows and their state in place; ``step`` counts from 1."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add tables with options of their own.

        Raises:
            DTypeError: a parameter is not one of ``Embedding.tables()``.
            InvalidArgumentError: another optimiser has trained the table, or an epoch runs and the table needs a state.
        """
        given = param_group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        for parameter in params:
            rows = getattr(parameter, "_freshgo_rows", lambda: None)()
            if rows is None:
                raise DTypeError(
                    f"{type(self).__name__} of freshgo.optim takes the parameters of Embedding.tables() alone, got "
                    f"{checks.shown(parameter)}: give others to an optimizer of torch.optim"
                )
            rows.adopt(type(self).__name__, self._width(rows.file.form.dim), self._fill, reset=self._reset)
            self._tables[parameter] = rows
        super().add_param_group({**param_group, "params": params})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Apply the gradients to the rows that were looked up.

        Raises:
            InvalidArgumentError: the batch of a gradient has gone; with ``check_nan``, a gradient is not a number; the
                state that was loaded is of another step than the table.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for rows in self._tables.values():
            rows.check_step()
        for parameter, loaded in self._loaded.items():
            self._check_loaded(self._tables[parameter], loaded)
        self._loaded.clear()
        for group in self.param_groups:
            for parameter in group["params"]:
                rows = self._tables[parameter]
                if parameter.grad is not None or rows.file.shared:
                    self._step(rows, group)
        return loss

    def _step(self, rows: TableRows, group: dict[str, Any]) -> None:
        bad = rows.not_numbers() if self._check_nan and rows.parameter.grad is not None else []
        error = None
        if bad:
            more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
            named = ", ".join(map(str, bad[:_SHOWN]))
            error = InvalidArgumentError(f"the gradients of rows {named}{more} of {rows.file.path} are not numbers")
        assert rows.file.trained is not None
        if rows.file.shared:
            options = {name: _plain(value) for name, value in group.items() if name != "params"}
            step = rows.file.trained.step + 1
            part = StepPart(form=rows.file.form, rule=type(self)._update, options=options, step=step, error=error)
            step_of_ranks(rows, part)
            return
        if error is not None:
            raise error
        step = rows.file.trained.step + 1
        rows.update(lambda weight, state, grad: self._update(weight, state, grad, group, step))
        rows.end_step()

    @staticmethod
    def _check_loaded(rows: TableRows, loaded: int) -> None:
        now = rows.file.trained.step if rows.file.trained is not None else 0
        if loaded != now:
            raise InvalidArgumentError(
                f"the optimizer's state is of step {loaded}, and the table {rows.file.path} of step {now}: load the "
                "state_dict() of the Embedding that was saved with it"
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, also those of a batch that has gone."""
        super().zero_grad(set_to_none)
        for rows in self._tables.values():
            rows.dropped()

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the number of steps; everything else is in the rows of the tables."""
        for parameter, rows in self._tables.items():
            self.state[parameter] = {"step": 0 if rows.file.trained is None else rows.file.trained.step}
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take options over, and compare the number of steps with the table's at the next ``step()``."""
        super().load_state_dict(state_dict)
        self._loaded = {parameter: int(of["step"]) for parameter, of in self.state.items() if "step" in of}


def _plain(value: Any) -> Any:
    """Return an option of an optimiser without tensors."""
    return float(value) if isinstance(value, Tensor) else value


@entry
class SGD(_TableOptimizer):
    """``row -= lr * grad``, as :class:`torch.optim.SGD`. It has no state.

    Args:
        params: ``emb.tables()``, or parameter groups of these.
        lr (float, default 1e-3)
        check_nan (bool, default False): a gradient that is not a number raises an error with the rows, which stay.
        reset_state (bool, default False): take over a table of another optimiser, whose state is dropped.

    Raises:
        DTypeError, InvalidArgumentError: other parameters, or a table that another optimiser has trained.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, check_nan: bool = False, reset_state: bool = False
    ) -> None:
        super().__init__(params, {"lr": lr}, check_nan=check_nan, reset_state=reset_state)

    def _width(self, dim: int) -> int:
        return 0

    @staticmethod
    def _update(rows: Tensor, state: Tensor, grad: Tensor, group: dict[str, Any], step: int) -> None:
        rows.add_(grad, alpha=-float(group["lr"]))


@entry
class Adagrad(_TableOptimizer):
    """:class:`torch.optim.Adagrad` with an accumulator for every number, and its options.

    Args:
        params: ``emb.tables()``, or parameter groups of these.
        lr (float, default 1e-2)
        lr_decay (float, default 0)
        eps (float, default 1e-10)
        initial_accumulator_value (float, default 0): of a table without a state.
        check_nan, reset_state: as for :class:`SGD`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        eps: float = 1e-10,
        initial_accumulator_value: float = 0.0,
        *,
        check_nan: bool = False,
        reset_state: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "initial_accumulator_value": initial_accumulator_value,
        }
        super().__init__(params, defaults, check_nan=check_nan, reset_state=reset_state, fill=initial_accumulator_value)

    def _width(self, dim: int) -> int:
        return dim

    @staticmethod
    def _update(rows: Tensor, state: Tensor, grad: Tensor, group: dict[str, Any], step: int) -> None:
        rate = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        state.add_(grad.pow(2))
        rows.add_(grad / state.sqrt().add_(group["eps"]), alpha=-rate)


@entry
class RowAdagrad(_TableOptimizer):
    """Adagrad with one accumulator a row, which sums the means of the squared gradients: ``row -= lr * grad /
    (sqrt(accumulator) + eps)``, the row-wise Adagrad of FBGEMM and DLRM (Mudigere et al., ISCA 2022, 4.1.4). Its state
    is 4 bytes a row.

    Args:
        params: ``emb.tables()``, or parameter groups of these.
        lr (float, default 1e-2)
        eps (float, default 1e-10)
        check_nan, reset_state: as for :class:`SGD`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        eps: float = 1e-10,
        *,
        check_nan: bool = False,
        reset_state: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps}, check_nan=check_nan, reset_state=reset_state)

    def _width(self, dim: int) -> int:
        return 1

    @staticmethod
    def _update(rows: Tensor, state: Tensor, grad: Tensor, group: dict[str, Any], step: int) -> None:
        state.add_(grad.pow(2).mean(1, keepdim=True))
        rows.add_(grad * (-float(group["lr"]) / state.sqrt().add_(group["eps"])))


@entry
class SparseAdam(_TableOptimizer):
    """:class:`torch.optim.SparseAdam`: the moments of a row change when it is looked up, and its options.

    Args:
        params: ``emb.tables()``, or parameter groups of these.
        lr (float, default 1e-3)
        betas (two floats below 1, default (0.9, 0.999))
        eps (float, default 1e-8)
        check_nan, reset_state: as for :class:`SGD`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        check_nan: bool = False,
        reset_state: bool = False,
    ) -> None:
        if not isinstance(betas, tuple | list) or len(betas) != 2 or not all(beta < 1 for beta in betas):
            raise InvalidArgumentError(f"betas must be two numbers below 1, got {checks.shown(betas)}")
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps}
        super().__init__(params, defaults, check_nan=check_nan, reset_state=reset_state)

    def _width(self, dim: int) -> int:
        return 2 * dim

    @staticmethod
    def _update(rows: Tensor, state: Tensor, grad: Tensor, group: dict[str, Any], step: int) -> None:
        (beta1, beta2), dim = group["betas"], rows.size(1)
        mean, square = state[:, :dim], state[:, dim:]
        mean.add_(grad.sub(mean).mul_(1 - beta1))
        square.add_(grad.pow(2).sub_(square).mul_(1 - beta2))
        size = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        rows.add_(mean.div(square.sqrt().add_(group["eps"])).mul_(-size))
