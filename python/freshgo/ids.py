"""What a store keeps of tables: the keys that nodes had before they were numbered, and the values of categories."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.checks import shown
from freshgo._args.entry import entry
from freshgo._native.store import Store as NativeStore
from freshgo.errors import DTypeError, InvalidArgumentError

_BLOCK = 1 << 13
"""Keys that are read at a time. Arbitrary: 64 KiB of integers."""


@entry
class Ids:
    """The keys of the nodes of one type: ``store.ids("user")``, of a homogeneous graph ``store.ids()``.

    Keys are integers or strings; a UUID is its text. They ascend: node ``i`` has the ``i``-th key, strings in the order
    of their UTF-8 bytes. So the files are their own index, and a call reads only the part that it needs: a search takes
    a few reads for each key, and all of them together read no key twice.
    """

    def __init__(self, native: NativeStore, name: str, attachments: dict[str, dict[str, Any]]) -> None:
        """Take the keys that a store has under this name (``ids/TYPE``)."""
        self._native, self._name = native, name
        self._numbers = name in attachments
        described = attachments[name if self._numbers else f"{name}/ends"]
        self._count, self._dtype = int(described["shape"][0]), str(described["dtype"])

    @property
    def dtype(self) -> torch.dtype | None:
        """``torch.int64`` or ``torch.uint64`` where keys are integers; None where they are strings."""
        return getattr(torch, self._dtype) if self._numbers else None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._count} {self._dtype if self._numbers else 'strings'})"

    def keys(self, ids: object) -> Tensor | list[str]:
        """Return the keys of nodes.

        Args:
            ids: node ids, such as ``batch.n_id``: a tensor, an array or a list of integers, one-dimensional.

        Returns:
            int64 or uint64 ``[len(ids)]`` where keys are integers, else a list of strings.

        Raises:
            InvalidArgumentError: an id is not a node.
            DTypeError: ids are not integers.
            CorruptError, ReadError: the store is damaged or cannot be read.
        """
        wanted = np.asarray(ids.detach().cpu() if isinstance(ids, Tensor) else ids)
        if wanted.ndim == 1 and wanted.size == 0:
            wanted = wanted.astype(np.int64)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise DTypeError(f"ids must be integers in one dimension, got {shown(ids)}")
        bad = np.flatnonzero((wanted < 0) | (wanted >= self._count))
        if bad.size:
            raise InvalidArgumentError(f"ids[{bad[0]}] is {wanted[bad[0]]}, expected an id in [0, {self._count})")
        nodes, places = np.unique(wanted.astype(np.int64), return_inverse=True)
        found: list[Any] = []
        starts = np.flatnonzero(np.diff(nodes // _BLOCK, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(nodes)], strict=True):
            run = nodes[start:end]
            keys = self._read(int(run[0]), int(run[-1]) + 1)
            found.append(keys[run - run[0]] if self._numbers else [keys[node] for node in run - run[0]])
        if self._numbers:
            all_keys = np.concatenate(found) if found else np.empty(0, self._dtype)
            return torch.from_numpy(all_keys[places])
        texts = [key.decode() for keys in found for key in keys]
        return [texts[place] for place in places]

    def lookup(self, keys: object, *, missing: int | None = None) -> Tensor:
        """Return the nodes that have these keys: int64 ``[len(keys)]``.

        Args:
            keys: integers, or strings (or UUIDs): a list, an array, a tensor, a column of a frame.
            missing: what stands for a key that no node has; by default that is an error.

        Raises:
            InvalidArgumentError: no node has one of the keys; the message names it and its place.
            DTypeError: the keys are not of the kind that the nodes have.
            CorruptError, ReadError: the store is damaged or cannot be read.
        """
        given = _listed(keys, "keys")
        wanted = [self._as_key(place, key) for place, key in enumerate(given)]
        distinct = sorted(set(wanted))
        places: dict[Any, int] = {}
        self._search(0, self._count, distinct, places)
        for place, key in enumerate(wanted):
            if missing is None and key not in places:
                raise InvalidArgumentError(f"keys[{place}] is {given[place]!r}, which no node has")
        return torch.tensor([places.get(key, missing) for key in wanted], dtype=torch.int64)

    def further(self, keys: object, count: int, label: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the keys of new nodes, which come after the nodes of the store, as further rows of its arrays.
        ``label`` is what messages call the keys.

        Raises:
            InvalidArgumentError: their number is wrong, or they do not ascend behind the keys of the store.
            DTypeError: they are not of the kind that the nodes have.
        """
        number, pieces = _pieces(keys, label)
        if number != count:
            raise InvalidArgumentError(f"{label} has {number} keys, expected one for each of {count} new nodes")
        before = self._read(self._count - 1, self._count)[0] if self._count else None
        rows, text, first = np.empty(count, self._dtype), bytearray(), 0
        for given in pieces:
            wanted = self._ascending(given, first, before, label)
            rows[first : first + len(wanted)] = wanted if self._numbers else [len(key) for key in wanted]
            if not self._numbers:
                text += b"".join(wanted)
            before, first = wanted[-1], first + len(wanted)
        if self._numbers:
            return {self._name: rows}
        if count and self._count:
            rows[0] += int(self._native.read_rows(f"{self._name}/ends", self._count - 1, 1))
        np.cumsum(rows, out=rows)
        return {f"{self._name}/ends": rows, f"{self._name}/text": np.frombuffer(text, np.uint8)}

    def _ascending(self, given: list[Any], first: int, before: Any, label: str) -> list[Any]:
        """Return a piece of new keys as they are compared; ``first`` is the place of its first key, and ``before`` the
        key in front of this one, None if there is none."""
        wanted = [self._as_key(place, key, label) for place, key in enumerate(given, first)]
        for place, key in enumerate(wanted):
            if before is not None and not before < key:
                shown_before = before if self._numbers else before.decode()
                raise InvalidArgumentError(
                    f"{label}[{first + place}] is {given[place]!r}, which does not come after {shown_before!r}: nodes "
                    "have ascending keys; with others, convert all tables"
                )
            before = key
        if self._numbers:
            bounds = np.iinfo(self._dtype)
            for place, key in enumerate(wanted, first):
                if not bounds.min <= key <= bounds.max:
                    raise InvalidArgumentError(f"{label}[{place}] is {key}, expected {self._dtype} as the nodes have")
        return wanted

    def _as_key(self, place: int, key: object, label: str = "keys") -> Any:
        """Return a key as it is compared: an int, or the bytes of a string."""
        if self._numbers:
            if isinstance(key, bool) or not isinstance(key, int | np.integer):
                raise DTypeError(f"{label}[{place}] is {key!r}, expected an integer, as the nodes have")
            return int(key)
        if isinstance(key, int | float | bytes) or key is None:
            raise DTypeError(f"{label}[{place}] is {key!r}, expected a string, as the nodes have")
        try:
            return str(key).encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{label}[{place}] is {key!r}, expected text that UTF-8 can hold") from error

    def _search(self, low: int, high: int, wanted: list[Any], places: dict[Any, int]) -> None:
        """Find keys, which ascend, among those of the nodes from low to high."""
        if not wanted or low == high:
            return
        if high - low <= _BLOCK:
            here = self._read(low, high)
            here = here.tolist() if self._numbers else here
            for key in wanted:
                at = bisect.bisect_left(here, key)
                if at < len(here) and here[at] == key:
                    places[key] = low + at
            return
        middle = (low + high) // 2
        (pivot,) = self._read(middle, middle + 1)
        cut = bisect.bisect_left(wanted, pivot)
        self._search(low, middle, wanted[:cut], places)
        self._search(middle, high, wanted[cut:], places)

    def _read(self, low: int, high: int) -> Any:
        """The keys of nodes from low to high: an array of integers, or a list of bytes."""
        if self._numbers:
            return self._native.read_rows(self._name, low, high - low).numpy()
        first = max(low - 1, 0)
        ends = self._native.read_rows(f"{self._name}/ends", first, high - first).tolist()
        bounds = [0, *ends] if low == 0 else ends
        text = self._native.read_rows(f"{self._name}/text", bounds[0], bounds[-1] - bounds[0]).numpy().tobytes()
        return [text[a - bounds[0] : b - bounds[0]] for a, b in itertools.pairwise(bounds)]


def _listed(keys: object, label: str) -> list[Any]:
    """What a user calls keys, one by one."""
    given = keys.tolist() if hasattr(keys, "tolist") else keys
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DTypeError(f"{label} must be a list or an array of keys, got {shown(keys)}")
    return [key.item() if isinstance(key, Tensor) and key.dim() == 0 else key for key in given]


def _pieces(keys: object, label: str) -> tuple[int, Iterator[list[Any]]]:
    """Return the number of keys, and the keys in pieces."""
    sliced = isinstance(keys, list | tuple | range) or (hasattr(keys, "tolist") and getattr(keys, "shape", None) != ())
    given: Any = keys if sliced else _listed(keys, label)
    by_place = getattr(given, "iloc", given)
    starts = range(0, len(given), _BLOCK)
    return len(given), (_listed(by_place[start : start + _BLOCK], label) for start in starts)
