"""Stores that grow: what they hold is what a conversion of everything would have written."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changes import grown, updated
from graphs import FORMS, as_types, handed, hetero_graph, random_graph
from seeds import seed as seed_of
from store_oracle import check_equal

import freshgo
from freshgo import Loader, Store, Table, append, convert, convert_tables, propagate, relayout, update
from freshgo.errors import (
    BudgetError,
    ClosedError,
    DTypeError,
    FreshgoError,
    InvalidArgumentError,
    StoreExistsError,
    StoreNotFoundError,
    StorePermissionError,
)

pytestmark = pytest.mark.explore

QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False}
SEQUENCES = int(os.environ.get("FRESHGO_TEST_SEQUENCES", "3"))


def graph_of(form: str, seed: int) -> Any:
    if form == "homogeneous":
        return as_types(random_graph(300, 2000, seed))
    graph = hetero_graph(40, seed)
    return graph if form == "several types" else as_types(random_graph(300, 2000, seed), "node", ("node", "to", "node"))


def files_of(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(store.path).iterdir() if path.name != "manifest.pb"}


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_sequences_are_conversions(tmp_path: Path, number: int) -> None:
    """Updates and appends in any order, of plain and relaid stores: as much as a conversion at the end would bring."""
    draw = random.Random(seed_of(number))
    form = FORMS[number % 3]
    graph = graph_of(form, number)
    path, relaid, appended = tmp_path / "s", draw.random() < 0.4, True
    convert(handed(graph), path, progress=False).close()
    if relaid:
        relayout(path, path, order="community", overwrite=True, **QUIET).close()
    for step in range(6):
        there = tmp_path / f"{step}" if draw.random() < 0.7 else path
        if draw.random() < 0.4:
            how, graph = updated(graph, draw)
            store, appended = update(path, there, overwrite=True, **how, **QUIET), False
        else:
            how, graph = grown(graph, draw, draw.choice([3, 60]))
            store = append(path, there, overwrite=True, **how, **QUIET)
        with store, convert(handed(graph), tmp_path / "fresh", overwrite=True, progress=False) as fresh:
            check_equal(store, fresh)
            store.verify()
            assert store.reordered == relaid
            assert store.version == store.history[-1].version == 2 + relaid + step
            if appended and not relaid and not any("split" in file for file in files_of(fresh)):
                assert files_of(store) == files_of(fresh)
            if step == 5:
                check_batches(store, fresh)
        if there != path:
            shutil.rmtree(path)  # the new store does not need it
        path = there


def check_batches(store: Store, fresh: Store) -> None:
    seeds = torch.arange(min(store.num_nodes, 20)) if not store.node_types else None
    node_type = next((name for name in store.node_types if store[name].num_nodes), None)
    inputs = seeds if node_type is None else (node_type, torch.arange(min(store[node_type].num_nodes, 20)))
    loaders = [Loader(of, [3, 2], inputs, batch_size=10, seed=1) for of in (store, fresh)]
    for one, other in zip(*loaders, strict=True):
        for mine, theirs in zip(parts(one), parts(other), strict=True):
            assert mine.equal(theirs)
    for loader in loaders:
        loader.close()


def parts(batch: Any) -> list[torch.Tensor]:
    of_types = [batch] if isinstance(batch.to_dict().get("n_id"), torch.Tensor) else batch.node_stores
    edges = [batch] if "e_id" in batch.to_dict() else batch.edge_stores
    return [*(of.n_id for of in of_types), *(of.e_id for of in edges)]


def test_files_are_those_of_a_conversion(tmp_path: Path) -> None:
    """Byte for byte, with weights by target and tensors in fewer bytes, in little memory and in much."""
    draw = random.Random(seed_of(0))
    graph = as_types(random_graph(2000, 30_000))
    graph[""].pop("splits")
    how: dict[str, Any] = {"weight_attr": "edge_weight", "dtype": {"x": "int8-per-row"}, "progress": False}
    convert(handed(graph), tmp_path / "s", **how).close()
    more, whole = grown(graph, draw, 900)
    while not (more["nodes"] and more["edges"]):
        more, whole = grown(graph, draw, 900)
    more["nodes"].pop("splits", None)
    whole[""].pop("splits", None)
    with pytest.raises(BudgetError) as error:
        append(tmp_path / "s", tmp_path / "t", memory=1, progress=False, **more)
    with convert(handed(whole), tmp_path / "fresh", **how) as fresh:
        for memory in (error.value.minimum, "1GiB"):
            with append(tmp_path / "s", tmp_path / "t", overwrite=True, progress=False, **more, memory=memory) as store:
                assert files_of(store) == files_of(fresh)
                assert store.weight_attr == "edge_weight"
                assert freshgo.quantization_error(store, "x") == freshgo.quantization_error(fresh, "x")


def test_what_does_not_grow_is_shared(tmp_path: Path) -> None:
    convert(random_graph(20_000, 100_000), tmp_path / "s", progress=False).close()
    edges = {"edge_index": np.array([[1, 2], [3, 4]]), "edge_weight": np.ones(2, np.float32)}
    with append(tmp_path / "s", tmp_path / "t", edges=edges, **QUIET) as store:
        assert store.num_edges == 100_002
        one, other = ((tmp_path / name / "node0_x.bin").stat() for name in "st")
    cloned = subprocess.run(["cp", "--reflink=always", tmp_path / "s/node0_x.bin", tmp_path / "c"], check=False)
    assert one.st_ino == other.st_ino or cloned.returncode == 0 or tmp_path.stat().st_dev != one.st_dev


def test_computed_tensors_go_with_what_they_were_computed_from(tmp_path: Path) -> None:
    graph = as_types(random_graph(500, 4000))
    convert(handed(graph), tmp_path / "s", progress=False).close()
    propagate(tmp_path / "s", "x", **QUIET).close()
    edges = {"edge_index": np.array([[1], [3]]), "edge_weight": np.ones(1, np.float32)}
    with append(tmp_path / "s", tmp_path / "t", edges=edges, **QUIET) as store:
        assert "x_mean" not in store.tensors
    with append(tmp_path / "s", tmp_path / "u", nodes={"num_nodes": 0, "splits": {"test": [3]}}, **QUIET) as store:
        assert "x_mean" in store.tensors
        assert store.history[1][1:3] == ("propagate", "x_mean")
        Loader(store, [3], first_layer="mean").close()


def test_keys_of_new_nodes(tmp_path: Path) -> None:
    """Of nodes with keys, new ones whose keys come last make the store that the tables together make."""
    import pyarrow as pa

    for old, new, wrong in ((["b", "d", "ä"], ["äb", "ü"], ["ü", "c"]), ([3, 5, 9], [10, 2**40], [9, 12])):
        keys = [*old, *new]
        pairs = [(old[0], old[2]), (old[1], old[0])]
        more = [(new[1], old[1]), (old[0], new[0])]

        def tables(keys: list[Any], pairs: list[Any], name: str) -> Store:
            nodes = pa.table({"key": keys, "age": list(range(len(keys)))})
            edges = pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]})
            return convert_tables(
                Table(nodes, id="key", features=["age"]),
                Table(edges, src="a", dst="b"),
                tmp_path / name,
                overwrite=True,
                progress=False,
            )

        tables(old, pairs, "s").close()
        x = np.array([[3], [4]], np.float32)
        edge_index = np.array([[keys.index(a) for a, _ in more], [keys.index(b) for _, b in more]])
        given: dict[str, Any] = {"nodes": {"x": x}, "edges": edge_index}
        whole = tables(keys, [*pairs, *more], "whole")
        with append(tmp_path / "s", tmp_path / "t", overwrite=True, keys=new, **given, **QUIET) as store, whole:
            assert list(store.ids().keys(range(5))) == keys
            assert store.ids().lookup(keys).tolist() == list(range(5))
            assert store["x"].equal(whole["x"])
            assert list(whole.ids().keys(range(5))) == keys
            store.verify()
        for keys_given, error, words in (
            (None, InvalidArgumentError, "have keys in the store"),
            (new[:1], InvalidArgumentError, "has 1 keys, expected one for each of 2 new nodes"),
            (wrong, InvalidArgumentError, "does not come after"),
            ([None, None], DTypeError, "expected"),
        ):
            with pytest.raises(error, match=words):
                append(tmp_path / "s", tmp_path / "u", keys=keys_given, **given, **QUIET)


@pytest.mark.parametrize("text", [False, True])
def test_keys_are_taken_in_pieces(tmp_path: Path, text: bool) -> None:
    """No more than a piece of the new keys is held as Python objects."""
    import pandas as pd
    import pyarrow as pa

    old, count = ["0"] if text else [0], 100_000
    nodes = pa.table({"key": old, "age": [1]})
    edges = pa.table({"a": old, "b": old})
    tables = Table(nodes, id="key", features=["age"]), Table(edges, src="a", dst="b")
    convert_tables(*tables, tmp_path / "s", progress=False).close()
    keys = np.arange(10**8, 10**8 + count).astype("S9") if text else np.arange(1, count + 1)
    if text:
        keys = pd.Series(pa.array(keys.astype(object)).cast(pa.string()), dtype=pd.ArrowDtype(pa.string()), index=keys)
    given: dict[str, Any] = {"nodes": {"x": np.ones((count, 1), np.float32)}, "keys": keys}
    tracemalloc.start()
    with append(tmp_path / "s", tmp_path / "t", **given, **QUIET) as store:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < count * (8 + 9 * text) * 2 + (2 << 20)
        ids = torch.arange(0, count + 1, 500)
        came = store.ids().keys(ids)
        assert list(came) == [old[0], *keys.take(ids[1:].numpy() - 1)] if text else ids.equal(came)
        store.verify()
    bad = keys.to_list() if text else keys.tolist()
    bad[20_000] = bad[19_999]
    with pytest.raises(InvalidArgumentError, match=rf"keys\[20000\] is {bad[19_999]!r}, which does not come after"):
        append(tmp_path / "s", tmp_path / "u", **{**given, "keys": bad}, **QUIET)


def test_versions(tmp_path: Path) -> None:
    with convert(random_graph(500, 4000), tmp_path / "s", relayout="hot", progress=False) as store:
        assert (store.version, len(store.history)) == (1, 1)
        assert store.history[0].action == "convert"
    relayout(tmp_path / "s", tmp_path / "s", order="community", overwrite=True, **QUIET).close()
    update(tmp_path / "s", tmp_path / "s", drop=["y"], overwrite=True, **QUIET).close()
    propagate(tmp_path / "s", "x", **QUIET).close()
    edges = {"edge_index": np.array([[1], [3]]), "edge_weight": np.ones(1, np.float32)}
    with append(tmp_path / "s", tmp_path / "s", edges=edges, overwrite=True, **QUIET) as store:
        assert store.version == 5
        assert [entry[:3] for entry in store.history] == [
            (1, "convert", ""),
            (2, "relayout", "community"),
            (3, "update", "left out y"),
            (4, "propagate", "x_mean"),
            (5, "append", "1 edge"),
        ]
        times = [entry.time for entry in store.history]
        assert times == sorted(times)
        assert {entry.generator for entry in store.history} == {f"freshgo {freshgo.__version__}"}
        assert "5  " in store.inspect()


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends it, nothing or all of it appears, and the store stays."""
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    edges = {"edge_index": np.ones((2, 3), np.int64), "edge_weight": np.ones(3, np.float32)}
    stages: set[str] = set()

    def stop(stage: str, *_: object) -> None:
        stages.add(stage)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append(tmp_path / "s", tmp_path / "t", edges=edges, memory="64MiB", progress=stop)
    assert stages
    left = {path.name for path in tmp_path.iterdir()} - {"s"}
    assert left <= {"t"}
    for name in left:  # it was complete before the signal was looked at
        Store(tmp_path / name).verify()
        shutil.rmtree(tmp_path / name)
    done: set[str] = set()
    append(tmp_path / "s", tmp_path / "t", edges=edges, progress=lambda stage, *_: done.add(stage)).close()
    assert done


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_permission(tmp_path: Path) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StorePermissionError):
        append(tmp_path / "s", tmp_path / "closed" / "t", **QUIET)


