"""Temporal link prediction on sx-mathoverflow: who will answer whom, from neighbourhoods as they were at a link's time.

    OMP_NUM_THREADS=1 python examples/temporal_links.py [DIRECTORY] [--static] [--store PATH --memory 32MiB]

DIRECTORY holds edge_index.npy [2, E], who wrote to whom, and time.npy [E], ascending seconds. Without it people are
generated who write to those they wrote to of late, and to few others. The first 70 % of the events are for training,
the next 15 % for validation, the last for the test. The model gets the ends of a link and 20 negatives, targets drawn
among those of the training events, and scores each; the figures are mean reciprocal ranks of the true target. Each
person's neighbourhood is that of one second earlier: the latest 8 events, and the latest 4 of each of these people. So
a test link sees the test events before it, and no others.

--static runs the same model without times: neighbours are drawn among all training events except the links of the
batch, and for the test among all events before it. With --store the graph is converted and stays on disk; the figures
do not change.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from freshgo import LinkLoader, convert

SPANS = torch.tensor([3600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0, 365 * 86_400.0])


def generated(people: int = 2_000, events: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """Return who wrote to whom and when: half of the time to one of the last four whom the person wrote to."""
    rng = np.random.default_rng(0)
    source, anyone = rng.integers(people, size=events), rng.integers(people, size=events)
    again, which = rng.random(events) < 0.5, rng.integers(4, size=events)
    last: list[list[int]] = [[] for _ in range(people)]
    target = np.empty(events, np.int64)
    for i, who in enumerate(source.tolist()):
        known = last[who]
        target[i] = known[which[i] % len(known)] if known and again[i] else anyone[i]
        last[who] = [*known[-3:], int(target[i])]
    return np.stack([source, target]), np.sort(rng.integers(3 * 365 * 86_400, size=events))


class Events:
    """The events, and where they are split."""

    def __init__(self, edge_index: np.ndarray, times: np.ndarray) -> None:
        self.edges, self.times = torch.from_numpy(edge_index), torch.from_numpy(times)
        self.num_nodes, count = int(self.edges.max()) + 1, self.times.numel()
        parts = np.split(np.arange(count), [count * 7 // 10, count * 17 // 20])
        self.parts = dict(zip(("train", "val", "test"), parts, strict=True))
        self.popular = torch.bincount(self.edges[1, self.parts["train"]], minlength=self.num_nodes).double()
        pair, at = np.unique(edge_index[0] * self.num_nodes + edge_index[1], return_index=True)
        self.met = torch.from_numpy(pair), self.times[at]  # when they first did

    def graph(self, before: int) -> dict:
        """A graph of the first events, with an edge each way."""
        edges, times = self.edges[:, :before], self.times[:before]
        return {
            "num_nodes": self.num_nodes,
            "edge_index": torch.cat([edges, edges.flip(0)], 1),
            "time": torch.cat([times, times]),
        }

    def have_met(self, source: Tensor, target: Tensor, at: Tensor) -> Tensor:
        """Whether a source wrote to a target before (EdgeBank, Poursafaei et al., NeurIPS 2022)."""
        pair, first = self.met
        key = source * self.num_nodes + target
        place = torch.searchsorted(pair, key).clamp_(max=pair.numel() - 1)
        return (pair[place] == key) & (first[place] < at)


class Model(nn.Module):
    """Embeddings, two layers over what was said and how long ago, and a perceptron over a link's ends."""

    def __init__(self, num_nodes: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_nodes, width)
        self.own = nn.ModuleList(nn.Linear(width + len(SPANS), width) for _ in range(2))
        self.said = nn.ModuleList(nn.Linear(width + len(SPANS), width) for _ in range(2))
        self.score = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1))
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, batch: object, timed: bool) -> Tensor:
        """Return scores [links, 1 + negatives], those of the true targets first."""
        h = self.embedding(batch.n_id)
        recent = torch.zeros(batch.e_id.numel(), len(SPANS))
        if timed:  # of each edge, by the time of the link in whose tree it is
            ago = batch.seed_time[batch.batch[batch.edge_index[1]]] - batch.time
            recent = torch.exp(-ago[:, None] / SPANS)
        for own, said, block in zip(self.own, self.said, batch.blocks(), strict=True):
            source, target = block.edge_index
            rows = torch.cat([h[source], recent[: source.numel()]], 1)
            count = torch.bincount(target, minlength=block.num_dst).clamp_(min=1)
            mean = torch.zeros(block.num_dst, rows.size(1)).index_add_(0, target, rows) / count[:, None]
            h = (own(torch.cat([h[: block.num_dst], mean[:, -len(SPANS) :]], 1)) + said(mean)).relu()
        targets = torch.cat([batch.dst_pos_index[:, None], batch.dst_neg_index.view(batch.batch_size, -1)], 1)
        s, t = h[batch.src_index][:, None].expand(-1, targets.size(1), -1), h[targets]
        return self.score(torch.cat([s * t, s, t], 2)).squeeze(2)


