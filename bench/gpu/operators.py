"""Operators on the device against what else computes them there, and against the device's own limits.

    FRESHGO_JOURNAL=FILE python bench/gpu/operators.py

"forward" runs without gradients, "both" is forward and backward with a gradient for the rows. Results are compared before
they are timed. The share is the bytes that a sum must move (the row of every edge, its index, and every row of the result,
and the same by source on the way back), in the time that it took, of what a copy moves on the device: with a cache that is
larger than the rows it can exceed 1. Without a GPU this is a rehearsal on the CPU.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from measure import Journal, Meter, limits
from torch import Tensor, nn
from torch_geometric.utils import scatter

from freshgo import Loader, ops
from freshgo._batch.structure import Known, remember
from freshgo._device import rows as device_rows
from freshgo.nn import accelerate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

Layer = Callable[[Tensor], Tensor]

journal, meter = Journal(), Meter()
COLUMNS = 128


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError):
        return None


class Graph:
    """Edges in the order of their targets, with pointers, and by source."""

    def __init__(self, name: str, edge_index: Tensor, ptr: Tensor, rows: int) -> None:
        self.name = name
        self.edge_index, self.ptr, self.rows = edge_index.to(meter.device), ptr.to(meter.device), rows
        self.targets, self.edges = ptr.numel() - 1, edge_index.size(1)
        made = ops.transpose(self.edge_index[0], self.ptr, rows)
        self.by_source = ops.Transposed(made.ptr, made.target.int(), made.edge.int())  # as the loader brings it
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(rows, COLUMNS, generator=generator).to(meter.device)
        self.grad = torch.randn(self.targets, COLUMNS, generator=generator).to(meter.device)

    def least_bytes(self, both: bool) -> int:
        row = COLUMNS * 4
        forward = self.edges * (row + 8) + self.targets * (row + 8)
        return forward + (self.edges * (row + 4) + self.rows * (row + 8) if both else 0)


def blocks() -> list[Graph]:
    """The largest block of a batch of 1024, which is small for a GPU, and of one of 16384; and a whole graph."""
    nodes, edges = (1_000_000, 15_000_000) if meter.real else (3000, 30_000)
    generator = torch.Generator().manual_seed(0)
    edge_index = skewed.edges(nodes, edges, generator)
    found = []
    for size in (1024, 16_384) if meter.real else (64,):
        seeds = torch.randperm(nodes, generator=generator)[:size]
        with Loader({"edge_index": edge_index, "num_nodes": nodes}, [15, 10, 5], seeds, batch_size=size) as loader:
            block = next(iter(loader)).blocks()[0]
        found.append(Graph(f"block of a batch of {size}", block.edge_index.contiguous(), block.ptr, block.num_src))
    room = torch.cuda.mem_get_info()[0] if meter.real else 1 << 40
    edge_index = edge_index[:, : min(edges, room // (COLUMNS * 4 * 6))]  # PyG keeps several tensors of edges by columns
    index, ptr, _ = ops.group(edge_index, nodes)
    target = torch.repeat_interleave(torch.arange(nodes), ptr.diff())
    found.append(Graph("whole graph", torch.stack([index, target]), ptr, nodes))
    return found


def agree(layers: dict[str, Layer], graph: Graph, kinks: int) -> dict[str, Layer]:
    """Those whose results and gradients are the first one's, of which as many rows as there are kinks may differ."""
    first, kept = None, {}
    for name, layer in layers.items():
        try:
            leaf = graph.x.clone().requires_grad_()
            out = layer(leaf)
            found = out.detach(), torch.autograd.grad(out, leaf, graph.grad)[0]
        except Exception as error:
            journal.write(failed=f"{name} on {graph.name}", why=f"{type(error).__name__}: {error}"[:300])
            if first is None:
                raise
            continue
        first = found if first is None else first
        wrong = sum(
            int((~torch.isclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))).any(1).sum())
            for a, b in zip(first, found, strict=True)
        )
        if wrong > kinks:
            journal.write(failed=f"{name} on {graph.name}", why=f"{wrong} rows differ from those of freshgo")
            continue
        kept[name] = layer
    return kept


