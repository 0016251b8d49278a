"""A graph in the shape of papers100M, whole or a fraction of it, from its conversion to its second epoch, beside what the disk needs.

    python bench/scale/papers.py DIRECTORY --fraction 0.2 --memory 1200MiB [--memory 600MiB] [--batches 128] [--unsorted]

A whole graph has 111M nodes and 0.8G edges: edge e ends at a node by a formula of e, so that edges sorted by target need no sorting,
and begins at nodes that are drawn with very different frequencies and lie anywhere. Rows are float16, their first columns say whose they
are. DIRECTORY takes the arrays and the store at once, 40 GB for a whole graph of 64 columns; the arrays go when the store is there, which
is kept for further runs, and a scratch file of up to three times the features comes then.

Conversion, and then the loader with each --memory, run in processes of their own whose memory the kernel limits, pages that it caches
included, after the store has been dropped from its cache. Every batch is checked: some of its rows and of its edges. Each stage has its
seconds, the bytes that it read and wrote, the loader's requests, peak resident memory and processor time. Beside them stands its floor,
at the disk's rates of this run: for conversion, reading the arrays and writing the store; for opening, reading what is kept; for the
first batch, a random read of each row that is not in memory; for an epoch, one scan of the features with each cold row written and read
once. --json FILE has all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.data  # noqa: F401 - a loader imports it, which takes seconds

from freshgo import Loader, Store, convert
from freshgo._args.size import parse_size

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "loader"))
import limited

NODES, EDGES, SEEDS = 111_059_956, 800_000_000, 1_207_179
FANOUTS, BATCH_SIZE = [15, 10, 5], 1024
PIECE = 4_000_000
"""Edges that are made at a time."""
PIECE_BYTES = 1 << 29
"""Random numbers that rows are made from at a time."""
GROUP = 64
"""Nodes whose in-degrees repeat: between none and some tens."""
CONVERSION = "1GiB"
BESIDE = 900 << 20
"""Bytes that the kernel allows beside ``memory``: the interpreter, PyTorch, and pages that it caches for a moment."""
TABLE = ("stage", "seconds", "floor s", "read GB", "written GB", "floor GB", "requests", "peak MB", "processor s")


class Shape:
    """A graph whose edges and rows are functions of their numbers."""

    def __init__(self, fraction: float, columns: int, in_order: bool) -> None:
        self.nodes, self.edges = int(NODES * fraction), int(EDGES * fraction)
        self.columns, self.in_order = columns, in_order
        weights = np.random.default_rng(0).gamma(6, size=GROUP)
        self.per_group = self.edges * GROUP // self.nodes
        self.ends = np.minimum(np.cumsum(weights) / weights.sum() * self.per_group, self.per_group).astype(np.int64)
        self.ends[-1] = self.per_group
        self.edges = min(self.edges, self.nodes // GROUP * self.per_group)
        self.step = next(s for s in range(int(self.nodes * 0.618) | 1, 2 * self.nodes) if np.gcd(s, self.nodes) == 1)
        self.name = f"papers-{fraction:g}-{columns}" + ("" if in_order else "-unsorted")

    @staticmethod
    def bits(number: np.ndarray) -> np.ndarray:
        mixed = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return mixed ^ (mixed >> np.uint64(29))

    def edge(self, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets of edges."""
        random = self.bits(number)
        hot = ((random >> np.uint64(11)) * 2.0**-53) ** 3
        source = np.minimum((hot * self.nodes).astype(np.int64), self.nodes - 1) * self.step % self.nodes
        if not self.in_order:
            return source, (self.bits(random) % np.uint64(self.nodes)).astype(np.int64)
        group, place = np.divmod(number, self.per_group)
        return source, group * GROUP + np.searchsorted(self.ends, place, side="right")

    @staticmethod
    def row(node: np.ndarray) -> np.ndarray:
        """The first columns of rows: numbers that float16 holds."""
        return np.stack([node % 2048, node // 2048 % 2048, node // 2048**2], axis=1).astype(np.float16)

    def write(self, folder: Path) -> None:
        index = np.lib.format.open_memmap(folder / "edge_index.npy", mode="w+", dtype=np.int32, shape=(2, self.edges))
        for lo in range(0, self.edges, PIECE):
            hi = min(lo + PIECE, self.edges)
            index[0, lo:hi], index[1, lo:hi] = self.edge(np.arange(lo, hi))
        x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.float16, shape=(self.nodes, self.columns))
        piece = PIECE_BYTES // (8 * self.columns)
        some = np.random.default_rng(1).random((piece, self.columns)).astype(np.float16)
        for lo in range(0, self.nodes, piece):
            hi = min(lo + piece, self.nodes)
            x[lo:hi] = some[: hi - lo]
            x[lo:hi, :3] = self.row(np.arange(lo, hi))
        index.flush()
        x.flush()

    def check(self, batch: Any) -> None:
        rows = torch.linspace(0, batch.n_id.numel() - 1, 1000).long()
        assert np.array_equal(batch.x[rows, :3].numpy(), self.row(batch.n_id[rows].numpy())), "rows differ"
        some = torch.linspace(0, batch.e_id.numel() - 1, 1000).long()
        for found, wanted in zip(
            batch.n_id[batch.edge_index[:, some]].numpy(), self.edge(batch.e_id[some].numpy()), strict=True
        ):
            assert np.array_equal(found, wanted), "edges differ"


def io() -> dict[str, int]:
    """Bytes that devices read and wrote for this process, as the kernel counts them."""
    text = Path("/proc/self/io").read_text()
    return {key: int(re.findall(rf"^{key}: (\d+)", text, re.M)[0]) for key in ("read_bytes", "write_bytes")}


class Stages:
    """Prints a line of JSON for each stage."""

    def begin(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self.io, self.processor, self.began = io(), self.used(), time.perf_counter()

    @staticmethod
    def used() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def end(self, stage: str, floor: dict[str, float], **more: Any) -> None:
        moved = {key: n - self.io[key] for key, n in io().items()}
        peak = int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
        line = {"stage": stage, "seconds": time.perf_counter() - self.began, **moved, "peak": peak}
        print(json.dumps(line | {"processor": self.used() - self.processor, "floor": floor, **more}), flush=True)


def drop(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def size(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size


def converted(shape: Shape, folder: Path) -> None:
    store, given = folder / f"{shape.name}.freshgo", {"edge_index": folder / "edge_index.npy", "x": folder / "x.npy"}
    stages = Stages()
    stages.begin()
    convert({**given, "num_nodes": shape.nodes}, store, memory=CONVERSION, progress=False).close()
    stages.end("convert", {"read": sum(map(size, given.values())), "written": size(store)})


def loaded(shape: Shape, folder: Path, memory: str, batches: int, epochs: int) -> None:
    store, stages = Store.open(folder / f"{shape.name}.freshgo"), Stages()
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(shape.nodes, (3 * batches * BATCH_SIZE,), generator=generator).unique()
    seeds = seeds[torch.randperm(seeds.numel(), generator=generator)][: batches * BATCH_SIZE]
    stages.begin()
    loader = Loader(store, FANOUTS, seeds, batch_size=BATCH_SIZE, shuffle=True, memory=memory)
    opened = loader.stats()
    kept = sum(opened["memory"].get(purpose, 0) for purpose in ("topology", "neighbor_cache"))
    stages.end(f"open, {memory}", {"read": kept}, requests=opened["requests"])
    row, before = 2 * shape.columns, opened
    for number in range(1, epochs + 1):
        stages.begin()
        began, waits = time.perf_counter(), []
        for batch in loader:
            waits.append(time.perf_counter() - began)
            shape.check(batch)
            if len(waits) == 1 and number == 1:
                stages.end("first batch", {"random": batch.n_id.numel()})
                stages.begin()
            began = time.perf_counter()
        after = loader.stats()
        grew = {key: after[key] - before[key] for key in ("packed", "misses", "filled", "requests", "rows")}
        before, cold = after, grew["packed"] + grew["misses"] + grew["filled"]
        floor = {"read": row * (shape.nodes + cold), "written": row * cold}
        more = {"requests": grew["requests"], "rows": grew["rows"], "cold": cold, "batches": len(waits)}
        longest = sorted(waits)[-3:]
        stages.end(f"epoch {number}", floor, **more, longest_waits=longest)
    after["plan"] = {key: after[key] for key in ("superbatch", "cached_rows", "cache_capacity", "prefetch")}
    print(json.dumps({"memory": after["memory_peaks"], "limit": after["memory_limit"], **after["plan"]}))
    print(loader.plan(), file=sys.stderr)
    loader.close()


class Runner:
    """Runs stages in processes with limited memory, and tabulates them."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.folder, self.arguments, self.lines = folder, arguments, list[dict[str, Any]]()
        root, program = Path(__file__).resolve().parents[2], folder / "rivals"
        subprocess.run(["go", "build", "-o", program, "./bench/rivals"], cwd=root, check=True)
        self.program, self.rates = program, dict[str, float]()

    def run(self, part: str, limit: int) -> None:
        drop(self.folder)
        group = limited.make(f"freshgo-bench-{os.getpid()}-{len(self.lines)}")
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}  # calibrations of this run
        command = [sys.executable, __file__, *self.arguments, "--part", part]
        try:
            group.limit(limit)
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=group.enter
            )
            assert child.stdout
            for text in child.stdout:
                self.lines.append(json.loads(text))
                if self.rates:
                    self.show(self.lines[-1])
            if child.wait():
                sys.exit(f"{part} ended with {child.returncode}")
        finally:
            group.remove()

    def measure(self, store: Path) -> None:
        answer = subprocess.run([self.program, f"-store={store}", "-limits"], stdout=subprocess.PIPE, check=True)
        self.rates = json.loads(answer.stdout)
        print("the disk:", {key: value for key, value in self.rates.items() if key != "engine"})
        print(*(f"{name:>12}" for name in TABLE), flush=True)

    def show(self, line: dict[str, Any]) -> None:
        if "stage" not in line:
            print(line, flush=True)
            return
        floor = line["floor"]
        pages = 4096 * floor.get("random", 0)
        line["floor_seconds"] = sum(
            floor.get(key, 0) / self.rates[rate]
            for key, rate in (("read", "sequential"), ("written", "written"), ("random", "random_iops"))
        )
        values = (
            line["seconds"], line["floor_seconds"], line["read_bytes"] / 1e9, line["write_bytes"] / 1e9,
            (floor.get("read", 0) + floor.get("written", 0) + pages) / 1e9, line.get("requests", 0),
            line["peak"] / 1e6, line["processor"],
        )  # fmt: skip
        print(
            f"{line['stage']:>12}",
            *(f"{v:12,.{1 if i < 5 or i == 7 else 0}f}" for i, v in enumerate(values)),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fraction", type=float, default=0.2)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--unsorted", action="store_true", help="edges in no order")
    parser.add_argument("--memory", action="append", help="of the loader; may be given several times")
    parser.add_argument(
        "--batches", type=int, help=f"of an epoch; else as many as {SEEDS:,} seeds make, by the fraction"
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    shape = Shape(args.fraction, args.columns, not args.unsorted)
    batches = args.batches or int(SEEDS * args.fraction) // BATCH_SIZE
    store = args.directory / f"{shape.name}.freshgo"
    if args.part == "convert":
        converted(shape, args.directory)
        return
    if args.part:
        loaded(shape, args.directory, args.part, batches, args.epochs)
        return
    args.directory.mkdir(parents=True, exist_ok=True)
    runner = Runner(args.directory, sys.argv[1:])
    if not store.exists():
        shape.write(args.directory)
        runner.run("convert", parse_size("memory", CONVERSION) + BESIDE)
        for name in ("edge_index.npy", "x.npy"):
            (args.directory / name).unlink()
    runner.measure(store)
    for line in runner.lines:
        runner.show(line)
    for memory in args.memory or []:
        runner.run(memory, parse_size("memory", memory) + BESIDE)
    if args.json:
        args.json.write_text(json.dumps({"rates": runner.rates, "lines": runner.lines}, indent=1))


if __name__ == "__main__":
    main()
