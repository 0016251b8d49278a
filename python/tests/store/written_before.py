"""What an earlier version wrote and delivered: stores, states, and digests of batches, and how they were recorded.

    python python/tests/store/written_before.py python/tests/store/written_before

records them anew with the freshgo that is installed. That breaks a promise to users, who rely on equal batches for
equal seeds and on stores and states that stay readable; so it is done only where a change of format is announced.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import freshgo
from freshgo import Belady, History, Labor, LinkLoader, Loader, RandomWalk, convert

USER, ITEM = "user", "item"
BUYS, BOUGHT, KNOWS = (USER, "buys", ITEM), (ITEM, "rev_buys", USER), (USER, "knows", USER)
STORES = ("plain", "relaid", "several")
"""Names of the stores in stores.tar.xz."""


def plain() -> dict[str, Any]:
    """A homogeneous graph with a hub, isolated nodes, repeated edges and self-loops."""
    rng = np.random.default_rng(1)
    nodes, edges = 220, 1400
    source, target = (200 * rng.random(edges) ** 2).astype(np.int64), (200 * rng.random(edges) ** 1.5).astype(np.int64)
    return {
        "num_nodes": nodes,
        "edge_index": np.stack([source, target]),
        "x": rng.standard_normal((nodes, 20)).astype(np.float32),
        "half": rng.standard_normal((nodes, 3)).astype(np.float16),
        "y": rng.integers(5, size=nodes),
        "time": rng.integers(50, size=nodes),
        "train_mask": rng.random(nodes) < 0.5,
        "weight": rng.integers(1, 9, size=edges).astype(np.float32),
        "attr": rng.standard_normal((edges, 2)).astype(np.float32),
    }


def one_type() -> dict[Any, Any]:
    """The same graph with a named node type and a named edge type."""
    of = plain()
    edges = {name: of[name] for name in ("edge_index", "weight", "attr")}
    nodes = {name: of[name] for name in ("num_nodes", "x", "half", "y", "time", "train_mask")}
    return {"paper": nodes, ("paper", "cites", "paper"): edges}


def several() -> dict[Any, Any]:
    """Users and items with three edge types between and among them."""
    rng = np.random.default_rng(2)
    users, items = 150, 90
    buys = np.stack([(users * rng.random(900) ** 2).astype(np.int64), rng.integers(items, size=900)])
    return {
        USER: {
            "num_nodes": users,
            "x": rng.standard_normal((users, 16)).astype(np.float32),
            "y": rng.integers(3, size=users),
            "time": rng.integers(40, size=users),
            "train_mask": rng.random(users) < 0.6,
        },
        ITEM: {"x": rng.standard_normal((items, 24)).astype(np.float32), "time": rng.integers(40, size=items)},
        BUYS: {"edge_index": buys, "weight": rng.integers(1, 7, size=900).astype(np.float32)},
        BOUGHT: {"edge_index": buys[::-1].copy()},
        KNOWS: {"edge_index": rng.integers(users, size=(2, 500))},
    }


def write_stores(folder: Path) -> None:
    """Write the stores of STORES."""
    quiet: dict[str, Any] = {"memory": "64MiB", "progress": False}
    convert(plain(), folder / "plain", weight_attr="weight", **quiet).close()
    scores = np.arange(220, dtype=np.float32)[::-1].copy()
    convert(plain(), folder / "relaid", relayout={"order": "hot", "hotness": scores}, **quiet).close()
    convert(several(), folder / "several", weight_attr={BUYS: "weight"}, **quiet).close()


def digest(batch: Any) -> str:
    """Sixteen digits that name everything in a batch."""
    sha = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        sha.update(name.encode())
        if isinstance(value, torch.Tensor):
            sha.update(f"{value.dtype}{list(value.shape)}".encode() + value.detach().contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                add(str(key), value[key])
        else:
            sha.update(repr(value).encode())

    add("", batch.to_dict())
    return sha.hexdigest()[:16]


HOPS = [5, 4, 3]
BATCHES: dict[str, Any] = {"batch_size": 24, "shuffle": True, "seed": 7}

PLAIN: dict[str, tuple[type[Loader], dict[str, Any]]] = {
    "uniform": (Loader, {"num_neighbors": HOPS, "input_nodes": "train"}),
    "all neighbors": (Loader, {"num_neighbors": [-1, 2]}),
    "replace": (Loader, {"num_neighbors": HOPS, "replace": True, "input_nodes": "train"}),
    "weighted": (Loader, {"num_neighbors": HOPS, "weight_attr": "weight", "input_nodes": "train"}),
    "labor": (Loader, {"num_neighbors": HOPS, "neighbor_sampler": "labor", "input_nodes": "train"}),
    "labor, layers": (
        Loader,
        {"num_neighbors": HOPS, "neighbor_sampler": Labor(layer_dependency=True), "input_nodes": "train"},
    ),
    "walks": (Loader, {"num_neighbors": [RandomWalk(walks=20, length=3, top=4, restart=0.3)] * 2}),
    "times": (Loader, {"num_neighbors": HOPS, "time_attr": "time", "input_nodes": "train"}),
    "latest": (Loader, {"num_neighbors": HOPS, "time_attr": "time", "temporal_strategy": "last", "time_window": 30}),
    "trees": (Loader, {"num_neighbors": HOPS, "disjoint": True, "input_nodes": "train"}),
    "bidirectional": (Loader, {"num_neighbors": HOPS, "subgraph_type": "bidirectional", "input_nodes": "train"}),
    "induced": (Loader, {"num_neighbors": HOPS, "subgraph_type": "induced", "input_nodes": "train"}),
    "transposed": (Loader, {"num_neighbors": HOPS, "transpose": True, "input_nodes": "train", "drop_last": True}),
    "links": (LinkLoader, {"num_neighbors": HOPS[:2], "neg_sampling": "binary"}),
    "triplets": (LinkLoader, {"num_neighbors": HOPS[:2], "neg_sampling": "triplet", "exclude_seed_edges": True}),
}
ONE_TYPE: dict[str, tuple[type[Loader], dict[str, Any]]] = {
    name: (
        kind,
        {
            **options,
            **({"input_nodes": ("paper", "train")} if "input_nodes" in options else {"input_nodes": "paper"}),
        },
    )
    for name, (kind, options) in PLAIN.items()
    if kind is Loader and name != "walks"
}
SEVERAL: dict[str, tuple[type[Loader], dict[str, Any]]] = {
    "uniform": (Loader, {"num_neighbors": HOPS, "input_nodes": (USER, "train")}),
    "several input types": (Loader, {"num_neighbors": HOPS, "input_nodes": {USER: "train", ITEM: None}}),
    "by edge type": (
        Loader,
        {"num_neighbors": {BUYS: [3, 2], BOUGHT: [4, 0], KNOWS: [0, -1]}, "input_nodes": ITEM},
    ),
    "weighted": (Loader, {"num_neighbors": HOPS, "weight_attr": "weight", "input_nodes": ITEM}),
    "labor": (Loader, {"num_neighbors": HOPS, "neighbor_sampler": "labor", "input_nodes": ITEM}),
    "times": (Loader, {"num_neighbors": HOPS, "time_attr": "time", "input_nodes": (USER, "train")}),
    "trees": (Loader, {"num_neighbors": HOPS, "disjoint": True, "input_nodes": ITEM}),
    "induced": (Loader, {"num_neighbors": HOPS, "subgraph_type": "induced", "input_nodes": ITEM}),
    "bidirectional": (Loader, {"num_neighbors": HOPS, "subgraph_type": "bidirectional", "input_nodes": ITEM}),
    "metapath": (
        Loader,
        {"num_neighbors": [RandomWalk(20, 2, 4, metapath=[BUYS, BOUGHT])] * 2, "input_nodes": USER},
    ),
    "links": (
        LinkLoader,
        {
            "num_neighbors": HOPS[:2],
            "edge_label_index": (BUYS, None),
            "neg_sampling": "binary",
            "exclude_seed_edges": "reverse",
        },
    ),
}
CASES = {
    **{f"plain, {name}": case for name, case in PLAIN.items()},
    **{f"one type, {name}": case for name, case in ONE_TYPE.items()},
    **{f"several, {name}": case for name, case in SEVERAL.items()},
}
RESUMED: dict[str, dict[str, Any]] = {
    "plain, planned": {"cache": "belady", "memory": "8MiB", "feature_cache": "4KiB", "neighbor_cache": 0},
    "plain, reordered": {"cache": Belady(reorder=3), "feature_cache": "4KiB", "memory": "8MiB"},
    "relaid, reordered": {"cache": Belady(reorder=3), "feature_cache": "4KiB", "memory": "8MiB"},
    "several, planned": {"cache": "belady", "memory": "8MiB", "feature_cache": "4KiB"},
}
"""Loaders over stores whose states are kept: the name of the store, and its options."""


def source(case: str) -> dict[Any, Any]:
    """The graph of a case, in memory."""
    return {"plain": plain, "one type": one_type, "several": several}[case.partition(",")[0]]()


def digests(case: str, data: Any) -> list[str]:
    """Digests of two epochs of a case over a source of its graph."""
    kind, options = CASES[case]
    with kind(data, **options, **BATCHES) as loader:
        return [digest(batch) for batch in [*loader, *loader]]


def resumed(name: str, folder: Path) -> Loader:
    """The loader of a case of RESUMED."""
    store = name.partition(",")[0]
    nodes: Any = (USER, "train") if store == "several" else "train"
    return Loader(str(folder / store), HOPS, nodes, **BATCHES, **RESUMED[name])


class Layers(torch.nn.Module):
    """Two sums over neighbours, exact in float32 for whole numbers, so that no processor rounds otherwise."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the rows of the input nodes."""
        h = batch.x
        for block in batch.blocks():
            h = self.history(h, block)
            row, column = block.edge_index
            h = h[: block.num_dst].index_add(0, column, h[row]) % 5.0
        return h


