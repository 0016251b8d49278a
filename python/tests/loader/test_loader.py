"""Epochs, positions, and the rest of a loader's life."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import Form, num_nodes
from oracle import assert_batches_equal, assert_equal

from freshgo import Loader
from freshgo._loader import keywords
from freshgo._native.process import counters
from freshgo.errors import ClosedError, DTypeError, InvalidArgumentError, LibraryError


def ids(loader: Any) -> list[list[int]]:
    return [batch.n_id[: batch.batch_size].tolist() for batch in loader]


@pytest.mark.parametrize(("size", "drop", "length"), [(100, False, 4), (100, True, 3), (330, True, 1), (331, True, 0)])
def test_len(store: Any, size: int, drop: bool, length: int) -> None:
    with Loader(store, [2], range(330), batch_size=size, drop_last=drop) as loader:
        assert len(loader) == length
        assert len(list(loader)) == length


def test_every_iter_is_the_next_epoch(store: Any) -> None:
    with Loader(store, [2], range(64), batch_size=16, shuffle=True) as loader:
        epochs = [ids(loader) for _ in range(3)]
        assert all(sorted(itertools.chain(*epoch)) == list(range(64)) for epoch in epochs)
        assert epochs[0] != epochs[1] != epochs[2]
        loader.set_epoch(1)
        assert ids(loader) == epochs[1]
        assert ids(loader) == epochs[2]


def test_without_shuffle_seeds_keep_their_order(store: Any) -> None:
    with Loader(store, [2], [9, 4, 7, 1], batch_size=3) as loader:
        assert ids(loader) == ids(loader) == [[9, 4, 7], [1]]


def test_break_stops_the_work(store: Any) -> None:
    with Loader(store, [5, 5], batch_size=16, prefetch=8) as loader:
        for _ in loader:
            break
        del _
        # What was prepared ahead is freed by the iterator's end, not by the next epoch.
        before = loader.stats()["batches"]
        assert loader.stats()["memory"]["batch"] == 0
        assert loader.state_dict()["batches"] == 1
        assert len(list(loader)) == len(loader)
        assert loader.stats()["batches"] == before + len(loader)


def test_iterators_that_are_never_asked_begin_no_epoch(store: Any) -> None:
    seeds = {epoch: [batch.input_id.tolist() for batch in epochs(store, epoch)] for epoch in range(2)}
    with Loader(store, [2], batch_size=100, shuffle=True) as loader:
        iter(loader)
        assert [batch.input_id.tolist() for batch in loader] == seeds[0]
        before = loader.stats()["rows"]
        iter(loader), iter(loader)
        assert loader.stats()["rows"] == before
        assert [batch.input_id.tolist() for batch in loader] == seeds[1]


def epochs(store: Any, epoch: int) -> list[Any]:
    with Loader(store, [2], batch_size=100, shuffle=True) as loader:
        loader.set_epoch(epoch)
        return list(loader)


def test_batches_in_inference_mode(store: Any) -> None:
    with Loader(store, [2], batch_size=100) as loader:
        expected = [block.ptr.tolist() for batch in loader for block in batch.blocks()]
        with torch.inference_mode():
            assert [block.ptr.tolist() for batch in loader for block in batch.blocks()] == expected


def test_a_second_iterator_ends_the_first(store: Any) -> None:
    with Loader(store, [2], batch_size=100) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        next(first)  # which goes on until the other begins
        next(second)
        with pytest.raises(ClosedError, match="iterated anew"):
            next(first)
        assert len(list(second)) == len(loader) - 1
        with pytest.raises(StopIteration):
            next(second)


def test_dropping_an_old_iterator_leaves_the_new_one_alone(store: Any) -> None:
    with Loader(store, [2], batch_size=100) as loader:
        first = iter(loader)
        second = iter(loader)
        del first
        assert len(list(second)) == len(loader)


def test_state_in_mid_epoch(form: Form) -> None:
    inputs = {"paper": "train", "author": range(300)} if form.several else form.inputs()
    options: dict[str, Any] = {"num_neighbors": [3], "input_nodes": inputs, "batch_size": 50}
    options |= {"shuffle": True, "seed": 5}
    with Loader(form.path, **options) as loader:
        iterator = iter(loader)
        for _ in range(7):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = list(iterator)
        following = next(iter(loader))
    assert (state["epoch"], state["batches"]) == (0, 7)
    with Loader(form.path, **options, num_workers=2, prefetch=1, cache="none") as other:
        other.load_state_dict(state)
        resumed = list(other)
        assert_batches_equal(resumed, rest)
        assert_equal(next(iter(other)), following)


def test_state_after_the_last_batch(store: Any) -> None:
    with Loader(store, [2], batch_size=1000) as loader:
        iterator = iter(loader)
        for _ in range(len(loader)):
            next(iterator)
        at_the_end = loader.state_dict()
        assert next(iterator, None) is None
        assert loader.state_dict()["epoch"] == 1
        loader.load_state_dict(at_the_end)
        assert list(loader) == []  # the rest of epoch 0
        assert len(list(loader)) == len(loader)


@pytest.mark.parametrize(
    "change",
    [
        {"num_neighbors": [3, 3]},
        {"batch_size": 50},
        {"shuffle": True},
        {"seed": 1},
        {"replace": True},
        {"drop_last": True},
        {"input_nodes": [1, 2, 3]},
    ],
    ids=str,
)
def test_state_of_another_loader_is_refused(form: Form, change: dict[str, Any]) -> None:
    options: dict[str, Any] = {"num_neighbors": [3], "batch_size": 100, "input_nodes": form.inputs()}
    name = next(iter(change))
    changed = {**options, name: form.inputs(change[name]) if name == "input_nodes" else change[name]}
    with Loader(form.path, **options) as one, Loader(form.path, **changed) as other:
        with pytest.raises(InvalidArgumentError, match=f"other batches: {name} was"):
            other.load_state_dict(one.state_dict())
        one.load_state_dict(json.loads(json.dumps(one.state_dict())))


def test_state_of_another_graph_is_refused(form: Form) -> None:
    edges = form.graph[form.within]
    changed = form.handed({**form.graph, form.within: {**edges, "edge_index": edges["edge_index"][::-1]}})
    with Loader(form.path, [3], form.inputs()) as stored, Loader(form.data, [3], form.inputs()) as one:
        with Loader(changed, [3], form.inputs()) as other:
            for state in (one.state_dict(), stored.state_dict()):
                with pytest.raises(InvalidArgumentError, match="graph was"):
                    other.load_state_dict(state)


@pytest.mark.parametrize("state", [{}, {"version": 2}, [], None])
def test_malformed_state(store: Any, state: Any) -> None:
    with Loader(store, [3]) as loader, pytest.raises(InvalidArgumentError, match="state_dict"):
        loader.load_state_dict(state)


def test_trace_gives_the_ids_of_the_epoch_and_reads_nothing(form: Form) -> None:
    inputs = {"paper": "train", "author": "test"} if form.several else form.inputs()
    with Loader(form.path, [4, 3], inputs, batch_size=200, shuffle=True, cache="none") as loader:
        before = loader.stats()
        trace = list(loader.trace(1))
        after = loader.stats()
        assert [after[key] for key in ("rows", "hits", "misses", "bytes_read")] == [0, 0, 0, before["bytes_read"]]
        assert loader.state_dict()["epoch"] == 0
        loader.set_epoch(1)
        for nodes, batch in zip(map(form.of_nodes, trace), form.batches(loader), strict=True):
            assert list(nodes) == list(batch.node_types)
            for node_type, n_id in nodes.items():
                assert n_id.equal(batch[node_type].n_id)


def test_transform(form: Form) -> None:
    def rows(batch: Any) -> Any:
        part = form.by_type(batch)[form.node_type]
        return part.batch_size, part.x.shape[1]

    with Loader(form.path, [2], form.inputs(range(1100)), batch_size=500, transform=rows) as loader:
        assert list(loader) == [(500, 24), (500, 24), (100, 24)]


def test_a_transform_that_fails_costs_one_batch(store: Any) -> None:
    def fail_once(batch: Any) -> Any:
        if int(batch.input_id[0]) == 1000 and not failed:
            failed.append(True)
            raise RuntimeError("transform")
        return int(batch.input_id[0])

    failed: list[bool] = []
    with Loader(store, [2], batch_size=500, transform=fail_once) as loader:
        iterator = iter(loader)
        assert [next(iterator), next(iterator)] == [0, 500]
        with pytest.raises(RuntimeError, match="transform"):
            next(iterator)
        assert loader.state_dict()["batches"] == 2
        assert list(iterator) == [1500, 2000, 2500]


@pytest.mark.parametrize("cache", ["degree", "belady", "lru"])
def test_stats(form: Form, cache: str) -> None:
    options: dict[str, Any] = {"memory": "64MiB", "feature_cache": "64KiB", "cache": cache}
    with Loader(form.path, [4, 3], form.inputs(), batch_size=400, **options) as loader:
        batches = form.batches(loader)
        stats = loader.stats()
        assert cache != "belady" or str(loader.plan())
        assert "<table>" in loader._repr_html_()
    assert stats["batches"] == len(batches)
    assert stats["hits"] + stats["packed"] + stats["misses"] == stats["rows"]
    with_x = [batch[key].num_nodes for batch in batches for key in batch.node_types if "x" in batch[key]]
    assert stats["rows"] >= sum(with_x) > 0
    assert len(stats["epochs"]) == 1
    assert stats["hits"] > 0
    assert stats["packed"] + stats["misses"] > 0
    assert stats["packed"] == 0 or cache == "belady"
    assert stats["edges"] == sum(batch[key].edge_index.size(1) for batch in batches for key in batch.edge_types)
    assert stats["bytes_read"] > 0
    assert stats["requests"] > 0
    assert stats["engine"] in ("io_uring", "pread", "buffered")
    assert stats["memory_peak"] <= stats["memory_limit"] == 64 * 2**20
    assert {"seconds_sampling", "seconds_reading", "seconds_waiting"} <= stats.keys()


def test_without_matplotlib_a_picture_is_a_typed_error(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with Loader(store, [4], batch_size=500) as loader:
        with pytest.raises(LibraryError, match=r"pip install 'freshgo\[plot\]'"):
            loader.plot()


def test_report_and_figure(store: Any) -> None:
    pytest.importorskip("matplotlib")
    with Loader(store, [4], batch_size=500, memory="64MiB") as loader:
        list(loader)
        assert "<table>" in loader._repr_html_()
        assert "budget 64.0 MiB" in loader._repr_html_()
        assert [axes.get_title() for axes in loader.plot().axes] == [
            "where time went",
            f"rows: {loader.stats()['rows']:,}",
            "memory, at most",
            "found in memory, by epoch",
            "read from disk, by epoch",
            "took, by epoch",
        ]
    assert "closed" in repr(loader)
    assert "closed" in loader._repr_html_()


def test_epochs_add_up(store: Any) -> None:
    pytest.importorskip("matplotlib")
    with Loader(store, [4], batch_size=500, memory="64MiB", feature_cache="128KiB") as loader:
        assert len(loader.plot().axes) == 3
        list(loader)
        list(loader)
        next(iter(loader))  # of an epoch that does not end
        list(loader.trace(0))
        stats = loader.stats()
    assert [epoch["epoch"] for epoch in stats["epochs"]] == [0, 1]
    for epoch in stats["epochs"]:
        assert epoch["batches"] == 6
        assert epoch["rows"] > 2000
        assert epoch["seconds"] > 0
    assert sum(epoch["rows"] for epoch in stats["epochs"]) <= stats["rows"]


def test_back_pressure(store: Any) -> None:
    """A consumer that takes nothing finds no more than ``prefetch`` batches ready."""
    with Loader(store, [5, 5], batch_size=16, prefetch=3, num_workers=2) as loader:
        iterator = iter(loader)
        next(iterator)
        deadline = time.monotonic() + 0.5
        most = 0
        while time.monotonic() < deadline:
            most = max(most, counters()["buffers"])
        per_batch = 16  # tensors of a batch of this graph, at most
        assert most <= (1 + 3 + 2) * per_batch


def test_closed(form: Form) -> None:
    loader = Loader(form.path, [2], form.inputs(), batch_size=100)
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    loader.close()
    with pytest.raises(ClosedError):
        next(iterator)
    with pytest.raises(ClosedError):
        iter(loader)
    assert form.by_type(batch)[form.node_type].x.isfinite().all()


def test_nothing_is_left(graph: dict[str, Any], store_path: Path) -> None:
    import gc

    gc.collect()
    before = counters()
    for data in (str(store_path), graph):
        with Loader(data, [5, 5], batch_size=64) as loader:
            for number, _ in enumerate(loader):
                if number == 5:
                    break
    loader = _ = None
    gc.collect()
    after = counters()
    assert {k: after[k] for k in before if k != "pooled_bytes"} == {k: before[k] for k in before if k != "pooled_bytes"}


def test_many_batches_leak_nothing(store: Any) -> None:
    with Loader(store, [2], range(1000), batch_size=2, prefetch=8) as loader:
        for _ in loader:
            pass
        del _
        resting = counters()
        for _ in range(20):
            for batch in loader:
                assert batch.batch_size == 2
        del batch
        assert counters()["buffers"] == resting["buffers"]
        assert counters()["buffer_bytes"] == resting["buffer_bytes"]


def test_no_pickling(store: Any) -> None:
    with Loader(store, [2]) as loader:
        for action in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(DTypeError, match="state_dict"):
                action(loader)
            with pytest.raises(DTypeError, match="iterator of a Loader cannot be copied"):
                action(iter(loader))
        epoch = iter(loader)
        assert repr(epoch) == "<iterator at its start>"
        next(epoch)
        assert repr(epoch) == f"<iterator at batch 1 of {len(loader)}>"


def test_batches_can_be_pickled(form: Form) -> None:
    with Loader(form.path, [3], form.inputs(), batch_size=10) as loader:
        batch = next(iter(loader))
    assert_equal(pickle.loads(pickle.dumps(batch)), batch)


def test_pyg_options_warn_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keywords, "_warned", set())
    with pytest.warns(UserWarning, match="persistent_workers"):
        Loader(store, [2], persistent_workers=True, subgraph_type="directional").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loader(store, [2], persistent_workers=True).close()


def test_features_in_memory_are_used_in_place(form: Form) -> None:
    x = torch.zeros(num_nodes(form.graph)[form.node_type], 3)
    graph = form.handed({**form.graph, form.node_type: {**form.graph[form.node_type], "x": x}})
    with Loader(graph, [3], form.inputs([0, 1]), batch_size=2) as loader:
        assert not form.batches(loader)[0][form.node_type].x.any()
        x += 7
        assert (form.batches(loader)[0][form.node_type].x == 7).all()


def test_edges_alone(graph: dict[str, Any]) -> None:
    with Loader({"edge_index": graph["edge_index"]}, [3], [0, 1], batch_size=2) as loader:
        batch = next(iter(loader))
    assert set(batch.n_id[:2].tolist()) == {0, 1}
    np.testing.assert_array_equal(graph["edge_index"][:, batch.e_id], batch.n_id[batch.edge_index])
