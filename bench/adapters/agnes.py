"""AGNES (Jang et al., KDD 2026), by its own functions for sampling and gathering in hyperbatches of 16 batches.

It is a checkout and no package: put it on PYTHONPATH. Its `lib.cpp_extension.wrapper` compiles on import and needs Boost,
oneTBB, libaio and AVX-512. Three things of the published source belong to the machine of its authors and have to be changed in
the checkout first: the path of the directory `trashcan` (block_based_gather.cpp), the store to `n_ids_index[1207]`, and the hop
after which memory is freed, 2 (block_based_sample.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from serve import Batch, Graph, serve

NAME = "AGNES, hyperbatches of 16"
BLOCK, HYPERBATCH, WORKERS = 1 << 20, 16, 2
PLACE = np.dtype([("block", "<i4"), ("unused", "<i4"), ("first", "<u8"), ("last", "<u8")])
TAIL = 16  # bytes behind the neighbours and before the end of a block; the places of lists grow down from there


def obstacle() -> str | None:
    """Say what is missing."""
    try:
        found = find_spec("lib.cpp_extension.wrapper")
    except ModuleNotFoundError:
        found = None
    return None if found else "there is no lib.cpp_extension.wrapper: put a checkout of AGNES on PYTHONPATH"


def write_blocks(graph: Graph, stem: Path) -> None:
    """Write the topology as AGNES reads it: blocks of whole neighbour lists, their index, and four numbers."""
    begins, degree = graph.indptr, np.diff(graph.indptr)
    if degree.max(initial=0) > (BLOCK - TAIL - 8) // 8:
        raise SystemExit(f"AGNES samples the first block of a list alone, and one has {degree.max():,} neighbours")
    needs, places, node = np.cumsum(8 * degree + 8), [], 0
    with stem.with_suffix(".graphblock").open("wb") as blocks:
        while node < len(degree):
            before = needs[node - 1] if node else 0
            end = int(np.searchsorted(needs, before + BLOCK - TAIL, side="right"))
            block = np.zeros(BLOCK, np.uint8)
            lists = graph.indices[begins[node] : begins[end]].astype("<u8")
            block[: 8 * len(lists)] = lists.view(np.uint8)
            slots = np.stack([degree[node:end], 8 * (begins[node:end] - begins[node])], 1).astype("<i4")
            at = BLOCK - TAIL + 8
            block[at - 8 * len(slots) : at] = slots[::-1].copy().view(np.uint8).ravel()
            blocks.write(block.tobytes())
            places.append((len(places), 0, node, end - 1))
            node = end
    np.array(places, PLACE).tofile(stem.with_suffix(".graphindex"))
    about = np.array([(len(places), 0, len(degree), len(graph.indices))], "<i4,<i4,<u8,<u8")
    about.tofile(stem.with_suffix(".graphinfo"))


def make(graph: Graph) -> Callable[[], Iterator[Batch]]:
    """Write its files and compile it."""
    import torch
    from lib.cpp_extension.wrapper import sample

    columns, nodes = graph.x.shape[1], len(graph.indptr) - 1
    if BLOCK % (4 * columns) or len(graph.seeds) % graph.batch_size:
        raise SystemExit(f"AGNES needs full batches, and rows that divide {BLOCK} bytes: {columns} columns do not")
    write_blocks(graph, graph.folder / "agnes")
    features = graph.folder / f"features{columns}.dat"
    with features.open("wb") as raw:
        for part in range(0, nodes, 1 << 16):
            raw.write(graph.x[part : part + (1 << 16)].tobytes())
        raw.write(bytes(-raw.tell() % BLOCK))
    folder, room = f"{graph.folder}/", max(1, graph.cache >> 20)
    seeds, random = torch.from_numpy(graph.seeds), torch.Generator().manual_seed(0)

    def epoch() -> Iterator[Batch]:
        shuffled = seeds[torch.randperm(len(seeds), generator=random)]
        for hyperbatch in shuffled.split(HYPERBATCH * graph.batch_size):
            batches = list(hyperbatch.split(graph.batch_size))
            *_, n_ids = sample.bb_sample(folder, batches, graph.num_neighbors, graph.batch_size, "agnes", room, WORKERS)
            sample.bb_gather(n_ids[-1], nodes, columns, room, WORKERS, folder)
            sample.allocate_global_buffer()
            for number, n_id in enumerate(n_ids[-1]):
                yield n_id, sample.gather_sagnn(str(features), n_id, columns, number, WORKERS)
            sample.free_global_buffer()

    return epoch


if __name__ == "__main__":
    serve(NAME, obstacle, make)
