"""Embeddings of a table on disk, as a module of PyTorch."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.size import parse_size
from freshgo._args.urls import check_outside
from freshgo._nn.initial import blocks, filler, initial_rows
from freshgo._nn.rows import TableRows
from freshgo._nn.shared_file import opened_together, several_ranks
from freshgo._nn.table_file import Form, TableFile, made, opened
from freshgo.errors import DTypeError, InvalidArgumentError, StoreExistsError, StoreNotFoundError

if TYPE_CHECKING:
    from freshgo.store import Store

_DTYPES = (torch.float32, torch.bfloat16)


@entry
class Embedding(nn.Module):
    """Embeddings that are trained and need not fit in memory: :class:`torch.nn.Embedding` over a table on disk.

        emb = freshgo.nn.Embedding("users.emb", num_embeddings=n, embedding_dim=128)
        loader = Loader(store, [10, 10], "train", batch_size=1024, memory="8GiB", embeddings=emb)
        optimizer = freshgo.optim.RowAdagrad(emb.tables(), lr=0.05)
        for batch in loader:
            loss = F.cross_entropy(model(emb(batch.n_id), batch.edge_index)[: batch.batch_size], ...)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        emb.save()

    The loader brings the rows of a batch with it, and takes them back, as they are then, with the next batch. The
    parameters after any number of steps equal those of ``torch.nn.Embedding(sparse=True)`` in memory.

    A loader that is opened with the same ``embeddings`` while another one trains the table makes plain batches, for
    validation: ``emb(batch.n_id)`` reads their rows, under ``torch.no_grad()`` or after ``eval()``.

    In a batch that a :class:`freshgo.History` has pruned, rows of nodes that it does not read are zeros, as those of
    its features, and no step changes them in the table.

    Args:
        path: the directory of the table. Where there is none, one is made and saved.
        num_embeddings (int): rows. Needed for a new table; must agree with one that there is.
        embedding_dim (int): columns, likewise.
        dtype (default ``torch.float32``): ``torch.float32`` or ``torch.bfloat16``, whose optimisers compute in float32
            and round to the nearest. For a table that there is, its own.
        init (default ``"normal"``: N(0, 1), as of :class:`torch.nn.Embedding`): how a new table begins: ``"normal"``,
            ``"uniform"``, ``"xavier_uniform"``, ``"xavier_normal"``, ``"kaiming_uniform"``, ``"kaiming_normal"``,
            ``"zeros"`` or ``"ones"``, with the defaults of :mod:`torch.nn.init` for ``[num_embeddings,
            embedding_dim]``. Rows are drawn in blocks of 4096, each by a generator whose seed follows from ``seed``
            and the number of the block, so they depend on neither the memory nor on ``torch.manual_seed``.
        seed (int, default 0): of ``init``.
        share (default None): ``"host"`` opens one table for all ranks of a process group on one host, for loaders with
            ``ranks=Ranks(share="host")``: see docs/embeddings.md. All ranks call this together, after
            ``init_process_group``, and likewise make the optimiser, :meth:`save`, and load a state.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid, or does not agree with the table.
        BusyError: another process, or another Embedding, has the table.
        RankError, ServerError: with ``share``, another rank has ended or does something else, or no process can be
            started that serves the table.
        StoreExistsError, StoreNotFoundError: a file has this path, or there is no directory to make the table in.
        CorruptError: files of the table are damaged, or it was saved and has lost the file of its state, which no new
            table replaces.
        FormatError, ReadError, WriteError, StorePermissionError: the table cannot be opened or made.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        num_embeddings: int | None = None,
        embedding_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
        init: str = "normal",
        seed: int = 0,
        share: Literal["host"] | None = None,
    ) -> None:
        super().__init__()
        given = {
            name: None if value is None else checks.count(name, value, 1)
            for name, value in (("num_embeddings", num_embeddings), ("embedding_dim", embedding_dim))
        }
        if dtype not in _DTYPES:
            raise DTypeError(f"dtype must be torch.float32 or torch.bfloat16, got {dtype!r}")
        place, seed = _place(path), checks.count("seed", seed, None)

        def make() -> None:
            rows, dim = given["num_embeddings"], given["embedding_dim"]
            if rows is None or dim is None:
                raise InvalidArgumentError(
                    f"there is no table at {place}: give num_embeddings and embedding_dim to make one"
                )
            _check_place(place)
            drawn = initial_rows(filler(init, rows, dim), seed, rows, dim)
            made(place, rows, Form(dim, dtype), drawn)

        if share is not None:
            checks.choice("share", share, ("host",), optional=True)
        if share is not None and several_ranks():
            file: TableFile = opened_together(place, make)
        else:
            try:
                file = opened(place)
            except StoreNotFoundError:
                make()
                file = opened(place)
        self._rows = TableRows(file)
        for name, value in given.items():
            if value is not None and value != getattr(self, name):
                file.table.close()
                raise InvalidArgumentError(f"{name} of the table {place} is {getattr(self, name)}, got {value}")

    @classmethod
    def from_array(cls, path: str | os.PathLike[str], array: Any) -> Embedding:
        """Make a table of rows that there are, and open it.

        Args:
            path: the directory of the new table.
            array: float32 ``[num_embeddings, embedding_dim]``, a tensor, an array or a memory map, or a tensor of
                bfloat16. It is read in blocks.

        Raises:
            StoreExistsError: there is a table at ``path``.
            InvalidArgumentError, DTypeError: another shape, or another dtype.
        """
        if not isinstance(array, Tensor | np.ndarray) or len(array.shape) != 2 or 0 in array.shape:
            raise InvalidArgumentError(
                f"array must be a tensor or an array [num_embeddings, embedding_dim], got {checks.shown(array)}"
            )
        dtype = array.dtype if isinstance(array, Tensor) else getattr(torch, array.dtype.name, None)
        if dtype not in _DTYPES:
            raise DTypeError(f"array must be float32, or a tensor of bfloat16, got {array.dtype}")
        num_rows, dim = map(int, array.shape)
        pieces = (array[first : first + count] for first, count in blocks(num_rows))
        drawn = (torch.as_tensor(np.array(rows) if isinstance(rows, np.ndarray) else rows.detach()) for rows in pieces)
        place = _place(path)
        _check_place(place)
        made(place, num_rows, Form(dim, dtype), drawn)
        return cls(path)

    @property
    def num_embeddings(self) -> int:
        """The number of rows."""
        return self._rows.file.num_rows

    @property
    def embedding_dim(self) -> int:
        """The number of columns."""
        return self._rows.file.form.dim

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the embeddings."""
        return self._rows.file.form.dtype

    def tables(self) -> Iterator[nn.Parameter]:
        """Yield the parameter for the optimisers of :mod:`freshgo.optim`. It holds the rows of the current batch
        (``[n, embedding_dim]``), a view of the batch's memory, and no rows without a batch. Row ``i`` is of
        ``n_id[i]``; of a node that occurs several times the first row counts. It is in neither ``parameters()`` nor
        ``state_dict()``, so other optimisers and DDP leave it alone."""
        yield self._rows.parameter

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of nodes, ``[*ids.shape, embedding_dim]``.

        In training, ``ids`` are nodes of the current batch, at best its ``n_id`` itself, and the rows have a gradient.
        Under ``torch.no_grad()``, or after ``eval()``, they are any nodes: what the batch lacks is read from disk, as
        the last step has left it.

        Raises:
            InvalidArgumentError: an id that is not in the batch, in training, or not in the table.
            DTypeError: ``ids`` are not a tensor of integers on the CPU.
        """
        rows = self._rows
        rows.file.check_open()
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32) or ids.device.type != "cpu":
            away = isinstance(ids, Tensor) and ids.device.type != "cpu"
            moved = f" on {ids.device}: move rows when they are looked up, emb(ids.cpu()).to(device)" if away else ""
            raise DTypeError(f"ids must be a tensor of int64 on the CPU, got {checks.shown(ids)}{moved}")
        flat = ids if ids.dim() == 1 and ids.dtype == torch.int64 else ids.reshape(-1).long()
        training = self.training and torch.is_grad_enabled()
        index, missing = rows.find(flat, zeros=training)
        if missing is not None and training:
            raise InvalidArgumentError(_not_here(missing, rows.has_readers))
        if missing is not None:
            taken = rows.read(flat)
        elif training:
            taken = rows.take(index)
        else:
            with torch.no_grad():
                taken = rows.take(index)
        return taken if ids.dim() == 1 else taken.view(*ids.shape, -1)

    def save(self) -> str:
        """Write the rows as the last step has left them, publish them as the state of the table, and return its token.

        Whoever opens the table after a crash has the state that was saved last; the one before it can still be
        restored, by ``load_state_dict`` with its token. In mid-epoch the batch goes on, and may be stepped afterwards.

        Raises:
            WriteError: the disk is full, or failed; the state saved last is still there.
        """
        self._rows.file.check_open()
        return self._rows.save()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the token of the saved state, which ``state_dict()`` has in place of the rows.

        Raises:
            InvalidArgumentError: rows have changed since :meth:`save`, so that there is no such state.
        """
        self._rows.file.check_open()
        if self._rows.changed:
            raise InvalidArgumentError(
                f"the embedding {self._rows.file.path} has changed since it was saved: call save() before "
                "state_dict(), whose token ties the table to the model"
            )
        return {"token": self._rows.file.table.describe()["token"]}

    def set_extra_state(self, state: Any) -> None:
        """Go back to the state with this token, if the table was not saved more than once since.

        Raises:
            InvalidArgumentError: the table has another state, or is another table.
            CorruptError: a file that going back needs is damaged; the rows and the saved states stay as they are.
        """
        self._rows.file.check_open()
        self._rows.restore(state.get("token") if isinstance(state, dict) else state)

    def export(
        self,
        out: str | os.PathLike[str] | tuple[Store | str | os.PathLike[str], str],
        *,
        store: Store | str | os.PathLike[str] | None = None,
        node_type: str | None = None,
        memory: int | str = "1GiB",
        overwrite: bool = False,
    ) -> None:
        """Write all rows as they are now, in blocks: as ``.npy``, as Parquet with the keys of the nodes, or as a tensor
        of a store. It appears whole or not at all.

            emb.export("users.npy")
            emb.export("users.parquet", store=store, node_type="user")  # columns "id" and "embedding"
            emb.export((store, "emb"), node_type="user")  # a tensor of the store

        Args:
            out: a path that ends in ``.npy``, or has no suffix: float32 ``[num_embeddings, embedding_dim]``. One that
                ends in ``.parquet``: ``id``, the key that the node had in the tables of
                :func:`freshgo.convert_tables` (int64, uint64 or string), without ``store`` its number (int64), and
                ``embedding``, a list of fixed size. A pair of a store, or its path, and a name: a float32 tensor of
                this store, which is replaced and has to be opened again (:func:`freshgo.update`).
            store: an open store, or the path of one, whose keys the nodes have.
            node_type (str): in a heterogeneous store, the type that the rows belong to.
            memory: bytes, or a string such as ``"8GiB"``, for the groups of a Parquet file and for a tensor of a store.
            overwrite (bool, default False): replace a file, or a tensor of the store.

        Raises:
            InvalidArgumentError, DTypeError: ``out`` has another suffix, or names an edge-level tensor; the store has
                no such type, another number of nodes, or no keys.
            StoreExistsError: there is such a file or tensor, and ``overwrite`` is false.
            LibraryError: pyarrow is not installed, and ``out`` is Parquet (``pip install 'freshgo[tables]'``).
            BusyError: another process writes to ``out``.
            StoreNotFoundError, FormatError, CorruptError, ReadError, WriteError, StorePermissionError, BudgetError
        """
        from freshgo._nn.exported import export  # which needs stores

        self._rows.file.check_open()
        export(
            self._rows,
            out,
            store,
            node_type,
            parse_size("memory", memory),
            overwrite=checks.flag("overwrite", overwrite),
        )

    def close(self) -> None:
        """Close the table. What was trained since :meth:`save` is undone when it is opened again. Closing again does
        nothing.

        Raises:
            InvalidArgumentError: a loader has the table: close the loader first.
        """
        self._rows.close()

    def __enter__(self) -> Embedding:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise DTypeError(
            "an Embedding cannot be copied, pickled or sent to another process: its rows are in a file that one "
            "process opens; save() it, and carry over state_dict()"
        )

    def requires_grad_(self, requires_grad: bool = True) -> Embedding:
        """Freeze the rows, or train them again. Frozen rows are looked up without a gradient, and no step changes them.
        ``requires_grad_`` of a module around this one leaves them alone."""
        self._rows.parameter.requires_grad_(requires_grad)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Embedding:
        """Check what ``to()``, ``half()`` and the like would make of the rows, which stay as they are in the file. A
        model may go to another device with its tables: their rows stay on the CPU.

        Raises:
            DTypeError: another dtype of floating point
            InvalidArgumentError: the device is meta
        """
        applied = fn(torch.empty(0, dtype=self.dtype))
        if applied.device.type == "meta":
            raise InvalidArgumentError(
                f"the table {self._rows.file.path} cannot go to the device meta: its rows are in a file, and take no "
                "memory without a loader"
            )
        if applied.dtype != self.dtype:
            other = f", or make a table with dtype={applied.dtype}" if applied.dtype in _DTYPES else ""
            raise DTypeError(
                f"the rows of the table {self._rows.file.path} are {self.dtype} in its file, and cannot become "
                f"{applied.dtype}: convert what is looked up, emb(ids).to({applied.dtype}){other}"
            )
        return self  # which has neither parameters nor children

    def extra_repr(self) -> str:
        """Return the sizes, for ``repr``."""
        file = self._rows.file
        trained = "" if file.trained is None else f", {file.trained.name}"
        closed = ", closed" if file.table.closed else ""
        return f"{self.num_embeddings}, {self.embedding_dim}, {file.path}, {self.dtype}{trained}{closed}"


def _place(path: object) -> Path:
    """Return the absolute path of a table.

    Raises:
        DTypeError: it is no path
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise DTypeError(f"the path of a table must be a string or an os.PathLike, got {checks.shown(path)}")
    return Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100


def _check_place(path: Path) -> None:
    """Check that a table can be made at a path.

    Raises:
        StoreExistsError: a file is there
        StoreNotFoundError: there is no directory to make it in
        InvalidArgumentError: it would be inside the directory of a store
    """
    check_outside(path)
    if path.exists() and not path.is_dir():
        raise StoreExistsError(errno.EEXIST, "is a file, and a table is a directory: name another path", str(path))
    if not path.parent.is_dir():
        raise StoreNotFoundError(
            errno.ENOENT, "no such directory to make a table in, create it first", str(path.parent)
        )


def _not_here(missing: Tensor, has_readers: bool) -> str:
    """Return what is said of nodes that are not in the current batch, in training."""
    what = f"id {int(missing[0])} is not in the current batch" if missing.numel() else "there is no current batch"
    of = "the loader opened first with embeddings=, which trains the table," if has_readers else "the loader"
    return (
        f"{what}: in training, look up nodes of the batch that {of} yielded last; torch.no_grad() or eval() reads any "
        "row of the table"
    )
