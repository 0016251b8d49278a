"""The first layer precomputed against plain training: accuracy and seconds in memory, requests and bytes out of core.

    python bench/history/precomputed.py accuracy amazon-computers --folder ../../shared/data --models sage,gcn,gin
    python bench/history/precomputed.py combined tolokers --stale 0.25a,1.0a,1.0
    python bench/history/precomputed.py disk out/precomputed --nodes 4e6

Plain and precomputed epochs take turns, so that both see the same machine. Plain is accelerated and trimmed layer by layer;
"usual" is the same batches with PyG's model as it is, over whole batches, as most loops over a NeighborLoader are written. Accuracy is that of the whole graph. Processor time
is that of the process, the loader's threads included. "combined" keeps rows (1.0) or aggregates (1.0a) of the second layer
over a precomputed first one, SAGE without norms; of its rows of features each node counts two, x and x_mean.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accuracy import metric
from graphs import load
from torch import nn
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.models import GCN, GIN, GraphSAGE

import freshgo
from freshgo.nn import precomputed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

MODELS = {"sage": GraphSAGE, "gcn": GCN, "gin": GIN}


def forward(model: Any, batch: Any, way: str) -> Any:
    if way == "usual":
        return model(batch.x, batch.edge_index)[: batch.batch_size]
    x = batch.x if "x" in batch else batch.x_gcn
    hops = {f"num_sampled_{of}_per_hop": getattr(batch, f"num_sampled_{of}") for of in ("nodes", "edges")}
    return model(x, batch.edge_index, **hops)[: batch.batch_size]


class Run:
    """One training."""

    def __init__(
        self, data: Any, kind: str, options: argparse.Namespace, fanouts: list[int], seed: int, way: str
    ) -> None:
        torch.manual_seed(seed)
        x, y = data["x"], data["y"]
        norm = "batch_norm" if options.norm or kind == "gin" else None
        self.model = MODELS[kind](x.size(1), options.columns, 3, int(y.max()) + 1, dropout=0.3, norm=norm)
        given: dict[str, Any] = {"batch_size": options.batch, "shuffle": True, "seed": seed, "transpose": True}
        inputs = data["splits"]["train"]
        graph = {name: data[name] for name in ("x", "y", "edge_index")}
        self.seconds_first = 0.0
        self.way = way
        if way != "usual":
            freshgo.nn.accelerate(self.model)
        if way == "precomputed":
            report = precomputed(self.model)
            begin = time.perf_counter()
            graph = freshgo.propagate(graph, "x", reduce=report.first_layer, progress=False)
            self.seconds_first = time.perf_counter() - begin
            self.loader = freshgo.Loader(graph, fanouts[:-1], inputs, first_layer=report.first_layer, **given)
        else:
            self.loader = freshgo.Loader(graph, fanouts, inputs, **given)
        self.data, self.optimizer = data, torch.optim.Adam(self.model.parameters(), lr=options.lr)
        steps = options.epochs * len(self.loader)
        self.decay = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0 if options.decay else 1.0, steps)
        self.processor: list[float] = []

    def epoch(self) -> None:
        self.model.train()
        used = time.process_time()
        for batch in self.loader:
            self.optimizer.zero_grad()
            F.cross_entropy(forward(self.model, batch, self.way), batch.y[: batch.batch_size]).backward()
            self.optimizer.step()
            self.decay.step()
        self.processor.append(time.process_time() - used)

    @torch.no_grad()
    def accuracy(self) -> float:
        self.model.eval()
        test = self.data["splits"]["test"]
        y = self.data["y"]
        return 100 * metric(self.model(self.data["x"], self.data["edge_index"])[test], y[test], int(y.max()) == 1)


def prepare(options: argparse.Namespace) -> dict[str, Any]:
    """The graph as the options ask for it."""
    data = load(options.graph, options.folder, options.work, options.project)
    if options.split:
        order = torch.randperm(data["y"].numel(), generator=torch.Generator().manual_seed(0))
        cuts = [int(part * len(order)) for part in (options.split, (1 + options.split) / 2)]
        data["splits"] = dict(zip(("train", "val", "test"), order.tensor_split(cuts), strict=True))
    if options.standardize:
        data["x"] = (data["x"] - data["x"].mean(0)) / data["x"].std(0).clamp(min=1e-6)
    return data


def accuracy(options: argparse.Namespace) -> None:
    data = prepare(options)
    fanouts = [int(n) for n in options.fanouts.split(",")]
    ways = options.ways.split(",")
    for kind in options.models.split(","):
        found: dict[str, list[float]] = {way: [] for way in ways}
        used: dict[str, list[float]] = {way: [] for way in ways}
        first = 0.0
        for seed in range(options.seeds):
            runs = {way: Run(data, kind, options, fanouts, seed, way) for way in ways}
            for _ in range(options.epochs):
                for run in runs.values():
                    run.epoch()
            for way, run in runs.items():
                found[way].append(run.accuracy())
                used[way] += run.processor
                run.loader.close()
            first = runs["precomputed"].seconds_first
            print(f"{kind}, seed {seed}: " + ", ".join(f"{way} {of[-1]:.2f}" for way, of in found.items()), flush=True)
        against = np.subtract(found["precomputed"], found["plain"])
        times = {way: statistics.median(np.divide(used[way], used["precomputed"]).tolist()) for way in ways}
        show = {way: f"{np.mean(of):.2f} ± {np.std(of):.2f}" for way, of in found.items()}
        print(
            f"{options.graph} {kind} {options.columns} columns, {options.epochs} epochs, {options.seeds} seeds: plain "
            f"{show['plain']}, precomputed {show['precomputed']} ({np.mean(against):+.2f} ± {np.std(against):.2f}); an "
            "epoch's processor time, of precomputed's: "
            + ", ".join(f"{way} {ratio:.2f}" for way, ratio in times.items())
            + f" (medians); aggregates in {first:.2f} s",
            flush=True,
        )


class Combined(nn.Module):
    """Three layers of SAGE, the first over what was added up before, or over the batch."""

    def __init__(self, width: int, columns: int, classes: int, first: bool) -> None:
        super().__init__()
        self.first = first
        self.convs = nn.ModuleList(
            SAGEConv(*ends) for ends in ((width, columns), (columns, columns), (columns, classes))
        )

    def between(self, h: torch.Tensor) -> torch.Tensor:
        return F.dropout(h.relu(), 0.3, self.training)

    def forward(self, batch: Any, history: freshgo.History | None) -> torch.Tensor:
        convs, h = list(self.convs), batch.x
        if self.first:
            own, mean = h.tensor_split(2, dim=1)
            h = self.between(convs[0].lin_l(mean) + convs[0].lin_r(own))
            del convs[0]
        for conv, block in zip(convs, batch.blocks(), strict=True):
            if history is None:
                h = conv((h[: block.num_src], h[: block.num_dst]), block.edge_index)
            else:
                h = history(h, block, conv)
            h = h if conv is self.convs[2] else self.between(h)
        return h[: batch.batch_size]

    def whole(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
            x = x if conv is self.convs[2] else x.relu()
        return x


def combined(options: argparse.Namespace) -> None:
    data = prepare(options)
    x, y, fanouts = data["x"], data["y"], [int(n) for n in options.fanouts.split(",")]
    plain = {name: data[name] for name in ("x", "y", "edge_index")}
    mean = freshgo.propagate(plain, "x", progress=False)["x_mean"]
    graph = {**plain, "x": torch.cat([x, mean], 1)}
    names = ["plain", "precomputed", *options.stale.split(",")]
    scores: dict[str, list[float]] = {name: [] for name in names}
    rows: dict[str, int] = dict.fromkeys(names, 0)
    used: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(options.seeds):
        for name in names:
            torch.manual_seed(seed)
            model = Combined(x.size(1), options.columns, int(y.max()) + 1, name != "plain")
            freshgo.nn.accelerate(model)
            history = None
            if name not in ("plain", "precomputed"):
                keep = "aggregates" if name.endswith("a") else "rows"
                room = 2 * 4 * options.columns * y.numel()
                history = freshgo.History(t_stale=float(name.rstrip("a")), keep=keep, memory=room)
            of, hops = (plain, fanouts) if name == "plain" else (graph, fanouts[:-1])
            inputs, start = data["splits"]["train"], {"batch_size": options.batch, "shuffle": True, "seed": seed}
            loader = freshgo.Loader(of, hops, inputs, transpose=True, history=history, **start)
            optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
            for _ in range(options.epochs):
                began = time.process_time()
                for batch in loader:
                    levels = batch.blocks()[0].levels
                    read = batch.n_id.numel() if levels is None else levels.loaded
                    rows[name] += read * (1 if name == "plain" else 2)
                    optimizer.zero_grad()
                    F.cross_entropy(model(batch, history), batch.y[: batch.batch_size]).backward()
                    optimizer.step()
                    if history is not None:
                        history.update()
                used[name].append(time.process_time() - began)
            loader.close()
            model.eval()
            test = data["splits"]["test"]
            with torch.no_grad():
                scores[name].append(metric(model.whole(x, data["edge_index"])[test], y[test], int(y.max()) == 1))
    for name in names:
        against = [100 * (a - b) for a, b in zip(scores[name], scores["plain"], strict=True)]
        print(
            f"{options.graph}, {options.epochs} epochs, {options.seeds} seeds, {name}: {100 * np.mean(scores[name]):.2f} "
            f"({np.mean(against):+.2f} ± {np.std(against, ddof=min(1, len(against) - 1)):.2f}), rows "
            f"{rows[name] / rows['plain']:.2f}, processor time {np.median(used[name]) / np.median(used['plain']):.2f}",
            flush=True,
        )


def disk_bytes() -> tuple[int, int]:
    """What this process has read from and written to disks."""
    values = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(values["read_bytes"]), int(values["write_bytes"])


def disk(options: argparse.Namespace) -> None:
    nodes, edges, columns = int(options.nodes), 6 * int(options.nodes), 128
    options.path.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    if not (options.path / "plain").exists():
        features = options.path / "x.npy"
        table = np.lib.format.open_memmap(features, "w+", np.float32, (nodes, columns))
        for first in range(0, nodes, 100_000):
            table[first : first + 100_000] = rng.standard_normal(table[first : first + 100_000].shape, dtype=np.float32)
        del table
        graph = {"x": str(features), "edge_index": skewed.edges(nodes, edges, torch.Generator().manual_seed(0))}
        freshgo.convert(graph, options.path / "plain", progress=False).close()
        features.unlink()
    feature_bytes = nodes * columns * 4
    for reduce in ("mean", "gcn"):
        before, begin = disk_bytes(), time.perf_counter()
        store = freshgo.propagate(
            options.path / "plain", reduce=reduce, memory=options.memory, overwrite=True, progress=False
        )
        read, written = (after - was for after, was in zip(disk_bytes(), before, strict=True))
        row = 2 if reduce == "mean" else 1
        print(
            f"{reduce}: {time.perf_counter() - begin:.1f} s, read {read / 1e9:.2f} GB, written {written / 1e9:.2f} GB, "
            f"{(read + written) / ((1 + row) * feature_bytes):.2f} x (read once + write once)",
            flush=True,
        )
    inputs = torch.from_numpy(rng.permutation(nodes)[: options.batches * 1024])
    for cache in ("none", "auto"):
        base: dict[str, Any] = {}
        for name, fanouts, first in (
            ("plain", [15, 10, 5], None),
            ("mean", [15, 10], "mean"),
            ("gcn", [15, 10], "gcn"),
        ):
            loader = freshgo.Loader(
                store,
                fanouts,
                inputs,
                batch_size=1024,
                shuffle=True,
                memory=options.loader_memory,
                first_layer=first,
                cache=cache,
            )
            loader_before, begin = loader.stats(), time.perf_counter()
            rows = sum(batch.n_id.numel() for batch in loader)
            seconds, after = time.perf_counter() - begin, loader.stats()
            counts = {key: after[key] - loader_before[key] for key in ("requests", "bytes_read")}
            counts.update(seconds=seconds, rows=rows)
            base = base or counts
            print(
                f"cache={cache} {name}: "
                + ", ".join(f"{key} {value:.4g} ({value / base[key]:.2f})" for key, value in counts.items()),
                flush=True,
            )
            loader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run, batch in (("accuracy", accuracy, 512), ("combined", combined, 100)):
        command = commands.add_parser(name)
        command.add_argument("graph")
        command.add_argument("--folder", type=Path, default=Path("../../shared/data"))
        command.add_argument("--work", type=Path, default=Path("out"))
        command.add_argument("--project", type=int, default=0, help="project wider features to this number of columns")
        command.add_argument("--standardize", action="store_true")
        command.add_argument("--split", type=float, default=0, help="train on a random part of all nodes")
        command.add_argument("--fanouts", default="10,5,5")
        command.add_argument("--columns", type=int, default=64)
        command.add_argument("--batch", type=int, default=batch)
        command.add_argument("--epochs", type=int, default=5)
        command.add_argument("--seeds", type=int, default=3)
        command.add_argument("--lr", type=float, default=0.005)
        command.set_defaults(run=run)
    command = commands.choices["accuracy"]
    command.add_argument("--models", default="sage,gcn,gin")
    command.add_argument("--ways", default="usual,plain,precomputed")
    command.add_argument("--norm", action="store_true", help="batch norms between the layers; GIN always has them")
    command.add_argument("--decay", action="store_true", help="the learning rate falls linearly to 0")
    command.set_defaults(threads=1)
    commands.choices["combined"].add_argument("--stale", default="0.25a,1.0a,0.25,1.0")
    command = commands.add_parser("disk")
    command.add_argument("path", type=Path)
    command.add_argument("--nodes", type=float, default=4e6)
    command.add_argument("--memory", default="200MiB")
    command.add_argument("--loader-memory", default="700MiB")
    command.add_argument("--batches", type=int, default=8)
    command.set_defaults(run=disk)
    options = parser.parse_args()
    torch.set_num_threads(getattr(options, "threads", len(os.sched_getaffinity(0))))
    options.run(options)


if __name__ == "__main__":
    sys.exit(main())
