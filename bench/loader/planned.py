"""The planned cache out of core against what other systems do with the same memory for features, on the same batches.

    python bench/loader/planned.py DIRECTORY [--budgets 0.05,0.1,0.3] [--rounds 3] [--only REGEX] [--disk 63000,750]
    python bench/loader/planned.py DIRECTORY --batches 128 --memory 700MiB --budgets ''

DIRECTORY is on the disk to be measured and takes five times the size of the features. Every turn is a process of its own, in a control
group whose memory is limited where this machine lets it be (else run it by `systemd-run --user --scope -p Delegate=yes`), and before it
the features are dropped from the page cache. Turns are interleaved and every value of a batch's first column is checked. With --disk the
kernel lets no turn have more requests and megabytes a second than these: a slower disk, and one that no host caches.

  freshgo ...     the loader: "auto" (Belady and the transfer plan), on stores that were relaid out, and with other caches or none
  lru, sieve      a request of 4 KiB per missed row, as GraphBolt does; ginex: Belady for an epoch, the cache emptied before each, a
                  request per row. Their policies have decided before the clock starts (bench/rivals)
  sieve, larger   with as much memory for rows as freshgo has for rows, plans and what is put aside
  map             PyG's NeighborLoader over a memory map with MADV_RANDOM; the page cache has as much as freshgo for rows, plans and batches
  in memory       freshgo with everything in memory

With --memory there are turns in which freshgo has that much and divides it itself, also from a store of float16, and SIEVE has as many rows
in memory as freshgo then has. With --train a step of training follows each batch in further ones (GraphSAGE of three layers and 256
columns), and in memory. What an epoch moved is beside one scan with each cold row written and read once, and its time beside what the disk's sequential
rates, of this run, need for what was moved.

With "+ matmul" and "+ sleep" a model's computing follows each batch that takes as long as loading it in memory does: on the processor,
where it takes a core from the loader, or elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import limited
import numpy as np
import torch
import turns
from memory import make_graph
from turns import BATCH_SIZE, EPOCHS, FANOUTS, NARROW, ROW, WIDTH

from freshgo import convert
from freshgo._args.size import parse_size

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import pyg, record

BESIDE = 800 << 20
"""Bytes that freshgo gets beside the feature cache: topology, a working set of which it uses half, traces, plans and packs."""
PAGES = 256 << 20
"""Bytes that the map's page cache gets beside as many as freshgo's feature cache: about what freshgo uses for plans and batches."""
RELAID = {"relaid hot": "hot", "relaid": "hot+community"}


def drop(path: Path) -> None:
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


class Runner:
    """Runs turns and keeps what they say."""

    def __init__(self, folder: Path, batches: int, disk: limited.Rates | None) -> None:
        self.folder = folder
        self.batches = batches
        self.disk = disk  # None: as it is
        self.epochs: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)  # by name, round and epoch
        self.ends: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.limits: list[dict[str, Any]] = []
        self.unlimited = ""
        self.count = 0

    def ask(self, command: list[str], request: dict[str, Any] | None, limit: int | None = None) -> list[dict[str, Any]]:
        group = None
        self.count += 1
        try:
            group = limited.make(f"freshgo-bench-{os.getpid()}-{self.count}")
        except OSError as error:
            if self.disk:
                sys.exit(f"--disk: {error}")
            self.unlimited = str(error)
        drop(self.folder)
        if request is not None:
            request |= {"folder": str(self.folder), "group": group.names if group else None}
            command = [*command, json.dumps(request)]
        if group and limit:
            group.limit(limit)
        if group and self.disk:
            group.slow(self.folder, self.disk)
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}  # calibrations of this run
        try:
            answer = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=group.enter if group else None
            )
        finally:
            if group:
                group.remove()
        if answer.returncode:
            sys.exit(f"{command} ended with {answer.returncode}")
        return [json.loads(line) for line in answer.stdout.splitlines()]

    def python(self, name: str, function: Callable[..., Any], **args: Any) -> list[dict[str, Any]]:
        lines = self.ask([sys.executable, turns.__file__], {"turn": function.__name__, "batches": self.batches, **args})
        return self.keep(name, lines)

    def rival(self, name: str, policy: str, rows: int) -> list[dict[str, Any]]:
        files = [
            f"-{key}={self.folder / file}"
            for key, file in (
                ("store", "graph.freshgo"),
                ("seeds", f"seeds-{self.batches}.bin"),
                ("check", "check.bin"),
            )
        ]
        fanouts = "-fanouts=" + ",".join(map(str, FANOUTS))
        command = [
            str(self.folder / "rivals"),
            *files,
            fanouts,
            f"-batch={BATCH_SIZE}",
            f"-epochs={EPOCHS}",
            f"-policy={policy}",
            f"-capacity={rows}",
        ]
        decided = self.batches * EPOCHS * (6 << 20)  # what was sampled and decided beforehand lies in memory
        return self.keep(name, self.ask(command, None, rows * ROW + (512 << 20) + decided))

    def keep(self, name: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        epochs = [line for line in lines if "rows" in line and "seconds" in line]
        self.epochs[name].append(epochs)
        self.ends[name] += [line for line in lines if line not in epochs]
        shown = epochs or [line for line in lines if "seconds" in line]
        print(f"  {name}: " + ", ".join(f"{line['seconds']:.2f}" for line in shown) + " s", flush=True)
        return lines

    def median(self, name: str, number: int, key: str) -> float:
        values = [epochs[number][key] for epochs in self.epochs[name] if len(epochs) > number and key in epochs[number]]
        return statistics.median(values) if values else float("nan")

    def ratio(self, name: str, base: str, number: int, key: str = "seconds") -> float:
        """Median of the rounds' ratios: a disk that changes its speed disturbs those little."""
        pairs = zip(self.epochs[name], self.epochs[base], strict=False)
        return statistics.median(a[number][key] / b[number][key] for a, b in pairs)


