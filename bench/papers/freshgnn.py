"""FreshGNN's tables and figures: accuracy and rows saved with historical embeddings, by what the paper varies.

    python bench/papers/freshgnn.py [--parts models,grid,...] [--graph amazon-computers] [--seeds 3] [--epochs 9] [--long]

  models      table 2: SAGE, GCN and GAT of 256 columns with history against plain training, three seeds: at the paper's
              p_grad 0.9 and t_stale 200, at the same part of an epoch as 200 iterations are of papers100M's 1,207, and GAS
  grid        figure 13: SAGE, three seeds, over p_grad and t_stale as iterations and as parts of an epoch
  start       table 3: history from iteration 0, 200, 400 or 800 on
  error       figures 1 and 3: how far kept rows are from computed ones, by age, with t_stale 200 and with GAS
  memory      figure 14: rows saved by caches of features, of embeddings, and of both, of the same bytes; embeddings twice as wide as rows, as on
              papers100M, and 0.67 times, as on MAG240M
  rgcn        figure 19: examples/hetero.py on two heterogeneous graphs, plain and with history, three seeds
  depth, degree, bandwidth    figures 16a and 17: rows saved by the number of layers, by the mean degree of a generated graph, and by how
              far its edges reach

Training is bench/history/accuracy.py's, rows saved at equal memory are bench/history/saving.py's. Batches of 20 of 2,000
nodes make an epoch of 100 iterations on a graph of 13,752 nodes, fanouts 5, 5, 5; with --long the whole split in batches
of 100, fanouts 20, 15, 10, 30 epochs, which takes a day on two cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import HERE, SEED, Report, options

sys.path.insert(0, str(HERE.parent / "history"))
import accuracy
import saving
from graphs import load

from freshgo import History, convert

PARTS = ["models", "grid", "start", "error", "memory", "depth", "degree", "bandwidth", "rgcn"]
PAPER_EPOCH = 1_207
"""Iterations of an epoch of papers100M with batches of 1,000."""
SHORT = "--batch-size 20 --train 2000 --fanouts 5,5,5 --epochs 9 --every 3 --dropout 0.3"
LONG = "--batch-size 100 --fanouts 20,15,10 --epochs 30 --every 3"
SAME_PART = f"{200 / PAPER_EPOCH:.3f}"
SHARES = [("0.05", "2"), ("0.1", "2"), ("0.2", "2"), ("0.5", "2"), ("0.1", "0.67"), ("0.2", "0.67"), ("0.5", "0.67")]
"""Bytes of a buffer, of the features', and an embedding's, of a row's."""
P_GRADS, T_STALES = ("0.5", "0.9", "1.0"), (SAME_PART, "20", "0.5", "200")
POLICIES = {
    "features": "features",
    "gradient": "embeddings",
    "0.5 gradient": "half each, Emb_acc+Feat",
    "0.5 performance": "half each, Emb_acc+perf+Feat",
}
PANELS = [
    {"title": "Rows saved, by p_grad", "table": "grid", "x": "t_stale", "y": ["rows saved %"], "by": ["p_grad"]},
    {
        "title": "Points against plain, by p_grad",
        "table": "grid",
        "x": "t_stale",
        "y": ["difference"],
        "by": ["p_grad"],
        "bottom": None,
    },
    {
        "title": "At equal memory, narrow embeddings",
        "table": "memory",
        "x": "buffer, of the features",
        "y": list(POLICIES.values()),
        "where": {"embedding, of a row": "0.67"},
        "unit": "rows saved %",
    },
]


