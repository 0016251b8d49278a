"""Stores whose rows are in the order of their use: everything that is read from them stays what it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from graphs import Form, forms, hetero_graph, num_nodes, random_graph
from oracle import assert_batches_equal
from seeds import seed as seed_of
from store_oracle import check_equal

import freshgo
from freshgo import Disk, Hotness, Loader, Store, convert, relayout
from freshgo._args.size import least_size
from freshgo._native import handle as native_handle
from freshgo.cli import main
from freshgo.errors import (
    BudgetError,
    ClosedError,
    CorruptError,
    DTypeError,
    InvalidArgumentError,
    StoreExistsError,
    StoreNotFoundError,
)

ORDERS = ("hot", "community", "hot+community")
QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False}


form = forms(random_graph, lambda: hetero_graph(200))


def sampled(form: Form) -> dict[str, Any]:
    return {"num_neighbors": [4, 3], "input_nodes": form.inputs("train")}


def scores(num_nodes: int, seed: int = 0) -> torch.Tensor:
    """Scores with ties and zeros."""
    generator = torch.Generator().manual_seed(seed_of(seed))
    return (torch.randint(0, 50, (num_nodes,), generator=generator) - 10).clamp(min=0).float()


def by_type(store: Store) -> dict[str, tuple[str, int]]:
    """Of each node type what the names of its files begin with, and how many nodes it has; "" without types."""
    types = store.num_nodes_dict or {"": store.num_nodes}
    return {name: (f"t{i}_{name}_" if name else "", count) for i, (name, count) in enumerate(types.items())}


def stored_order(store: Store, node_type: str = "") -> np.ndarray[Any, Any]:
    """The user's id of each row, from the file that docs/format.md describes."""
    prefix, count = by_type(store)[node_type]
    return np.fromfile(Path(store.path) / f"{prefix}order.bin", "<u4")[:count]


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


@pytest.mark.parametrize("order", ORDERS)
def test_everything_reads_the_same(form: Form, tmp_path: Path, order: str) -> None:
    hot = form.bare({name: scores(count) for name, count in num_nodes(form.graph).items()})
    with (
        Store.open(form.path) as store,
        relayout(store, tmp_path / "r", order=order, hotness=hot, **QUIET) as reordered,
    ):
        assert reordered.reordered
        assert not store.reordered
        assert reordered.uuid != store.uuid
        check_equal(store, reordered)
        reordered.verify()
        assert "order    rows of node tensors" in reordered.inspect()
        for name, (_, count) in by_type(store).items():
            assert sorted(stored_order(reordered, name)) == list(range(count))
        if form.node_type:
            return
        # x has 24 float32 in a row, which lie 42 to a page.
        rows = np.fromfile(tmp_path / "r" / "rows0_x.bin", np.uint8).reshape(-1, 4096)[:, : 42 * 96]
        rows = rows.reshape(-1, 96)[: store.num_nodes].copy().view(np.float32)
        np.testing.assert_array_equal(rows, store["x"].numpy()[stored_order(reordered)])


@pytest.mark.parametrize("order", ORDERS)
def test_batches_are_the_same(form: Form, tmp_path: Path, order: str) -> None:
    options: dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 5, "memory": "24MiB", **sampled(form)}
    with relayout(form.path, tmp_path / "r", order=order, **sampled(form), **QUIET) as reordered:
        for more in (
            {},
            {"feature_cache": 0},
            {"cache": "degree"},
            {"cache": "lru"},
            {"cache": "belady", "disk": Disk(checksums=True)},
        ):
            with Loader(form.path, **options, **more) as one, Loader(reordered, **options, **more) as other:
                for _ in range(2):
                    assert_batches_equal(one, other)


def test_hot_order_is_by_score_and_id(form: Form, tmp_path: Path) -> None:
    hot = {name: scores(count) for name, count in num_nodes(form.graph).items()}
    with relayout(form.path, tmp_path / "r", order="hot", hotness=form.bare(hot), **QUIET) as reordered:
        for name, of in hot.items():
            expected = sorted(range(len(of)), key=lambda node, of=of: (-of[node].item(), node))
            assert stored_order(reordered, name).tolist() == expected