def links(data: Events, graph: object, events: np.ndarray, negatives: int, static: bool, **options) -> LinkLoader:
    """Batches of these events and negatives, with what their people had done until then."""
    how = {"time_attr": "time", "edge_label_time": data.times[events] - 1, "temporal_strategy": "last"}
    return LinkLoader(
        graph,
        [8, 4],
        data.edges[:, events],
        neg_sampling={"mode": "triplet", "amount": negatives, "dst_weight": (data.popular > 0).double()},
        **({"disjoint": True} if static else how),
        **options,
    )


def reciprocal_ranks(score: Tensor) -> Tensor:
    """Of the first of each row; among equals the middle."""
    true, others = score[:, :1], score[:, 1:]
    return 1 / (1 + (others > true).sum(1) + 0.5 * (others == true).sum(1))


@torch.no_grad()
def test(model: Model, data: Events, graph: object, part: str, args: argparse.Namespace) -> dict[str, float]:
    """Mean reciprocal ranks of the model and of what needs none."""
    model.eval()
    events = data.parts[part]
    events = events[:: max(1, len(events) // args.test)]
    options = {"batch_size": 256, "seed": 1, "memory": args.memory}
    ranks: dict[str, list[Tensor]] = {"model": [], "popular": [], "have met": []}
    with links(data, graph, events, 20, args.static, **options) as loader:
        for batch in loader:
            source, true = batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]
            targets = torch.cat([true[:, None], batch.n_id[batch.dst_neg_index]], 1)
            at = data.times[events[batch.input_id]]
            ranks["model"].append(reciprocal_ranks(model(batch, not args.static)))
            ranks["popular"].append(reciprocal_ranks(data.popular[targets]))
            met = data.have_met(source[:, None].expand_as(targets), targets, at[:, None])
            ranks["have met"].append(reciprocal_ranks(met.float()))
    return {name: float(torch.cat(parts).mean()) for name, parts in ranks.items()}


def main(arguments: list[str] | None = None) -> dict[str, object]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=200, help="of an epoch; 0: all")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--test", type=int, default=4000, help="links that are ranked, spread over those of the split")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--static", action="store_true", help="draw neighbours without regard to time")
    parser.add_argument("--store", type=Path, default=None, help="convert the graph to this path and leave it on disk")
    parser.add_argument("--memory", default=None)
    args = parser.parse_args(arguments)

    if args.directory is None:
        data = Events(*generated())
    else:
        data = Events(*(np.load(args.directory / f"{name}.npy") for name in ("edge_index", "time")))
    train = data.parts["train"]

    def graph(before: int) -> object:
        if args.store is None:
            return data.graph(before)
        convert(data.graph(before), args.store.with_suffix(f".{before}"), overwrite=True, progress=False).close()
        return args.store.with_suffix(f".{before}")

    # Times exclude the future. Without them it must not be in the graph.
    whole = None if args.static else graph(data.times.numel())
    graphs = {part: graph(data.parts[part][0]) if args.static else whole for part in ("val", "test")}
    torch.manual_seed(args.seed)
    model = Model(data.num_nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    options = {"batch_size": args.batch_size, "shuffle": True, "seed": args.seed, "memory": args.memory}
    if args.static:  # every event is an edge of the graph, and no time tells it from those before
        options["exclude_seed_edges"] = "reverse"
    results: dict[str, object] = {"losses": []}
    with links(data, graph(len(train)) if args.static else whole, train, 4, args.static, **options) as loader:
        for epoch in range(args.epochs):
            model.train()
            began, losses = time.monotonic(), []
            for i, batch in enumerate(loader):
                if args.batches and i == args.batches:
                    break
                optimizer.zero_grad()
                score = model(batch, not args.static)
                loss = F.cross_entropy(score, torch.zeros(score.size(0), dtype=torch.int64))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            seconds = time.monotonic() - began
            results["losses"] += losses
            results["val"] = test(model, data, graphs["val"], "val", args)
            loss, val = sum(losses) / len(losses), results["val"]["model"]
            print(f"epoch {epoch}: loss {loss:.4f}, validation MRR {val:.4f}, {seconds:.0f} s", flush=True)
    results["test"] = test(model, data, graphs["test"], "test", args)
    print("test MRR:", ", ".join(f"{name} {value:.4f}" for name, value in results["test"].items()), flush=True)
    return results


if __name__ == "__main__":
    main()
