"""Rows of features that history saves, over t_stale, by policy; and the time of an epoch out of core at equal memory.

    python bench/history/saving.py --data DIR --graph community:1000000 --stale 0.25,0.5,1.0,2.0,4.0 --plot saving.png

Every contestant has the same bytes (--memory of the features'): for a cache of features, or for a history's buffer, or
with a share before the policy (0.5 performance) for both, the rest being the cache's. --cache says how that works. A row
counts as read unless the buffer or the cache has it, so the figures compare. "unlimited" has room for every embedding, and so
shows what no policy can exceed at that t_stale. "aggregates" keeps those of level 1 (with --hidden). The graph is converted to a store, so rows come from disk.

Without --hidden the model has no products: each layer adds to a row the mean of its neighbours, --wide times as wide as the
features, which leaves the loader's part of the time. With it, it is PyG's GraphSAGE, accelerated. --disk REQUESTS,MB slows the
disk for all alike and limits what is cached of it, in a control group, where that is allowed.

The first epoch, which is not timed, compares every batch of features with the source. In a timed one the loader would read
ahead while that is done.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from graphs import load, machine, table
from torch import Tensor, nn
from torch_geometric.nn import GraphSAGE

from freshgo import History, Loader, Store, convert
from freshgo.nn import accelerate
from freshgo.ops import aggregate

sys.path.insert(0, str(Path(__file__).parents[1] / "loader"))
import limited
from disk import disk_limits

AGELESS = ("features", "gas")
"""What no t_stale bounds."""


def parse(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--graph", default="community:1000000")
    parser.add_argument("--columns", type=int, default=0, help="project wider features to this number of columns")
    parser.add_argument(
        "--store", type=Path, default=None, help="where the store is made; a temporary folder if absent"
    )
    parser.add_argument("--memory", type=float, default=0.1, help="bytes of every contestant, of the features'")
    parser.add_argument("--stale", default="0.25,0.5,1.0,2.0,4.0")
    parser.add_argument(
        "--policies", default="features,gradient,0.5 gradient,performance,0.5 performance,gas,unlimited"
    )
    parser.add_argument("--cache", default="expected", help="of the rows, as of a Loader")
    parser.add_argument("--p-grad", type=float, default=0.9)
    parser.add_argument("--lag", type=int, default=1)
    parser.add_argument("--fanouts", default="20,15,10")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--train", type=int, default=0, help="the number of training nodes that are used; 0: all")
    parser.add_argument("--epochs", type=int, default=3, help="the last is what counts")
    parser.add_argument("--wide", type=float, default=2, help="an embedding's bytes, of a feature's")
    parser.add_argument("--hidden", type=int, default=0, help="train GraphSAGE of this width")
    parser.add_argument("--disk", type=limited.rates, metavar="REQUESTS,MB", help="at most this a second")
    parser.add_argument(
        "--beside",
        type=int,
        default=192,
        help="with --disk, MiB beside the rows: topology, batches in flight, the model, the interpreter's growth",
    )
    parser.add_argument(
        "--turns", action="store_true", help="contestants take turns, an epoch each, so that times compare"
    )
    parser.add_argument("--plot", type=Path, default=None)
    return parser.parse_args(given)


class Means(nn.Module):
    """A row and the mean of its neighbours, scaled."""

    def __init__(self, layers: int, width: int, history: History | None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((layers,), 0.5))
        self.width, self.history = width, history

    def forward(self, batch: Any) -> Tensor:
        h: Tensor = batch.x
        for number, block in enumerate(batch.blocks()):
            if self.history:
                h = self.history(h, block)
            h = (h[: block.num_dst] + aggregate(h, block.edge_index[0], block.ptr, reduce="mean")) * self.scale[number]
            if number == 0:
                h = h.repeat(1, -(-self.width // h.size(1)))[:, : self.width]
        return h


class Attached(nn.Module):
    """GraphSAGE as it is, or with history."""

    def __init__(self, width: int, hidden: int, layers: int, classes: int, history: History | None) -> None:
        super().__init__()
        self.model = GraphSAGE(width, hidden, layers, classes)
        accelerate(self.model)
        if history:
            history.attach(self.model)

    def forward(self, batch: Any) -> Tensor:
        if getattr(batch.blocks()[0], "levels", None) is not None:
            out: Tensor = self.model(batch.x, batch.edge_index)
            return out
        hops = {
            "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
            "num_sampled_edges_per_hop": batch.num_sampled_edges,
        }
        trimmed: Tensor = self.model(batch.x, batch.edge_index, **hops)
        return trimmed


def history_of(policy: str, stale: float, n_bytes: int, everything: int, args: argparse.Namespace) -> History | None:
    """The history of a contestant; None for a cache of features."""
    if policy == "features":
        return None
    name = policy.split()[-1]
    n_bytes = int(n_bytes * share_of(policy))
    if name == "gas":
        return History(policy="gas", memory=n_bytes, lag=args.lag, keep="rows")
    if name == "unlimited":
        return History(args.p_grad, stale, policy="gradient", memory=everything, lag=args.lag, keep="rows")
    if name == "aggregates":  # of level 1; with --hidden, for there must be a layer that adds up
        return History(t_stale=stale, keep="aggregates", memory=n_bytes, lag=args.lag)
    return History(args.p_grad, stale, policy=name, memory=n_bytes, lag=args.lag, keep="rows")


def share_of(policy: str) -> float:
    """Which part of the bytes a contestant's history has."""
    share, _, of = policy.partition(" ")
    return float(share) if of else float(policy != "features")


