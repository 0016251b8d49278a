"""Checks of what a user gives a loader; every message lists what is allowed."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, get_args

import numpy as np
import torch
from torch import Tensor

from freshgo._args.arrays import as_tensor
from freshgo._args.hints import did_you_mean, listed
from freshgo._args.size import parse_size
from freshgo.errors import DTypeError, InvalidArgumentError


def caller() -> int:
    """How many frames up the code outside of freshgo is that is being run."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "freshgo":
        level, frame = level + 1, frame.f_back
    return level


def shown(value: object) -> str:
    """What came, in a line: of an array its shape, of anything long its beginning."""
    if isinstance(value, Tensor | np.ndarray) and not getattr(value, "is_nested", False) and len(value.shape):
        return f"a {type(value).__name__} of shape {list(value.shape)}"
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Return a text in a line, of a long one its beginning."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."


def count(name: str, value: object, minimum: int | None, maximum: int = 2**63 - 1) -> int:
    """Return an int that is at least ``minimum``, or any where that is None, and at most ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DTypeError(f"{name} must be an int, got {shown(value)}")
    if minimum is not None and value < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, got {value}")
    if minimum is not None and value > maximum:
        raise InvalidArgumentError(f"{name} must be at most {maximum}, got {value}")
    return int(value)


def size(name: str, value: int | str | None) -> int | None:
    """Return bytes, or None where the loader is to choose."""
    return None if value is None else parse_size(name, value)


def budget(value: int | str | None, default: Callable[[], int]) -> int:
    """Return bytes for the loader, at least one."""
    if value is None:
        return default()
    n_bytes = parse_size("memory", value)
    if n_bytes == 0:
        raise InvalidArgumentError("memory must be at least 1 byte, or None to let the loader choose, got 0")
    return n_bytes


def flag(name: str, value: object) -> bool:
    """Return a bool."""
    if not isinstance(value, bool | np.bool_):
        raise DTypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(name: str, value: object, allowed: Any, optional: bool = False) -> Any:
    """Return one of ``allowed``: a type of :mod:`freshgo._args.choices`, or a sequence of strings. ``optional``: the
    message says that None is allowed too."""
    allowed = get_args(allowed) or allowed
    if not isinstance(value, str) or value not in allowed:
        expected = (f"one of {listed(allowed)}" if len(allowed) > 1 else listed(allowed)) + " or None" * optional
        raise InvalidArgumentError(f"{name} must be {expected}, got {shown(value)}{did_you_mean(value, allowed)}")
    return value


def reorder(value: object) -> int | None:
    """Return how many batches may change places among each other: 0 is none, None lets the loader choose."""
    if isinstance(value, bool | np.bool_):
        return None if value else 0
    return count("reorder", value, 2)


def scratch_path(value: object) -> Path | None:
    """Return the directory that was given for the scratch file, whether it exists or not; None lets the loader
    choose."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise DTypeError(f"scratch must be a directory, got {shown(value)}")
    return None if value is None else Path(value)


def scratch(value: object, beside: Path | None) -> Path | None:
    """Return the directory of the scratch file; the default is that of the store, or else the system's."""
    path = scratch_path(value)
    if path is not None:
        if not path.is_dir():
            raise InvalidArgumentError(f"scratch must be a directory that exists, got {str(path)!r}")
        if not _may_write(path):
            raise InvalidArgumentError(f"scratch must be a directory that can be written, got {str(path)!r}")
        return path
    if beside is None:
        return None
    return next((path for path in _scratch_places(beside) if _may_write(path) and not _in_memory(path)), None)


def _scratch_places(beside: Path) -> Iterator[Path]:
    yield beside
    with contextlib.suppress(FileNotFoundError):  # in a container whose file systems are read-only there is none
        yield Path(tempfile.gettempdir())


def _may_write(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK)


def _in_memory(directory: Path) -> bool:
    """Whether what is written there stays in memory, which is what a scratch file is to save."""
    try:
        device = directory.stat().st_dev
        with Path("/proc/self/mountinfo").open() as mounts:
            for line in mounts:
                fields, _, rest = line.partition(" - ")
                major, minor = map(int, fields.split()[2].split(":"))
                if os.makedev(major, minor) == device:
                    return rest.split()[0] in ("tmpfs", "ramfs")
    except (OSError, ValueError, IndexError):
        pass
    return False


