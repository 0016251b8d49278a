"""FGNN's comparison (GNNLab): rankings of a static cache, and processes that sample or train.

    python bench/papers/fgnn.py [--parts hits,similarity,...] [--graphs web-cnr-2000,...]

  hits        figures 10 and 11: hits of rankings over those of the best static cache, which counts the very accesses, of ten epochs of
              160 batches that the ranking has not seen, for caches of 1, 5, 10 and 20 % of the nodes; uniform, weighted and walks; "auto" is
              what loaders rank by where they choose: they count the first of the epochs that run. Weights are of a log-normal distribution
              where the graph has none. Seconds are processor time: of ranking, and of sampling an epoch
  cost        what a loader's own ranking takes of an epoch of GraphSAGE of 64 columns over 128, in processor time: of 40 batches at most;
              of eight graphs more
  similarity  table 2: accesses to the tenth of the nodes used most that two epochs share
  roles       tables 4 and 5, figure 16a: T_s and T_t, the chosen number of samplers against all fixed ones, with and without switching;
              bench/loader/factored.py's cases. Executors are started once for all epochs
  staleness   test accuracy and the updates that gradients were late by, over the bound
  pinsage     GraphSAGE on walks against GraphSAGE on uniform neighbours: test accuracy

The graphs of several types have all their relations both ways and are read as one type.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from report import HERE, SEED, Report, edges_of, options, rmat
from torch import Tensor
from torch_geometric.nn import GraphSAGE

from freshgo import Loader, RandomWalk, convert, factored, hotness
from freshgo._native import loader as native_loader
from freshgo._native.header import AUTO

for folder in ("loader", "history"):
    sys.path.insert(0, str(HERE.parent / folder))

GRAPHS = "web-cnr-2000,ogbn-arxiv-nofeat,gowalla,rmat"
MORE = "amazon-computers,coauthor-physics,ogbl-ddi,tolokers,lastfm-hetero,hetero-dblp,hetero-acm,sx-mathoverflow"
"""Whose cost is measured as well."""
SHARES = (0.01, 0.05, 0.1, 0.2)
METRICS = ("degree", "expected", "presc:1", "presc:2", "presc:20", "auto")
PARTS = ["hits", "cost", "similarity", "roles", "staleness", "pinsage"]
SAMPLERS: dict[str, dict[str, Any]] = {
    "uniform": {"num_neighbors": [10, 10, 10]},
    "weighted": {"num_neighbors": [10, 10, 10], "weight_attr": "weight"},
    "walks": {"num_neighbors": [RandomWalk(4, 3, 5)] * 3},
}
PANELS = [
    {"title": f"web-cnr-2000, {name}", "table": "hits", "x": "cached, %", "y": ["degree", "presc:1", "presc:20", "auto"],
     "unit": "hits over the best static cache's", "where": {"graph": "web-cnr-2000", "sampler": name}}
    for name in SAMPLERS
]  # fmt: skip


class Workload:
    """A graph and the batches that a sampler draws of a tenth of its nodes."""

    def __init__(self, edges: Tensor, weight: Tensor | None, sampler: str, batches: int = 160) -> None:
        self.num_nodes = int(edges.max()) + 1
        gen = torch.Generator().manual_seed(SEED)
        drawn = torch.randn(edges.size(1), generator=gen).mul(1.5).exp() if weight is None else weight
        self.data = {"edge_index": edges, "x": torch.zeros(self.num_nodes, 1), "weight": drawn}
        seeds = torch.randperm(self.num_nodes, generator=gen)[: self.num_nodes // 10].sort().values
        of_batch = -(-len(seeds) // batches)
        self.given = {**SAMPLERS[sampler], "input_nodes": seeds, "batch_size": of_batch, "shuffle": True}

    def counts(self, epochs: int) -> list[Tensor]:
        """Accesses of each node in each epoch."""
        with Loader(self.data, **self.given, seed=SEED) as loader:
            traces = (torch.cat(list(loader.trace(epoch))) for epoch in range(epochs))
            return [torch.bincount(trace, minlength=self.num_nodes) for trace in traces]

    def scores(self, metric: str) -> Tensor:
        """A ranking that has seen other draws than those that are counted, but for "auto", which a loader makes of its own."""
        kind, _, k = metric.partition(":")
        if kind != "auto":
            return hotness(self.data, kind, **self.given, seed=77, k=int(k or 1))  # type: ignore[arg-type]
        with Loader(self.data, **self.given, seed=SEED) as loader:
            return self.chosen(loader)

    def chosen(self, loader: Loader) -> Tensor:
        """What a loader ranks by where it chooses."""
        engine = loader._engine
        asked: Any = {**engine.request.options, "cache": "oracle", "presc_epochs": AUTO}
        return native_loader.hotness(engine.source.native, self.num_nodes, asked)


def hits(scores: Tensor, counts: Tensor, rows: int) -> int:
    """Accesses that a cache of the rows of the highest scores answers; of equal scores the lower id is first."""
    return int(counts[scores.sort(descending=True, stable=True).indices[:rows]].sum())


def hit_rows(
    name: str, sampler: str, w: Workload, metrics: tuple[str, ...] = METRICS, epochs: int = 10
) -> tuple[list[list[Any]], list[Any]]:
    """A row of the table for each size of the cache, and the processor seconds of sampling an epoch and of rankings."""
    start = time.process_time()
    counts = sum(w.counts(epochs))
    assert isinstance(counts, Tensor)
    sampling = (time.process_time() - start) / epochs
    found, took = {}, {}
    for metric in metrics:
        if metric == "expected" and sampler == "walks":  # it does not follow walks
            continue
        start = time.process_time()
        found[metric] = w.scores(metric)
        took[metric] = time.process_time() - start
    rows = []
    for share in SHARES:
        n = int(share * w.num_nodes)
        best = hits(counts, counts, n)
        reached = [round(hits(found[m], counts, n) / best, 4) if m in found else "" for m in metrics]
        rows.append([name, sampler, f"{100 * share:g}", round(best / int(counts.sum()), 4), *reached])
    seconds = [round(took[m], 2) if m in took else "" for m in metrics]
    return rows, [name, sampler, round(sampling, 2), *seconds]


def cost_row(name: str, sampler: str, w: Workload, most: int = 40) -> list[Any]:
    """Processor seconds of the loader's own ranking, and of an epoch of training."""
    w.data["x"] = torch.randn(w.num_nodes, 128)
    torch.manual_seed(SEED)
    model = GraphSAGE(128, 64, num_layers=3, out_channels=32)
    optimizer = torch.optim.Adam(model.parameters())
    with Loader(w.data, **w.given, seed=SEED) as loader:
        start = time.process_time()
        counted = int(w.chosen(loader).sum())
        ranking, drawn, trained = time.process_time() - start, 0, min(most, len(loader) - 1)
        for number, batch in enumerate(loader):
            if number == 1:  # the first step is slow
                start, drawn = time.process_time(), 0
            drawn += batch.n_id.numel()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            optimizer.zero_grad()
            F.cross_entropy(out, batch.n_id[: batch.batch_size] % 32).backward()
            optimizer.step()
            if number == trained:
                break
        part = len(loader) / trained
        epoch = (time.process_time() - start) * part
    visits = [round(n / w.num_nodes, 1) for n in (drawn * part, counted)]
    return [name, sampler, *visits, round(ranking, 3), round(epoch, 2), round(100 * ranking / epoch, 1)]