def test_hot_rows_come_first_and_unused_ones_last(store: Store, tmp_path: Path) -> None:
    hot = scores(store.num_nodes)
    with relayout(store, tmp_path / "r", hotness=hot.numpy(), hot_rows=200, **QUIET) as reordered:
        order = torch.from_numpy(stored_order(reordered).astype(np.int64))
    expected = sorted(range(store.num_nodes), key=lambda node: (-hot[node].item(), node))
    assert order[:200].tolist() == expected[:200]
    used = int((hot > 0).sum())
    assert (hot[order[:used]] > 0).all()


def test_metrics(store: Store, tmp_path: Path) -> None:
    orders = {}
    scored = {
        metric: freshgo.hotness(store, metric, num_neighbors=[3, 3]) for metric in ("degree", "expected", "presc")
    }
    for name, options in {
        "default": {},
        "degree": {"hotness": "degree"},
        "sampled": {"num_neighbors": [3, 3], "input_nodes": "train"},
        "expected": {"hotness": "expected", "num_neighbors": [3, 3], "input_nodes": "train"},
        "by hand": {"hotness": freshgo.hotness(store, "expected", num_neighbors=[3, 3], input_nodes="train")},
        "random": {"hotness": Hotness("random", seed=3)},
    }.items():
        with relayout(store, tmp_path / name, order="hot", **options, **QUIET) as reordered:
            orders[name] = stored_order(reordered).tolist()
            for metric, by_node in scored.items():
                assert freshgo.hotness(reordered, metric, num_neighbors=[3, 3]).equal(by_node), metric
    assert orders["default"] == orders["degree"]
    assert orders["sampled"] == orders["expected"] == orders["by hand"]
    assert len({tuple(order) for order in orders.values()}) == 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (1500,)], ids=str)
