"""What is done to a store as a whole: each job on a store that is kept, checked by values, beside its floor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from papers import Papers
from shape import GROUP
from stages import Stages, size, stored_rows
from torch_geometric.nn import GCN, GraphSAGE

from freshgo import Loader, Store, append, infer, propagate, relayout, update

HIDDEN = 8
"""Columns of the layers of a model."""


def lists(store: Store) -> int:
    """Bytes of offsets and neighbour lists."""
    return 8 * (store.num_nodes + 1) + 4 * store.num_edges


def verify(shape: Papers, path: Path, memory: str) -> None:
    """Read everything once."""
    store, stages = Store.open(path), Stages()
    stages.begin()
    store.verify()
    stages.end("verify", {"read": size(path)})


def relaid(shape: Papers, path: Path, memory: str) -> None:
    """Read everything once and write it once; a tensor that is beyond the memory several times."""
    new, store, stages = path.with_name("relaid"), Store.open(path), Stages()
    shutil.rmtree(new, ignore_errors=True)
    scores = torch.rand(shape.nodes, generator=torch.Generator().manual_seed(0))
    for order in ("hot", "hot+community"):
        stages.begin()
        made = relayout(store, new, order=order, hotness=scores, memory=memory, progress=False)
        stages.end(f"relayout {order}", {"read": size(path), "written": size(new)})
        check_rows(shape, made)
        made.close()
        shutil.rmtree(new)


def check_rows(shape: Papers, store: Store, nodes: np.ndarray | None = None, name: str = "x") -> None:
    """Compare rows of a store by their nodes."""
    nodes = shape.some() if nodes is None else nodes
    with Loader(store, [], torch.from_numpy(nodes), batch_size=len(nodes), cache="none", prefetch=0) as loader:
        batch = next(iter(loader))
    assert np.array_equal(batch.n_id.numpy(), nodes)
    assert np.array_equal(batch[name].numpy(), shape.row(nodes)), "rows differ"


def propagated(shape: Papers, path: Path, memory: str) -> None:
    """For each reduction, read features and lists once and write the aggregates once."""
    for reduce in ("mean", "gcn"):
        one_propagation(shape, path, memory, reduce)
        update(path, path, drop=[f"x_{reduce}"], overwrite=True, progress=False).close()


def one_propagation(shape: Papers, path: Path, memory: str, reduce: Any) -> None:
    name, stages = f"x_{reduce}", Stages()
    with Store.open(path) as store:
        if name in store.tensors:
            update(store, path, drop=[name], overwrite=True, progress=False).close()
    store, before = Store.open(path), size(path)
    stages.begin()
    store = propagate(store, reduce=reduce, memory=memory, progress=False)
    read = lists(store) + 2 * shape.columns * shape.nodes
    stages.end(f"propagate {reduce}", {"read": read, "written": size(path) - before})
    nodes = shape.some(200)
    wanted = shape.row(nodes).astype(np.float64)
    source, at = shape.into(nodes)
    rows, sums = shape.row(source).astype(np.float64), np.zeros((len(nodes), shape.columns))
    if reduce == "mean":
        np.add.at(sums, at, rows)
        sums /= np.maximum(np.bincount(at, minlength=len(nodes)), 1)[:, None]
        wanted = np.concatenate([wanted, sums], axis=1)
    else:
        loop = source == nodes[at]
        scale = degrees(shape, nodes) ** -0.5
        np.add.at(sums, at[~loop], rows[~loop] * degrees(shape, source[~loop])[:, None] ** -0.5)
        wanted = (sums + wanted * scale[:, None]) * scale[:, None]
    found = stored_rows(store, name)[nodes]
    assert np.allclose(found, wanted, rtol=1e-3), "aggregates differ"


def degrees(shape: Papers, nodes: np.ndarray) -> np.ndarray:
    """GCN's degrees: a loop once, and the other edges."""
    source, at = shape.into(nodes)
    return 1.0 + np.bincount(at[source != nodes[at]], minlength=len(nodes))