def similarity(first: Tensor, second: Tensor, share: float = 0.1) -> float:
    """The accesses to the most used rows of an epoch that another one has among its own (FGNN, 6.2)."""
    n = int(share * len(first))
    top = [counts.topk(n).indices for counts in (first, second)]
    both = torch.isin(top[1], top[0])
    shared = torch.minimum(first[top[1]], second[top[1]])[both].sum()
    return int(shared) / int(second[top[1]].sum())


def of_graphs(asked: list[str], args: Any, report: Report) -> None:
    hit, took, alike, cost = [], [], [], []
    names = args.graphs.split(",")
    for name in [*names, *(MORE.split(",") if args.graphs == GRAPHS and "cost" in asked else [])]:
        edges, weight = (rmat(18, 4_000_000), None) if name == "rmat" else edges_of(args.data / name)
        for sampler in SAMPLERS:
            w = Workload(edges, weight, sampler)
            if "hits" in asked and name in names:
                rows, seconds = hit_rows(name, sampler, w, epochs=args.epochs)
                hit, took = [*hit, *rows], [*took, seconds]
                print(rows[2], flush=True)
            if "cost" in asked:
                cost.append(cost_row(name, sampler, w))
                print(cost[-1], flush=True)
            if "similarity" in asked and name in names:
                alike.append([name, sampler, round(100 * similarity(*w.counts(2)), 2)])
    if hit:
        report.add("hits", ["graph", "sampler", "cached, %", "best", *METRICS], hit)
        report.add("ranking", ["graph", "sampler", "sampling an epoch, s", *METRICS], took, part="hits")
    if cost:
        columns = ["graph", "sampler", "rows of an epoch by node", "counted", "ranking, s", "epoch, s", "ranking, %"]
        report.add("cost", columns, cost)
    if alike:
        report.add("similarity", ["graph", "sampler", "similarity, %"], alike)


