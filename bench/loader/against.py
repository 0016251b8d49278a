"""Two installations of freshgo against each other: is one slower than the other?

    python bench/loader/against.py OTHER_PYTHON [--rounds 9] [--processes 2] [--folder out/against] [--only REGEX]

``OTHER_PYTHON`` is the interpreter of an environment with the other freshgo, for example one made from an earlier
commit. Each installation has ``--processes`` processes, which keep their graphs and loaders, and all of them take turns:
one epoch here, the same epoch there, the order changing from round to round. All must deliver the same batches.

Where memory lies makes two processes of one installation differ by up to a tenth for as long as they live, so the ratio
is that of the means over processes of their median seconds: of this installation over the other. Printed beside it is
the control, the largest ratio between two processes of one installation; a difference that is smaller is noise.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

NODES, EDGES, WIDTH, BATCH_SIZE, BATCHES = 1_000_000, 12_000_000, 128, 1024, 24
PLANNED: dict[str, Any] = {"cache": "belady", "feature_cache": NODES * WIDTH * 4 // 10, "memory": "1GiB"}
PAPER, CITES, CITED = "paper", ("paper", "cites", "paper"), ("paper", "cited", "paper")
TURNS: dict[str, tuple[str, dict[str, Any]]] = {
    "in memory, [10, 10]": ("plain", {"num_neighbors": [10, 10]}),
    "in memory, [15, 10, 5]": ("plain", {"num_neighbors": [15, 10, 5]}),
    "in memory, [15, 10, 5], two threads": ("plain", {"num_neighbors": [15, 10, 5], "num_workers": 2}),
    "in memory, weighted [10, 10]": ("plain", {"num_neighbors": [10, 10], "weight_attr": "weight"}),
    "in memory, trees by time [10, 10]": ("plain", {"num_neighbors": [10, 10], "time_attr": "time"}),
    "in memory, two edge types, [10, 10]": ("hetero", {"num_neighbors": [10, 10]}),
    "links with negatives, [5, 5]": ("links", {"num_neighbors": [5, 5], "neg_sampling": "binary"}),
    "out of core, planned, [10, 10]": ("store", {"num_neighbors": [10, 10], **PLANNED}),
    "out of core, planned, two edge types, [10, 10]": ("hetero store", {"num_neighbors": [10, 10], **PLANNED}),
    "out of core, degree, [10, 10]": (
        "store",
        {"num_neighbors": [10, 10], **PLANNED, "cache": "degree", "neighbor_cache": 0},
    ),
}


def graph() -> dict[Any, Any]:
    """Skewed sources and uniform targets."""
    gen = torch.Generator().manual_seed(0)
    edge_index = skewed.edges(NODES, EDGES, gen)
    return {
        "x": torch.empty(NODES, WIDTH).normal_(generator=gen),
        "edge_index": edge_index,
        "weight": torch.rand(EDGES, generator=gen),
        "time": torch.randint(1000, (NODES,), generator=gen),
        "num_nodes": NODES,
    }


def hetero(plain: dict[Any, Any]) -> dict[Any, Any]:
    """The same nodes, with edges of two types."""
    edges = plain["edge_index"]
    return {
        PAPER: {"x": plain["x"], "num_nodes": NODES},
        CITES: {"edge_index": edges[:, ::2].contiguous()},
        CITED: {"edge_index": edges[:, 1::2].flip(0).contiguous()},
    }


class Contestant:
    """What runs in the process of one installation: loaders by name, made when they are first wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plain = graph()
        self.hetero = hetero(self.plain)
        self.seeds = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))[: BATCH_SIZE * BATCHES]
        self.loaders: dict[str, Any] = {}

    def loader(self, name: str) -> Any:
        from freshgo import LinkLoader, Loader, convert

        if name in self.loaders:
            return self.loaders[name]
        of, options = TURNS[name]
        data: Any = self.hetero if of.startswith("hetero") else self.plain
        if of.endswith("store"):
            path = self.folder / of
            if not path.exists():
                convert(data, path, progress=False).close()
            data = str(path)
        common = {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": 1, **options}
        if of == "links":
            links = self.plain["edge_index"][:, : BATCH_SIZE * BATCHES]
            self.loaders[name] = LinkLoader(data, edge_label_index=links, **common)
        else:
            nodes = (PAPER, self.seeds) if of.startswith("hetero") else self.seeds
            self.loaders[name] = Loader(data, input_nodes=nodes, **common)
        return self.loaders[name]

    def turn(self, name: str) -> dict[str, Any]:
        """Run an epoch; give its seconds and a number that depends on every node of every batch."""
        loader, check = self.loader(name), 0
        start = time.perf_counter()
        batches = [batch[PAPER].n_id if "edge types" in name else batch.n_id for batch in loader]
        seconds = time.perf_counter() - start
        for ids in batches:
            check = (check * 31 + int((ids * torch.arange(1, ids.numel() + 1)).sum())) % (1 << 61)
        return {"seconds": seconds, "check": check}


def serve(folder: Path) -> None:
    """Answer each line of standard input, the name of a turn, with a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    contestant = Contestant(folder)
    for line in sys.stdin:
        print(json.dumps(contestant.turn(line.strip())), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("out/against"))
    parser.add_argument("--only", default="")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.folder)
        return
    shutil.rmtree(args.folder, ignore_errors=True)
    processes = {}
    for name, python in (("this", sys.executable), ("other", args.other)):
        for number in range(args.processes):
            folder = args.folder / f"{name} {number}"
            folder.mkdir(parents=True)
            command = [python, "-I", __file__, "-", "--serve", "--folder", str(folder.resolve())]
            processes[name, number] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tempfile.gettempdir()
            )

    def ask(of: tuple[str, int], turn: str) -> dict[str, Any]:
        process = processes[of]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{turn}\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    for turn in TURNS:
        if not re.search(args.only, turn):
            continue
        for of in processes:
            ask(of, turn)  # loaders are made, memory is touched
        seconds: dict[tuple[str, int], list[float]] = {of: [] for of in processes}
        order = list(processes)
        for number in range(args.rounds):
            checks = set()
            order = order[1:] + order[:1]
            for of in order if number % 2 else reversed(order):
                answer = ask(of, turn)
                seconds[of].append(answer["seconds"])
                checks.add(answer["check"])
            assert len(checks) == 1, f"{turn}: batches differ"
        medians = {of: statistics.median(times) for of, times in seconds.items()}
        mean = {
            name: statistics.mean(median for of, median in medians.items() if of[0] == name)
            for name in ("this", "other")
        }
        alike = [[median for of, median in medians.items() if of[0] == name] for name in mean]
        control = max(max(some) / min(some) for some in alike)
        print(
            f"{turn}: {mean['this']:.3f} s against {mean['other']:.3f} s, ratio {mean['this'] / mean['other']:.3f}"
            f" (control {control:.3f})",
            flush=True,
        )
    for process in processes.values():
        process.communicate("")
    shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
