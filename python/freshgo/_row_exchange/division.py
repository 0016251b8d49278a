"""How the rows of a store are divided: what lies in the directory that :func:`freshgo.shard` writes.

``graph`` is a store with everything but the tensors that are divided. ``part-0``, ``part-1``, ... are stores without
edges, each with the rows of these tensors for a range of the nodes of every type. ``parts.json`` says which stores
belong together. A host needs ``graph``, ``parts.json`` and its own parts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from freshgo._data.narrow import Narrow
from freshgo.errors import FormatError, StoreNotFoundError

NAME = "parts.json"
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Rows:
    """A tensor whose rows are divided. They are kept and sent as the store holds them."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Of a row."""
    described: dict[str, Any] | None
    """What the manifest says of a tensor that is stored in fewer bytes; None: it is stored as it is."""

    @property
    def n_bytes(self) -> int:
        """Bytes of a row."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def narrow(self) -> Narrow | None:
        """How rows become float32, if they are stored in fewer bytes."""
        return None if self.described is None else Narrow(self.described)


@dataclasses.dataclass(frozen=True)
class DividedNodes:
    """The nodes of a type whose tensors are divided."""

    node_type: str
    bounds: tuple[int, ...]
    """Part k has the nodes ``bounds[k]`` to ``bounds[k + 1]`` - 1."""
    tensors: tuple[Rows, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of a row of all tensors together."""
        return sum(rows.n_bytes for rows in self.tensors)

    def count(self, part: int) -> int:
        """The number of nodes of a part."""
        return self.bounds[part + 1] - self.bounds[part]


@dataclasses.dataclass(frozen=True)
class Division:
    """Which stores belong together, and which rows are where."""

    store: str
    """The uuid of the store that was divided."""
    graph: str
    """The uuid of the store with everything else."""
    parts: tuple[str, ...]
    """The uuids of the parts."""
    nodes: tuple[DividedNodes, ...]
    """In the order of the graph's node types; without those that have no such tensors."""

    def digest(self) -> str:
        """Identify the division."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()[:32]

    def _content(self) -> dict[str, Any]:
        nodes = [
            {
                "type": of.node_type,
                "bounds": list(of.bounds),
                "tensors": [
                    {
                        "name": rows.name,
                        "dtype": str(rows.dtype).removeprefix("torch."),
                        "row": list(rows.shape),
                        "described": rows.described,
                    }
                    for rows in of.tensors
                ],
            }
            for of in self.nodes
        ]
        return {"store": self.store, "graph": self.graph, "parts": list(self.parts), "nodes": nodes}

    def write(self, directory: Path) -> None:
        """Write the description, last of all files."""
        text = json.dumps({"version": _VERSION, "digest": self.digest(), **self._content()}, indent=1)
        with (directory / NAME).open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_division(directory: Path) -> Division:
    """Read and check what is written beside the parts.

    Raises:
        StoreNotFoundError: there is none.
        FormatError: it is damaged, or of another version.
    """
    path = directory / NAME
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreNotFoundError(
            error.errno, "no such file: expected a directory of parts, which freshgo.shard() writes", str(path)
        ) from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not a description of parts, as freshgo.shard() writes") from None
    try:
        content = json.loads(text)
        version, digest = content.pop("version"), content.pop("digest")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise FormatError(f"{path}: not a description of parts, as freshgo.shard() writes") from None
    if version != _VERSION:
        raise FormatError(f"{path}: version {version!r} of parts, this version of freshgo reads {_VERSION}")
    try:
        division = _division(content)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FormatError(f"{path}: not a description of parts, as freshgo.shard() writes") from None
    if division.digest() != digest:
        raise FormatError(f"{path}: damaged: the digest does not match the content")
    return division


def _division(content: dict[str, Any]) -> Division:
    nodes = tuple(
        DividedNodes(
            of["type"],
            tuple(map(int, of["bounds"])),
            tuple(
                Rows(t["name"], getattr(torch, t["dtype"]), tuple(map(int, t["row"])), t["described"])
                for t in of["tensors"]
            ),
        )
        for of in content["nodes"]
    )
    return Division(content["store"], content["graph"], tuple(content["parts"]), nodes)


def ranges(visits: Tensor, parts: int) -> tuple[int, ...]:
    """Return the bounds of the parts of the nodes: of neither the visits nor the rows a part has more than twice its
    share, but for a row. ``visits`` are not negative, one for each node. Every part has a node if there are enough."""
    count = visits.numel()
    total = float(visits.double().sum())
    weight = torch.full((count,), 1 / max(count, 1), dtype=torch.float64)
    if total > 0:
        weight += visits.double() / total
    reached = weight.cumsum(0)
    ends = torch.arange(1, parts, dtype=torch.float64) * (float(reached[-1]) if count else 0.0) / parts
    cuts = torch.searchsorted(reached, ends, right=True).tolist()
    bounds = [0]
    for i, cut in enumerate(cuts, 1):
        least = bounds[-1] + (count >= parts)
        most = count - (parts - i if count >= parts else 0)
        bounds.append(min(max(cut, least), most))
    return (*bounds, count)


def parts_of_rank(parts: int, rank: int, world_size: int) -> range:
    """Return the parts that a rank reads: its share of them, or one that it reads with its neighbours."""
    first, end = rank * parts // world_size, (rank + 1) * parts // world_size
    return range(first, max(end, first + 1))


def holders(parts: int, rank: int, world_size: int) -> list[int]:
    """Return the rank that another one, or itself, asks for rows of each part. Ranks that read the same part share
    what is asked of it."""
    own = parts_of_rank(parts, rank, world_size)
    found = []
    for part in range(parts):
        of = [other for other in range(world_size) if part in parts_of_rank(parts, other, world_size)]
        found.append(rank if part in own else of[rank % len(of)])
    return found
