"""An independent reading of FreshGNN's pruning and admission, in NumPy and dictionaries, and a loader made of it."""

from __future__ import annotations

import dataclasses
import math
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from freshgo import Batch, Loader
from freshgo._args.types import UNNAMED, Layout
from freshgo._batch.structure import HeteroBlock, Known, Levels, remember
from freshgo.batch import Block

Lookup = Callable[[int, int], int]


@dataclasses.dataclass
class Pruned:
    """Everything in the numbers of the plain batch."""

    tables: list[list[int]]  # T_0 .. T_{L-1}
    computed: list[list[int]]  # C_1 .. C_L, at their own index; C_0 is unused
    hits: list[dict[int, int]]  # of level l: row to slot
    nodes: list[int]  # the nodes that remain, in their new order
    edges: list[int]  # the edges that remain
    hops: list[int]  # nodes per hop
    edge_hops: list[int]


def prune(batch: Any, lookup: Lookup) -> Pruned:
    """Prune a plain batch, row by row, as section 4 of the paper says."""
    layers = len(batch.num_sampled_edges)
    n_id, (source, target) = batch.n_id.tolist(), batch.edge_index.tolist()
    edges_of: dict[int, list[int]] = {}
    for e, t in enumerate(target):
        edges_of.setdefault(t, []).append(e)
    computed: list[list[int]] = [[] for _ in range(layers + 1)]
    tables: list[list[int]] = [[] for _ in range(layers)]
    hits: list[dict[int, int]] = [{} for _ in range(layers)]
    computed[layers] = list(range(batch.batch_size))
    for layer in range(layers, 0, -1):
        rows = computed[layer]
        sources = {source[e] for t in rows for e in edges_of.get(t, [])}
        tables[layer - 1] = rows + sorted(sources - set(rows))
        if layer > 1:
            for row in tables[layer - 1]:
                slot = lookup(layer - 1, n_id[row])
                if slot >= 0:
                    hits[layer - 1][row] = slot
                else:
                    computed[layer - 1].append(row)
    kept = sorted({e for rows in computed[1:] for t in rows for e in edges_of.get(t, [])})
    needed = {row for table in tables for row in table} | set(computed[layers])
    starts = np.concatenate([[0], np.cumsum(batch.num_sampled_nodes)])
    inner = [n for n in range(starts[-2]) if n in needed]
    outer = [source[e] for e in kept if source[e] >= starts[-2]]
    nodes = inner + list(dict.fromkeys(outer))
    place = {node: i for i, node in enumerate(nodes)}
    targets = len(computed[1])
    tables[0][targets:] = sorted(tables[0][targets:], key=place.__getitem__)  # ascending in the new numbers too
    hop = np.searchsorted(starts, nodes, side="right") - 1
    edge_hop = np.searchsorted(np.cumsum(batch.num_sampled_edges), kept, side="right")
    return Pruned(
        tables,
        computed,
        hits,
        nodes,
        kept,
        np.bincount(hop, minlength=layers + 1).tolist(),
        np.bincount(edge_hop, minlength=layers).tolist(),
    )


