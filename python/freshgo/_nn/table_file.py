"""The file of a table that learns. A row is the embedding, padded to 4 bytes, and behind it the state of the optimiser
as float32."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from freshgo._native.table import Table
from freshgo._nn.initial import blocks
from freshgo._staging.workplace import sync
from freshgo.errors import ClosedError, InvalidArgumentError

_PIECE = 1 << 17
"""Numbers of a gradient that a rule takes at a time: with embeddings, a state twice as wide and what is computed on the
way, 3 MiB. With as many rows as a batch has, most of a step went into fresh pages."""


@dataclasses.dataclass(frozen=True)
class Form:
    """What a row consists of."""

    dim: int
    dtype: torch.dtype
    state: int = 0
    """Numbers of the optimiser's state."""

    @property
    def embedding_bytes(self) -> int:
        return self.dim * self.dtype.itemsize

    @property
    def state_begin(self) -> int:
        return -(-self.embedding_bytes // 4) * 4

    @property
    def row_bytes(self) -> int:
        return self.state_begin + 4 * self.state

    def embedding(self, raw: Tensor) -> Tensor:
        """Return the embeddings in rows of bytes, as a view."""
        return raw[:, : self.embedding_bytes].view(self.dtype)

    def states(self, raw: Tensor) -> Tensor:
        """Return the optimiser's state in rows of bytes, as a view (float32 ``[n, state]``)."""
        if not self.state:
            return torch.empty(raw.size(0), 0)
        return raw[:, self.state_begin : self.row_bytes].view(torch.float32)

    @property
    def piece(self) -> int:
        """The number of rows that a rule changes at a time."""
        return max(1, _PIECE // self.dim)

    def update(self, raw: Tensor, grad: Tensor, rule: Callable[[Tensor, Tensor, Tensor], None]) -> None:
        """Let ``rule`` change rows of bytes in place, as many at a time as stay in a processor's cache. It takes their
        embeddings, states and gradients as float32; ``grad`` has a row for each of them."""
        for first in range(0, raw.size(0), self.piece):
            some = raw[first : first + self.piece]
            embedding = self.embedding(some)
            weight = embedding.float()
            rule(weight, self.states(some), grad[first : first + self.piece].float())
            if weight.dtype != embedding.dtype:
                embedding.copy_(weight)

    def embeddings(self, count: int) -> Tensor:
        """Return embeddings that hold nothing yet."""
        return torch.empty(count, self.dim, dtype=self.dtype)

    def raw(self, count: int) -> Tensor:
        """Return rows of zeros."""
        return torch.zeros(count, self.row_bytes, dtype=torch.uint8)


@dataclasses.dataclass(frozen=True)
class Trained:
    """The optimiser that a table belongs to: its name and the number of its steps."""

    name: str
    step: int = 0


class TableFile:
    """An open table, the form of its rows, and the optimiser that trains it."""

    shared = False
    """Whether several ranks have the table."""

    def __init__(self, path: Path, table: Any) -> None:
        """``table``: native, or with its methods."""
        self.path, self.table = path, table
        self._describe()

    def _describe(self) -> None:
        info = self.table.describe()
        description = info["description"]
        optimizer = description["optimizer"]
        self.num_rows = int(info["num_rows"])
        self.form = Form(description["embedding_dim"], getattr(torch, description["dtype"]), description["state"])
        self.trained = None if optimizer is None else Trained(optimizer["name"], optimizer["step"])

    @property
    def unsaved(self) -> bool:
        """Whether ranks that share the table have changed rows since the last save."""
        return False

    def check_open(self) -> None:
        """Raise ClosedError after the table was closed."""
        if self.table.closed:
            raise ClosedError(f"the embedding {self.path} is closed")

    def read(self, ids: Tensor) -> Tensor:
        """Return rows of the file.

        Raises:
            InvalidArgumentError: there are no such rows
        """
        outside = (ids < 0) | (ids >= self.num_rows)
        if outside.any():
            raise InvalidArgumentError(
                f"ids must be in [0, {self.num_rows}), the rows of {self.path}, got {int(ids[outside][0])}"
            )
        out = self.form.embeddings(ids.numel())
        for first, count in blocks(ids.numel()):
            raw = self.table.read(ids[first : first + count], self.form.row_bytes)
            out[first : first + count] = self.form.embedding(raw)
        return out

    def save(self) -> str:
        """Publish the rows of the file, and return the token of this state."""
        token: str = self.table.save(_described(self.form, self.trained))
        return token

    def is_last(self, token: object) -> bool:
        """Return whether a state is the one saved last, and not the one before.

        Raises:
            InvalidArgumentError: it is neither
        """
        info = self.table.describe()
        if not isinstance(token, str) or not token or token not in (info["token"], info["previous"]):
            before = f", and before that as {info['previous']!r}" if info["previous"] else ""
            raise InvalidArgumentError(
                f"the state is of a table that was saved as {token!r}; {self.path} was last saved as "
                f"{info['token']!r}{before}: load the state that was saved with one of these"
            )
        return bool(token == info["token"])

    def restore(self, token: str) -> None:
        """Go back to the state saved last, or to the one before."""
        self.table.restore(token)
        self._describe()

    def rebuild(self, form: Form, fill: float, trained: Trained) -> None:
        """Write the table anew with rows of another form, and a state of ``fill``. After a kill at any moment, the
        table is the old one or the new one."""
        wider, before = _beside(self.path)
        shutil.rmtree(wider, ignore_errors=True)
        rows = (self.read(torch.arange(first, first + count)) for first, count in blocks(self.num_rows))
        try:
            made(wider, self.num_rows, form, rows, trained, fill)
        except BaseException:
            shutil.rmtree(wider, ignore_errors=True)
            raise
        self.path.rename(before)
        wider.rename(self.path)
        sync(self.path.parent)
        self.table = self.table.reopened(self.path)  # whoever opened the old table until now was refused
        shutil.rmtree(before)
        self._describe()


def made(
    path: Path, num_rows: int, form: Form, drawn: Iterable[Tensor], trained: Trained | None = None, fill: float = 0.0
) -> None:
    """Make a table of rows that come block by block, and save it."""
    description = _described(form, trained)
    with contextlib.closing(Table.create(path, num_rows, form.row_bytes, description)) as table:
        for (first, count), values in zip(blocks(num_rows), drawn, strict=True):
            rows = form.raw(count)
            form.embedding(rows).copy_(values)
            form.states(rows).fill_(fill)
            table.write(first, rows)
        table.save(description)


def _described(form: Form, trained: Trained | None) -> dict[str, Any]:
    """Return the description of a table."""
    return {
        "embedding_dim": form.dim,
        "dtype": str(form.dtype).removeprefix("torch."),
        "state": form.state,
        "optimizer": None if trained is None else dataclasses.asdict(trained),
    }


def opened(path: Path) -> TableFile:
    """Open a table."""
    return TableFile(path, mended(path, Table))


def mended(path: Path, open_table: Callable[[Path], Any]) -> Any:
    """Open a table. Where a process died as it put a wider table in place, that is finished first."""
    wider, before = _beside(path)
    if before.exists() and not path.exists():
        wider.rename(path)  # whole: the old table was put aside after the new one was saved
    table = open_table(path)
    for rest in (wider, before):
        if rest.exists():
            shutil.rmtree(rest)
    return table


def _beside(path: Path) -> tuple[Path, Path]:
    """Return where a table with rows of another form is written, and where the old one waits until that is in place."""
    return path.with_name(f".{path.name}.wider"), path.with_name(f".{path.name}.before")