class PrunedRun:
    """Batches of a loader whose history admits every row, and what the layers make of them."""

    def __init__(self) -> None:
        data = plain()
        data["x"] = np.round(data["x"] * 3).astype(np.float32)
        self.history = History(p_grad=1.0, t_stale=9, policy="gradient", memory="64KiB", keep="rows")
        self.loader = Loader(data, HOPS, "train", history=self.history, **BATCHES)
        self.layers = Layers(self.history)
        self._stream = itertools.chain.from_iterable(itertools.repeat(self.loader))

    def batches(self, count: int) -> Iterator[str]:
        """Train for as many batches, over the ends of epochs, and yield digests of batches and of outputs."""
        for _ in range(count):
            batch = next(self._stream)
            batch.x.requires_grad_(True)
            out = self.layers(batch)
            out.sum().backward()
            self.history.update()
            values = hashlib.sha256(out.detach().numpy().tobytes()).hexdigest()[:16]
            yield f"{digest(batch)} {values}"


def record(folder: Path) -> None:
    """Write everything into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        stores = Path(temporary)
        write_stores(stores)
        with tarfile.open(folder / "stores.tar.xz", "w:xz") as tar:
            for name in STORES:
                tar.add(stores / name, name)
        states = {}
        for name in RESUMED:
            with resumed(name, stores) as loader:
                begun = iter(loader)
                for _ in range(2):
                    next(begun)
                states[name] = {"state": loader.state_dict(), "batches": [digest(batch) for batch in begun]}
    promised = {case: digests(case, source(case)) for case in CASES}
    run = PrunedRun()
    before = list(run.batches(12))
    state = {"history": run.history.state_dict(), "loader": run.loader.state_dict()}
    torch.save(state, folder / "history.pt")
    text = {
        "version": freshgo.__version__,
        "batches": promised,
        "states": states,
        "history": {"before": before, "after": list(run.batches(12))},
    }
    (folder / "recorded.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    random.seed(0)
    record(Path(sys.argv[1]))