def make(batch: Any, pruned: Pruned, index: int) -> tuple[dict[str, Any], Levels]:
    """The tensors of the pruned batch, and its levels."""
    layers = len(pruned.tables)
    new = {node: i for i, node in enumerate(pruned.nodes)}
    place = {edge: i for i, edge in enumerate(pruned.edges)}
    source, target = batch.edge_index.tolist()
    edges_of: dict[int, list[int]] = {}
    for e in pruned.edges:
        edges_of.setdefault(target[e], []).append(e)
    wanted = set(range(batch.batch_size)) | set(pruned.tables[0])
    loaded = torch.tensor([node in wanted for node in pruned.nodes])
    degree, loops = np.zeros(len(batch.n_id), np.int64), np.zeros(len(batch.n_id), np.int64)
    np.add.at(degree, target, 1)
    np.add.at(loops, target, np.equal(source, target))
    levels = Levels(
        index=index,
        num_layers=layers,
        degree=torch.from_numpy(degree)[pruned.nodes],
        loops=torch.from_numpy(loops)[pruned.nodes],
        nodes=[ints(new[row] for row in table) for table in pruned.tables],
        computed=[None],
        hit=[None],
        slot=[None],
        blocks=[],
        nodes_of={"": len(pruned.nodes)},
        spared={"": len(batch.n_id) - len(wanted)},
        loaded=len(wanted),
        edges=len(pruned.edges),
        plain_nodes=len(batch.n_id),
        plain_edges=len(source),
    )
    for level in range(1, layers):
        table, hits = pruned.tables[level], pruned.hits[level]
        levels.computed.append(ints(p for p, row in enumerate(table) if row not in hits))
        levels.hit.append(ints(p for p, row in enumerate(table) if row in hits))
        levels.slot.append(ints(hits[row] for row in table if row in hits))
    for layer in range(1, layers + 1):
        position = {row: p for p, row in enumerate(pruned.tables[layer - 1])}
        by_target = [edges_of.get(t, []) for t in pruned.computed[layer]]
        edges = [e for some in by_target for e in some]
        ends = [t for t, some in enumerate(by_target) for _ in some]
        block = Block(
            num_src=len(position),
            num_dst=len(by_target),
            ptr=ints(np.concatenate([[0], np.cumsum([len(some) for some in by_target])])),
            edge_index=torch.stack([ints(position[source[e]] for e in edges), ints(ends)]),
            e_id=batch.e_id[edges],
            edge=ints(place[e] for e in edges),
            level=layer - 1,
            levels=levels,
        )
        levels.blocks.append(HeteroBlock({"": block.num_src}, {"": block.num_dst}, {UNNAMED: block}, layer - 1, levels))
    edge_index = torch.stack([ints(new[source[e]] for e in pruned.edges), ints(new[target[e]] for e in pruned.edges)])
    values: dict[str, Any] = {
        "edge_index": edge_index,
        "e_id": batch.e_id[pruned.edges],
        "n_id": batch.n_id[pruned.nodes],
        "num_sampled_nodes": pruned.hops,
        "num_sampled_edges": pruned.edge_hops,
        "num_nodes": len(pruned.nodes),
        "batch_size": batch.batch_size,
        "input_id": batch.input_id,
    }
    for name, value in batch:
        if isinstance(value, torch.Tensor) and name not in values:
            if value.size(0) == len(source):
                values[name] = value[pruned.edges]
            else:
                rows = value[pruned.nodes]
                values[name] = torch.where(loaded.view(-1, *[1] * (rows.dim() - 1)), rows, torch.zeros_like(rows))
    return values, levels


def ints(values: Any) -> torch.Tensor:
    return torch.tensor([int(value) for value in values], dtype=torch.int64)