def test_rows_of_any_width(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(seed_of(0))
    n = 300
    x = (torch.rand(n, *shape) * 100 - 20).to(getattr(torch, dtype))
    data = {"edge_index": torch.randint(n, (2, 900)), "feature": x, "num_nodes": n}
    with convert(data, tmp_path / "g", **QUIET) as store:
        for order in ORDERS:
            with relayout(store, tmp_path / order, order=order, **QUIET) as reordered:
                assert reordered["feature"].equal(x)
                assert reordered["feature"].dtype == x.dtype


def test_wide_rows_in_little_memory(tmp_path: Path) -> None:
    n, width = 700, 8415  # as coauthor-physics
    x = torch.arange(n * width, dtype=torch.float32).reshape(n, width)
    with convert({"edge_index": torch.randint(n, (2, 3000)), "x": x, "num_nodes": n}, tmp_path / "g", **QUIET) as store:
        with pytest.raises(BudgetError) as refused:
            relayout(store, tmp_path / "r", hotness=scores(n), memory=1000, progress=False)
        assert f"at least {least_size(refused.value.minimum)}" in str(refused.value)
        assert 0 < refused.value.minimum < x.nbytes / 2
        minimum = refused.value.minimum
        with relayout(store, tmp_path / "r", hotness=scores(n), memory=minimum, progress=False) as reordered:
            assert reordered["x"].equal(x)


def test_a_store_without_node_tensors(tmp_path: Path) -> None:
    data = {"edge_index": np.array([[0, 5], [1, 2]]), "edge_attr": np.ones((2, 3))}
    with convert(data, tmp_path / "g", **QUIET) as store, relayout(store, tmp_path / "r", **QUIET) as reordered:
        check_equal(store, reordered)
        assert sorted(stored_order(reordered)) == list(range(6))


def test_twice_and_over_itself(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "r"
    first = relayout(store.path, path, order="community", **QUIET)
    with pytest.raises(StoreExistsError):
        relayout(first, path, order="hot", **QUIET)
    with relayout(first, path, order="hot", hotness=scores(store.num_nodes), overwrite=True, **QUIET) as second:
        check_equal(store, second)
        second.verify()
    with pytest.raises(ClosedError, match="replaced"):
        first["x"]
    first.close()
    assert names(tmp_path) == {"r"}


def test_progress_counts_bytes(store: Store, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    relayout(store, tmp_path / "r", memory="64MiB", progress=lambda *call: calls.append(call)).close()
    assert {stage for stage, _, _ in calls} == {"relayout"}
    assert all(0 <= done <= total for _, done, total in calls)
    assert calls[-1][2] > 2 * store["x"].nbytes


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"order": "warm"}, InvalidArgumentError, "order must be one of 'hot', 'community', 'hot\\+community'"),
        ({"hotness": "warmth"}, InvalidArgumentError, "degree"),
        ({"hotness": "oracle"}, InvalidArgumentError, "presc"),
        ({"hotness": "expected"}, InvalidArgumentError, "num_neighbors"),
        ({"input_nodes": "train"}, InvalidArgumentError, "num_neighbors"),
        ({"num_neighbors": [2], "input_nodes": "nobody"}, InvalidArgumentError, "nobody"),
        ({"hotness": torch.ones(7)}, InvalidArgumentError, "each of the 3000 nodes, got 7"),
        ({"hotness": torch.full((3000,), float("nan"))}, InvalidArgumentError, "node 0 is nan"),
        ({"hotness": -torch.arange(3000)}, InvalidArgumentError, "node 1 is -1"),
        ({"hotness": [1.0, 2.0]}, DTypeError, "list"),
        ({"hot_rows": -1}, InvalidArgumentError, "hot_rows"),
        ({"memory": "much"}, InvalidArgumentError, "memory"),
    ],
)
def test_bad_options(store: Store, tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        relayout(store, tmp_path / "r", **{**QUIET, **options})
    assert names(tmp_path) == set()


def test_bad_stores(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        relayout(tmp_path / "nothing", tmp_path / "r", **QUIET)
    closed = Store.open(store.path)
    closed.close()
    with pytest.raises(ClosedError):
        relayout(closed, tmp_path / "r", hotness=scores(3000), **QUIET)


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_damaged_order(store: Store, tmp_path: Path, damage: str) -> None:
    relayout(store, tmp_path / "r", order="community", **QUIET).close()
    file = tmp_path / "r" / "order.bin"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data if damage == "flipped" else data[:4096])
    with pytest.raises(CorruptError, match=r"order\.bin at offset 4096"):
        with Store.open(tmp_path / "r") as reordered:
            assert damage == "flipped", "a short file is seen at once"
            with pytest.raises(CorruptError, match=r"order\.bin"):
                reordered["x"]
            reordered.verify()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of .npy files with 46 MB of features, which take a while."""
    graph = random_graph(60_000, 100_000)
    path = tmp_path_factory.mktemp("large")
    np.save(path / "edge_index.npy", graph["edge_index"])
    np.save(path / "x.npy", np.tile(graph["x"], (1, 8)))
    return path


@pytest.mark.parametrize("how", ["relayout", "convert"])
def test_interrupted(large: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_handle, "POLL_MS", 1)  # so that a fast machine is seen at work

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "relayout":
            raise KeyboardInterrupt

    if how == "relayout":
        convert(large, tmp_path / "g", **QUIET).close()
    before = names(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        if how == "relayout":
            relayout(tmp_path / "g", tmp_path / "r", memory="16MiB", progress=interrupt)
        else:
            convert(large, tmp_path / "r", relayout="hot", memory="16MiB", progress=interrupt)
    assert names(tmp_path) == before


KILLED = """
import os, signal, sys
import freshgo
from freshgo._native import handle as native_handle
from freshgo.cli import main
native_handle.POLL_MS = 1
def progress(stage, done, total):
    if stage == "relayout" and done > total // 3:
        os.kill(os.getpid(), signal.SIGKILL)
freshgo.{call}
"""


@pytest.mark.parametrize("how", ["relayout", "convert"])
def test_killed(large: Path, tmp_path: Path, how: str) -> None:
    target = tmp_path / "r"
    if how == "relayout":
        convert(large, tmp_path / "g", **QUIET).close()
        call = f"relayout({str(tmp_path / 'g')!r}, {str(target)!r}, memory='16MiB', progress=progress)"
    else:
        call = f"convert({str(large)!r}, {str(target)!r}, relayout='hot', memory='16MiB', progress=progress)"
    before = names(tmp_path)
    warm.killed(KILLED.format(call=call))
    assert names(tmp_path) - before == {"r.partial"}
    with convert(large, target, relayout="hot", **QUIET) as store:
        np.testing.assert_array_equal(store["x"], np.load(large / "x.npy"))
        store.verify()
    assert names(tmp_path) - before == {"r"}


@pytest.mark.parametrize("order", ORDERS)
def test_convert(form: Form, tmp_path: Path, order: str) -> None:
    choice: Any = order if order == "community" else {"order": order, **sampled(form)}
    options = {"order": choice} if isinstance(choice, str) else choice
    with (
        Store.open(form.path) as store,
        convert(form.data, tmp_path / "r", relayout=choice, **QUIET) as reordered,
        relayout(store, tmp_path / "two steps", **options, **QUIET) as two_steps,
    ):
        check_equal(store, reordered)
        reordered.verify()
        for name in by_type(store):
            np.testing.assert_array_equal(stored_order(two_steps, name), stored_order(reordered, name))
    assert names(tmp_path) == {"r", "two steps"}


def test_command(form: Form, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--num-neighbors", "4,3", "--input-nodes", "paper:train" if form.node_type else "train"]
    assert main(["relayout", str(form.path), str(tmp_path / "r"), *options]) == 0
    assert "order    rows of node tensors" in capsys.readouterr().out
    with Store.open(form.path) as store, Store.open(tmp_path / "r") as reordered:
        assert reordered.reordered
        check_equal(store, reordered)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"hotness": torch.ones(7)}, DTypeError, r"by node type, .*, in a heterogeneous graph, got a vector"),
        ({"hotness": {"paper": torch.ones(7)}}, InvalidArgumentError, "nodes of type 'paper', got 7"),
        ({"hotness": {"papers": torch.ones(7)}}, InvalidArgumentError, "'papers'"),
        ({"hotness": "expected", "num_neighbors": [3]}, DTypeError, "input_nodes"),
        ({"num_neighbors": {("paper", "eats", "paper"): [3]}, "input_nodes": "paper"}, InvalidArgumentError, "eats"),
    ],
)
def test_bad_options_of_types(tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    convert(hetero_graph(20), tmp_path / "g", **QUIET).close()
    with pytest.raises(error, match=text):
        relayout(tmp_path / "g", tmp_path / "r", **options, **QUIET)
    assert names(tmp_path) == {"g"}


@pytest.mark.parametrize(
    ("choice", "error", "text"),
    [
        ("warm", InvalidArgumentError, "order"),
        ({"orders": "hot"}, InvalidArgumentError, "orders"),
        (3, DTypeError, "int"),
        ({"hotness": torch.ones(7)}, InvalidArgumentError, "got 7"),
    ],
)
def test_convert_with_bad_options(
    graph: dict[str, Any], tmp_path: Path, choice: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        convert(graph, tmp_path / "r", relayout=choice, **QUIET)
    assert names(tmp_path) == set()


def test_nothing_is_left_in_the_library(store: Store, tmp_path: Path) -> None:
    from freshgo._native.process import counters

    before = counters()
    relayout(store, tmp_path / "r", **QUIET).close()
    deadline = time.monotonic() + 10
    while counters() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counters() == before
