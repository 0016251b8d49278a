"""What a relayout costs: seconds in several budgets, beside a copy of the same files with direct I/O, interleaved in one run.

    python bench/relayout/cost.py FOLDER [--nodes 4000000] [--edges 24000000] [--width 128] [--rounds 3]

FOLDER is where the store and its copies are made and removed: three times 2.3 GB by default. It must be on the disk to measure.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import freshgo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed


def copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for file in source.iterdir():
        size = file.stat().st_size
        direct = ["iflag=direct", "oflag=direct"] if size and size % 4096 == 0 else []
        command = ["dd", f"if={file}", f"of={target / file.name}", "bs=4M", "conv=fsync", "status=none", *direct]
        subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=24_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    gen = torch.Generator().manual_seed(0)
    data = {
        "edge_index": skewed.edges(args.nodes, args.edges, gen),
        "x": torch.empty(args.nodes, args.width).normal_(generator=gen),
        "num_nodes": args.nodes,
    }
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        work = Path(folder)
        start = time.perf_counter()
        store = freshgo.convert(data, work / "g", progress=False)
        print(f"converting: {time.perf_counter() - start:.1f} s")
        seeds = torch.randperm(args.nodes, generator=gen)[: 16 * 1024]
        start = time.perf_counter()
        scores = freshgo.hotness(store, "expected", num_neighbors=[10, 10], input_nodes=seeds, memory="1GiB")
        print(f"expected visits: {time.perf_counter() - start:.1f} s, {int((scores > 0).sum()):,} nodes have a score")

        def relayout(order: str, memory: str) -> None:
            options = {"order": order, "hotness": scores, "memory": memory, "overwrite": True, "progress": False}
            freshgo.relayout(store, work / "r", **options).close()

        ways: dict[str, Callable[[], None]] = {"copy with dd": lambda: copy(work / "g", work / "c")}
        for order, memory in (
            ("hot", "4GiB"),
            ("hot+community", "4GiB"),
            ("hot+community", "1GiB"),
            ("hot+community", "256MiB"),
            ("hot+community", "64MiB"),
        ):
            ways[f"{order}, {memory}"] = lambda order=order, memory=memory: relayout(order, memory)  # type: ignore[misc]
        seconds: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            for name, run in ways.items():
                start = time.perf_counter()
                run()
                seconds.setdefault(name, []).append(time.perf_counter() - start)
        size = sum(file.stat().st_size for file in (work / "g").iterdir())
        base = statistics.median(seconds["copy with dd"])
        print(f"a store of {size / 1e9:.2f} GB, {args.rounds} rounds")
        for name, s in seconds.items():
            median = statistics.median(s)
            print(
                f"  {name:24} median {median:6.2f} s (min {min(s):.2f}, max {max(s):.2f}), {median / base:.1f} copies"
            )
        store.close()


if __name__ == "__main__":
    main()
