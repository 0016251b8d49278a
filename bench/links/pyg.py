"""Batches of links: freshgo against PyG's LinkNeighborLoader, interleaved in one process.

    python bench/links/pyg.py [--nodes 200000] [--edges 2000000] [--batches 20] [--rounds 3]

Both draw [10, 5] neighbours for 1024 links and as many binary negatives, of the same Data in memory, one thread each. The
other contestants of freshgo do what PyG's cannot: keep a batch's links out of its edges, and negatives from being links; and,
where PyG goes without pyg-lib, give every end a tree of its own, without times and with them (a batch then has about as many
nodes as edges). The rows that are typed are of a HeteroData: users and items, the same edges between them and back. The time
is that of a batch, the median over rounds, and the ratio is PyG's time over it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader

from freshgo import LinkLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

RATES = ("user", "rates", "item")


def typed(nodes: int, edge_index: torch.Tensor) -> HeteroData:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(nodes, 32), torch.randn(nodes, 32)
    data[RATES].edge_index = edge_index
    data["item", "rev_rates", "user"].edge_index = edge_index.flip(0).contiguous()
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 200_000), ("edges", 2_000_000), ("batches", 20), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(0)
    edge_index = skewed.edges(args.nodes, args.edges, gen, power=2)
    data = Data(x=torch.randn(args.nodes, 32, generator=gen), edge_index=edge_index)
    timed = {"x": data.x, "edge_index": data.edge_index, "time": torch.randint(1000, (args.edges,), generator=gen)}
    what = {"edge_label_index": data.edge_index, "neg_sampling": "binary", "batch_size": 1024, "shuffle": True}
    ours = {"num_workers": 1, "prefetch": 0}
    contestants = {
        "PyG": LinkNeighborLoader(data, [10, 5], **what),
        "freshgo": LinkLoader(data, [10, 5], **what, **ours),
        "freshgo, exclude": LinkLoader(data, [10, 5], **what, **ours, exclude_seed_edges="reverse"),
        "freshgo, strict": LinkLoader(data, [10, 5], **what, **ours, strict_negatives=True),
        "freshgo, disjoint": LinkLoader(data, [10, 5], **what, **ours, disjoint=True),
        "freshgo, times": LinkLoader(timed, [10, 5], edge_label_time=timed["time"], time_attr="time", **what, **ours),
    }
    hetero = typed(args.nodes, edge_index)
    what["edge_label_index"] = RATES
    contestants |= {
        "PyG, typed": LinkNeighborLoader(hetero, [10, 5], **what),
        "freshgo, typed": LinkLoader(hetero, [10, 5], **what, **ours),
        "freshgo, typed, exclude": LinkLoader(hetero, [10, 5], **what, **ours, exclude_seed_edges="reverse"),
        "freshgo, typed, strict": LinkLoader(hetero, [10, 5], **what, **ours, strict_negatives=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(args.rounds):
        for name, loader in contestants.items():
            batches = iter(loader)
            next(batches)  # begins the epoch
            start, edges = time.perf_counter(), 0
            for batch in itertools.islice(batches, args.batches):
                relations = batch.edge_index_dict.values() if "typed" in name else [batch.edge_index]
                edges += sum(edge_index.size(1) for edge_index in relations)
                labelled = batch[RATES] if "typed" in name else batch
                assert labelled.edge_label_index.size(1) == 2048
            seconds[name].append((time.perf_counter() - start) / args.batches)
            print(f"{name}: {seconds[name][-1] * 1e3:.1f} ms a batch, {edges // args.batches} edges", flush=True)
    for name, times in seconds.items():
        pyg = statistics.median(seconds["PyG, typed" if "typed" in name else "PyG"])
        median = statistics.median(times)
        print(f"{name}: median {median * 1e3:.1f} ms, {pyg / median:.2f} of PyG's speed")


if __name__ == "__main__":
    main()