class Training:
    """A graph and the settings of its trainings."""

    def __init__(self, args: Any, work: Path) -> None:
        self.common = [
            *("--data", str(args.data), "--columns", "128", "--standardize", "--split", "0.6", "--hidden", "256"),
            *(LONG if args.long else SHORT).split(),
            *(["--epochs", str(args.epochs)] if args.epochs else []),
        ]  # fmt: skip
        options = self.options([])
        self.graph = load(args.graph, args.data, work, options.columns)
        x = self.graph["x"]
        self.graph["x"] = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
        accuracy.cut(self.graph, options)
        self.binary = int(self.graph["y"].max()) == 1
        self.iterations = -(-self.graph["splits"]["train"].numel() // options.batch_size)

    def options(self, more: list[str]) -> Any:
        return accuracy.parse(given=[*self.common, *more])

    def run(self, kind: str, seed: int, stale: list[str], *more: str) -> list[accuracy.Contestant]:
        """Train a plain model, and one for each t_stale, in turns; the plain one is the first."""
        return accuracy.run(kind, self.graph, self.options(["--stale", ",".join(stale), *more]), seed, self.binary)

    def about(self) -> str:
        return f"{self.iterations} iterations an epoch, {self.options([]).epochs} epochs"


def models(training: Training, report: Report, args: Any) -> None:
    named = {
        "200": "200 iterations",
        SAME_PART: f"{SAME_PART} of an epoch",
        "gas": "GAS, VR-GCN",
        "default": "the default",
    }
    rows = []
    for kind in args.models.split(","):
        runs = [training.run(kind, seed, list(named)) for seed in range(args.seeds)]
        target = [100 * run[0].tested for run in runs]
        for place, (_, label) in enumerate(named.items(), 1):
            gains = [100 * (run[place].tested - run[0].tested) for run in runs]
            spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
            kept = accuracy.saved([run[place] for run in runs], since_start=True)
            values = [
                round(statistics.mean(target), 2),
                round(statistics.mean(gains), 2),
                round(spread, 2),
                round(kept, 1),
            ]
            rows.append([kind, label, *map(str, values)])
        columns = ["model", "t_stale", "plain", "difference", "deviation", "rows saved %"]
        report.add("models", columns, [*rows])


def grid(training: Training, report: Report, args: Any) -> None:
    names = [f"{stale}@{p}" for p in P_GRADS for stale in T_STALES]
    runs = [training.run("sage", seed, names) for seed in range(args.seeds)]
    rows = []
    for place, name in enumerate(names, 1):
        stale, _, p = name.partition("@")
        gains = [100 * (run[place].tested - run[0].tested) for run in runs]
        spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
        kept = accuracy.saved([run[place] for run in runs])
        rows.append([p, stale, round(statistics.mean(gains), 2), round(spread, 2), round(kept, 1)])
    report.add("grid", ["p_grad", "t_stale", "difference", "deviation", "rows saved %"], rows)


def start(training: Training, report: Report, args: Any) -> None:
    last = training.iterations * training.options([]).epochs
    begins = [n for n in (0, 200, 400, 800) if n < last]
    plain, *found = training.run("sage", 0, [f"{SAME_PART}:{n / training.iterations}" for n in begins])
    rows = [
        [n, round(100 * (c.tested - plain.tested), 2), round(accuracy.saved([c], since_start=True), 1)]
        for n, c in zip(begins, found, strict=True)
    ]
    report.add("start", ["first iteration", "difference", "rows saved since, %"], rows)


def error(training: Training, report: Report, args: Any) -> None:
    rows = []
    _, *found = training.run("sage", 0, ["200", "gas"], "--sample-error", "0.1")
    for label, c in zip(("200 iterations", "GAS"), found, strict=True):
        rows += [
            [label, one["age"], one["to"], one["rows"], round(one["cosine"], 3), round(one["relative"], 3)]
            for one in c.errors
        ]
    report.add("error", ["t_stale", "age from", "to", "rows", "cosine", "relative error"], rows)


def saved_rows(graph: dict[str, Any], args: Any, policies: list[str], *given: str) -> list[float]:
    """Percent of the rows of plain loading that each policy does not read in its last epoch."""
    found = []
    with (
        tempfile.TemporaryDirectory() as work,
        convert(graph, Path(work) / "g", memory="512MiB", progress=False) as store,
    ):
        asked = saving.parse(["--data", str(args.data), *given])
        asked.fanouts = [int(f) for f in asked.fanouts.split(",")]
        for policy in policies:
            *_, got = saving.run(policy, float(asked.stale), store, graph, asked)
            found.append(round(got["saved"], 1))
    return found


def memory(args: Any, report: Report, nodes: int = 200_000) -> None:
    graph, rows = load(f"community:{nodes}", args.data, Path(), 0), []
    batches = ["--epochs", "2", "--batch-size", "100", "--train", "4000", "--fanouts", "10,10,5"]
    for share, wide in SHARES:
        found = saved_rows(graph, args, list(POLICIES), "--memory", share, "--wide", wide, "--stale", "1.0", *batches)
        rows.append([wide, share, *found])
    report.add("memory", ["embedding, of a row", "buffer, of the features", *POLICIES.values()], rows)


def depth(args: Any, report: Report, nodes: int = 200_000) -> None:
    graph, rows = load(f"community:{nodes}", args.data, Path(), 0), []
    for fanouts in ("10,10", "10,10,5", "10,10,5,3"):
        given = f"--stale 1.0 --epochs 2 --batch-size 100 --train 3000 --fanouts {fanouts}".split()
        rows.append([fanouts, *saved_rows(graph, args, ["features", "0.5 performance"], *given)])
    report.add("depth", ["fanouts", "features", "half each"], rows)


def degree(args: Any, report: Report, nodes: int = 100_000) -> None:
    from graphs import community

    rows = []
    for mean in (5, 15, 30):
        graph = community(nodes, mean)
        given = ["--stale", "1.0", "--epochs", "2", "--batch-size", "50", "--train", "2000", "--fanouts", "10,10,5"]
        rows.append([mean, *saved_rows(graph, args, ["features", "0.5 performance"], *given)])
    report.add("degree", ["mean degree", "features", "half each"], rows)


def bandwidth(args: Any, report: Report, nodes: int = 100_000) -> None:
    rng, rows = np.random.default_rng(SEED), []
    target = np.repeat(np.arange(nodes), 15)
    for width in (100, 1_000, 10_000, 50_000):
        source = (target + rng.integers(-width, width + 1, len(target))) % nodes
        graph = {
            "edge_index": torch.from_numpy(np.stack([source, target])),
            "x": torch.from_numpy(rng.standard_normal((nodes, 128), dtype=np.float32)),
            "y": torch.from_numpy(rng.integers(32, size=nodes)),
            "splits": {"train": torch.from_numpy(rng.permutation(nodes)[:2000])},
        }
        given = ["--stale", "1.0", "--epochs", "2", "--batch-size", "50", "--fanouts", "10,10,5"]
        rows.append([width, *saved_rows(graph, args, ["features", "0.5 performance"], *given)])
    report.add("bandwidth", ["edges reach", "features", "half each"], rows)


def rgcn(args: Any, report: Report, epochs: int = 20) -> None:
    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    import hetero

    rows = []
    for name in ("hetero-dblp", "hetero-acm"):
        graph, target = hetero.arrays(args.data / name)
        scores: dict[str, list[float]] = {}
        hits: dict[str, float] = {}
        for label, stale in (("plain", None), ("200 iterations", 200), ("one epoch", 1.0)):
            for seed in range(args.seeds):
                history = None if stale is None else History(0.9, stale, memory="64MiB", keep="rows")
                _, (_, tested) = hetero.train(graph, graph, target, None, epochs, history, seed)
                scores.setdefault(label, []).append(100 * tested)
                layers = history.stats()["layers"] if history else []
                found = [sum(layer[kind] for layer in layers) for kind in ("hits", "misses")]
                hits[label] = 100 * found[0] / max(1, sum(found))
        for label, of in scores.items():
            gains = [one - plain for one, plain in zip(of, scores["plain"], strict=True)]
            spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
            values = [round(value, 2) for value in (statistics.mean(of), statistics.mean(gains), spread, hits[label])]
            rows.append([name, label, *values])
    report.add("rgcn", ["graph", "t_stale", "accuracy %", "difference", "deviation", "hits of the last seed, %"], rows)


def main() -> None:
    parser = options(__doc__, PARTS)
    parser.add_argument("--graph", default="amazon-computers")
    parser.add_argument("--models", default="sage,gcn,gat")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=0, help="other than those of the settings")
    parser.add_argument("--long", action="store_true")
    args = parser.parse_args()
    report, asked = Report("freshgnn", args.out), args.parts.split(",")
    with tempfile.TemporaryDirectory() as work:
        if set(asked) & {"models", "grid", "start", "error"}:
            training = Training(args, Path(work))
            print(f"{args.graph}: {training.about()}", flush=True)
            for part in (models, grid, start, error):
                if part.__name__ in asked:
                    part(training, report, args)
        for counted in (memory, depth, degree, bandwidth, rgcn):
            if counted.__name__ in asked:
                counted(args, report)


if __name__ == "__main__":
    torch.set_num_threads(1)  # beside other work more threads wait for each other
    main()