def contest(title: str, graph: Graph, layers: dict[str, Layer], copied: float, *, kinks: int = 0, plain: bool) -> None:
    layers = agree(layers, graph, kinks)
    leaf = graph.x.clone().requires_grad_()

    def both(layer: Layer) -> Callable[[], None]:
        def run() -> None:
            leaf.grad = None
            layer(leaf).backward(graph.grad)

        return run

    for way in ("forward", "both"):
        if way == "both":
            runs: dict[str, Any] = {name: both(layer) for name, layer in layers.items()}
        else:
            runs = {name: (lambda layer=layer: layer(graph.x)) for name, layer in layers.items()}
        taken = meter.contest(runs)
        record: dict[str, Any] = {"contest": f"{title}, {way}", "graph": graph.name, "edges": graph.edges}
        record["ms"] = {name: round(seconds * 1e3, 4) for name, seconds in taken.items()}
        record["ratio"] = {name: round(seconds / taken["freshgo"], 2) for name, seconds in taken.items()}
        if plain:
            record["share"] = round(graph.least_bytes(way == "both") / taken["freshgo"] / copied, 3)
        journal.write(**record)
        if way == "both" and "PyG" in taken and graph.name == "whole graph":
            journal.goal(f"{title}: times as fast as PyG", 3, taken["PyG"] / taken["freshgo"])
            if title == "sum":
                journal.goal("sum: share of the bandwidth of a copy", 0.7, record["share"])


def sums(graph: Graph, copied: float) -> None:
    index, target = graph.edge_index
    torch_scatter, torch_sparse, pyg_lib = map(optional, ("torch_scatter", "torch_sparse", "pyg_lib"))
    journal.write(note=f"torch-scatter {torch_scatter is not None}, torch-sparse {torch_sparse is not None}, "
                       f"pyg-lib {pyg_lib is not None} (which PyG's own functions use where it is)")  # fmt: skip
    for reduce in ("sum", "mean", "max"):
        layers: dict[str, Layer] = {
            "freshgo": lambda x, r=reduce: ops.aggregate(x, index, graph.ptr, reduce=r, transposed=graph.by_source),
            "PyG": lambda x, r=reduce: scatter(x.index_select(0, index), target, 0, graph.targets, r),
        }
        if reduce == "sum":
            csr = torch.sparse_csr_tensor(
                graph.ptr, index, torch.ones(graph.edges, device=meter.device), (graph.targets, graph.rows)
            )
            layers["torch.sparse"] = lambda x, csr=csr: csr @ x
        if torch_scatter is not None:
            layers["torch-scatter"] = lambda x, r=reduce: torch_scatter.segment_csr(
                x.index_select(0, index), graph.ptr, reduce=r
            )
        if torch_sparse is not None:
            made = torch_sparse.SparseTensor(rowptr=graph.ptr, col=index, sparse_sizes=(graph.targets, graph.rows))
            layers["torch-sparse"] = lambda x, made=made, r=reduce: torch_sparse.matmul(made, x, reduce=r)
        # Maxima that tie, and float32 sums of millions of terms in another order
        journal.attempt(
            f"{reduce} on {graph.name}",
            lambda layers=layers, r=reduce: contest(
                r, graph, layers, copied, kinks=graph.rows // 1000 if r == "max" else 0, plain=True
            ),
        )


