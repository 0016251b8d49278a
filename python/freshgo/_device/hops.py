"""The hops of a batch that a device draws: nodes and edges in as much memory as they take, or as the envelope gives.

In a padded batch the nodes of a hop lie in the room of the hop, with -1 behind them. The kernels draw nothing for -1,
number the nodes of the next hop from the end of the room on, and leave what has no room out. So the host need not know
how many edges and nodes there are, which stays on the device, as does whether all of them have room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from freshgo._native import cuda

FITS = "fg/fits"
"""Of a padded batch, bool ``[1]`` on the device: it is within the envelope."""


class Envelope:
    """The sizes of padded batches: of each node type by hop, the seeds first, and of each edge type."""

    def __init__(self, node_types: int, ends: Sequence[tuple[int, int]], hops: int, sizes: Sequence[int]) -> None:
        """``ends``: the places of the source and target types of each edge type. ``sizes``: as ``stats()`` has them."""
        self.nodes = [sizes[t * (hops + 1) : (t + 1) * (hops + 1)] for t in range(node_types)]
        rest = sizes[node_types * (hops + 1) :]
        self.edges = [rest[i * hops : (i + 1) * hops] for i in range(len(ends))]
        self.spares = [[0] * (hops + 1) for _ in range(node_types)]
        """The nodes among them that must pad, because edges that pad lead between such nodes."""
        for (source, target), edges in zip(ends, self.edges, strict=True):
            for hop, count in enumerate(edges):
                if count > 0:
                    self.spares[target][hop] = self.spares[source][hop + 1] = 1

    def takes(self, seeds: Sequence[Tensor]) -> bool:
        """Whether there is room for the seeds, by node type."""
        of = zip(seeds, self.nodes, self.spares, strict=True)
        return all(ids.numel() + spares[0] <= rooms[0] for ids, rooms, spares in of)


class Hops:
    """The hops of a batch without padding. The host waits for the counts of each."""

    def __init__(self, seeds: Sequence[Tensor]) -> None:
        self.nodes = list(seeds)
        """By node type."""
        self.found = list(seeds)
        """The nodes that the last hop found, by type: the targets of the next one."""

    def room(self, relation: int, hop: int) -> int | None:
        """Return the room for the edges of a hop. None: they take what they need."""
        return None

    def ptr(self, drawn: cuda.Drawn, target: int) -> Tensor:
        """Return where the edges of each target begin, from the first edge of the hop on."""
        return drawn.first

    def number(self, node_type: int, hop: int, drawn: Sequence[cuda.Drawn]) -> list[Tensor]:
        """Add the sources of edges, which are of this type, to the nodes, and return them as numbers of nodes."""
        nodes = self.nodes[node_type]
        kept, parts = nodes.numel(), [of.neighbor for of in drawn]
        if not any(part.numel() for part in parts):
            self.found[node_type] = nodes[kept:]
            return parts
        node, local, count = cuda.number(torch.cat([nodes, *parts]), kept=kept)
        self.nodes[node_type] = node[: int(count)]
        self.found[node_type] = self.nodes[node_type][kept:]
        return list(torch.split(local[kept:], [part.numel() for part in parts]))

    def fits(self) -> dict[str, Tensor]:
        """Return what says whether the batch is whole, if it may not be."""
        return {}


class PaddedHops(Hops):
    """The hops of a batch with padding, which ``core/batch/padding.go`` describes."""

    def __init__(self, seeds: Sequence[Tensor], envelope: Envelope, counting: Callable[[int, Tensor], Tensor]) -> None:
        """``counting(n, like)`` returns 0 to n - 1."""
        rooms = [of[0] for of in envelope.nodes]
        padded = [torch.cat([ids, ids.new_full((n - ids.numel(),), -1)]) for ids, n in zip(seeds, rooms, strict=True)]
        super().__init__(padded)
        self._envelope, self._counting = envelope, counting
        self._counts = [ids.new_full((1,), ids.numel()) for ids in seeds]  # of the nodes found that do not pad
        self._fits = torch.ones(1, dtype=torch.bool, device=seeds[0].device)

    def room(self, relation: int, hop: int) -> int:
        return self._envelope.edges[relation][hop]

    def ptr(self, drawn: cuda.Drawn, target: int) -> Tensor:
        targets, count, room = self.found[target].numel(), self._counts[target], drawn.neighbor.numel()
        padding = self._counting(targets, count) - count  # below 0: no target that pads
        ends = drawn.total + (room - drawn.total) * padding // (targets - count).clamp(min=1)
        return torch.where(padding < 0, drawn.first, ends)

    def number(self, node_type: int, hop: int, drawn: Sequence[cuda.Drawn]) -> list[Tensor]:
        nodes, room = self.nodes[node_type], self._envelope.nodes[node_type][hop + 1]
        kept, parts = nodes.numel(), [of.neighbor for of in drawn]
        ids = torch.cat([nodes, *parts])
        out = ids.new_full((max(ids.numel(), kept + room),), -1)
        _, local, count = cuda.number(ids, kept=kept, padded=True, node=out)
        count = count - kept
        self.nodes[node_type], self.found[node_type] = out[: kept + room], out[kept : kept + room]
        self._counts[node_type] = count
        self._fits &= count + self._envelope.spares[node_type][hop + 1] <= room
        sources, spare, at = list[Tensor](), (room - count).clamp(min=1), kept
        for of, part in zip(drawn, parts, strict=True):
            n = part.numel()
            padding = self._counting(n, count) - of.total
            sources.append(torch.where(padding < 0, local[at : at + n], kept + count + padding % spare))
            self._fits &= of.total <= n
            at += n
        return sources

    def fits(self) -> dict[str, Tensor]:
        return {FITS: self._fits}