def prepare(
    folder: Path, nodes: int, edges: int, relaid: bool, narrow: bool, runner: Runner
) -> dict[str, dict[str, Any]]:
    """Generate what is not there; return what relaying out cost."""
    if not (folder / "graph.freshgo").exists():
        data = make_graph(nodes, edges, WIDTH)
        assert data.x is not None
        np.save(folder / "x.npy", data.x.numpy())
        np.save(folder / "check.npy", data.x[:, 0].numpy())
        data.x[:, 0].numpy().tofile(folder / "check.bin")
        torch.save(data.edge_index, folder / "edge_index.pt")
        convert(
            {"edge_index": data.edge_index, "x": folder / "x.npy"},
            folder / "graph.freshgo",
            memory="1GiB",
            progress=False,
        ).close()
    if narrow and not (folder / NARROW).exists():
        graph = {"edge_index": torch.load(folder / "edge_index.pt"), "x": folder / "x.npy"}
        convert(graph, folder / NARROW, memory="1GiB", dtype={"x": "float16"}, progress=False).close()
    seeds = torch.randperm(nodes, generator=torch.Generator().manual_seed(1))[: BATCH_SIZE * runner.batches].numpy()
    np.save(folder / f"seeds-{runner.batches}.npy", seeds)
    seeds.tofile(folder / f"seeds-{runner.batches}.bin")
    root = Path(__file__).resolve().parents[2]
    subprocess.run(["go", "build", "-o", folder / "rivals", "./bench/rivals"], cwd=root, check=True)
    costs = {}
    for name, order in RELAID.items() if relaid else ():
        (costs[name],) = runner.python(f"relaying out, {order}", turns.relay, store=f"{order}.freshgo", order=order)
    return costs


