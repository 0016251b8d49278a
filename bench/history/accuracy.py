"""Accuracy of training with history against plain training, on real graphs and a generated one.

    python bench/history/accuracy.py --data DIR --graphs amazon-computers,tolokers --models sage,gcn,gat --seeds 3

DIR holds the graphs' packs or unpacked folders; 'community:1000000' needs none. All contestants of a model and a seed start
from the same weights and draw the same seeds and dropout; they take turns, an epoch each, so that times compare. Epochs before
history begins are trained once, by the plain contestant: the others go on from its weights. PyG's own models, accelerated
alike; the plain one trims its layers, but for GCN, whose degrees trimming changes. The best epoch by validation is tested: with
all neighbours where the graph is small, else with the training's fanouts. t_stale: iterations (200) or epochs (0.25, with a
point), where start and plain epochs at the end may follow (0.25:3.0:1), else those of --start and --last. An a at the end
(1.0a) is keep="aggregates", a1+2 (1.0a1+2) names its levels; @0.5 (200@0.5:3.0) is a p_grad of its own, gas its policy, default a History() without
options, in the memory that it chooses. The report says each age in iterations, in percent of the training
and as the sum of the rates over it.

Rivals without history: --fewer samples fewer neighbours, from the epoch after the colon on (10,8,5:3.0); with labor= or
laborN= before the fanouts (labor=10,5,5, labor8=10,5,5) by LABOR, a node keeping its number for N batches; --shorter trains for so many epochs, its
rate decaying in them; and the hottest features, which cost no accuracy, in the same bytes: those that the first epoch read most.

--preset paper: 256 columns, dropout 0.1, batches of 1000, fanouts 20, 15, 10, Adam with 1e-4 and a cosine, t_stale 200.

The first epoch, whose time does not count, compares every batch of features with the source.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from graphs import load, machine, table
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GraphSAGE

from freshgo import History, Labor, Loader
from freshgo.nn import accelerate

MODELS: dict[str, Any] = {"sage": GraphSAGE, "gcn": GCN, "gat": GAT}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "hidden": 256,
        "dropout": 0.1,
        "batch_size": 1000,
        "fanouts": "20,15,10",
        "lr": 1e-4,
        "cosine": True,
        "norm": "BatchNorm",
        "stale": "200,200a",
    }
}
SMALL = 200_000  # nodes of graphs that are tested with all neighbours


def parse(description: str | None = __doc__, given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--graphs", default="amazon-computers,coauthor-physics,tolokers,ogbn-arxiv-nofeat,community:1000000"
    )
    parser.add_argument("--columns", type=int, default=0, help="project wider features to this number of columns")
    parser.add_argument("--standardize", action="store_true", help="columns of mean 0 and deviation 1")
    parser.add_argument("--models", default="sage,gcn,gat")
    parser.add_argument("--stale", default="200,0.25,1.0,4.0")
    parser.add_argument("--fewer", nargs="*", default=[], help="fanouts of rivals without history, as 10,8,5:3.0")
    parser.add_argument("--shorter", nargs="*", type=int, default=[], help="epochs of shorter plain trainings")
    parser.add_argument("--preset", choices=PRESETS, help="settings of others, which further options do not change")
    parser.add_argument("--p-grad", type=float, default=0.9)
    parser.add_argument("--policy", default="performance")
    parser.add_argument("--memory", type=float, default=0, help="of the features' bytes; 0: room for every embedding")
    parser.add_argument("--start", type=float, default=0.0, help="epochs before history begins")
    parser.add_argument("--last", type=int, default=0, help="epochs without history at the end")
    parser.add_argument("--lag", type=int, default=1)
    parser.add_argument("--sample-error", type=float, default=0.0, help="of History, a part of the iterations")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--every", type=int, default=1, help="epochs between evaluations")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--train", type=int, default=0, help="the number of training nodes that are used; 0: all")
    parser.add_argument(
        "--split", type=float, default=0, help="train on a random part of all nodes; 0: the graph's own split"
    )
    parser.add_argument("--fanouts", default="20,15,10")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--heads", type=int, default=1, help="of GAT; together as wide as --hidden")
    parser.add_argument("--attention-dropout", type=float, help="of GAT; as --dropout if not given")
    parser.add_argument("--norm", default="", help="between layers, as PyG names it (LayerNorm); empty: none")
    parser.add_argument("--score", type=int, default=0, help="the number of nodes for validation and for test; 0: all")
    parser.add_argument("--lr", type=float, default=0.003, help="at first; it decays linearly")
    parser.add_argument("--cosine", action="store_true", help="the learning rate falls by a cosine, not linearly")
    args = parser.parse_args(given)
    vars(args).update(PRESETS.get(args.preset, {}))
    args.fanouts = [int(f) for f in args.fanouts.split(",")]
    args.stale = [s for s in args.stale.split(",") if s]
    return args


@dataclasses.dataclass
class Contestant:
    """A model in training, by itself or with a history."""

    name: str
    model: nn.Module
    loader: Loader
    history: History | None
    optimizer: torch.optim.Optimizer
    decay: torch.optim.lr_scheduler.LRScheduler
    since: int
    """The epoch in which it begins, from the weights of the plain one."""
    until: int
    """The first epoch without history at the end."""
    best: float = -1.0
    tested: float = 0.0
    seconds: list[float] = dataclasses.field(default_factory=list)
    updating: float = 0.0
    rows: int = 0
    plain_rows: int = 0
    before: int = 0
    """Rows of the epochs before its own."""
    layers: list[dict[str, int]] = dataclasses.field(default_factory=list)
    errors: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ages: str = ""
    visits: Tensor | None = None
    """Of the plain one, how often its first epoch has read each node."""
    room: int = 0
    """Rows of features in the history's bytes."""
    hottest: Tensor | None = None
    """Of the plain one, which nodes the hottest features in the history's bytes are."""
    cached: int = 0
    """Of the plain one, rows since its second epoch that are among those ..."""
    read: int = 0
    """... of how many."""

    def join(self, plain: Contestant) -> None:
        """Go on from where another is."""
        self.model.load_state_dict(plain.model.state_dict())
        self.optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
        self.decay.load_state_dict(copy.deepcopy(plain.decay.state_dict()))
        self.loader.set_epoch(self.since)
        self.best, self.tested, self.before = plain.best, plain.tested, plain.rows

    def close(self) -> None:
        if self.history:
            stats = self.history.stats()
            self.layers, self.errors = stats["layers"], stats.get("error", [])
        self.loader.close()