ONE = {"x": np.ones((1, 24), np.float32), "y": np.ones(1, np.int64), "half": np.ones((1, 5), np.float16)}
ONE["train_mask"] = np.ones(1, bool)
EDGE: dict[str, Any] = {"edge_index": np.zeros((2, 1), np.int64), "edge_weight": np.ones(1, np.float32)}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"nodes": {"x": np.ones((3, 24), np.float32)}}, InvalidArgumentError, "y has no new rows, expected 3"),
        ({"nodes": {**ONE, "x": np.ones((1, 23), np.float32)}}, InvalidArgumentError, r"shape \[23\], expected \[24\]"),
        ({"nodes": {**ONE, "x": np.ones((1, 24))}}, InvalidArgumentError, "float64, expected float32"),
        ({"nodes": {**ONE, "z": np.ones(1)}}, InvalidArgumentError, "z is not in the store"),
        ({"nodes": {**ONE, "y": np.ones(2, np.int64)}}, InvalidArgumentError, "expected one row per node"),
        ({"nodes": {"n_id": np.ones(1)}}, InvalidArgumentError, "reserved for an attribute of the batch"),
        ({"nodes": 3}, DTypeError, "nodes must be a mapping"),
        ({"nodes": {**ONE, "splits": {"test": [501]}}}, InvalidArgumentError, "501, expected an id in"),
        ({"nodes": {"num_nodes": -1}}, InvalidArgumentError, "at least 0"),
        ({"edges": {**EDGE, "edge_index": [[500], [0]]}}, DTypeError, "edge_index must be"),
        ({"edges": {**EDGE, "edge_index": np.array([[500], [0]])}}, InvalidArgumentError, "500, expected an id in"),
        ({"edges": np.zeros((2, 1), np.int64)}, InvalidArgumentError, "edge_weight has no new rows"),
        ({"edges": np.zeros((3, 5), np.int64)}, InvalidArgumentError, "shape"),
        ({"edges": 3}, DTypeError, "edge_index must be"),
        ({"keys": [3], "nodes": ONE}, InvalidArgumentError, "have no keys"),
        ({"keys": [3]}, InvalidArgumentError, "keys are given of new nodes, and nodes gives none"),
        ({"memory": 1, "edges": EDGE}, BudgetError, "is too small: .* needs at least"),
        ({"overwrite": 3}, DTypeError, "overwrite"),
        ({"clip": 3}, DTypeError, "clip"),
        ({"store": "/nowhere"}, StoreNotFoundError, "nowhere"),
    ],
    ids=range(20),
)
def test_bad_input(tmp_path: Path, change: dict[str, Any], error: type[FreshgoError], words: str) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    given = {"store": tmp_path / "s", **QUIET, **change}
    with pytest.raises(error, match=words):
        append(given.pop("store"), tmp_path / "t", **given)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_bad_types(tmp_path: Path) -> None:
    convert(hetero_graph(50), tmp_path / "s", progress=False).close()
    edge_type = ("author", "writes", "paper")
    for how, error, words in (
        ({"nodes": {"x": {}}}, InvalidArgumentError, "no node type 'x'"),
        ({"nodes": {"paper": np.ones(3)}}, DTypeError, "must be a mapping"),
        ({"nodes": 3}, DTypeError, "mapping from types"),
        ({"edges": np.zeros((2, 1), np.int64)}, DTypeError, "mapping from types"),
        ({"edges": {"paper": np.zeros((2, 1), np.int64)}}, DTypeError, "must be edge types"),
        ({"edges": {("a", "b", "c"): np.zeros((2, 1), np.int64)}}, InvalidArgumentError, "no edge type"),
        ({"edges": {edge_type: np.zeros((2, 1), np.int64)}}, InvalidArgumentError, "weight has no new rows"),
        ({"keys": 3}, DTypeError, "keys must be a mapping"),
    ):
        with pytest.raises(error, match=words):
            append(tmp_path / "s", tmp_path / "t", **how, **QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_states_of_the_store(tmp_path: Path) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    with pytest.raises(StoreExistsError):
        append(tmp_path / "s", tmp_path / "s", **QUIET)
    with append(tmp_path / "s", tmp_path / "t", **QUIET) as same, Store(tmp_path / "s") as store:
        assert files_of(same) == files_of(store)
        assert (same.version, store.version) == (2, 1)
    store.close()
    with pytest.raises(ClosedError):
        append(store, tmp_path / "u", **QUIET)
    convert(random_graph(500, 4000), tmp_path / "c", dtype={"x": "int8-per-column"}, progress=False).close()
    with pytest.raises(InvalidArgumentError, match="scales that depend on all rows"):
        append(tmp_path / "c", tmp_path / "u", nodes=ONE, **QUIET)
