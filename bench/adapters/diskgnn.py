"""DiskGNN (Liu et al., SIGMOD 2025): samples once, packs what each batch lacks in the cache, and replays these batches.

Its package `offgs` is compiled from source beside DGL; its operators for CUDA (which rows are cached) are replaced by
PyTorch's, so that it runs without a GPU. What it prepares before the first epoch is the `seconds` that it is ready after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
from serve import Batch, Graph, serve

NAME = "DiskGNN, one fixed sample"


def obstacle() -> str | None:
    """Say what is missing."""
    missing = [name for name in ("offgs", "dgl") if not find_spec(name)]
    return f"there is no {' and no '.join(missing)}: build DiskGNN from its source" if missing else None


def make(graph: Graph) -> Callable[[], Iterator[Batch]]:
    """Sample, choose the cached rows, and pack."""
    import dgl
    import offgs  # noqa: F401  (registers the operators)
    import torch
    from dgl.dataloading import DataLoader, NeighborSampler

    ops, columns, nodes = torch.ops.offgs, graph.x.shape[1], len(graph.indptr) - 1
    raw = graph.folder / "x.bin"  # rows without a header
    with raw.open("wb") as file:
        for part in range(0, nodes, 1 << 16):
            file.write(np.ascontiguousarray(graph.x[part : part + (1 << 16)]).tobytes())
        file.write(bytes(8192))  # a row is read with the page behind it
    parts = tuple(map(torch.from_numpy, (graph.indptr, graph.indices, np.empty(0, np.int64))))
    sampler = NeighborSampler(list(reversed(graph.num_neighbors)))  # its last is that of the input nodes
    batches = DataLoader(
        dgl.graph(("csc", parts), num_nodes=nodes),
        torch.from_numpy(graph.seeds),
        sampler,
        batch_size=graph.batch_size,
        shuffle=True,
        num_workers=0,
    )
    inputs = [input_nodes for input_nodes, _outputs, _blocks in batches]
    counts = torch.zeros(nodes, dtype=torch.int64)
    for input_nodes in inputs:
        counts[input_nodes] += 1
    cached = torch.argsort(counts, descending=True)[: graph.cache // (4 * columns)]
    place = torch.full((nodes,), -1, dtype=torch.int64)
    place[cached] = torch.arange(len(cached))
    cache = torch.from_numpy(graph.x[cached.sort()[0].numpy()])[cached.argsort().argsort()]
    packed = []
    for number, input_nodes in enumerate(inputs):
        slot = place[input_nodes]
        cold = slot < 0
        path = str(graph.folder / f"packed-{number}.bin")
        ops._CAPI_SaveFeats(path, ops._CAPI_GatherPReadDirect(str(raw), input_nodes[cold], columns))
        packed.append((path, cold.nonzero().flatten(), (~cold).nonzero().flatten(), slot[~cold]))

    def epoch() -> Iterator[Batch]:
        for number in torch.randperm(len(inputs)).tolist():
            path, cold, hot, slot = packed[number]
            x = torch.empty(len(inputs[number]), columns)
            if len(cold):
                rows = ops._CAPI_LoadFeats_Direct(path, len(cold), columns)
                x[cold] = rows
                ops._CAPI_FreeTensor(rows)
            x[hot] = cache[slot]
            yield inputs[number], x

    return epoch


if __name__ == "__main__":
    serve(NAME, obstacle, make)