def metric(out: Tensor, y: Tensor, binary: bool) -> float:
    """Accuracy, or for two classes the area under the ROC curve, ties counted half."""
    if not binary:
        return float((out.argmax(1) == y).double().mean())
    score = (out[:, 1] - out[:, 0]).double()
    _, at, counts = score.unique(return_inverse=True, return_counts=True)
    rank = (counts.cumsum(0).double() - (counts.double() - 1) / 2)[at]
    positive = int((y == 1).sum())
    return float((rank[y == 1].sum() - positive * (positive + 1) / 2) / (positive * (y.numel() - positive)))


@torch.no_grad()
def evaluate(model: nn.Module, graph: dict[str, Any], args: argparse.Namespace, binary: bool) -> tuple[float, float]:
    """Of the validation split and of the test split."""
    model.eval()
    nodes = [graph["splits"][split] for split in ("val", "test")]
    if graph["y"].numel() <= SMALL:
        out = model(graph["x"], graph["edge_index"])
        return metric(out[nodes[0]], graph["y"][nodes[0]], binary), metric(out[nodes[1]], graph["y"][nodes[1]], binary)
    scores = []
    for split in nodes:
        outs, ys = [], []
        with Loader(graph, args.fanouts, split, batch_size=1000, seed=7) as loader:
            for batch in loader:
                outs.append(model(batch.x, batch.edge_index)[: batch.batch_size])
                ys.append(batch.y[: batch.batch_size])
        scores.append(metric(torch.cat(outs), torch.cat(ys), binary))
    return scores[0], scores[1]


