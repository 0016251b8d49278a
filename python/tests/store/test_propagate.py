"""Aggregates of features over all in-neighbours, as tensors of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import warm
from graphs import random_graph
from seeds import seed as seed_of

import freshgo
from freshgo import Loader, Store, convert, propagate, relayout
from freshgo.errors import (
    BudgetError,
    CorruptError,
    DTypeError,
    InvalidArgumentError,
    StoreExistsError,
)

QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False}


def product(edge_index: Any, weight: Any, x: Any, num_nodes: int, reduce: str) -> Any:
    """The aggregate by SciPy, in float64."""
    source, target = edge_index
    weight = np.ones(len(source)) if weight is None else weight.astype(np.float64)
    x = x.astype(np.float64)
    if reduce == "gcn":  # as torch_geometric.utils.add_remaining_self_loops: the last self-loop gives its weight
        loops = np.ones(num_nodes)
        loops[target[source == target]] = weight[source == target]
        keep = source != target
        ids = np.arange(num_nodes)
        source, target = np.concatenate([source[keep], ids]), np.concatenate([target[keep], ids])
        weight = np.concatenate([weight[keep], loops])
        inverse = np.bincount(target, weight, num_nodes) ** -0.5
        weight = weight * inverse[source] * inverse[target]
    out = sp.csr_matrix((weight, (target, source)), shape=(num_nodes, len(x))) @ x
    if reduce == "mean":
        out = out / np.maximum(np.bincount(target, minlength=num_nodes), 1)[:, None]
    return out


@pytest.fixture
def fresh(graph: dict[str, Any], tmp_path: Path) -> Store:
    return convert(graph, tmp_path / "g", **QUIET)


@pytest.mark.parametrize("relaid", [False, True], ids=["plain", "relaid"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("reduce", ["mean", "sum", "gcn"])
def test_equals_scipy(
    graph: dict[str, Any], fresh: Store, tmp_path: Path, reduce: str, weighted: bool, relaid: bool
) -> None:
    store = relayout(fresh, tmp_path / "r", **QUIET) if relaid else fresh
    name = "edge_weight" if weighted else None
    with propagate(store, "x", reduce=reduce, weight_attr=name, **QUIET) as out:
        found = out[f"x_{reduce}"].double().numpy()
        info = out.tensors[f"x_{reduce}"].aggregate
        assert out.uuid == store.uuid
        out.verify()
    assert info is not None
    assert (info.reduce, info.tensor, info.stale) == (reduce, "x", "")
    assert info.parts[0].weight_attr == name
    own = 0 if reduce == "gcn" else 24
    assert info.own == own
    if own:
        np.testing.assert_array_equal(found[:, :own], graph["x"])
    weight = graph["edge_weight"] if weighted else None
    wanted = product(graph["edge_index"], weight, graph["x"], 3000, reduce)
    np.testing.assert_allclose(found[:, own:], wanted, rtol=1e-6, atol=1e-6)


def test_narrow_features(graph: dict[str, Any], fresh: Store) -> None:
    with propagate(fresh, "half", name="around", **QUIET) as out:
        found = out["around"]
    assert found.dtype == torch.float16
    assert found[:, :5].equal(torch.from_numpy(graph["half"]))
    wanted = product(graph["edge_index"], None, graph["half"], 3000, "mean")
    np.testing.assert_allclose(found[:, 5:].double(), wanted, rtol=1e-3, atol=1e-4)


def test_hops(graph: dict[str, Any], fresh: Store) -> None:
    with propagate(fresh, "x", reduce="gcn", hops=3, **QUIET) as out:
        rows = graph["x"]
        for hop, name in enumerate(("x_gcn", "x_gcn2", "x_gcn3"), 1):
            rows = product(graph["edge_index"], None, rows, 3000, "gcn")
            np.testing.assert_allclose(out[name].double(), rows, rtol=1e-5, atol=1e-6)
            info = out.tensors[name].aggregate
            assert info is not None
            assert info.hop == hop


def test_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(seed_of(5))
    counts = {"paper": 300, "author": 200, "venue": 9}
    x = {"paper": rng.standard_normal((300, 12)).astype(np.float32), "author": rng.random((200, 7)).astype(np.float32)}
    ends = {
        ("author", "writes", "paper"): 900,
        ("paper", "cites", "paper"): 1500,
        ("paper", "written", "author"): 700,
        ("venue", "shows", "paper"): 100,
    }
    data: dict[Any, Any] = {
        name: {"num_nodes": n, **({"x": x[name]} if name in x else {})} for name, n in counts.items()
    }
    for edge_type, n in ends.items():
        data[edge_type] = {
            "edge_index": np.stack(
                [rng.integers(counts[edge_type[0]], size=n), rng.integers(counts[edge_type[2]], size=n)]
            )
        }
    cites = data["paper", "cites", "paper"]
    cites["w"] = rng.random(1500).astype(np.float32)
    store = convert(data, tmp_path / "g", **QUIET)
    with propagate(store, "x", weight_attr="w", **QUIET) as out:
        info = out["paper"].tensors["x_mean"].aggregate
        assert info is not None
        used = [(part.edge_type, part.columns, part.weight_attr) for part in info.parts]
        writes, cited = ("author", "writes", "paper"), ("paper", "cites", "paper")
        assert used == [(writes, 7, None), (cited, 12, "w")], "venues have no x"
        for node_type in ("paper", "author"):
            found, of = out[node_type]["x_mean"], out[node_type].tensors["x_mean"].aggregate
            assert of is not None
            np.testing.assert_array_equal(found[:, : of.own], x[node_type])
            for part in of.parts:
                source = part.edge_type[0]
                wanted = (
                    product(
                        data[part.edge_type]["edge_index"], data[part.edge_type].get("w"), x[source], len(found), "mean"
                    )
                    if source == node_type
                    else rectangular(data[part.edge_type]["edge_index"], x[source], len(found))
                )
                np.testing.assert_allclose(found[:, of.columns(part.edge_type)].double(), wanted, rtol=1e-6, atol=1e-6)
        assert "x_mean" not in out["venue"].tensors
        before, after = (next(iter(Loader(which, [2], "paper")))["paper"] for which in (store, out))
        assert list(before.keys()) == list(after.keys())
    with pytest.raises(InvalidArgumentError, match="an edge type must lead within one node type"):
        propagate(store, "x", reduce="gcn", **QUIET)
    with propagate(store, "x", reduce="gcn", relations=[cited], **QUIET) as out:
        assert out["paper"].tensors["x_gcn"].shape == (300, 12)
        assert "x_gcn" not in out["author"].tensors
    with pytest.raises(InvalidArgumentError, match="is not an edge type of the store; it has"):
        propagate(store, "x", relations=[("paper", "shows", "venue")], **QUIET)
    with pytest.raises(InvalidArgumentError, match="hops must be 1 in a heterogeneous graph"):
        propagate(store, "x", hops=2, name="more", **QUIET)


def rectangular(edge_index: Any, x: Any, num_targets: int) -> Any:
    source, target = edge_index
    out = sp.csr_matrix((np.ones(len(source)), (target, source)), shape=(num_targets, len(x))) @ x.astype(np.float64)
    return out / np.maximum(np.bincount(target, minlength=num_targets), 1)[:, None]


def test_batches_do_not_change(fresh: Store) -> None:
    with propagate(fresh, "x", **QUIET) as out:
        for before, after in zip(Loader(fresh, [4, 3], "train"), Loader(out, [4, 3], "train"), strict=True):
            assert before.keys() == after.keys()
            assert before.x.equal(after.x)
            assert before.n_id.equal(after.n_id)


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    """Of a graph without names of types, in memory and on disk."""
    data = {"x": torch.rand(9, 2), "edge_index": torch.randint(9, (2, 30)), "flag": torch.ones(30, dtype=torch.bool)}
    with convert(data, tmp_path / "g", **QUIET) as store:
        for graph in (data, store):
            with pytest.raises(InvalidArgumentError, match=r"^weight_attr is bool along all edges, exp"):
                propagate(graph, "x", weight_attr="flag", progress=False)  # type: ignore[call-overload]


def test_wrong_arguments(fresh: Store) -> None:
    for wrong, error, message in (
        ({"tensor": "z"}, InvalidArgumentError, "name a node-level tensor, got 'z'"),
        ({"tensor": 3}, DTypeError, "name of a tensor, got 3"),
        ({"tensor": "y"}, InvalidArgumentError, "is int64 with rows of shape"),
        ({"reduce": "max"}, InvalidArgumentError, "reduce must be one of 'mean', 'sum', 'gcn', got 'max'"),
        ({"weight_attr": "w"}, InvalidArgumentError, "name an edge tensor, got 'w'"),
        ({"relations": [("a", "b", "c")]}, InvalidArgumentError, "relations needs a heterogeneous graph"),
        ({"hops": 0}, InvalidArgumentError, "hops must be at least 1"),
        ({"name": "x"}, InvalidArgumentError, "that of the tensor itself"),
        ({"name": "half", "overwrite": True}, StoreExistsError, "was not computed from others"),
    ):
        with pytest.raises(error, match=message):
            propagate(fresh, **{**QUIET, **wrong})  # type: ignore[arg-type]
    with pytest.raises(BudgetError) as small:
        propagate(fresh, memory="1MiB", progress=False)
    assert small.value.minimum is not None
    propagate(fresh, memory=small.value.minimum, progress=False).close()
    with pytest.raises(StoreExistsError, match="pass overwrite=True to replace it"):
        propagate(fresh, **QUIET)
    propagate(fresh.path, overwrite=True, **QUIET).close()


def test_damaged(fresh: Store) -> None:
    propagate(fresh, **QUIET).close()
    file = next(Path(fresh.path).glob("added*x_mean.bin"))
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    with Store.open(fresh.path) as damaged, pytest.raises(CorruptError, match=r"added.*x_mean\.bin"):
        damaged.verify()
    fresh.verify()  # as it was opened it does not know the tensor
    with propagate(fresh, overwrite=True, **QUIET) as mended:
        mended.verify()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 92 MB of features."""
    graph = random_graph(60_000, 100_000)
    path = tmp_path_factory.mktemp("wide") / "g"
    convert({"x": np.tile(graph["x"], (1, 16)), "edge_index": graph["edge_index"]}, path, **QUIET).close()
    return path


