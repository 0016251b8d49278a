"""One batch now: sample() and loader(index), by themselves and beside an epoch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_fakes import LateStreams
from graphs import WRITES, Form, forms, hetero_graph, random_graph
from oracle import assert_batches_equal, assert_equal
from seeds import seed as seed_of

from freshgo import History, Labor, LinkLoader, Loader, MemoryBudget, convert, errors
from freshgo._device.mover import Mover
from freshgo._native.loader import RawBatch

pytestmark = pytest.mark.explore

INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError
NODES, EDGES = 500, 4000
IDS = [400, 3, 3, 77, 12]


def homogeneous() -> dict[str, Any]:
    rng = np.random.default_rng(seed_of(7))
    return random_graph(NODES, EDGES) | {"when": rng.integers(0, 90, EDGES), "born": rng.integers(0, 90, NODES)}


form = forms(homogeneous, lambda: hetero_graph(150))


def options(**more: Any) -> dict[str, Any]:
    return {"batch_size": 20, "shuffle": True, "seed": seed_of(4), **more}


def first_over(loader: type[Loader], *arguments: Any, **more: Any) -> Any:
    """The first batch of a loader that makes one of all that it is over."""
    with loader(*arguments, **{**more, "shuffle": False, "batch_size": 10_000}) as over:
        return next(iter(over))


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"neighbor_sampler": Labor(edge_weight=False)},
        {"subgraph_type": "induced"},
        {"disjoint": True},
        {"edge_index": "EdgeIndex"},
    ],
    ids=lambda more: next(iter(more), "plain"),
)
def test_is_the_first_batch_of_a_loader(form: Form, stored: bool, more: dict[str, Any]) -> None:
    data = form.path if stored else form.data
    with Loader(data, [4, 3], form.inputs(range(30, 90)), **options(**more)) as loader:
        want = first_over(Loader, data, [4, 3], form.inputs(IDS), **options(**more))
        assert_equal(loader.sample(form.inputs(IDS)), want)
        assert_equal(loader.sample(torch.tensor(IDS)), want)  # of the only type of the input nodes
        own = first_over(Loader, data, [4, 3], form.inputs([35, 30, 35]), **options(**more))
        by_place = loader([5, 0, 5])
        part = by_place[form.node_type] if form.node_type else by_place
        assert part.input_id.tolist() == [5, 0, 5]
        part.input_id = (own[form.node_type] if form.node_type else own).input_id
        assert_equal(by_place, own)


def test_every_node_and_masks(form: Form) -> None:
    count = len(form.graph[form.node_type]["x"])
    mask = torch.arange(count) % 7 == 2
    with Loader(form.data, [2], form.inputs(mask), **options()) as loader:
        for nodes in (mask, None):
            want = first_over(Loader, form.data, [2], form.inputs(nodes), **options())
            assert_equal(loader.sample(form.inputs(nodes)), want)
        part = loader(np.array([1, 0]))
        assert (part[form.node_type] if form.node_type else part).input_id.tolist() == [9, 2]  # as PyG has it of a mask


def test_several_types_of_input_nodes() -> None:
    graph = hetero_graph(150)
    inputs = {"author": [4, 8], "paper": [1, 0]}
    with Loader(graph, [3, 2], {"paper": "train", "author": None}, **options()) as loader:
        assert_equal(loader.sample(inputs), first_over(Loader, graph, [3, 2], inputs, **options()))
        assert_equal(loader.sample("author"), first_over(Loader, graph, [3, 2], "author", **options()))
        with pytest.raises(DTYPE, match="input_nodes must be a node type"):
            loader.sample([1, 2])
        with pytest.raises(INVALID, match="of node type 'term', expected a node type of the loader's input nodes"):
            loader.sample(("term", [0]))


@pytest.mark.parametrize("cache", ["belady", "lru", "degree", "none"])
def test_an_epoch_is_as_it_would_be_without(store_path: Path, graph: dict[str, Any], cache: str) -> None:
    how = options(cache=cache, memory="4MiB", batch_size=100)
    with Loader(store_path, [5, 3], "train", **how) as alone:
        want = list(alone)
    ids = torch.arange(0, 3000, 130)
    one = first_over(Loader, graph, [5, 3], ids, **options())
    with Loader(store_path, [5, 3], "train", **how) as loader:
        different: list[object] = []

        def ask() -> None:
            different.extend(ids for _ in range(5) if not torch.equal(loader.sample(ids).n_id, one.n_id))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        got = []
        for i, batch in enumerate(loader):
            got.append(batch)
            if i == 1:
                for thread in threads:
                    thread.start()
            if i % 3 == 0:
                assert_equal(loader.sample(ids), one)
                state = loader.state_dict()
                loader([0])
                assert loader.state_dict() == state
        for thread in threads:
            thread.join()
        assert not different
        assert loader.stats()["batches"] == len(want)
        assert_batches_equal(want, got)


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("attr", ["born", "when"])
def test_times(tmp_path: Path, stored: bool, attr: str) -> None:
    graph = homogeneous()
    data: Any = graph
    if stored:
        convert(graph, data := tmp_path / "graph", progress=False, relayout="hot").close()
    ids, times = [5, 9, 5], [40, 80, 3]
    own = {"input_time": torch.full((NODES,), 50)} if attr == "when" else {}
    with Loader(data, [3, 2], **options(time_attr=attr, cache="none", **own)) as loader:
        over = options(time_attr=attr)
        want = first_over(Loader, graph, [3, 2], ids, input_time=times, **over)
        assert_equal(loader.sample(ids, time=times), want)
        want = first_over(Loader, graph, [3, 2], ids, input_time=[33] * 3, **over)
        assert_equal(loader.sample(ids, 33), want)
        if attr == "born":
            assert_equal(loader.sample(ids), first_over(Loader, graph, [3, 2], ids, **over))
        else:
            assert loader([7]).seed_time.tolist() == [50]
            with pytest.raises(INVALID, match="a time for each input node"):
                loader.sample(ids)
        with pytest.raises(INVALID, match="a time for each of 3 nodes, got 2"):
            loader.sample(ids, [1, 2])
        with pytest.raises(DTYPE, match="must be integers"):
            loader.sample(ids, [1.0, 2.0, 3.0])
    with Loader(data, [3], **options()) as loader, pytest.raises(INVALID, match="time needs a loader with time_attr"):
        loader.sample(ids, 4)


@pytest.mark.parametrize("negatives", [None, "binary", ("triplet", 2)], ids=str)
def test_links(form: Form, negatives: Any) -> None:
    relation = WRITES if form.several else form.within
    edges = torch.from_numpy(form.graph[relation]["edge_index"])
    places = [9, 2, 100]
    label = None if negatives and negatives != "binary" else torch.arange(1, edges.size(1) + 1)
    how = options(neg_sampling=negatives, exclude_seed_edges=True)
    with LinkLoader(form.path, [3, 2], form.links(edges, relation), label, **how) as loader:
        some = form.links(edges[:, places], relation)
        want = first_over(LinkLoader, form.data, [3, 2], some, None if label is None else label[places], **how)
        got = loader(places)
        part = got[relation] if form.node_type else got
        assert part.input_id.tolist() == places
        part.input_id = torch.arange(3)
        assert_equal(got, want)
        want = first_over(LinkLoader, form.data, [3, 2], some, **how)
        assert_equal(loader.sample(edges[:, places]), want)
        assert_equal(loader(edges[:, places].tolist()), want)
        with pytest.raises(INVALID, match=r"shape \[2, num_links\], got \[3, 2\]"):
            loader.sample(edges[:, places].T)
        with pytest.raises(DTYPE, match="got None"):
            loader.sample(None)
        with pytest.raises(INVALID, match=r"edge_label_index\[0, 1\] is 100000"):
            loader.sample(torch.tensor([[0, 100_000], [1, 1]]))


def test_links_with_times() -> None:
    graph = homogeneous()
    edges, times = torch.from_numpy(graph["edge_index"]), torch.from_numpy(graph["when"])
    how = options(time_attr="when", neg_sampling="binary")
    with LinkLoader(graph, [3, 2], **how) as loader:
        want = first_over(LinkLoader, graph, [3, 2], edges[:, [4, 8]], None, times[[4, 8]], **how)
        assert_equal(loader.sample(edges[:, [4, 8]], times[[4, 8]]), want)
        with pytest.raises(INVALID, match="edge_label_time has 0 times, expected one for each of 2 links"):
            loader.sample(edges[:, [4, 8]])


def test_with_a_history_the_batch_is_whole(graph: dict[str, Any]) -> None:
    want = first_over(Loader, graph, [3, 2], IDS, **options())
    with Loader(graph, [3, 2], "train", history=History(p_grad=0.5, t_stale=10, keep="rows"), **options()) as loader:
        assert_equal(loader.sample(IDS), want)
        next(iter(loader))
        assert_equal(loader.sample(IDS), want)


def test_a_transform_is_applied(graph: dict[str, Any]) -> None:
    with Loader(graph, [3], "train", transform=lambda batch: batch.n_id, **options()) as loader:
        assert loader.sample(IDS)[:5].tolist() == IDS


def test_a_shared_budget_opens_the_loader_again(store_path: Path) -> None:
    budget = MemoryBudget("6MiB")
    how = options(batch_size=50)
    with Loader(store_path, [3], memory=budget, **how) as one, Loader(store_path, [3], memory=budget, **how) as other:
        want = other.sample(IDS)
        assert_equal(one.sample(IDS), want)
        assert_equal(other.sample(IDS), want)
        assert one.stats()["openings"] == 2


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        ([], INVALID, "index is empty"),
        (3, INVALID, r"one-dimensional, got shape \[\]: for one place give \[3\]"),
        ([[1]], INVALID, r"got shape \[1, 1\]"),
        ([-1], INVALID, r"index\[0\] is -1, expected a position in \[0, 60\)"),
        ([0, 60], INVALID, r"index\[1\] is 60"),
        ([0.5], DTYPE, "integers, got torch.float64"),
        (torch.ones(60, dtype=torch.bool), DTYPE, "integers, got torch.bool"),
        ("x", DTYPE, "list or tensor of integers"),
    ],
    ids=str,
)
def test_wrong_places(graph: dict[str, Any], index: Any, error: type[Exception], words: str) -> None:
    with Loader(graph, [3], range(60)) as loader, pytest.raises(error, match=words):
        loader(index)


def test_wrong_nodes(graph: dict[str, Any]) -> None:
    with Loader(graph, [3], range(60)) as loader:
        for ids, error, words in (
            ([3000], INVALID, r"ids\[0\] is 3000, expected a node in \[0, 3000\)"),
            ([], INVALID, "input_nodes is empty, expected at least one node"),
            ([1.5], DTYPE, "must be integers"),
            ({"paper": [1]}, DTYPE, "homogeneous graph, got a dict"),
        ):
            with pytest.raises(error, match=words):
                loader.sample(ids)
    with pytest.raises(errors.ClosedError):
        loader.sample([1])


def test_a_device_gets_it_on_its_own() -> None:
    streams = LateStreams(torch.device("cpu"))
    mover = Mover(streams)
    raw = mover.again().whole(RawBatch(0, 1, {"x": torch.arange(3)}))
    assert raw.tensors["x"].tolist() == [0, 1, 2]
    assert mover.make_room(wait=False)