def train(c: Contestant, graph: dict[str, Any], epoch: int, seed: int) -> None:
    """One epoch."""
    if epoch >= c.until and not c.history:
        return
    c.model.train()
    if c.history and epoch == c.until:
        c.history.eval()
    torch.manual_seed(1000 * seed + epoch)
    start = time.perf_counter()
    for batch in c.loader:
        levels = getattr(batch.blocks()[0], "levels", None)
        rows = slice(None) if levels is None else levels.nodes[0]
        if not c.seconds and not torch.equal(batch.x[rows], graph["x"][batch.n_id[rows]]):
            raise AssertionError(f"{c.name}: rows of features are not the source's")
        c.rows += batch.n_id.numel() if levels is None else levels.loaded
        if c.visits is not None and not c.seconds:
            c.visits += torch.bincount(batch.n_id, minlength=c.visits.numel())
        elif c.hottest is not None:
            c.cached += int(c.hottest[batch.n_id].sum())
            c.read += batch.n_id.numel()
        c.plain_rows += batch.n_id.numel() if levels is None else levels.plain_nodes
        hops: dict[str, Any] = {}
        if levels is None and not isinstance(c.model, GCN):
            hops = {
                "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
                "num_sampled_edges_per_hop": batch.num_sampled_edges,
            }
        out = c.model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
        c.optimizer.zero_grad()
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        c.optimizer.step()
        c.decay.step()
        if c.history:
            began = time.perf_counter()
            c.history.update()
            c.updating += time.perf_counter() - began
    c.seconds.append(time.perf_counter() - start)
    if c.visits is not None and c.hottest is None:
        c.hottest = torch.zeros(c.visits.numel(), dtype=torch.bool)
        c.hottest[c.visits.topk(min(c.room, c.visits.numel())).indices] = True


def spans(name: str, args: argparse.Namespace) -> tuple[int | float, float, int]:
    """t_stale, start and the plain epochs at the end of a contestant's name."""
    age, start, last = [*name.split(":"), "", ""][:3]
    stale = "0.25" if age == "default" else "200" if age == "gas" else age.partition("@")[0].partition("a")[0]
    span = float(stale or 0) if "." in stale else int(stale or 0)
    return span, float(start or args.start), int(last or args.last)


def own_p_grad(name: str, args: argparse.Namespace) -> float:
    """The p_grad of a contestant's name."""
    return float(name.partition(":")[0].partition("@")[2] or args.p_grad)


def make(kind: str, width: int, classes: int, args: argparse.Namespace) -> nn.Module:
    shape: dict[str, Any] = {"dropout": args.dropout, "norm": args.norm or None}
    if kind == "gat":
        shape["heads"] = args.heads
    model: nn.Module = MODELS[kind](width, args.hidden, len(args.fanouts), classes, **shape)
    if kind == "gat" and args.attention_dropout is not None:
        for conv in model.convs:  # type: ignore[union-attr]
            conv.dropout = args.attention_dropout
    return model


def ages(stale: int | float, args: argparse.Namespace, each: int) -> str:
    """An age in iterations, in percent of the training and, from its middle on, as the sum of the rates."""
    count = round(stale * each) if isinstance(stale, float) else stale
    middle = args.lr / 2  # of both ways in which the rate falls
    return f"{count} it, {100 * count / (args.epochs * each):.1f} %, lr {count * middle:.3g}"