def roles(args: Any, report: Report, nodes: int = 50_000, executors: int = 2) -> None:
    import factored as bench

    rows = []
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "g.freshgo"
        convert(bench.generated(nodes), path, progress=False).close()
        for case, settings in bench.CASES.items():
            expected = None
            for label, (chosen, switching) in bench.candidates(executors).items():
                found = [bench.measured(path, settings, executors, chosen, switching) for _ in range(args.rounds)]
                stats = found[-1][3]
                assert expected in (None, found[0][2]), "other roles, other losses"
                expected = found[0][2]
                times = [round(1e3 * stats[key], 2) for key in ("sampling_seconds", "training_seconds")]
                seconds = [round(float(statistics.median(one[place] for one in found)), 2) for place in (0, 1)]
                rows.append([case, label, stats["samplers"], *times, stats["switches"], *seconds])
                print(rows[-1], flush=True)
    columns = ["model", "roles", "samplers", "T_s, ms", "T_t, ms", "switches", "s/epoch", "processor s/epoch"]
    report.add("roles", columns, rows)


def step(model: Any, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])


@torch.no_grad()
def accuracy(model: Any, path: Path, nodes: Tensor, y: Tensor, fanouts: list[Any]) -> float:
    model.eval()
    right = 0
    with Loader(path, fanouts, nodes, batch_size=500, seed=7) as loader:
        for batch in loader:
            right += int(
                (model(batch.x, batch.edge_index)[: batch.batch_size].argmax(1) == batch.y[: batch.batch_size]).sum()
            )
    return 100 * right / len(nodes)


def real(args: Any, work: Path) -> tuple[Path, Tensor, Tensor, Tensor, GraphSAGE]:
    """A store of a labelled graph, its labels, nodes for training and testing, and a model."""
    from graphs import load

    graph = load(args.labelled, args.data, work, 128)
    graph["x"] = (graph["x"] - graph["x"].mean(0)) / graph["x"].std(0).clamp(min=1e-6)
    order = torch.randperm(len(graph["y"]), generator=torch.Generator().manual_seed(SEED))
    path = work / "g.freshgo"
    convert({key: graph[key] for key in ("edge_index", "x", "y")}, path, progress=False, overwrite=True).close()
    torch.manual_seed(SEED)
    model = GraphSAGE(graph["x"].size(1), 64, num_layers=2, out_channels=int(graph["y"].max()) + 1)
    return path, graph["y"], order[:4000], order[8000:], model


def staleness(args: Any, report: Report, bounds: tuple[int, ...] = (0, 1, 4, 16), epochs: int = 5) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for bound in bounds:
            path, y, train, test, model = real(args, Path(work))
            optimizer = torch.optim.Adam(model.parameters(), 0.003)
            with Loader(path, [10, 5], train, batch_size=50, shuffle=True, seed=SEED, memory="256MiB") as loader:
                done = factored.train(
                    step, loader, model, optimizer, executors=2, epochs=epochs, staleness=bound, batches_per_update=1
                )  # fmt: skip
            late = done.stats()["staleness"]["batches"]
            mean = sum(n * count for n, count in enumerate(late)) / max(1, sum(late))
            rows.append([bound, round(mean, 2), round(accuracy(model, path, test, y, [10, 5]), 2)])
            print(rows[-1], flush=True)
    report.add("staleness", ["bound", "mean updates late", "accuracy %"], rows)


def pinsage(args: Any, report: Report, epochs: int = 5) -> None:
    rows = []
    choices: dict[str, list[Any]] = {
        "uniform, [5, 5]": [5, 5],
        "walks, 4 of 3 steps, the top 5": [RandomWalk(4, 3, 5)] * 2,
    }
    with tempfile.TemporaryDirectory() as work:
        for label, fanouts in choices.items():
            path, y, train, test, model = real(args, Path(work))
            optimizer = torch.optim.Adam(model.parameters(), 0.003)
            with Loader(path, fanouts, train, batch_size=50, shuffle=True, seed=SEED, memory="256MiB") as loader:
                for _ in range(epochs):
                    nodes = 0
                    for batch in loader:
                        nodes += batch.n_id.numel()
                        optimizer.zero_grad()
                        step(model, batch).backward()
                        optimizer.step()
            rows.append([label, nodes, round(accuracy(model, path, test, y, fanouts), 2)])
    report.add("pinsage", ["neighbours", "rows of an epoch", "accuracy %"], rows)


def main() -> None:
    parser = options(__doc__, PARTS)
    parser.add_argument("--graphs", default=GRAPHS)
    parser.add_argument("--epochs", type=int, default=10, help="of hits")
    parser.add_argument("--rounds", type=int, default=3, help="of roles")
    parser.add_argument("--labelled", default="amazon-computers", help="graph of staleness and pinsage")
    args = parser.parse_args()
    report, asked = Report("fgnn", args.out), args.parts.split(",")
    of_graphs(asked, args, report)
    for part in (roles, staleness, pinsage):
        if part.__name__ in asked:
            part(args, report)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