def inferred(shape: Papers, path: Path, memory: str) -> None:
    """For each layer, read its rows and the lists once and write its rows once."""
    for kind in (GraphSAGE, GCN):
        torch.manual_seed(0)
        model = kind(shape.columns, HIDDEN, num_layers=3, out_channels=HIDDEN).eval()
        out, stages = path.with_name("inferred.npy"), Stages()
        out.unlink(missing_ok=True)
        store = Store.open(path)
        stages.begin()
        infer(model, store, out, memory=memory, progress=False)
        rows = 4 * HIDDEN * shape.nodes
        read = 2 * shape.columns * shape.nodes + 2 * rows + 3 * lists(store)
        stages.end(f"infer {kind.__name__}", {"read": read, "written": 3 * rows})
        nodes = shape.some(20)[-30:]
        found = np.load(out, mmap_mode="r")[nodes]
        wanted = by_hand(shape, model, nodes)
        assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max()), "rows differ"
        out.unlink()


def by_hand(shape: Papers, model: Any, nodes: np.ndarray) -> np.ndarray:
    """A model of three layers over all that these nodes depend on, one hop further than rows, for GCN's degrees."""
    known, edges = nodes, np.zeros((2, 0), np.int64)
    for _ in range(4):
        source, at = shape.into(known)
        edges = np.stack([source, known[at]])
        known = np.unique(np.concatenate([known, source]))
    x = torch.from_numpy(shape.row(known).astype(np.float32))
    index = torch.from_numpy(np.searchsorted(known, edges))
    with torch.no_grad():
        found: torch.Tensor = model(x, index)
    return found[np.searchsorted(known, nodes)].numpy()


def updated(shape: Papers, path: Path, memory: str) -> None:
    """Read what is given and write it; what stays shares its files."""
    new, given, stages = path.with_name("updated"), path.with_name("given.npy"), Stages()
    shutil.rmtree(new, ignore_errors=True)
    time = np.lib.format.open_memmap(given, mode="w+", dtype=np.int64, shape=(shape.nodes,))
    for lo in range(0, shape.nodes, 1 << 24):
        time[lo : lo + (1 << 24)] = np.arange(lo, min(lo + (1 << 24), shape.nodes)) % 1000
    del time
    stages.begin()
    store = update(path, new, tensors={"time": given}, memory=memory, progress=False)
    stages.end("update", {"read": size(given), "written": 8 * shape.nodes})
    assert torch.equal(store["time"][-5000:], torch.arange(shape.nodes - 5000, shape.nodes) % 1000)
    check_rows(shape, store)
    given.unlink()
    store.close()
    shutil.rmtree(new)


def appended(shape: Papers, path: Path, memory: str) -> None:
    """A hundredth of nodes and of edges, read and written; what grows is read and written with them, once."""
    new, stages = path.with_name("appended"), Stages()
    shutil.rmtree(new, ignore_errors=True)
    more, edges = shape.nodes // 100, shape.edges // 100
    x, index = path.with_name("more_x.npy"), path.with_name("more_edges.npy")
    shape.write_rows(x, shape.nodes, shape.nodes + more)
    random = np.random.default_rng(2)
    ends = random.integers(shape.nodes + more, size=(2, edges), dtype=np.int32)
    np.save(index, ends)
    stages.begin()
    store = append(path, new, nodes={"x": x}, edges=index, memory=memory, progress=False)
    stages.end("append", {"read": size(path) + size(x) + size(index), "written": size(new)})
    assert (store.num_nodes, store.num_edges) == (shape.nodes + more, shape.edges + edges)
    nodes = np.unique(np.concatenate([shape.some(), shape.nodes + np.arange(0, more, 1 + more // 1000), ends[1, :99]]))
    check_rows(shape, store, nodes)
    with Loader(store, [-1], torch.from_numpy(nodes), batch_size=len(nodes), cache="none", prefetch=0) as loader:
        batch = next(iter(loader))
    old = nodes[nodes < shape.nodes // GROUP * GROUP]
    source, at = shape.into(old)
    chosen = np.flatnonzero(np.isin(ends[1], nodes))
    wanted = np.sort(np.concatenate([old[at], ends[1, chosen]]) * 2**31 + np.concatenate([source, ends[0, chosen]]))
    ends_of = batch.n_id[batch.edge_index].numpy()
    assert np.array_equal(np.sort(ends_of[1] * 2**31 + ends_of[0]), wanted), "edges differ"
    for file in (x, index):
        file.unlink()
    store.close()
    shutil.rmtree(new)


JOBS: dict[str, Callable[[Papers, Path, str], None]] = {
    "propagate": propagated,
    "infer": inferred,
    "relayout": relaid,
    "append": appended,
    "update": updated,
    "verify": verify,
}