KILLED = """
import os, signal, sys
import freshgo
from freshgo._native import handle as native_handle
native_handle.POLL_MS = 1
def progress(stage, done, total):
    if done > total * {part}:
        os.kill(os.getpid(), signal.SIGKILL)
freshgo.propagate({path!r}, memory="24MiB", progress=progress, overwrite=True)
"""


def test_killed(wide: Path) -> None:
    """A process that is killed leaves the store as it was; run again, the pass does its work."""
    with Store.open(wide) as before:
        description, files = before.inspect(), {entry.name for entry in wide.iterdir()} - {"lock"}
    for part in (0.05, 0.3, 0.6, 0.95):
        warm.killed(KILLED.format(path=str(wide), part=part))
        with Store.open(wide) as after:
            assert after.inspect() == description
    with propagate(wide, progress=False) as out:
        out.verify()
        assert {entry.name for entry in wide.iterdir()} - files == {"lock", "added0_x_mean.bin", "added0_x_mean.crc"}


def test_interrupted(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshgo._native.handle, "POLL_MS", 1)

    def interrupt(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    files = {entry.name for entry in wide.iterdir()} | {"lock"}
    with pytest.raises(KeyboardInterrupt):
        propagate(wide, reduce="sum", memory="24MiB", progress=interrupt)
    assert {entry.name for entry in wide.iterdir()} | {"lock"} == files


MEASURED = """
import resource, sys
import freshgo
freshgo.library()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
freshgo.propagate({path!r}, reduce="gcn", memory={memory}, progress=False, overwrite=True).close()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_within_memory(wide: Path) -> None:
    """The process grows by no more than the memory that was given and what a Go runtime needs."""
    memory = 24 << 20
    assert int(warm.run(MEASURED.format(path=str(wide), memory=memory))) < memory + (24 << 20)
