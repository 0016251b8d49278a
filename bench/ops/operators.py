"""Message passing: freshgo.ops and accelerate() against PyG's default layers and torch.sparse, interleaved in one process.

    python bench/ops/operators.py [--graph DIR] [--columns 128] [--rounds 9] [--threads 2] [--table]

Every contestant works on the same graph and the same rows, and their results are compared before anything is timed: on
the batch that the loader makes of a synthetic graph, [15, 10, 5] and batch 1024, block by block, and with --graph on the
whole of a real one (a directory with edge_index.npy). "forward" runs without gradients, "both" is forward and backward
with a gradient for the rows. A ratio is the median of the ratios of the rounds, in each of which all ran once.

Operators are the message passing alone: sum, mean, max; GCN with its normalisation, GAT with its logits and softmax,
both from rows that are given (PyG's layers with the identity in place of their product). Layers have their dense products,
which are the same on both sides and shown beside them.

The limit is a C loop with prefetch that touches the bytes that a sum must touch (limits.py), in the same rounds.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from limits import toucher
from torch import Tensor, nn
from torch_geometric.utils import scatter

from freshgo import Loader, ops
from freshgo._batch.structure import Known, remember
from freshgo._ops import kernels
from freshgo.nn import accelerate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed
from results import record

Runs = dict[str, Callable[[], Any]]


def graphs(args: argparse.Namespace) -> dict[str, tuple[Tensor, Tensor, int]]:
    """By name: edge_index, sorted by target, ptr, and the number of rows."""
    found = {}
    nodes = 1_000_000
    data = {"edge_index": skewed.edges(nodes, 12_000_000, torch.Generator().manual_seed(0)), "num_nodes": nodes}
    with Loader(data, [15, 10, 5], torch.arange(0, 1_000_000, 900)[:1024], batch_size=1024) as loader:
        batch = next(iter(loader))
    for block in batch.blocks():
        found[f"block, {block.num_edges:,} edges"] = (block.edge_index.contiguous(), block.ptr, block.num_src)
    if args.graph is not None:
        edge_index = torch.from_numpy(np.load(args.graph / "edge_index.npy"))
        rows = int(edge_index.max()) + 1
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)].contiguous()
        _, ptr, _ = ops.group(edge_index, rows)
        found[f"{args.graph.name}, {edge_index.size(1):,} edges"] = (edge_index, ptr, rows)
    return found


class Table:
    """Times the contestants of a row in turns; "freshgo" is one of them."""

    def __init__(self, rounds: int, as_table: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self.rounds, self.of = rounds, ""
        self.as_table, self.clock = as_table, clock
        self.rows: dict[str, tuple[float, dict[str, float]]] = {}
        """Milliseconds of freshgo, and what the others took of that, by title."""

    def graph(self, title: str) -> None:
        self.of = title
        print(f"\n{title}\n", flush=True)
        if self.as_table:
            print("| | freshgo, ms | PyG | torch.sparse | limit or dense products |\n|---|---|---|---|---|")

    def row(self, title: str, runs: Runs) -> None:
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for i in range(self.rounds + 1):
            for name, run in runs.items():
                start = self.clock()
                run()
                if i > 0:  # the first round warms up
                    seconds[name].append(self.clock() - start)
        for name, each in seconds.items():
            record("ops/operators", f"{title}: {self.of}", name, each)
        ours = seconds.pop("freshgo")
        ratio = {n: statistics.median(a / b for a, b in zip(s, ours, strict=True)) for n, s in seconds.items()}
        took = statistics.median(ours) * 1e3
        self.rows[title] = took, ratio
        if self.as_table:
            rest = [ratio.get("PyG"), ratio.get("torch.sparse"), ratio.get("limit", ratio.get("dense"))]
            print(f"| {title} | {took:.1f} | " + " | ".join("" if r is None else f"{r:.2f}" for r in rest) + " |")
        else:
            others = ", ".join(f"{n} {statistics.median(s) * 1e3:.1f} ({ratio[n]:.2f} x)" for n, s in seconds.items())
            print(f"  {title:22} freshgo {took:.1f} ms; {others}", flush=True)


def with_gradient(x: Tensor, run: Callable[[Tensor], Tensor], grad: Tensor) -> Callable[[], None]:
    def both() -> None:
        x.grad = None
        run(x).backward(grad)

    return both


def agree(runs: dict[str, Callable[[Tensor], Tensor]], x: Tensor, grad: Tensor, kinks: int = 0) -> None:
    """Compare results and gradients, of which as many rows as there are kinks may differ."""
    found = []
    for run in runs.values():
        leaf = x.detach().clone().requires_grad_()
        out = run(leaf)
        found.append((out.detach(), *torch.autograd.grad(out, leaf, grad)))
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            same = torch.isclose(mine, theirs, rtol=1e-3, atol=1e-3).all(1)
            if len(same) - int(same.sum()) > kinks:
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def sums(table: Table, edge_index: Tensor, ptr: Tensor, x: Tensor, by_source: ops.Transposed, threads: int) -> None:
    index, target, targets = edge_index[0], edge_index[1], ptr.numel() - 1
    leaf, grad = x.clone().requires_grad_(), torch.randn(targets, x.size(1))
    touch = toucher(threads)
    there, back = torch.zeros(targets, x.size(1)), torch.zeros_like(x)
    targets_by_source = by_source.target.long()
    for reduce in ("sum", "mean", "max"):

        def ours(x: Tensor, r: Any = reduce) -> Tensor:
            return ops.aggregate(x, index, ptr, reduce=r, transposed=by_source)

        def theirs(x: Tensor, r: str = reduce) -> Tensor:
            return scatter(x.index_select(0, index), target, 0, targets, r)

        runs: dict[str, Callable[[Tensor], Tensor]] = {"freshgo": ours, "PyG": theirs}
        if reduce == "sum":
            csr = torch.sparse_csr_tensor(ptr, index, torch.ones(index.numel()), (targets, x.size(0)))
            runs["torch.sparse"] = lambda x, csr=csr: csr @ x
        # torch.scatter_reduce halves the gradient of single maxima here and there, one of 40 million.
        agree(runs, x, grad, kinks=4 if reduce == "max" else 0)
        forward: Runs = {name: (lambda run=run: run(x)) for name, run in runs.items()}
        both: Runs = {name: with_gradient(leaf, run, grad) for name, run in runs.items()}
        if reduce == "sum":
            forward["limit"] = lambda: touch(x, index, ptr, there)

            def limit() -> None:
                touch(x, index, ptr, there)
                touch(grad, targets_by_source, by_source.ptr, back)

            both["limit"] = limit
        table.row(f"{reduce}, forward", forward)
        table.row(f"{reduce}, both", both)


def pair(layer: Any) -> tuple[Any, Any]:
    faster = copy.deepcopy(layer)
    accelerate(faster)
    return faster, layer


def layers(table: Table, edge_index: Tensor, ptr: Tensor, x: Tensor, by_source: ops.Transposed) -> None:
    """Layers of PyG before and after accelerate(); the batch knows its pointers, as those of the loader do."""
    targets, width = ptr.numel() - 1, x.size(1)
    leaf = x.clone().requires_grad_()
    plain = edge_index.clone()  # PyG's own gets the bare tensor
    remember(edge_index, Known(edge_index, ptr, by_source))
    gcn, gat = pyg.GCNConv(width, width, bias=False), pyg.GATConv(width, width // 8, heads=8, bias=False)
    gcn.lin, gat.lin = nn.Identity(), nn.Identity()
    contests = {
        "GCN": (gcn, False, 0),
        "GAT, 8 heads": (gat, False, 0),
        "layer SAGE": (pyg.SAGEConv(width, width), True, 2),
        "layer SAGE, max": (pyg.SAGEConv(width, width, aggr="max"), True, 2),
        "layer GCN": (pyg.GCNConv(width, width), False, 1),
        "layer GAT, 8 heads": (pyg.GATConv(width, width // 8, heads=8), False, 1),
    }
    weight = torch.randn(width, width, requires_grad=True)
    for title, (layer, bipartite, products) in contests.items():
        faster, _ = pair(layer)

        def run(x: Tensor, conv: Any, graph: Tensor, b: bool = bipartite) -> Tensor:
            return conv((x, x[:targets]) if b else x, graph)

        calls: dict[str, Callable[[Tensor], Tensor]] = {
            "freshgo": lambda x, conv=faster, run=run: run(x, conv, edge_index),
            "PyG": lambda x, conv=layer, run=run: run(x, conv, plain),
        }
        grad = torch.randn_like(calls["freshgo"](x))
        # Of some millions of logits of attention float32 may not know the sign of one, and so its slope, as float64
        # shows: then the rows at its ends differ.
        agree(calls, x, grad, kinks=4 if "GAT" in title or "max" in title else 0)
        both: Runs = {name: with_gradient(leaf, call, grad) for name, call in calls.items()}
        if products:  # what no message passing can save
            rows = grad.detach().clone().requires_grad_()

            def dense(rows: Tensor = rows, grad: Tensor = grad, products: int = products) -> None:
                for _ in range(products):
                    rows.grad = weight.grad = None
                    nn.functional.linear(rows, weight).backward(grad)

            both["dense"] = dense
        table.row(f"{title}, both", both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--table", action="store_true", help="as Markdown, ratios to freshgo")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    isa = ("portable", "AVX2", "AVX-512")[kernels.prepare()]
    print(f"{args.threads} threads, {isa}, {args.columns} float32 columns, torch {torch.__version__}")
    table = Table(args.rounds, args.table)
    for name, (edge_index, ptr, rows) in graphs(args).items():
        table.graph(f"{name}, {ptr.numel() - 1:,} targets, {rows:,} rows")
        made = ops.transpose(edge_index[0], ptr, rows)
        by_source = ops.Transposed(made.ptr, made.target.int(), made.edge.int())  # as the loader brings it
        x = torch.randn(rows, args.columns)
        sums(table, edge_index, ptr, x, by_source, args.threads)
        layers(table, edge_index, ptr, x, by_source)


if __name__ == "__main__":
    main()
