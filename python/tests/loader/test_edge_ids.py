"""Batches without the user's edge numbers: everything else stays, and nothing of the numbers is read."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshgo import History, Labor, LinkLoader, Loader, convert, errors

RATES, RATED, OF = ("user", "rates", "item"), ("item", "rated", "user"), ("item", "of", "item")
OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bidirectional": {"subgraph_type": "bidirectional"},
    "induced": {"subgraph_type": "induced"},
    "layered": {"neighbor_sampler": Labor()},
    "trees": {"disjoint": True},
    "grouped": {"transpose": True},
}


def edges(rng: np.random.Generator, sources: int, targets: int, count: int) -> np.ndarray[Any, Any]:
    return np.stack([rng.integers(sources, size=count), rng.integers(targets, size=count)])


@pytest.fixture(scope="module")
def graphs() -> dict[str, Any]:
    """Each without tensors of edges, with them, and with them in one edge type."""
    rng = np.random.default_rng(5)
    plain = {"edge_index": edges(rng, 500, 500, 6000), "x": rng.random((500, 16), dtype=np.float32)}
    typed = {
        "user": {"x": rng.random((300, 5), dtype=np.float32)},
        "item": {"x": rng.random((200, 17), dtype=np.float32)},
        RATES: {"edge_index": edges(rng, 300, 200, 2500), "w": rng.random(2500, dtype=np.float32)},
        RATED: edges(rng, 200, 300, 2500),
        OF: edges(rng, 200, 200, 900),
    }
    return {"plain": plain, "weighted": {**plain, "w": rng.random(6000, dtype=np.float32)}, "typed": typed}


@pytest.fixture(scope="module", params=["in memory", "on disk"])
def form(graphs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    if request.param == "in memory":
        return graphs
    place = tmp_path_factory.mktemp("graphs")
    for name, graph in graphs.items():
        convert(graph, place / name, progress=False).close()
    return {name: place / name for name in graphs}


def tensors(values: dict[Any, Any], of: tuple[Any, ...] = ()) -> dict[Any, torch.Tensor]:
    """The tensors of a batch by their types and names."""
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= tensors(value, (*of, name))
        elif isinstance(value, torch.Tensor):
            found[(*of, name)] = value
    return found


def assert_without(bare: Any, whole: Any, missing: set[Any]) -> None:
    """That two loaders make the same batches, of which one lacks some tensors."""
    count = 0
    for less, more in zip(bare, whole, strict=True):
        found, expected = tensors(less.to_dict()), tensors(more.to_dict())
        assert expected.keys() - found.keys() == missing
        assert all(torch.equal(found[name], expected[name]) for name in found)
        count += 1
    assert count > 2


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_numbers_are_left_out(form: Any, kind: str) -> None:
    options = {**OPTIONS, **KINDS[kind]}
    for name, missing in (("plain", {("e_id",)}), ("weighted", set[Any]())):
        with (
            Loader(form[name], [4, 3], return_edge_id=False, **options) as bare,
            Loader(form[name], [4, 3], **options) as whole,
        ):
            assert_without(bare, whole, missing)


def test_edge_types_with_tensors_keep_them(form: Any) -> None:
    with (
        Loader(form["typed"], [4, 3], "item", return_edge_id=False, **OPTIONS) as bare,
        Loader(form["typed"], [4, 3], "item", **OPTIONS) as whole,
    ):
        assert_without(bare, whole, {(RATED, "e_id"), (OF, "e_id")})


def test_weights_and_links(form: Any) -> None:
    with (
        Loader(form["weighted"], [4, 3], weight_attr="w", return_edge_id=False, **OPTIONS) as bare,
        Loader(form["weighted"], [4, 3], weight_attr="w", **OPTIONS) as whole,
    ):
        assert_without(bare, whole, set())
    links = {**OPTIONS, "neg_sampling": "binary", "exclude_seed_edges": True}
    with (
        LinkLoader(form["plain"], [4, 3], return_edge_id=False, **links) as bare,
        LinkLoader(form["plain"], [4, 3], **links) as whole,
    ):
        assert_without(bare, whole, {("e_id",)})


def test_blocks_and_a_batch_on_demand(form: Any) -> None:
    with Loader(form["plain"], [4, 3], return_edge_id=False, **OPTIONS) as loader:
        assert all(block.e_id is None for batch in loader for block in batch.blocks())
        assert "e_id" not in loader.sample([3, 4])


def test_the_numbers_are_not_read(tmp_path: Path) -> None:
    """With no room for the topology, an epoch reads the lists of neighbours alone."""
    rng = np.random.default_rng(6)
    graph = {"edge_index": edges(rng, 20_000, 20_000, 200_000), "num_nodes": 20_000}
    convert(graph, tmp_path / "graph", progress=False).close()
    read = {}
    for wanted in (True, False):
        with Loader(
            tmp_path / "graph", [5, 5], None, return_edge_id=wanted, memory="64MiB", neighbor_cache=0, **OPTIONS
        ) as loader:
            for _ in zip(range(20), loader, strict=False):
                pass
            read[wanted] = loader.stats()["bytes_read"]
    assert 0 < read[False] < 0.7 * read[True]


def test_pygs_loader_over_a_sampler(graphs: dict[str, Any], tmp_path: Path) -> None:
    """PyG asks the store for no rows of edges that have no numbers."""
    loaders = pytest.importorskip("torch_geometric.loader")
    pyg = importlib.import_module("freshgo.pyg")
    plain = {name: graphs["typed"][name] for name in ("user", "item", RATED, OF)}
    for name, graph, inputs in (
        ("plain", graphs["plain"], torch.arange(90)),
        ("typed", plain, ("item", torch.arange(90))),
    ):
        store = convert(graph, tmp_path / name, progress=False)
        both = pyg.stores(store, memory="64MiB")
        sampler = pyg.sampler(both[0], [4, 3], memory="64MiB", return_edge_id=False)
        for batch in loaders.NodeLoader(both, sampler, inputs, batch_size=45):
            x = batch.x if name == "plain" else batch["item"].x
            n_id = batch.n_id if name == "plain" else batch["item"].n_id
            rows = graph["x"] if name == "plain" else graph["item"]["x"]
            np.testing.assert_array_equal(x, rows[n_id])
        sampler.close()
        both[0].close()


def test_wrong_use(form: Any) -> None:
    with pytest.raises(errors.DTypeError, match="return_edge_id"):
        Loader(form["plain"], [4, 3], return_edge_id="no")
    with pytest.raises(errors.InvalidArgumentError, match="return_edge_id=False"):
        Loader(form["plain"], [4, 3], history=History(), return_edge_id=False)