def compare(runner: Runner, costs: dict[str, Any], budgets: list[float], memory: str, train: bool, only: str) -> None:
    """One round of everything."""
    wanted = re.compile(only).search
    shares = {budget: int(budget * rows_of(runner.folder)) for budget in budgets}
    runner.limits += runner.ask(
        [str(runner.folder / "rivals"), f"-store={runner.folder / 'graph.freshgo'}", "-limits"], None
    )
    options = {"memory": parse_size("memory", memory)} if memory else {}
    if memory and wanted(name := f"freshgo, {memory}"):
        runner.python(name, turns.ours, store="graph.freshgo", options=options)
        if wanted(rival := f"sieve, {memory}"):
            runner.rival(rival, "sieve", runner.ends[name][-1]["plan"]["capacity_rows"])
    if memory and wanted(name := f"freshgo float16, {memory}"):
        runner.python(name, turns.ours, store=NARROW, options=options)
    if memory and train and wanted(name := f"freshgo + train, {memory}"):
        runner.python(name, turns.ours, store="graph.freshgo", options=options, work="train")
    known = runner.ends["in memory"][0]["amounts"] if runner.ends["in memory"] else None
    if wanted("in memory"):
        runner.python("in memory", turns.in_memory, amounts=known, train=train)
        known = runner.ends["in memory"][0]["amounts"]
    for budget, rows in shares.items():
        options = {"memory": rows * ROW + BESIDE, "feature_cache": rows * ROW}
        mine = {
            "freshgo": ("graph.freshgo", {}),
            **{f"freshgo {name}": (f"{RELAID[name]}.freshgo", {}) for name in costs},
        }
        if budget == min(budgets, key=lambda b: abs(b - 0.1)):
            mine |= {
                'freshgo cache="lru"': ("graph.freshgo", {"cache": "lru"}),
                "freshgo cache=None": ("graph.freshgo", {"cache": None}),
            }
        if budget == max(budgets):
            mine['freshgo cache="sieve"'] = ("graph.freshgo", {"cache": "sieve"})
            for kind, amount in (known or {}).items():
                for name in ("freshgo", "freshgo relaid"):
                    if wanted(f"{name} + {kind}"):
                        turn = {"store": mine[name][0], "options": options, "work": kind, "amount": amount}
                        runner.python(title(f"{name} + {kind}", budget), turns.ours, **turn)
            if wanted("map") and pyg():
                runner.python(title("map", budget), turns.mapped, cache=rows * ROW + PAGES, epochs=2)
        for name, (store, more) in mine.items():
            if wanted(name):
                runner.python(title(name, budget), turns.ours, store=store, options=options | more)
        for policy in ("lru", "sieve", "ginex"):
            if wanted(policy):
                runner.rival(title(policy, budget), policy, rows)
        if wanted("sieve, larger") and runner.ends[title("freshgo", budget)]:
            split = runner.ends[title("freshgo", budget)][-1]["plan"]["split"]
            runner.rival(title("sieve, larger", budget), "sieve", rows + (split["traces"] + split["packs"]) // ROW)


def rows_of(folder: Path) -> int:
    return len(np.load(folder / "check.npy", mmap_mode="r"))


def title(name: str, budget: float) -> str:
    return f"{name}, {budget:.0%}"


COLUMNS = {
    "processor ms": ("processor", 1e-3, ""),
    "rows read": ("reads", 1e3, "k"),
    "requests": ("requests", 1e3, "k"),
    "MB": ("bytes", 1e6, ""),
    "kernel MB": ("kernel", 1e6, ""),
}


def report(runner: Runner, costs: dict[str, Any], budgets: list[float], memory: str) -> None:
    limits = {
        key: statistics.median(limit[key] for limit in runner.limits) for key in runner.limits[0] if key != "engine"
    }
    print(
        f"\nlimits: {limits['random_iops']:,.0f} random reads of 4 KiB a second, {limits['single_iops']:,.0f} one after the other, "
        f"{limits['sequential'] / 1e6:,.0f} MB/s in sequence, {limits['written'] / 1e6:,.0f} MB/s written ({runner.limits[0]['engine']})",
        end="",
    )
    ends = runner.ends
    if ends["in memory"]:
        print(f", gather {statistics.median(end['gather'] for end in ends['in memory']) / 1e9:.1f} GB/s", end="")
    print(
        "\nmemory "
        + (
            f"not limited by the kernel: {runner.unlimited}"
            if runner.unlimited
            else "limited by the kernel, by control groups"
        )
    )
    for name, cost in costs.items():
        print(f"{name} ({RELAID[name]}): the pass took {cost['seconds']:.1f} s and read {cost['read'] / 1e9:.2f} GB")
    names = [name for name, rounds in runner.epochs.items() if rounds[0]]
    sampled = {
        tuple(e["rows"] for e in epochs) for name in names if "map" not in name for epochs in runner.epochs[name]
    }
    assert len(sampled) == 1, f"the batches differ: {sampled}"  # PyG draws others
    print(f"\n{'epochs 1, 2, 3':34}{'seconds':>19}" + "".join(f"{column:>22}" for column in COLUMNS))
    for name in names:
        for i in range(len(runner.epochs[name][0])):
            took = [epochs[i]["seconds"] for epochs in runner.epochs[name]]
            record("loader/planned", f"Out of core, epoch {i + 1}", name, took)
        count = len(runner.epochs[name][0])
        seconds = "  ".join(f"{runner.median(name, i, 'seconds'):.2f}" for i in range(count))
        line = f"{name:34}{seconds:>19}"
        for key, unit, suffix in COLUMNS.values():
            values = [runner.median(name, i, key) for i in range(count)]
            line += f"{'  '.join(f'{v / unit:.0f}{suffix}' for v in values) if values[0] == values[0] else '':>22}"
        print(line)
    for name in names:
        if ends[name] and "plan" in ends[name][0]:
            print(explain(runner, name))
    for number, end in enumerate(ends["in memory"]):
        plain = sum(e["seconds"] for e in runner.epochs["in memory"][number]) / EPOCHS
        print(
            f"in memory: {plain:.3f} s an epoch, "
            + ", ".join(f"+ {kind} {sum(s) / EPOCHS:.3f} s" for kind, s in end["work"].items())
        )
    if memory and runner.epochs[f"freshgo, {memory}"]:
        print(beside_the_disk(runner, f"freshgo, {memory}", f"sieve, {memory}"))
    print("\ngoals (median of the rounds' ratios)")
    for goal, least, ratios in goals(runner, budgets):
        met = all(r >= least if least >= 0 else r <= -least for r in ratios)
        verdict = "      " if least == 0 else "met   " if met else "MISSED"
        print(f"  {verdict} {goal}: " + ", ".join(f"{r:.2f}" for r in ratios))


def beside_the_disk(runner: Runner, name: str, rival: str) -> str:
    """What each epoch of a loader moved and took, beside one scan with each cold row written and read once."""
    median = statistics.median
    scan, lines = rows_of(runner.folder) * ROW, []
    for number in range(EPOCHS):
        moved, floor, needed, times = [], [], [], []
        for limit, epochs in zip(runner.limits, runner.epochs[name], strict=False):
            e = epochs[number]
            moved.append(e["bytes_read"] + e["scratch_written"])
            floor.append(scan + 2 * (e["packed"] + e["misses"] + e["filled"]) * ROW)
            needed.append(e["bytes_read"] / limit["sequential"] + e["scratch_written"] / limit["written"])
            times.append(e["seconds"] / needed[-1])
        lines.append(
            f"{name}, epoch {number + 1}: moved {median(moved) / 1e9:.2f} GB, {median(moved) / median(floor):.2f} of one scan with each cold "
            f"row written and read once; the disk's sequential rates need {median(needed):.2f} s for it, the epoch took {median(times):.2f} times that"
            + (
                f"; {rival} took {runner.ratio(rival, name, number):.1f} times the epoch"
                if runner.epochs[rival]
                else ""
            )
        )
    first, second = (runner.median(name, i, "seconds") for i in range(2))
    lines.append(f"{name}: the first epoch took {first / second:.2f} times the second")
    memory = name.removeprefix("freshgo, ")
    if runner.epochs[narrow := f"freshgo float16, {memory}"]:
        faster = ", ".join(f"{runner.ratio(name, narrow, i):.2f}" for i in range(EPOCHS))
        lines.append(f"{name}: epochs took {faster} times those from float16")
    trained = runner.epochs[f"freshgo + train, {memory}"]
    if trained and (held := [end["work"]["train"] for end in runner.ends["in memory"]]):
        pairs = list(zip(trained, held, strict=False))
        slower = ", ".join(f"{statistics.median(a[i]['seconds'] / b[i] for a, b in pairs):.2f}" for i in range(EPOCHS))
        lines.append(f"{name}: epochs of training took {slower} times those in memory")
    return "\n".join(lines)


def explain(runner: Runner, name: str) -> str:
    """What a loader of ours says of its plan and its time, in the last round; shares of the medians."""
    end, plan = runner.ends[name][-1], runner.ends[name][-1]["plan"]
    epochs = range(EPOCHS)
    seconds = [runner.median(name, i, "seconds") for i in epochs]
    share = [
        sum(runner.median(name, i, f"seconds_{key}") for key in ("planning", "sampling")) / seconds[i] for i in epochs
    ]
    first = [runner.median(name, i, "first") / seconds[i] for i in epochs]
    chosen = " ".join(f"{w['chosen']}x{w['batches']}" for w in plan["windows"] or ())
    split = ", ".join(f"{key} {n >> 20}" for key, n in plan["split"].items() if n >> 20)
    return (
        f"{name}: first batch {first[0]:.0%} {first[1]:.0%} {first[2]:.0%} of the epoch, sampling and planning {share[0]:.0%} {share[1]:.0%} {share[2]:.0%} (of one core)"
        f"; opening {end['opened']['seconds']:.1f} s, {end['opened']['kernel'] / 1e6:.0f} MB; peak {end['peak'] >> 20} MiB ({split})"
        f"; prediction off by {end['error']:.0%}; {chosen}"
    )


def goals(runner: Runner, budgets: list[float]) -> Iterator[tuple[str, float, list[float]]]:
    """Every goal that was measured: its text, the least ratio (negative: minus the largest), the ratios."""

    def faster(base: str, rivals: list[str], numbers: range, key: str = "seconds") -> list[float]:
        found = [rival for rival in rivals if runner.epochs[rival] and runner.epochs[base]]
        return [min(runner.ratio(rival, base, i, key) for rival in found) for i in numbers] if found else []

    rivals = [title("lru", 0.1), title("sieve", 0.1)]
    plain, relaid, hot = (title(name, 0.1) for name in ("freshgo", "freshgo relaid", "freshgo relaid hot"))
    all_epochs, later = range(EPOCHS), range(1, EPOCHS)
    rows = [
        ("10%, first epoch against lru and sieve, >= 3", 3, faster(plain, rivals, range(1))),
        ("10%, later epochs, >= 4", 4, faster(plain, rivals, later)),
        ("10%, relaid hot+community, every epoch, >= 8", 8, faster(relaid, rivals, all_epochs)),
        ("10%, relaid hot, every epoch, >= 8", 8, faster(hot, rivals, all_epochs)),
        ("10%, against the map, epochs 1 and 2, >= 12", 12, faster(plain, [title("map", 0.1)], range(2))),
        ("10%, bytes of ginex by ours, >= 4", 4, faster(plain, [title("ginex", 0.1)], all_epochs, "bytes")),
        ("10%, bytes of ginex by ours, relaid, >= 4", 4, faster(relaid, [title("ginex", 0.1)], all_epochs, "bytes")),
        ("10%, epochs 1, 2, 3 against a larger sieve", 0.0, faster(plain, [title("sieve, larger", 0.1)], all_epochs)),
        ("30%, against sieve, >= 1", 1, faster(title("freshgo", 0.3), [title("sieve", 0.3)], all_epochs)),
        (
            "30%, against sieve in freshgo, >= 1",
            1,
            faster(title("freshgo", 0.3), [title('freshgo cache="sieve"', 0.3)], all_epochs),
        ),
        ("30%, against in memory", 0.0, faster(title("freshgo", 0.3), ["in memory"], all_epochs)),
    ]
    for kind in ("matmul", "sleep"):
        for name in ("freshgo", "freshgo relaid"):
            rounds = runner.epochs[title(f"{name} + {kind}", 0.1)]
            pairs = list(zip(rounds, runner.ends["in memory"], strict=False))
            ratios = (
                [
                    statistics.median(e[i]["seconds"] / statistics.mean(m["work"][kind]) for e, m in pairs)
                    for i in all_epochs
                ]
                if pairs
                else []
            )
            rows.append((f"10%, {name} + {kind} against in memory + {kind}, <= 1.15", -1.15, ratios))
    for name in (plain, relaid):
        if runner.epochs[name]:
            rows.append(
                (
                    f"{name}, first batch by epoch, <= 0.05",
                    -0.05,
                    [runner.median(name, i, "first") / runner.median(name, i, "seconds") for i in all_epochs],
                )
            )
            rows.append(
                (
                    f"{name}, error of the prediction, <= 0.3",
                    -0.3,
                    [statistics.median(end["error"] for end in runner.ends[name])],
                )
            )
    yield from (row for row in rows if row[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=24_000_000)
    parser.add_argument("--budgets", default="0.05,0.1,0.3", help="feature caches, as shares of the features")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=16, help="of an epoch")
    parser.add_argument(
        "--memory", default="", help="also give freshgo this much, as '700MiB', and leave its division to it"
    )
    parser.add_argument("--train", action="store_true", help="also with a step of training after each batch")
    parser.add_argument("--disk", type=limited.rates, metavar="REQUESTS,MB", help="at most this a second")
    parser.add_argument("--only", default="", help="regular expression of the turns to run, as printed")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    budgets = [float(budget) for budget in args.budgets.split(",") if budget]
    runner = Runner(args.directory.resolve(), args.batches, args.disk)
    shutil.rmtree(args.directory / "cache", ignore_errors=True)
    costs = prepare(args.directory, args.nodes, args.edges, bool(budgets), bool(args.memory), runner)
    print(
        f"{args.nodes:,} nodes, {args.edges:,} edges, {args.batches} batches of {BATCH_SIZE}, {FANOUTS}; a cache of 10% is {args.nodes * ROW / 1e7:.0f} MB"
    )
    for number in range(args.rounds):
        print(f"round {number + 1}")
        compare(runner, costs, budgets, args.memory, args.train, args.only)
    report(runner, costs, budgets, args.memory)
    results = {"limits": runner.limits, "epochs": runner.epochs, "ends": runner.ends, "relayout": costs}
    (runner.folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
