"""Rivals of the loader: its input nodes, fanouts and memory, each in a process of its own, from a cold cache.

map         the loader's own batches, with their rows taken from a memory map without readahead: all that is left of the
            memory after offsets and neighbour lists is page cache. PyG's loaders read a map like this, and sample slower.
policies    the rows that Ginex's policy (Belady for an epoch at a time, from an empty cache) and SIEVE, GraphBolt's policy,
            read at random: counted on the loader's batches, with room for rows in all that lists and batches leave.
graphbolt   GraphBolt itself, where a Python has it (bench/adapters).
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from epochs import Task, kept
from shape import PIECE
from stages import GROUP, SLACK, Stages, random_reads, stored_rows

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import limited
import others

from freshgo import Belady, Store, simulate
from freshgo._args.size import parse_size


def mapped(task: Task) -> None:
    shape, stages, seeds = task.shape, Stages(), task.seeds()
    with Store.open(task.store) as store:
        stages.begin()
        loader = task.loader(store, seeds, memory=task.memory, cache="none")
        lists = kept(loader)
        stages.end(f"map, {task.memory}: open", {"read": lists})
        file = stored_rows(store, "x", shape.owner)
        file._mmap.madvise(mmap.MADV_RANDOM)
        rows = torch.from_numpy(file)
        group = limited.Group(*json.loads(os.environ[GROUP]))
        group.limit(group.held() + parse_size("memory", task.memory) - lists + SLACK)
        count, needed = 0, 0
        stages.begin()
        for trace in itertools.islice(loader.trace(0), task.rival_batches):
            nodes = shape.part(trace, shape.owner)
            found = rows[nodes]
            assert np.array_equal(found[-1].numpy(), shape.row(nodes[-1:].numpy())[0]), "rows differ"
            count, needed = count + 1, needed + nodes.numel()
        name = {"system": "memory map", "memory": task.memory, "epoch": 1}
        stages.end(f"map, {task.memory}", random_reads(needed, shape.row_bytes), **name, batches=count, rows=needed)
        loader.close()


def room(loader: Any, memory: str) -> int:
    """Return the bytes that offsets, neighbour lists and batches leave of the loader's memory."""
    working = (loader.plan().data.get("split") or {}).get("working_set", 0)
    return parse_size("memory", memory) - kept(loader) - int(working)


def policies(task: Task) -> None:
    shape = task.shape
    with Store.open(task.store) as store, task.loader(store, task.seeds(), memory=task.memory) as loader:
        rows = room(loader, task.memory) // shape.row_bytes
        trace = [shape.part(of, shape.owner) for number in range(task.epochs) for of in loader.trace(number)]
    ginex = Belady(superbatch=task.batches, carry_over=False, lookahead=False)
    for system, policy in (("Ginex", ginex), ("SIEVE", "sieve")):
        done = simulate(trace, policy=policy, capacity=rows, num_nodes=shape.nodes)
        for number, reads in enumerate(done.reads_per_batch.split(task.batches), 1):
            name = {"system": f"{system}, counted", "memory": task.memory, "epoch": number}
            floor = random_reads(int(reads.sum()), shape.row_bytes)
            line = {"stage": f"{system}, epoch {number}", "floor": floor, **name, "batches": len(reads)}
            print(json.dumps(line), flush=True)


def write_graphbolt(task: Task) -> None:
    """Write the graph as the adapter reads it; GraphBolt caches rows in what its lists, of int64, leave of the memory."""
    shape = task.shape
    seeds = task.seeds()
    seeds = (seeds[1] if shape.owner else seeds)[: task.rival_batches * task.batch_size]
    first = dict(zip(shape.counts, itertools.accumulate(shape.counts.values(), initial=0), strict=False))
    counts = torch.tensor([relation.edges.count for relation in shape.relations.values()])
    ends, at = torch.empty(2, int(counts.sum()), dtype=torch.int64), 0
    for name, relation in shape.relations.items():
        added = np.array([[first[name[0]], first[name[2]]] if name else [0, 0]]).T
        for lo in range(0, relation.edges.count, PIECE):
            number = np.arange(lo, min(lo + PIECE, relation.edges.count))
            ends[:, at : at + len(number)] = torch.from_numpy(np.stack(relation.edge(number)) + added)
            at += len(number)
    typed: dict[str, Any] = {}
    if shape.owner:
        names = [":".join(name) for name in shape.relations]
        typed["types"] = {"nodes": shape.counts, "edges": names, "owner": shape.owner}
        typed["edge_types"] = torch.arange(len(counts), dtype=torch.uint8).repeat_interleave(counts)
    rows, check = task.folder / "x.npy", (torch.arange(shape.nodes) % 2048).float()
    shape.write_rows(rows, 0, shape.nodes)
    lists = 8 * (ends.shape[1] + sum(shape.counts.values()) + 1) + (ends.shape[1] if typed else 0)
    cache = max(0, parse_size("memory", task.memory) - lists - check.nbytes)
    others.write(graph_of(task), ends, rows, check, seeds, shape.fanouts, task.batch_size, cache, **typed)
    rows.unlink()


def graph_of(task: Task) -> Path:
    return task.folder / "graphbolt"


def graphbolt(task: Task) -> None:
    other = others.open_other("graphbolt", task.graphbolt, graph_of(task))
    turn = other.epoch()
    other.close()
    name = {"system": other.name, "memory": task.memory, "epoch": 1, "batches": turn.batches, "rows": turn.rows}
    moved = {"seconds": turn.seconds, "processor": turn.processor}
    moved |= {"read_bytes": turn.read_bytes, "write_bytes": turn.write_bytes}
    floor = random_reads(turn.rows, task.shape.row_bytes)
    print(json.dumps({"stage": f"GraphBolt, {task.memory}", "floor": floor, **moved, **name}), flush=True)


RIVALS: dict[str, Callable[[Task], None]] = {"map": mapped, "policies": policies, "graphbolt": graphbolt}