def contestants(kind: str, graph: dict[str, Any], args: argparse.Namespace, seed: int) -> list[Contestant]:
    train_nodes = graph["splits"]["train"]
    classes, width = int(graph["y"].max()) + 1, graph["x"].size(1)
    memory = int(args.memory * graph["x"].numel() * 4) or 2 * 4 * max(args.hidden, width) * graph["y"].numel()
    result = []
    for name in ["", *args.stale, *args.fewer, *(f"{epochs} epochs" for epochs in args.shorter)]:
        torch.manual_seed(seed)
        few, _, since = name.partition(":")
        fewer, kept = name in args.fewer, name in args.stale
        sampler, _, numbers = few.rpartition("=")
        fanouts = [int(f) for f in numbers.split(",")] if fewer else args.fanouts
        stale, start, last = spans(name, args) if kept else (0, float(since or 0), 0)
        epochs = int(name.partition(" ")[0]) if name and not fewer and not kept else args.epochs
        model = make(kind, width, classes, args)
        accelerate(model)
        history = None
        if kept:
            gas, aggregates = name.startswith("gas"), "a" in name.removeprefix("gas")
            levels = (
                []
                if few == "default"
                else [
                    int(level)
                    for level in name.removeprefix("gas").partition("a")[2].partition(":")[0].split("+")
                    if level
                ]
            )
            usual: dict[str, Any] = {"lag": args.lag, "start": start % 1, "sample_error": args.sample_error}
            history = (
                History(**usual)
                if few == "default"
                else History(
                    None if aggregates or gas else own_p_grad(name, args),
                    None if gas else stale,
                    keep="aggregates" if aggregates else "rows",
                    levels=levels or None,
                    policy="gas" if gas else args.policy,
                    memory=memory,
                    **usual,
                )
            )
            history.attach(model)
        loader = Loader(
            graph,
            fanouts,
            train_nodes,
            batch_size=args.batch_size,
            shuffle=True,
            seed=seed,
            transpose=True,
            history=history,
            neighbor_sampler=Labor(batch_dependency=int(sampler[5:] or 1), edge_weight=False) if sampler else None,
        )
        optimizer = torch.optim.Adam(model.parameters(), args.lr)
        steps = epochs * len(loader)
        falls = torch.optim.lr_scheduler
        decay = falls.CosineAnnealingLR(optimizer, steps) if args.cosine else falls.LinearLR(optimizer, 1.0, 0.0, steps)
        c = Contestant(name or "plain", model, loader, history, optimizer, decay, int(start), epochs - last)
        c.ages = ages(stale, args, len(loader)) if kept else ""
        if not name:
            c.since, c.visits = 0, torch.zeros(graph["y"].numel(), dtype=torch.long)
            c.room = int(memory / graph["x"].element_size() / width)
        result.append(c)
    return result


def run(kind: str, graph: dict[str, Any], args: argparse.Namespace, seed: int, binary: bool) -> list[Contestant]:
    found = contestants(kind, graph, args, seed)
    plain = found[0]
    for epoch in range(args.epochs):
        for c in found:
            if c.since == epoch > 0:
                c.join(plain)
        running = [c for c in found if c.since <= epoch]
        for c in running:
            train(c, graph, epoch, seed)
            if not c.history and c is not plain:
                c.plain_rows = plain.rows - c.before
        scored = []
        for c in running:
            if epoch >= c.until and not c.history:
                continue
            if (epoch + 1) % args.every == 0 or epoch + 1 in (args.epochs, c.until):
                score, tested = evaluate(c.model, graph, args, binary)
                scored.append(f"{c.name} {100 * score:.2f}")
                if score > c.best:
                    c.best, c.tested = score, tested
        if scored:
            print(f"{kind}, seed {seed}, epoch {epoch + 1}, validation: {', '.join(scored)}", flush=True)
    for c in found:
        c.close()
    print(f"{kind}, seed {seed}: " + ", ".join(f"{c.name} {100 * c.tested:.2f}" for c in found), flush=True)
    return found


def saved(runs: list[Contestant], *, since_start: bool = False) -> float:
    """Percent of the rows of plain batches that were not read, of all epochs or of those with history begun."""
    before = 0 if since_start else sum(c.before for c in runs)
    return 100 * (1 - (before + sum(c.rows for c in runs)) / (before + sum(c.plain_rows for c in runs)))