def run(
    policy: str, stale: float, store: Store, graph: dict[str, Any], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Train for some epochs, one for each step; at last say what the last one read, and the median time of all but the first."""
    x, layers = graph["x"], len(args.fanouts)
    n_bytes = int(args.memory * x.numel() * 4)
    width = args.hidden or round(args.wide * x.size(1))
    history = history_of(policy, stale, n_bytes, 4 * width * (layers - 1) * len(x), args)
    torch.manual_seed(0)
    classes = int(graph["y"].max()) + 1
    model = Attached(x.size(1), args.hidden, layers, classes, history) if args.hidden else Means(layers, width, history)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = Loader(
        store,
        args.fanouts,
        graph["splits"]["train"],
        batch_size=args.batch_size,
        shuffle=True,
        seed=1,
        cache=args.cache,
        feature_cache=int(n_bytes * (1 - share_of(policy))),
        history=history,
        transpose=True,
    )
    seconds, rows, plain, read, waited = [], 0, 0, 0.0, 0.0
    for epoch in range(args.epochs):
        if epoch:
            yield {}
        before, plain, start = loader.stats(), 0, time.perf_counter()
        for batch in loader:
            levels = getattr(batch.blocks()[0], "levels", None)
            wanted = slice(None) if levels is None else levels.nodes[0]
            if not epoch and not torch.equal(batch.x[wanted], x[batch.n_id[wanted]]):
                raise AssertionError(f"{policy}: rows of features are not the source's")
            plain += batch.n_id.numel() if levels is None else levels.plain_nodes
            out = model(batch)[: batch.batch_size]
            optimizer.zero_grad()
            F.cross_entropy(out[:, :classes], batch.y[: batch.batch_size] % out.size(1)).backward()
            optimizer.step()
            if history:
                history.update()
        seconds.append(time.perf_counter() - start)
        after = loader.stats()
        rows = sum(after[kind] - before[kind] for kind in ("misses", "filled", "packed"))
        waited = after["seconds_waiting"] - before["seconds_waiting"]
        read = (after["bytes_read"] - before["bytes_read"]) / 1e9
    held = history.stats() if history else {}
    loader.close()
    yield {
        "saved": 100 * (1 - rows / plain),
        "read": read,
        "waited": waited,
        "seconds": statistics.median(seconds[1:] or seconds),
        "hits": [100 * one["hits"] / max(1, one["hits"] + one["misses"]) for one in held.get("layers", [])],
        "live": sum(one["live"] for one in held.get("layers", [])),
        "batch": plain / num_batches(graph, args),
    }


def num_batches(graph: dict[str, Any], args: argparse.Namespace) -> int:
    """Of an epoch."""
    return -(-graph["splits"]["train"].numel() // args.batch_size)


def plot(path: Path, curves: dict[str, dict[float, float]], title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (policy, points) in enumerate(curves.items()):
        at = sorted(points)
        flat = policy in AGELESS
        axes.plot(at, [points[s] for s in at], "--" if flat else ".-", color=f"C{number}", label=policy)
    axes.set(xscale="log", xlabel="t_stale in epochs", ylabel="rows saved, %", title=title)
    axes.set_xticks(at, [f"{s:g}" for s in at])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def main() -> None:
    args = parse()
    args.fanouts = [int(f) for f in args.fanouts.split(",")]
    stales = [float(s) for s in args.stale.split(",")]
    print(machine(), flush=True)
    print(vars(args), flush=True)
    with tempfile.TemporaryDirectory(dir=args.store) as work:
        graph = load(args.graph, args.data, Path(work), args.columns)
        if args.train:
            graph["splits"]["train"] = graph["splits"]["train"][: args.train]
        with convert(graph, Path(work) / "g", memory="512MiB", progress=False) as store:
            del graph["edge_index"]
            gc.collect()
            sequential, random = disk_limits(max((Path(work) / "g").rglob("*"), key=lambda file: file.stat().st_size))
            print(f"the disk reads {sequential:,.0f} MB/s in sequence, {random:,.0f} random pages a second", flush=True)
            group = None
            if args.disk:
                group = limited.make(f"freshgo-bench-{os.getpid()}")
                group.enter()
                group.slow(Path(work), args.disk)
                group.limit(group.held() + int(args.memory * graph["x"].numel() * 4) + (args.beside << 20))
            compare(store, graph, stales, args)
    print(machine())


def measure(
    pairs: list[tuple[str, float]], store: Store, graph: dict[str, Any], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """What the contestants did, one after the other, or all at once."""
    if not args.turns:
        for pair in pairs:
            *_, got = run(*pair, store, graph, args)
            yield got
        return
    runs = [run(*pair, store, graph, args) for pair in pairs]
    for _ in range(args.epochs):
        last = [next(one) for one in runs]
    yield from last


def compare(store: Store, graph: dict[str, Any], stales: list[float], args: argparse.Namespace) -> None:
    head = [
        "policy",
        "t_stale",
        "rows saved %",
        "hits % by layer",
        "embeddings",
        "GB read",
        "s/epoch",
        "waiting",
        "x",
    ]
    rows, base, iterations = [head], 0.0, num_batches(graph, args)
    curves: dict[str, dict[float, float]] = {policy: {} for policy in args.policies.split(",")}
    pairs = [(policy, stale) for policy in curves for stale in (stales[:1] if policy in AGELESS else stales)]
    for (policy, stale), got in zip(pairs, measure(pairs, store, graph, args), strict=True):
        base = base or got["seconds"]
        for at in stales if policy in AGELESS else [stale]:
            curves[policy][at] = got["saved"]
        age = "" if policy in AGELESS else f"{stale:g} epochs"
        hits = ", ".join(f"{h:.0f}" for h in got["hits"])
        seconds = [
            f"{got['read']:.2f}",
            f"{got['seconds']:.2f}",
            f"{got['waited']:.2f}",
            f"{base / got['seconds']:.2f}",
        ]
        rows.append([policy, age, f"{got['saved']:.1f}", hits, f"{got['live']:,}", *seconds])
        print(" ".join(rows[-1]), flush=True)
        if len(rows) == 2:
            size = f"{len(graph['x']):,} nodes; a batch has {got['batch']:,.0f}, an epoch {iterations} batches"
            print(size, flush=True)
    print("\n" + table(rows), flush=True)
    if args.plot:
        plot(
            args.plot,
            curves,
            f"{args.graph}, {100 * args.memory:g} % of the features, {iterations} iterations an epoch",
        )


if __name__ == "__main__":
    main()
