"""What reading a source needs: a place for arrays that the library cannot read as they lie, and leave to unpickle."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshgo._args.arrays import Array, NpyFile, Stream
from freshgo._args.levels import Levels
from freshgo._args.progress import Progress
from freshgo._staging.raw import Files, RawFile
from freshgo._staging.workplace import workplace, written
from freshgo.errors import OVERWRITE, FormatError, FreshgoError, InvalidArgumentError, StoreExistsError, WriteError

if TYPE_CHECKING:
    from freshgo._urls.copies import Copies

_NO_PICKLES = (
    "is a pickle, and unpickling runs whatever code it names: give allow_pickle=True if you trust where it comes from"
)


@dataclasses.dataclass
class Graph:
    """What a source holds, as :func:`freshgo.convert` takes it."""

    data: Any
    """A mapping of tensors, or of types; or one of PyG's objects."""
    words: str = ""
    """What it was recognised as, with what was decided about it; empty: there is nothing to say."""
    attachments: dict[str, Array] = dataclasses.field(default_factory=dict)
    """Arrays of the graph as a whole: keys of nodes, splits of links."""
    levels: Levels = dataclasses.field(default_factory=Levels)
    """What its tensors belong to, beside what the user says."""


class Opening:
    """The reading of one source for a store at a path."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        allow_pickle: bool | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
        memory: int | None = None,
    ) -> None:
        self.memory = memory
        """What a source that is read as a whole may take, in bytes; None: as much as it takes."""
        self._path, self._overwrite, self._progress = path, overwrite, progress
        self.allow_pickle = allow_pickle
        self._stack = contextlib.ExitStack()
        self._directory: Path | None = None
        self._files: Files | None = None
        self._copies: Copies | None = None
        self._origins: dict[str, str] = {}

    def __enter__(self) -> Opening:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, FreshgoError):
            self._name_origins(error)
            if self._copies is not None:
                self._copies.name_origins(error)
        self._stack.__exit__(kind, error, trace)

    def new_file(self) -> RawFile:
        """Begin an array in the directory ``<path>.sources``, which is removed in the end."""
        if self._files is None:
            self._files = self._stack.enter_context(contextlib.closing(Files(self._workplace())))
        return self._files.new()

    def copies(self) -> Copies:
        """Return copies of objects in that directory."""
        if self._copies is None:
            from freshgo._urls.copies import Copies  # which few need

            self._copies = Copies(self._workplace() / "urls", self._progress)
        return self._copies

    def _workplace(self) -> Path:
        if self._directory is None:
            if os.path.lexists(self._path) and not self._overwrite:  # before hours of reading
                raise StoreExistsError(errno.EEXIST, OVERWRITE, str(self._path))
            self._directory = self._stack.enter_context(workplace(self._path, ".sources"))
        return self._directory

    def check_space(self, n_bytes: int, what: str) -> None:
        """Refuse to begin a copy that the disk has no room for. ``what`` it holds, for the message."""
        directory = self._workplace()
        with written(directory):
            free = shutil.disk_usage(directory).free
        if n_bytes > free:
            raise WriteError(
                errno.ENOSPC, f"a copy of {what} takes {n_bytes} bytes, the file system has {free} free", str(directory)
            )

    def keep(self, stream: Stream) -> NpyFile:
        """Write all of a stream to a file."""
        file = self.new_file()
        total = int(np.prod(stream.shape, dtype=object)) * stream.dtype.itemsize
        self.check_space(total, stream.name)
        done = 0
        for piece in stream.pieces():
            file.append(np.frombuffer(piece, np.uint8))
            done += len(piece)
            self.report(f"reading {stream.name}", done, total)
        return dataclasses.replace(self._kept(stream.name, file), dtype=stream.dtype, shape=stream.shape)

    def keep_rows(
        self, name: str, rows: Iterator[np.ndarray[Any, Any]], dtype: Any, row: tuple[int, ...] = ()
    ) -> NpyFile:
        """Write arrays of rows one after the other. ``name`` is what messages call where they come from; ``dtype`` and
        ``row`` are those of an array without rows."""
        file = self.new_file()
        for piece in rows:
            file.append(piece)
        return self._kept(name, file, dtype, row)

    def _kept(self, name: str, file: RawFile, dtype: Any = np.uint8, row: tuple[int, ...] = ()) -> NpyFile:
        array = file.finish(dtype, row)
        self._origins[array.path] = name
        return array

    def _name_origins(self, error: FreshgoError) -> None:
        """Let an error name where an array came from, in the place of the file in which it waits."""
        if error.args and isinstance(error.args[0], str):
            text = error.args[0]
            for path, name in self._origins.items():
                text = text.replace(path, name)
            error.args = (text, *error.args[1:])

    def report(self, stage: str, done: int, total: int) -> None:
        """Show progress."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def unpickled(self, path: Path) -> Any:
        """Return what ``torch.save`` wrote to a file; None where pickles are to be left out.

        Raises:
            InvalidArgumentError: nobody has allowed it.
            FormatError: it is damaged, or no such file.
        """
        if self.allow_pickle is None:
            raise InvalidArgumentError(f"{path} {_NO_PICKLES}, or allow_pickle=False to go without it")
        if not self.allow_pickle:
            return None
        import torch

        try:
            return torch.load(path, map_location="cpu", weights_only=False)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # what a damaged pickle raises has no common class
            first = str(error).partition(". ")[0]
            raise FormatError(f"{path}: not a whole file of torch.save: {type(error).__name__}: {first}") from None


def links_attached(splits: Mapping[str, Mapping[str, Any]], node_types: list[str]) -> dict[str, Array]:
    """Return the splits of links as attachments. Strings, which are names of node types, become their places."""
    attached: dict[str, Array] = {}
    for split, arrays in splits.items():
        for name, value in arrays.items():
            array = value if isinstance(value, NpyFile) or hasattr(value, "numpy") else np.asarray(value)
            if isinstance(array, np.ndarray) and array.dtype.kind in "US":
                known = {node_type: place for place, node_type in enumerate(node_types)}
                unknown = sorted(set(array.tolist()) - set(known))
                if unknown:
                    raise InvalidArgumentError(
                        f"{name} of the split {split!r} holds {unknown[0]!r}, expected a node type of {node_types}"
                    )
                array = np.fromiter((known[value] for value in array.tolist()), np.int64, len(array))
            if isinstance(array, np.ndarray) and array.dtype.kind == "O":
                raise InvalidArgumentError(f"{name} of the split {split!r} holds objects, expected numbers")
            attached[f"links/{split}/{name}"] = array
    return attached
