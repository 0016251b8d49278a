"""What a step costs whose ranks share a table (``Embedding(share="host")``), against that of one rank with a table of its own.

    python bench/embeddings/ranks.py [--nodes 200000] [--columns 64] [--batches 24] [--ranks 2] [--directory DIR]

Batches of [10, 5] and 512 nodes of a graph with skewed sources look all rows up, with the mean of their squares as loss and RowAdagrad.
After an epoch that is not counted, one without steps and one with them: the processor time of `step()` on the thread of a rank, and of the
process that serves the ranks, which applies the rule, without what it takes for batches alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import get_context

from freshgo import Loader, Ranks, convert, nn, optim

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "loader"))
from share import generated, server_seconds


def trained(rank: int, world: int, folder: str, out: Any, graph: Path, columns: int, batches: int, nodes: int) -> None:
    """Train as one of the ranks, and put what a step takes in milliseconds: rows, on its thread, by the clock, in the server."""
    torch.set_num_threads(1)
    several = world > 1
    if several:
        os.environ["LOCAL_WORLD_SIZE"] = str(world)
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
    sizes = {"num_embeddings": nodes, "embedding_dim": columns}
    emb = nn.Embedding(f"{folder}/table", share="host" if several else None, **sizes)  # type: ignore[arg-type]
    optimizer = optim.RowAdagrad(emb.tables(), lr=0.05)
    seeds = torch.arange(512 * batches * world)
    options: dict[str, Any] = {"batch_size": 512, "shuffle": True, "memory": "256MiB", "embeddings": emb}
    with Loader(graph, [10, 5], seeds, ranks=Ranks(share="host") if several else None, **options) as loader:
        served = {}
        for epoch in ("warm", "without steps", "with steps"):
            thread = clock = 0.0
            rows, before = 0, server_seconds() if several else 0.0
            for batch in loader:
                rows += batch.n_id.numel()
                emb(batch.n_id).pow(2).mean().backward()
                if epoch == "without steps":
                    optimizer.zero_grad()
                    continue
                began, used = time.perf_counter(), time.thread_time()
                optimizer.step()
                clock, thread = clock + time.perf_counter() - began, thread + time.thread_time() - used
                optimizer.zero_grad()
            if several:
                dist.barrier()
                served[epoch] = server_seconds() - before
                dist.barrier()
        server = served["with steps"] - served["without steps"] if several else 0.0
    out.put((rows / batches, *(1e3 * seconds / batches for seconds in (thread, clock, server))))
    if several:
        dist.barrier()
    emb.close()
    if several:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    context = get_context("spawn")
    with tempfile.TemporaryDirectory(dir=args.directory) as folder:
        graph = Path(folder) / "graph.freshgo"
        data = generated(args.nodes)
        del data["x"]
        convert(data, graph, progress=False).close()
        for world in (1, args.ranks):
            place = Path(folder) / f"{world}"
            place.mkdir()
            out = context.Queue()
            shape = (graph, args.columns, args.batches, args.nodes)
            ranks = [
                context.Process(target=trained, args=(rank, world, str(place), out, *shape)) for rank in range(world)
            ]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
                if process.exitcode:
                    raise SystemExit(f"a rank ended with {process.exitcode}")
            for rows, thread, clock, server in (out.get() for _ in ranks):
                print(
                    f"{world} ranks: {rows:,.0f} rows a batch; a step takes {thread:.1f} ms of its thread, {clock:.1f} by the "
                    f"clock, and {server:.1f} ms of the server"
                )


if __name__ == "__main__":
    main()
