"""A graph whose topology does not fit and whose rows are narrow: what an epoch moves beside what a plan of it must.

    python bench/loader/narrow.py DIRECTORY [--nodes 20000000] [--edges 300000000] [--memory 2GiB] [--batches 64]
                                  [--fanouts 10,10] [--no-edge-id] [--disk 63000,750]

A batch touches most pages of the features and of the neighbour lists, so that reading by the page is reading almost
everything. The floor is one scan of the features, with each row that is not cached written once and read once. What
neighbour lists read is counted as moved, and is not in the floor. DIRECTORY takes three times the size of the features
and 24 bytes an edge while the graph is made; it is made once. The processor's share and the disk's are of one run. With
--disk the kernel limits the requests and megabytes of a second.
"""

import argparse
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import limited
import numpy as np
import torch

from freshgo import Loader, convert

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

WIDTH, PIECE = 32, 10_000_000
SUMS = ("packed", "misses", "filled", "bytes_read", "requests", "scratch_written", "neighbor_misses")


def make(directory: Path, nodes: int, edges: int) -> Path:
    """Edges in no order, whose sources are drawn with very different frequencies."""
    path = directory / f"narrow-{nodes}-{edges}.freshgo"
    if path.exists():
        return path
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    index = np.lib.format.open_memmap(directory / "edge_index.npy", mode="w+", dtype=np.int64, shape=(2, edges))
    for lo in range(0, edges, PIECE):
        count = min(PIECE, edges - lo)
        index[:, lo : lo + count] = skewed.edges(nodes, count, generator)
    x = np.lib.format.open_memmap(directory / "x.npy", mode="w+", dtype=np.float32, shape=(nodes, WIDTH))
    for lo in range(0, nodes, PIECE):
        x[lo : lo + PIECE] = rng.random((min(PIECE, nodes - lo), WIDTH), dtype=np.float32)
        x[lo : lo + PIECE, 0] = np.arange(lo, min(lo + PIECE, nodes))
    index.flush()
    x.flush()
    given = {"edge_index": directory / "edge_index.npy", "x": directory / "x.npy", "num_nodes": nodes}
    convert(given, path, progress=False).close()
    for name in ("edge_index.npy", "x.npy"):
        (directory / name).unlink()
    return path


def slowed(directory: Path, disk: limited.Rates, arguments: list[str]) -> int:
    """Run this program again in a control group whose disk is slow."""
    group = limited.make(f"freshgo-bench-{os.getpid()}")
    group.slow(directory, disk)
    environment = {**os.environ, "XDG_CACHE_HOME": str(directory / "cache")}  # calibrations of this disk
    try:
        command = [sys.executable, __file__, str(directory), *arguments]
        return subprocess.run(command, env=environment, preexec_fn=group.enter).returncode
    finally:
        group.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=20_000_000)
    parser.add_argument("--edges", type=int, default=300_000_000)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--batches", type=int, default=64, help="of 1024 input nodes, an epoch")
    parser.add_argument("--fanouts", default="10,10")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--no-edge-id", action="store_true", help="batches without e_id")
    parser.add_argument("--disk", type=limited.rates, metavar="REQUESTS,MB", help="at most this a second")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    args.directory.mkdir(parents=True, exist_ok=True)
    path = make(args.directory, args.nodes, args.edges)
    if args.disk:
        given = {
            "--" + k.replace("_", "-"): v for k, v in vars(args).items() if k not in ("directory", "disk", "no_edge_id")
        }
        arguments = [str(word) for pair in given.items() for word in pair] + ["--no-edge-id"] * args.no_edge_id
        sys.exit(slowed(args.directory, args.disk, arguments))
    seeds = torch.randperm(args.nodes, generator=torch.Generator().manual_seed(0))[: args.batches * 1024]
    fanouts = [int(fanout) for fanout in args.fanouts.split(",")]
    options = {"memory": args.memory, "return_edge_id": not args.no_edge_id}
    with Loader(path, fanouts, seeds, batch_size=1024, shuffle=True, **options) as loader:
        before = loader.stats()
        for epoch in range(args.epochs):
            began = time.perf_counter()
            for batch in loader:
                assert torch.equal(batch.x[:, 0], batch.n_id.float())
            seconds, after = time.perf_counter() - began, loader.stats()
            grew = {name: after[name] - before[name] for name in SUMS}
            before = after
            cold = grew["packed"] + grew["misses"] + grew["filled"]
            floor = 4 * WIDTH * (args.nodes + 2 * cold)
            moved = grew["bytes_read"] + grew["scratch_written"]
            print(
                f"epoch {epoch + 1}: {seconds:.1f} s, {moved / 1e9:.2f} GB moved by {grew['requests']:,} requests, "
                f"{moved / floor:.2f} of the floor ({floor / 1e9:.2f} GB); {cold:,} cold rows, "
                f"{grew['neighbor_misses']:,} edges of lists that were read",
                flush=True,
            )
        print(loader.plan())


if __name__ == "__main__":
    main()
