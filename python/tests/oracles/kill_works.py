"""What ``kills.py`` interrupts: long calls, and a training that resumes from what it has saved."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401  (Ctrl-C in its import ends the interpreter)
import numpy as np
import pyarrow as pa
import torch
import torch_geometric.nn as pyg

import freshgo
from freshgo import History, Loader, Store

NODES, EDGES, COLUMNS = 6_000, 100_000, 64
BATCHES_SAVED = 5
"""A state is saved after so many batches."""


def graph(num_nodes: int = NODES, num_edges: int = EDGES) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ends = (num_nodes * rng.random((2, num_edges)) ** 1.5).astype(np.int64)
    return {
        "num_nodes": num_nodes,
        "edge_index": ends,
        "x": rng.standard_normal((num_nodes, COLUMNS), dtype=np.float32),
        "y": rng.integers(5, size=num_nodes),
        "w": rng.random(num_edges, dtype=np.float32),
    }


GRAPH = graph()
GROWTH: dict[str, Any] = {
    "nodes": {"x": GRAPH["x"][:500], "y": GRAPH["y"][:500]},
    "edges": {"edge_index": GRAPH["edge_index"][:, ::5] + 500, "w": GRAPH["w"][::5]},
}
KEYS = np.random.default_rng(0).permutation(NODES) * 3
PEOPLE = pa.table({"id": KEYS, "v": pa.FixedSizeListArray.from_arrays(np.zeros(8 * NODES, np.float32), 8)})
KNOWS = pa.table({"s": np.tile(KEYS, 5), "d": np.tile(KEYS[::-1], 5)})


@dataclass(frozen=True)
class Work:
    """Something that a process does in a directory, where it may find what was left of it."""

    run: Callable[[Path, Path], None]
    """Do it, with the directory and that of the shared inputs. Done again, it ends with the same."""
    over: str | None = None
    """The input that lies at ``g`` before the first time: a store that is replaced or added to."""
    replaces: bool = False
    """There is a store at ``g`` at every moment."""
    once: bool = False
    """Who begins again may find it done and write nothing; then what was left waits for the next writer."""


def convert(home: Path, _: Path) -> None:
    freshgo.convert(GRAPH, home / "g", memory="16MiB", weight_attr="w", overwrite=True, progress=False).close()


def relayout(home: Path, inputs: Path) -> None:
    freshgo.relayout(
        inputs / "base", home / "g", order="hot", hotness="in-degree", memory="12MiB", overwrite=True, progress=False
    ).close()


def update(home: Path, inputs: Path) -> None:
    tensors = {"z": np.arange(NODES * 32, dtype=np.float32).reshape(NODES, 32)}
    freshgo.update(inputs / "base", home / "g", tensors=tensors, drop=["y"], overwrite=True, progress=False).close()


def append(home: Path, inputs: Path) -> None:
    freshgo.append(inputs / "base", home / "g", **GROWTH, memory="8MiB", overwrite=True, progress=False).close()


def append_in_place(home: Path, _: Path) -> None:
    """Once: who begins again looks whether it is done."""
    with Store.open(home / "g") as store:
        if store.num_nodes == NODES:
            freshgo.append(store, home / "g", **GROWTH, memory="8MiB", overwrite=True, progress=False).close()


def tables(home: Path, _: Path) -> None:
    nodes, edges = freshgo.Table(PEOPLE, id="id", features="v"), freshgo.Table(KNOWS, src="s", dst="d")
    freshgo.convert_tables(nodes, edges, home / "g", memory="128MiB", overwrite=True, progress=False).close()


def propagate(home: Path, _: Path) -> None:
    options: dict[str, Any] = {"reduce": "gcn", "weight_attr": "w", "hops": 2, "name": "agg", "overwrite": True}
    freshgo.propagate(home / "g", memory="8MiB", progress=False, **options).close()


def infer(home: Path, inputs: Path) -> None:
    torch.manual_seed(0)
    model = pyg.GraphSAGE(COLUMNS, 32, 2, 16).eval()
    freshgo.infer(model, inputs / "base", home / "rows.npy", memory="16MiB", overwrite=True, progress=False)


def verify(_: Path, inputs: Path) -> None:
    for _again in range(10):
        with Store.open(inputs / "base") as store:
            store.verify(progress=False)


def train(home: Path, inputs: Path) -> None:
    """Three epochs with the planned cache and a history; what it ends with is in ``done``."""
    if (home / "done").exists():
        return
    torch.manual_seed(0)
    model = pyg.GraphSAGE(COLUMNS, 16, 2, 5, dropout=0.3)
    history = History(t_stale=50, p_grad=0.9, policy="gradient", memory="1MiB", keep="rows")
    history.attach(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with Loader(
        inputs / "base",
        [4, 3],
        batch_size=600,
        shuffle=True,
        seed=3,
        cache=freshgo.Belady(buffer_memory=0, scratch=home, transfer="pack"),
        feature_cache="512KiB",
        history=history,
    ) as loader:
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "history": history, "loader": loader}
        if (home / "state").exists():
            state = torch.load(home / "state", weights_only=True)
            torch.set_rng_state(state["random"])
            for name, part in parts.items():
                part.load_state_dict(state[name])
        while loader.state_dict()["epoch"] < 3:
            for i, batch in enumerate(loader):
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
                history.update()
                if i % BATCHES_SAVED == 0:
                    saved = {name: part.state_dict() for name, part in parts.items()}
                    torch.save({**saved, "random": torch.get_rng_state()}, home / "state.new")
                    (home / "state.new").replace(home / "state")
    rows = torch.cat([p.detach().flatten() for p in model.parameters()])
    (home / "done.new").write_text(hashlib.sha256(rows.numpy().tobytes()).hexdigest())
    (home / "done.new").replace(home / "done")


WORKS = {
    "convert": Work(convert),
    "convert over a store": Work(convert, over="old", replaces=True),
    "relayout": Work(relayout, over="old", replaces=True),
    "update": Work(update, over="old", replaces=True),
    "append": Work(append, over="old", replaces=True),
    "append in place": Work(append_in_place, over="base", replaces=True, once=True),
    "convert_tables": Work(tables, over="old", replaces=True),
    "propagate": Work(propagate, over="base", replaces=True),
    "infer": Work(infer),
    "verify": Work(verify),
    "train": Work(train),
}


def prepare(inputs: Path) -> None:
    """Write what the works read."""
    freshgo.convert(GRAPH, inputs / "base", weight_attr="w", progress=False).close()
    freshgo.convert(graph(100, 500), inputs / "old", progress=False).close()


def place(work: Work, home: Path, inputs: Path) -> None:
    """Make the directory that a work begins in."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    if work.over is not None:
        shutil.copytree(inputs / work.over, home / "g")


def check(work: Work, home: Path) -> None:
    """Whatever has happened in it: a store is whole or not there."""
    if (home / "g").exists():
        with Store.open(home / "g") as store:
            store.verify(progress=False)
    else:
        assert not work.replaces, f"no store is left: {sorted(p.name for p in home.iterdir())}"


def digest(home: Path) -> dict[str, str]:
    """What a work has left: the contents of its files, under names that do not depend on how often it began."""
    found: dict[str, str] = {}
    for path in sorted(home.rglob("*")):
        if path.is_file() and path.name not in ("manifest.pb", "state", "lock"):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            name = str(path.relative_to(home))
            found[content if "added" in path.name else name] = content
    return found


def strays(home: Path) -> list[str]:
    """What only a process at work may have."""
    ends = (".partial", ".replaced", ".new")
    return [
        str(path.relative_to(home))
        for path in home.rglob("*")
        if path.name.endswith(ends) or path.name.startswith(".freshgo-scratch-")
    ]
