"""What `freshgo.infer` moves for each layer of a SAGE, against reading each input row and writing each output row once.

    python bench/loader/infer.py DIR [--nodes 200000] [--edges 1200000] [--width 128] [--hidden 128] [--share 0.1]

The graph has skewed sources (N * u**3) and uniform targets within blocks of a thousand nodes, four times in five, whose
ids are shuffled. `memory` is the given share of the features, or the smallest that works. The plain store is measured,
and one that is relaid out by communities. The time is compared with that of the model's products alone, over as many
rows in memory, and of the bytes that are moved alone, as this disk writes and reads a file in sequence. Neighbour lists
count as moved, and not as what must be. In the end a SAGE that is written by hand runs beside PyG's of the same
parameters: the ratio is that of the processor times, each the least of --rounds runs by turns. DIR should be on a real disk. Beside other processes --threads 1 is fairer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch_geometric.nn import GraphSAGE

from freshgo import Store, convert, infer
from freshgo._infer.planning import plan_of
from freshgo._infer.run import Task
from freshgo._infer.streamed import Streamed
from freshgo.errors import BudgetError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed


def generated(nodes: int, edges: int, width: int, shuffled: bool = True) -> dict[str, Any]:
    gen = torch.Generator().manual_seed(0)
    target = torch.randint(nodes, (edges,), generator=gen)
    far = skewed.ids(nodes, edges, gen)
    near = (target // 1000 * 1000 + torch.randint(1000, (edges,), generator=gen)).clamp_(max=nodes - 1)
    source = torch.where(torch.rand(edges, generator=gen) < 0.8, near, far)
    named = torch.randperm(nodes, generator=gen) if shuffled else torch.arange(nodes)
    x = torch.empty(nodes, width).normal_(generator=gen)
    return {"x": x, "edge_index": named[torch.stack([source, target])], "num_nodes": nodes}


def rate(folder: Path, n_bytes: int = 128 << 20) -> float:
    """Bytes a second that are written to a file and made durable, and read from it again."""
    path, piece = folder / "rate", os.urandom(4 << 20)
    start = time.perf_counter()
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for _ in range(0, n_bytes, len(piece)):
            os.write(file, piece)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(file, 0, os.SEEK_SET)
        while os.read(file, len(piece)):
            pass
    finally:
        os.close(file)
        path.unlink()
    return 2 * n_bytes / (time.perf_counter() - start)


def products(model: Any, nodes: int) -> tuple[float, float]:
    """Seconds, and seconds of the processor, of the model's products for all nodes, in batches."""
    taken = used = 0.0
    with torch.no_grad():
        for conv in model.convs:
            rows = torch.randn(4096, conv.in_channels)
            start, before = time.perf_counter(), time.process_time()
            for _ in range(0, nodes, 4096):
                conv.lin_l(rows) + conv.lin_r(rows)
            taken, used = taken + time.perf_counter() - start, used + time.process_time() - before
    return taken, used


def measured(path: Path, work: Path, model: Any, memory: int) -> int:
    """Print what a model moves and takes, and return the memory that it has."""
    with Store(path) as store:
        how = {"tensor": "x", "batch_size": 4096, "device": None, "dtype": torch.float32, "report": None}
        plan = plan_of(model, None, store, tensor="x")
        while True:
            start, before = time.perf_counter(), time.process_time()
            try:
                run = Streamed(Task(store, plan, model, nodes=None, memory=memory, **how), work)
                with run.run:
                    run.complete()
                break
            except BudgetError as error:
                memory = error.minimum
        taken, used, nodes = time.perf_counter() - start, time.process_time() - before, store.num_nodes
    alone, alone_used = products(model, nodes)
    moved = {step: of.read + of.written for step, of in run.moved.items()}
    lists = run.moved_before.read + moved.pop(("places", 0), 0)
    bytes_moved = lists + sum(moved.values())
    disk = rate(path.parent)
    least = alone + bytes_moved / disk
    print(
        f"{path.name}: {memory / 2**20:.0f} MiB, {taken:.2f} s: {taken / least:.2f} x (products of {alone:.2f} s + "
        f"{bytes_moved / 1e6:.0f} MB at {disk / 1e6:.0f} MB/s); {used:.2f} s of processor, products {alone_used:.2f}"
    )
    all_moved = all_least = 0
    for place, conv in enumerate(model.convs):
        least = 4 * nodes * (conv.in_channels + conv.out_channels)
        of_layer = sum(n for step, n in moved.items() if step[1] == place)
        stage = run.division.stages[place]
        form = "mapped first" if stage.parts.first else "added up first"
        form += ", by columns" if stage.by_columns else ""
        said = f"{of_layer / 1e6:8.1f} MB of {least / 1e6:8.1f}: {of_layer / least:.2f} x"
        print(f"  layer {place + 1}: {said} ({form}, {stage.slices} slices)")
        all_moved, all_least = all_moved + of_layer, all_least + least
    print(f"  lists: {lists / 1e6:.1f} MB, in the order of the nodes and in that of the rows")
    print(f"  all: {(all_moved + lists) / all_least:.2f} x")
    return memory


class Written(torch.nn.Module):
    """The layers of a GraphSAGE as users write them."""

    def __init__(self, basic: GraphSAGE) -> None:
        super().__init__()
        self.layers = basic.convs

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.nn.functional.relu(layer(x, edge_index))
            x = torch.nn.functional.dropout(x, p=0.5, training=self.training)
        out: torch.Tensor = self.layers[-1](x, edge_index)
        return out


def compared(path: Path, work: Path, model: GraphSAGE, memory: int, rounds: int) -> None:
    """Print what a model that is written by hand takes against PyG's."""
    models = {"BasicGNN": model, "by hand": Written(model).eval()}
    taken: dict[str, list[float]] = {name: [] for name in models}
    made = {}
    for _ in range(rounds):
        for name, of in models.items():
            before = time.process_time()
            out = infer(of, path, work / f"{name}.npy", memory=memory, batch_size=4096, overwrite=True, progress=False)
            taken[name].append(time.process_time() - before)
            made[name] = out.read_bytes()
            out.unlink()
    assert made["BasicGNN"] == made["by hand"]  # the same rows, bit for bit
    basic, hand = (min(taken[name]) for name in models)
    print(f"{path.name}: by hand {hand:.2f} s of processor, BasicGNN {basic:.2f}: {hand / basic:.3f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=1_200_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = GraphSAGE(args.width, args.hidden, 3, args.classes).eval()
    try:
        for name, how in (("plain", {}), ("relaid", {"relayout": "community"})):
            convert(generated(args.nodes, args.edges, args.width), args.dir / name, progress=False, **how).close()
            memory = int(args.share * 4 * args.nodes * args.width)
            compared(
                args.dir / name,
                args.dir,
                model,
                measured(args.dir / name, args.dir / "work", model, memory),
                args.rounds,
            )
    finally:
        for name in ("plain", "relaid"):
            shutil.rmtree(args.dir / name, ignore_errors=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