def calibration_file(store_uuid: str, engine: str) -> Path | None:
    """Return the file that keeps what the device of a store was found to do; None where there is no place for it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The specification of XDG_CACHE_HOME says to ignore a path that is not absolute.
        cache = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
        directory = cache / "freshgo"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return directory / f"device-{store_uuid}-{engine}.json" if _may_write(directory) else None


def fanouts(value: object, *, name: str = "num_neighbors") -> list[int]:
    """Return the neighbours per hop: 0 for none, or -1 for all."""
    if isinstance(value, Mapping):
        raise DTypeError(f"{name} must be a list of ints in a homogeneous graph, got a dict")
    if isinstance(value, str | bytes) or not (isinstance(value, Sequence) or _is_vector(value)):
        raise DTypeError(f"{name} must be a list of ints such as [15, 10, 5], got {shown(value)}")
    hops = [count(f"{name}[{hop}]", _item(fanout), None) for hop, fanout in enumerate(value)]
    for hop, fanout in enumerate(hops):
        if fanout < -1:
            raise InvalidArgumentError(f"{name}[{hop}] must be at least 0, or -1 for all, got {fanout}")
        if fanout > 2**63 - 1:
            raise InvalidArgumentError(f"{name}[{hop}] must be at most {2**63 - 1}, got {fanout}")
    return hops


def _is_vector(value: object) -> TypeGuard[np.ndarray[Any, Any] | Tensor]:
    """Whether an array has one dimension, and values."""
    return isinstance(value, np.ndarray | Tensor) and value.ndim == 1 and not getattr(value, "is_meta", False)


def _item(value: object) -> object:
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value


def no_split(owner: str, name: str, splits: Iterable[str], tensors: Container[str], why: str) -> InvalidArgumentError:
    """What to raise where nodes have no such split. ``why`` says of a tensor with the name of a mask what it is not."""
    names, mask = list(splits), f"{name}_mask"
    hint = f"; its tensor {mask!r} {why}" if mask in tensors else did_you_mean(name, names)
    if name in tensors and not name.endswith("_mask"):
        hint = f"; {name!r} is one of its tensors: give that itself, or call a bool mask {mask!r}"
    if f"{name}:0" in names:
        hint = f"; each column of {mask!r} is a split"
    there = f", only {listed(names)}" if names else ": it has none"
    return InvalidArgumentError(f"{owner} has no split {name!r}{there}{hint}")


NO_MASK = "is not a bool mask: use .bool()"
"""Why a tensor in memory is no split."""

NO_STORED_MASK = "was not a bool mask when it was converted"
"""Why a tensor of a store is none."""


def number(name: str, value: object) -> float:
    """Return a number as a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise DTypeError(f"{name} must be a number, got {value!r}")
    return float(value)


def fraction(name: str, value: object) -> float:
    """Return a number within [0, 1]."""
    share = number(name, value)
    if not 0 <= share <= 1:  # nor NaN
        raise InvalidArgumentError(f"{name} must be within [0, 1], got {value!r}")
    return share


def is_mask(value: object) -> bool:
    """Whether input nodes are given as a bool mask."""
    return getattr(value, "dtype", None) in (torch.bool, np.dtype(bool))


def input_nodes(value: object, num_nodes: int, split: Callable[[str], Tensor]) -> Tensor | None:
    """Return node ids as int64, None for every node. Ids are range-checked by the library."""
    if value is None:
        return None
    if isinstance(value, str):
        ids = split(value)
    elif isinstance(value, tuple) and value and isinstance(value[0], str):
        raise DTypeError(
            "input_nodes must be node ids, a bool mask, a split's name or None in a homogeneous graph, got a pair "
            f"with the node type {value[0]!r}"
        )
    elif isinstance(value, Mapping):
        raise DTypeError(
            "input_nodes must be node ids, a bool mask, a split's name or None in a homogeneous graph, got a dict"
        )
    else:
        try:
            ids = as_tensor(value)
        except (TypeError, ValueError) as error:
            why = f": {error}" if isinstance(error, DTypeError) else ""  # else NumPy's or PyTorch's words for no array
            raise DTypeError(
                f"input_nodes must be node ids, a bool mask, a split's name or None, got {shown(value)}{why}"
            ) from None
    if ids.dim() != 1:
        raise InvalidArgumentError(f"input_nodes must be one-dimensional, got shape {list(ids.shape)}")
    if ids.dtype == torch.bool:
        if ids.numel() != num_nodes:
            raise InvalidArgumentError(f"a mask of input_nodes must have {num_nodes} entries, got {ids.numel()}")
        ids = ids.nonzero().view(-1)
    if ids.numel() == 0:
        raise InvalidArgumentError("input_nodes is empty, expected at least one node")
    if ids.dtype.is_floating_point or ids.dtype.is_complex:
        raise DTypeError(f"input_nodes must be integers or a bool mask, got {ids.dtype}")
    whole = ids.to(device="cpu", dtype=torch.int64)
    if ids.dtype == torch.uint64 and bool((whole < 0).any()):  # where it would be shown as a negative number
        found = int(whole[whole < 0][0]) + (1 << 64)
        raise InvalidArgumentError(f"input_nodes must be within [0, {num_nodes}), got {found}")
    if whole.numel() == num_nodes and num_nodes >= _least_mask(ids.dtype) and _is_binary(whole):
        hint = ", or ids.long() if they are ids" if ids.dtype == torch.uint8 else ""
        raise InvalidArgumentError(
            f"input_nodes of dtype {str(ids.dtype).removeprefix('torch.')} would be ids, but these are {num_nodes} "
            f"zeros and ones, one for each node, as in a mask: use mask.bool(){hint}"
        )
    return whole


def _least_mask(dtype: torch.dtype) -> int:
    """Return the number of nodes from which on zeros and ones of a dtype, one for each node, are a mask for certain.

    Ids are seldom uint8; ids of other dtypes that name only the nodes 0 and 1 are, by chance, no more likely than
    (2 / 16) ** 16.
    """
    return 3 if dtype == torch.uint8 else 16


def _is_binary(ids: Tensor) -> bool:
    """Whether ids hold zeros and ones alone."""
    least, largest = ids.aminmax()
    return int(least) >= 0 and int(largest) <= 1