class History:
    """The decisions of one history over dictionaries: policy "gradient", lag 0, and a ring of slots."""

    def __init__(self, p_grad: float, t_stale: float, n_bytes: int) -> None:
        self.closed = False
        self.p_grad, self.t_stale = p_grad, t_stale
        self.buffer = torch.full((n_bytes,), 0xFF, dtype=torch.uint8)  # bytes of NaN: what was never written is seen
        self.entries: dict[tuple[int, int], tuple[int, int]] = {}  # slot and iteration
        self.row_bytes = self.cursor = 0
        self.nodes: dict[int, tuple[list[list[int]], list[list[int]]]] = {}
        self.updates: list[int] = []
        self.skipped: list[int] = []
        self.norms: list[list[tuple[list[float], list[float]]]] = []
        self.hits: list[list[tuple[int, int, int]]] = []  # layer, node, age

    def lookup(self, i: int) -> Lookup:
        def find(layer: int, node: int) -> int:
            slot, admitted = self.entries.get((layer, node), (-1, -1))
            return slot if slot >= 0 and i - admitted <= self.t_stale else -1

        return find

    def pruned(self, i: int, n_id: list[int], pruned: Pruned) -> None:
        layers = range(1, len(pruned.tables))
        hits = [[n_id[row] for row in pruned.tables[at] if row in pruned.hits[at]] for at in layers]
        self.nodes[i] = ([[n_id[row] for row in pruned.computed[at]] for at in layers], hits)
        self.hits.append(
            [(at, n, i - self.entries[at, n][1]) for at, some in zip(layers, hits, strict=True) for n in some]
        )

    def history_buffer(self) -> torch.Tensor:
        return self.buffer

    def history_skip(self, index: int) -> None:
        self.skipped.append(index)

    def history_update(self, index: int, row_bytes: int, layers: Any) -> Any:
        assert self.row_bytes in (0, row_bytes)
        self.row_bytes = row_bytes
        self.updates.append(index)
        self.norms.append([(c.tolist(), h.tolist()) for c, h in layers])
        assert all(norm.dtype == torch.float32 and norm.device.type == "cpu" for pair in layers for norm in pair)
        result = []
        for layer, (norms, hit_norms) in enumerate(layers, start=1):
            nodes, hits = (some[layer - 1] for some in self.nodes[index])
            if not norms.numel() and not hit_norms.numel():  # nothing is to be judged
                result.append([])
                continue
            assert len(norms) == len(nodes)
            assert len(hit_norms) == len(hits)
            place = {node: p for p, node in reversed(list(enumerate(nodes)))}  # the first of a repeated seed
            finite = sorted((float(norms[p]), p) for p in place.values() if math.isfinite(norms[p]))
            count = math.floor(self.p_grad * len(place) + 0.5)
            chosen = {p for _, p in finite[:count]}
            threshold = math.inf if count >= len(place) else finite[count - 1][0] if 0 < count <= len(finite) else -1.0
            for node, p in place.items():
                if p not in chosen:
                    self.entries.pop((layer, node), None)
            for node, norm in zip(hits, hit_norms.tolist(), strict=True):
                if not norm <= threshold:
                    self.entries.pop((layer, node), None)
            result.append([(p, self.admit(layer, nodes[p], index)) for p in sorted(chosen)])
        return [(ints(p for p, _ in some), ints(s for _, s in some)) for some in result]

    def admit(self, layer: int, node: int, index: int) -> int:
        slots = self.buffer.numel() // self.row_bytes
        slot = self.cursor % slots
        self.cursor += 1
        for key, (other, _) in list(self.entries.items()):
            if other == slot:
                del self.entries[key]
        self.entries[layer, node] = (slot, index)
        return slot

    def history_stats(self) -> dict[str, Any]:
        used = min(self.cursor * self.row_bytes, self.buffer.numel())
        return {"bytes": self.buffer.numel(), "embedding_bytes": used, "row_bytes": self.row_bytes}

    def history_forecast(self, epoch: int, done: int, kept: Any) -> list[int]:
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Figures of the loader: it has a history."""
        return {"memory": {"history": 1}}

    def history_bound(self, stale: int) -> None:
        self.t_stale = min(self.t_stale, stale)

    def history_save(self) -> bytes:
        return pickle.dumps((self.entries, self.row_bytes, self.cursor, len(self.hits)))

    def history_restore(self, state: bytes) -> None:
        self.entries, self.row_bytes, self.cursor, iterations = pickle.loads(state)
        self.hits = [[] for _ in range(iterations)]


class FakeLoader:
    """Plain batches of a loader, pruned here, handed over as the contract with a history says."""

    def __init__(self, loader: Loader, history: Any, n_bytes: int = 1 << 20, probe_every: int = 0) -> None:
        s = history._entries.settings
        self.plain, self.history, self.probe_every = loader, history, probe_every
        self.native = History(s.p_grad, s.t_stale.count, n_bytes)
        self.on = s.p_grad > 0 and s.t_stale.count > 0
        self.start = s.start.count
        self.pruned: list[Pruned] = []
        history._steps.bind(self, loader._engine.request.hops)

    def rank(self, *, take: bool) -> list[int] | None:
        return None

    def layout(self) -> Layout:
        return self.plain._engine.layout()

    def upcoming(self) -> tuple[int, int]:
        return 0, 0

    def rewind(self) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        native = self.native
        training = self.history._steps.begin_epoch()
        for plain in self.plain:
            i = len(native.hits)
            if not training or not self.on or i < self.start:
                if training:
                    native.hits.append([])
                self.history._steps.hand_over(None)
                yield plain
                continue
            probing = self.probe_every > 0 and i % self.probe_every == self.probe_every - 1
            find = native.lookup(i)
            pruned = prune(plain, (lambda *_: -1) if probing else find)
            self.pruned.append(pruned)
            native.pruned(i, plain.n_id.tolist(), pruned)
            values, levels = make(plain, pruned, i)
            if probing:
                self.probe(i, levels, values["n_id"].tolist(), find)
            remember(values["edge_index"], Known(values["edge_index"], None, None, levels=levels))
            batch = Batch(**values)
            batch.levels = levels
            self.history._steps.hand_over(levels)
            yield batch

    def probe(self, i: int, levels: Levels, n_id: list[int], find: Lookup) -> None:
        levels.probe, levels.probe_slot, levels.probe_age = [None], [None], [None]
        for level in range(1, levels.num_layers):
            found = [
                (p, n_id[row]) for p, row in enumerate(levels.nodes[level].tolist()) if find(level, n_id[row]) >= 0
            ]
            levels.probe.append(ints(p for p, _ in found))
            levels.probe_slot.append(ints(find(level, node) for _, node in found))
            levels.probe_age.append(ints(i - self.native.entries[level, node][1] for _, node in found))


def slots_view(native: Any, row_bytes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    raw = native.history_buffer()
    return raw[: raw.numel() // row_bytes * row_bytes].view(dtype).view(-1, row_bytes // dtype.itemsize)


Namespace = types.SimpleNamespace