def report(name: str, kind: str, runs: list[list[Contestant]]) -> list[list[str]]:
    lines = []
    plain = [r[0] for r in runs]
    for place in range(len(runs[0])):
        mine = [r[place] for r in runs]
        scores = [100 * c.tested for c in mine]
        deltas = [100 * (c.tested - p.tested) for c, p in zip(mine, plain, strict=True)]
        seconds = statistics.median(s for c in mine for s in c.seconds[1:] or c.seconds)
        of_plain = statistics.median(s for c in plain for s in c.seconds[1:] or c.seconds)
        hits = [sum(layer["hits"] for layer in layers) for layers in zip(*(c.layers for c in mine), strict=True)]
        misses = [sum(layer["misses"] for layer in layers) for layers in zip(*(c.layers for c in mine), strict=True)]
        spread = statistics.stdev(deltas) if len(deltas) > 1 and place else 0.0
        lines.append(
            [
                name,
                kind,
                f"{mine[0].name}{' (' * bool(mine[0].ages)}{mine[0].ages}{')' * bool(mine[0].ages)}",
                f"{statistics.mean(scores):.2f}",
                f"{statistics.mean(deltas):+.2f} ± {spread:.2f}" if place else "",
                f"{saved(mine):.1f}",
                f"{saved(mine, since_start=True):.1f}",
                ", ".join(f"{100 * h / max(1, h + m):.0f}" for h, m in zip(hits, misses, strict=True)),
                f"{seconds:.2f}",
                f"{of_plain / seconds:.2f}",
                f"{100 * sum(c.updating for c in mine) / sum(sum(c.seconds) for c in mine):.1f}" if place else "",
            ]
        )
    hottest = 100 * sum(c.cached for c in plain) / max(1, sum(c.read for c in plain))
    lines.append([name, kind, "hottest features", lines[0][3], "0", f"{hottest:.1f}", f"{hottest:.1f}", *[""] * 4])
    return lines


def cut(graph: dict[str, Any], args: argparse.Namespace) -> None:
    """Splits as the options ask for."""
    if args.split:
        order = torch.randperm(graph["y"].numel(), generator=torch.Generator().manual_seed(0))
        parts = order.tensor_split([int(args.split * len(order)), int((1 + args.split) / 2 * len(order))])
        graph["splits"] = dict(zip(("train", "val", "test"), parts, strict=True))
    if args.train:
        graph["splits"]["train"] = graph["splits"]["train"][: args.train]
    for split in ("val", "test"):
        graph["splits"][split] = graph["splits"][split][: args.score or None]


def main() -> None:
    args = parse()
    head = [
        "graph",
        "model",
        "t_stale",
        "accuracy %",
        "delta",
        "rows saved %",
        "since start",
        "hits % by layer",
        "s/epoch",
        "x",
        "update %",
    ]
    print(machine(), flush=True)
    print(vars(args), flush=True)
    with tempfile.TemporaryDirectory() as work:
        for name in args.graphs.split(","):
            graph = load(name, args.data, Path(work), args.columns)
            if args.standardize:
                graph["x"] = (graph["x"] - graph["x"].mean(0)) / graph["x"].std(0).clamp(min=1e-6)
            cut(graph, args)
            binary = int(graph["y"].max()) == 1
            batches = -(-graph["splits"]["train"].numel() // args.batch_size)
            print(
                f"\n{name}: {graph['y'].numel():,} nodes, {graph['edge_index'].size(1):,} edges, {graph['x'].size(1)} columns, "
                f"{batches} iterations an epoch{', ROC-AUC' if binary else ''}\n",
                flush=True,
            )
            for kind in args.models.split(","):
                runs = [run(kind, graph, args, seed, binary) for seed in range(args.seeds)]
                print("\n" + table([head, *report(name, kind, runs)]) + "\n", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
