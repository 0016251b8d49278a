"""Two ranks with one loader (share="host") against two with a loader each, of the same memory together.

    python bench/loader/share.py [--nodes 200000] [--memory 64] [--rounds 3] [--only core|memory] [--directory DIR]
                                 [--disk 20000,200]

Out of core it compares the bytes that are read from the device and the seconds of an epoch; in memory, with [15, 10, 5],
the processor time of all processes, which the hand-over adds to. Rounds of both kinds alternate, each over the epochs
after the first, and take some ten seconds; medians are printed. Every batch's rows are compared with the features.
With --disk the kernel lets the ranks and their server have no more requests and megabytes a second than these, where
this machine has control groups for disks.
"""

import argparse
import contextlib
import os
import queue
import resource
import statistics
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import limited
import numpy as np
import torch
import torch.distributed as dist

from freshgo import Loader, Ranks, convert

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

WIDTH, RANKS, EPOCHS = 128, 2, 2


def generated(num_nodes: int) -> dict[str, object]:
    """A graph whose nodes are drawn with very different frequencies."""
    edge_index = skewed.edges(num_nodes, num_nodes * 15, torch.Generator().manual_seed(0))
    x = torch.arange(num_nodes, dtype=torch.float32).unsqueeze(1).repeat(1, WIDTH)
    return {"edge_index": edge_index, "x": x, "num_nodes": num_nodes}


def server_seconds() -> float:
    """The processor time of the process that serves this one, if there is one."""
    total = 0.0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"freshgo._host_loader.server" in (entry / "cmdline").read_bytes():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rank_of(
    rank: int,
    file: str,
    out,
    step,
    share: bool,
    group: limited.Group | None,
    path: Path,
    seeds: int,
    fanouts: list[int],
    options: dict[str, object],
) -> None:
    if group is not None:
        group.enter()  # and with it the server, which a rank starts
    torch.set_num_threads(1)
    os.environ["LOCAL_WORLD_SIZE"] = str(RANKS)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=RANKS)
    memory = options["memory"] if share else options["memory"] // RANKS
    threads = 2 if share else 1
    options = {**options, "memory": memory, "num_workers": threads, "shuffle": True}
    inputs = torch.arange(seeds)
    with Loader(
        path, fanouts, inputs, batch_size=128, ranks=Ranks(share="host") if share else None, **options
    ) as loader:
        for epoch in range(1 + EPOCHS):
            if epoch == 1:
                dist.barrier()
                before, began, used = (
                    loader.stats(),
                    time.monotonic(),
                    own_seconds() + share * (rank == 0) * server_seconds(),
                )
            for batch in loader:
                if epoch == 0:
                    assert torch.equal(batch.x[:, 0].long(), batch.n_id)
                step.wait()  # as a step of DDP; while ranks wait in gloo's barrier, its threads take processor time
        dist.barrier()
        seconds = time.monotonic() - began
        used = own_seconds() + share * (rank == 0) * server_seconds() - used
        counted = rank == 0 or not share  # the server's figures are those of both
        n_bytes = (loader.stats()["bytes_read"] - before["bytes_read"]) * counted
        out.put((n_bytes, seconds, used))
        dist.barrier()
    dist.destroy_process_group()


def measured(share: bool, *arguments: object) -> tuple[float, float, float]:
    """Bytes, seconds and seconds of processors."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        out, step = context.Queue(), context.Barrier(RANKS)
        ranks = [
            context.Process(target=rank_of, args=(rank, f"{directory}/group", out, step, share, *arguments))
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        found = []
        while len(found) < RANKS:
            with contextlib.suppress(queue.Empty):
                found.append(out.get(timeout=1))
            if any(process.exitcode for process in ranks):
                for process in ranks:
                    process.terminate()
                raise SystemExit("a rank has failed")
        for process in ranks:
            process.join()
    n_bytes, seconds, used = zip(*found, strict=True)
    return sum(n_bytes), max(seconds), sum(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--memory", type=int, default=64, help="MiB, of both ranks together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["core", "memory"])
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--disk", type=limited.rates, metavar="REQUESTS,MB", help="at most this a second")
    args = parser.parse_args()
    path = args.directory / f"share-{args.nodes}.freshgo"
    convert(generated(args.nodes), path, overwrite=True, progress=False).close()
    group = None
    if args.disk:
        group = limited.make(f"freshgo-bench-{os.getpid()}")
        group.slow(path, args.disk)
    try:
        compare(path, group, args)
    finally:
        if group is not None:
            group.remove()


def compare(path: Path, group: limited.Group | None, args: argparse.Namespace) -> None:
    cases = {
        "out of core, [10, 5]": (20_000, [10, 5], {"memory": args.memory << 20}),
        "in memory, [15, 10, 5]": (30_000, [15, 10, 5], {"memory": 1 << 30, "cache": "degree"}),
    }
    for name, (seeds, fanouts, options) in cases.items():
        if args.only is not None and args.only not in name:
            continue
        found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
        for _ in range(args.rounds):
            for share in (False, True):
                found[share].append(measured(share, group, path, seeds, fanouts, options))
        own, shared = (np.array(found[share]) for share in (False, True))
        for i, (what, unit) in enumerate((("device", "MB"), ("epochs", "s"), ("processors", "s"))):
            scale = 1e6 if i == 0 else 1
            ratios = shared[:, i] / np.maximum(own[:, i], 1e-9)
            ratio = (
                f"{statistics.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
                if own[:, i].any()
                else "-"
            )
            print(
                f"{name}: {what} {statistics.median(own[:, i]) / scale:.2f} {unit} with loaders of their own, "
                f"{statistics.median(shared[:, i]) / scale:.2f} {unit} with one; ratio {ratio}"
            )


if __name__ == "__main__":
    main()
