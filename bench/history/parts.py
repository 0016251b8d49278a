"""What of a history costs accuracy: that hits are old, or that they pass no gradient?

    python bench/history/parts.py --data DIR --graphs amazon-computers --models sage --stale 0.25:1.0 --seeds 1

The options of accuracy.py. A cache in plain PyTorch with room for every row, admitted and evicted by gradient, over whole
batches, so that each half can be had alone. Trainings from the same weights on the same batches:

    plain        no history
    both         a hit is the kept row and passes no gradient: FreshGNN
    old rows     a hit is the kept row, and its gradient goes on to the row that is computed now
    no gradient  a hit is the row that is computed now, and passes no gradient
    made up for  both, but the gradient of a computed row counts once more for each hit of its node since the last time
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from accuracy import cut, evaluate, make, parse, spans
from graphs import load, machine
from torch import Tensor, nn

from freshgo import Loader
from freshgo.nn import accelerate

NEVER = -(1 << 40)
PARTS = ("plain", "both", "old rows", "no gradient", "made up for")


class Cache:
    """Kept rows of a model of PyG, entered before its dropout."""

    def __init__(self, part: str, model: Any, nodes: int, p_grad: float, t_stale: int) -> None:
        self.part, self.model, self.p_grad, self.t_stale = part, model, p_grad, t_stale
        hidden, layers = model.hidden_channels, model.num_layers
        self.rows = [torch.zeros(nodes, hidden) for _ in range(layers)]
        self.since = [torch.full((nodes,), NEVER) for _ in range(layers)]
        self.missed = [torch.zeros(nodes) for _ in range(layers)]
        self.iteration = self.level = self.hits = self.needed = 0
        model.dropout.register_forward_pre_hook(self._enter)

    def begin(self, batch: Any) -> None:
        """Say which rows of a batch are hits, from the seeds inwards."""
        self.n_id, self.level = batch.n_id, 0
        source, target = batch.edge_index
        layers = len(self.rows)
        self.hit, self.computed = [torch.empty(0)] * layers, [torch.empty(0)] * layers
        self.table, self.values = [torch.empty(0)] * layers, [torch.empty(0)] * layers
        above = torch.arange(len(self.n_id)) < batch.batch_size
        for level in reversed(range(1, layers)):
            read = above.clone()
            read[source[above[target]]] = True
            kept = self.since[level][self.n_id] >= self.iteration - self.t_stale
            self.hit[level], self.computed[level] = read & kept, read & ~kept
            self.hits += int(self.hit[level].sum())
            self.needed += int(read.sum())
            above = self.computed[level]

    def _enter(self, dropout: nn.Module, args: tuple[Tensor]) -> Any:
        if not dropout.training or self.part == "plain":
            return None
        self.level += 1
        (h,) = args
        values = h.detach()
        if self.part == "made up for":
            h = values + (h - values) * (1 + self.missed[self.level][self.n_id[: len(h)], None])
        hit = self.hit[self.level][: len(h), None]
        kept = values if self.part == "no gradient" else self.rows[self.level][self.n_id[: len(h)]]
        table = h + torch.where(hit, kept - h, 0).detach() if self.part == "old rows" else torch.where(hit, kept, h)
        table.retain_grad()
        self.values[self.level], self.table[self.level] = values, table
        return (table,)

    def update(self) -> None:
        """Keep the computed rows with the smallest gradients, and drop hits whose gradients exceed theirs."""
        for level in range(1, len(self.rows)):
            h, gradient = self.values[level], self.table[level].grad
            assert gradient is not None
            norms = gradient.norm(dim=1)
            computed = self.computed[level].nonzero().flatten()
            order = computed[norms[computed].argsort(stable=True)]
            count = math.floor(self.p_grad * len(order) + 0.5)
            entering, others = order[:count], order[count:]
            hits = self.hit[level].nonzero().flatten()
            self.missed[level][self.n_id[computed]] = 0
            self.missed[level][self.n_id[hits]] += 1
            if count and len(others):
                others = torch.cat([others, hits[norms[hits] > norms[entering[-1]]]])
            self.rows[level][self.n_id[entering]] = h[entering]
            self.since[level][self.n_id[entering]] = self.iteration
            self.since[level][self.n_id[others]] = NEVER
        self.iteration += 1


def run(kind: str, graph: dict[str, Any], args: argparse.Namespace, seed: int, binary: bool) -> None:
    classes, width = int(graph["y"].max()) + 1, graph["x"].size(1)
    stale, start, _ = spans(args.stale[0], args)
    trained = []
    for part in PARTS:
        torch.manual_seed(seed)
        model = make(kind, width, classes, args)
        accelerate(model)
        loader = Loader(
            graph,
            args.fanouts,
            graph["splits"]["train"],
            batch_size=args.batch_size,
            shuffle=True,
            seed=seed,
            transpose=True,
        )
        t_stale = stale if isinstance(stale, int) else round(stale * len(loader))
        cache = Cache(part, model, graph["y"].numel(), args.p_grad, t_stale)
        optimizer = torch.optim.Adam(model.parameters(), args.lr)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, args.epochs * len(loader))
        trained.append((part, model, loader, cache, optimizer, decay))
    best = [(-1.0, 0.0)] * len(PARTS)
    for epoch in range(args.epochs):
        for part, model, loader, cache, optimizer, decay in trained:
            model.train()
            cache.part = part if epoch >= start else "plain"
            torch.manual_seed(1000 * seed + epoch)
            for batch in loader:
                if cache.part != "plain":
                    cache.begin(batch)
                out = model(
                    batch.x,
                    batch.edge_index,
                    num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                    num_sampled_edges_per_hop=batch.num_sampled_edges,
                )[: batch.batch_size]
                optimizer.zero_grad()
                F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
                decay.step()
                if cache.part != "plain":
                    cache.update()
        if (epoch + 1) % args.every == 0 or epoch + 1 == args.epochs:
            scores = [evaluate(model, graph, args, binary) for _, model, *_ in trained]
            best = [max(old, new) for old, new in zip(best, scores, strict=True)]
            line = ", ".join(f"{part} {100 * score[0]:.2f}" for part, score in zip(PARTS, scores, strict=True))
            print(f"{kind}, seed {seed}, epoch {epoch + 1}, validation: {line}", flush=True)
    tested = ", ".join(f"{part} {100 * test:.2f}" for part, (_, test) in zip(PARTS, best, strict=True))
    hits = ", ".join(f"{cache.hits / max(1, cache.needed):.0%}" for _, _, _, cache, *_ in trained[1:])
    print(f"{kind}, seed {seed}, test: {tested}; hits of rows read: {hits}", flush=True)
    for _, _, loader, *_ in trained:
        loader.close()


def main() -> None:
    args = parse(__doc__)
    print(machine(), vars(args), sep="\n", flush=True)
    with TemporaryDirectory() as work:
        for name in args.graphs.split(","):
            graph = load(name, args.data, Path(work), args.columns)
            cut(graph, args)
            for kind in args.models.split(","):
                for seed in range(args.seeds):
                    run(kind, graph, args, seed, int(graph["y"].max()) == 1)


if __name__ == "__main__":
    main()