def layers_of_pyg(graph: Graph, copied: float) -> None:
    """GCN with its normalisation, GIN, GAT with its logits and softmax, from rows that are given: without the product."""
    plain = graph.edge_index.clone()  # PyG's own gets the bare tensor
    remember(graph.edge_index, Known(graph.edge_index, graph.ptr, graph.by_source))
    gcn, gat = pyg.GCNConv(COLUMNS, COLUMNS, bias=False), pyg.GATConv(COLUMNS, COLUMNS // 8, heads=8, bias=False)
    gcn.lin, gat.lin = nn.Identity(), nn.Identity()
    for title, layer in {"GCN": gcn, "GIN": pyg.GINConv(nn.Identity()), "GAT, 8 heads": gat}.items():
        layer = layer.to(meter.device)
        faster = copy.deepcopy(layer)
        accelerate(faster)

        def run(x: Tensor, conv: Any, edges: Tensor, pair: bool) -> Tensor:
            return conv((x, x[: graph.targets]) if pair else x, edges)[: graph.targets]

        pair = title == "GIN"
        calls: dict[str, Layer] = {
            "freshgo": lambda x, conv=faster, pair=pair: run(x, conv, graph.edge_index, pair),
            "PyG": lambda x, conv=layer, pair=pair: run(x, conv, plain, pair),
        }
        # float32 may not know the sign of a logit that is nearly 0, and so its slope: rows at its ends differ then.
        kinks = 100 if "GAT" in title else 0
        journal.attempt(
            f"{title} on {graph.name}",
            lambda title=title, calls=calls, kinks=kinks: contest(
                title, graph, calls, copied, kinks=kinks, plain=False
            ),
        )


def numbering() -> None:
    n, ids_below = (8_000_000, 4_000_000) if meter.real else (20_000, 10_000)
    generator = torch.Generator().manual_seed(3)
    ids = skewed.ids(ids_below, n, generator).to(meter.device)
    node, local, count = ops.number(ids)
    values = torch.unique(ids)
    assert int(count) == values.numel()
    assert node[: int(count)].sort().values.equal(values)
    assert node[local].equal(ids)
    taken = meter.contest(
        {"freshgo": lambda: ops.number(ids), "torch.unique": lambda: torch.unique(ids, return_inverse=True)}
    )
    ratio = taken["torch.unique"] / taken["freshgo"]
    journal.write(contest="Fused-Map", graph=f"{n} ids", ms={k: round(v * 1e3, 3) for k, v in taken.items()},
                  ratio={"freshgo": 1.0, "torch.unique": round(ratio, 2)})  # fmt: skip
    journal.goal("Fused-Map: times as fast as sorting", 2, ratio)


def gathering(bus: float) -> None:
    """Rows of 512 bytes, drawn at random, from locked memory of the host to the device."""
    rows, n = (2_000_000, 400_000) if meter.real else (2000, 400)
    table = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(4))
    table = table.pin_memory() if meter.real else table
    index = torch.randperm(rows, generator=torch.Generator().manual_seed(5))[:n]
    none, place = torch.empty(0, COLUMNS, device=meter.device), (~index).int().to(meter.device)
    buffer = torch.empty(n, COLUMNS, pin_memory=meter.real)
    out = torch.empty(n, COLUMNS, device=meter.device)
    assemble = device_rows.by_kernel if meter.real else device_rows.assemble

    def copied() -> None:
        meter.finish()  # the buffer is free when its copy is done
        torch.index_select(table, 0, index, out=buffer)
        out.copy_(buffer, non_blocking=True)

    assert assemble(none, table, place).cpu().equal(table[index])
    taken = meter.contest({"freshgo": lambda: assemble(none, table, place), "index_select, then a copy": copied})
    share = n * COLUMNS * 4 / taken["freshgo"] / bus
    journal.write(contest="gather from locked memory", graph=f"{n} rows of 512 bytes",
                  ms={k: round(v * 1e3, 3) for k, v in taken.items()},
                  ratio={k: round(v / taken["freshgo"], 2) for k, v in taken.items()}, share=round(share, 3))  # fmt: skip
    journal.goal("gather from locked memory: share of the bus", 0.8, share)


def launching(graph: Graph) -> None:
    """What a call costs the host: queued work of a small graph, 1000 times, without waiting."""
    import time

    x, index, ptr = graph.x[:100, :4].contiguous(), torch.zeros(8, dtype=torch.int64), torch.arange(9)
    index, ptr = index.to(meter.device), ptr.to(meter.device)
    for _ in range(3):
        meter.finish()
        begin = time.perf_counter()
        for _ in range(1000):
            ops.aggregate(x, index, ptr)
        took = time.perf_counter() - begin
        meter.finish()
    journal.write(contest="a call of the host", graph="8 edges", ms={"freshgo": round(took, 4)}, ratio={"freshgo": 1.0})


def main() -> None:
    found = limits(meter, journal)
    copied, bus = found["copy on the device"], found["from locked memory"]
    journal.attempt("numbering", numbering)
    journal.attempt("gathering", lambda: gathering(bus))
    graphs = journal.attempt("graphs", blocks) or []
    for graph in reversed(graphs):
        sums(graph, copied)
        layers_of_pyg(graph, copied)
    if graphs:
        journal.attempt("launching", lambda: launching(graphs[0]))


if __name__ == "__main__":
    main()
