"""Options as PyG spells them: NumNeighbors, directed, and weights by edge type as in convert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from freshgo import Labor, LinkLoader, Loader, convert, errors

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
OPTIONS: dict[str, Any] = {"batch_size": 16, "seed": 5}
KINDS = ("memory", "store", "store with weights")


def typed(**names: str) -> dict[Any, Any]:
    """A graph whose weights have the same name along all edge types, or others."""
    g = torch.Generator().manual_seed(1)
    ends = {WRITES: (30, 40), CITES: (40, 40)}
    graph: dict[Any, Any] = {"paper": {"x": torch.rand(40, 3, generator=g)}, "author": {"num_nodes": 30}}
    for edge_type, (sources, targets) in ends.items():
        edges = [torch.randint(count, (200,), generator=g) for count in (sources, targets)]
        weight = torch.randint(5, (200,), generator=g).float()
        graph[edge_type] = {"edge_index": torch.stack(edges), names.get(edge_type[1], "w"): weight}
    return graph


def drawn(data: object, index: Any = None, **options: Any) -> list[dict[Any, list[int]]]:
    """The edges of every batch, by edge type."""
    make: Any = Loader if index is None else LinkLoader
    with make(data, **{"num_neighbors": [4, 2], **OPTIONS, **options}, **of(index)) as loader:
        return [{edge_type: batch[edge_type].e_id.tolist() for edge_type in batch.edge_types} for batch in loader]


def of(index: Any) -> dict[str, Any]:
    return {"input_nodes": "paper"} if index is None else {"edge_label_index": index}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [None, CITES], ids=["nodes", "links"])
@pytest.mark.parametrize("sampler", [None, Labor()], ids=["uniform", "labor"])
def test_weights_by_edge_type(kind: str, index: Any, sampler: Any, tmp_path: Path) -> None:
    """Whatever the weights are called, the batches are those of one name; edge types that are left out are uniform."""
    same, other = typed(), typed(writes="count", cites="cost")
    names = {WRITES: "count", CITES: "cost"}
    data: Any = other
    if kind != "memory":
        weights = names if kind == "store with weights" else None
        data = convert(other, tmp_path / "g", weight_attr=weights, memory="64MiB", progress=False)
    options = {"neighbor_sampler": sampler}
    assert drawn(data, index, weight_attr=names, **options) == drawn(same, index, weight_attr="w", **options)
    assert drawn(data, index, weight_attr={CITES: "cost"}, **options) == drawn(
        data, index, weight_attr="cost", **options
    )
    zero = torch.nonzero(other[CITES]["cost"] == 0).view(-1).tolist()
    for batch in drawn(data, index, weight_attr=names):
        assert not set(batch[CITES]) & set(zero)


def test_states_know_weights_by_edge_type() -> None:
    names = {WRITES: "w", CITES: "w"}
    options: dict[str, Any] = {"num_neighbors": [3], "input_nodes": "paper", **OPTIONS}
    with Loader(typed(), weight_attr=names, **options) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        loader.load_state_dict(state)
        with Loader(typed(), weight_attr={CITES: "w"}, **options) as other:
            with pytest.raises(errors.InvalidArgumentError):
                other.load_state_dict(state)
        with Loader(typed(), weight_attr=dict(reversed(names.items())), **options) as turned:
            turned.load_state_dict(state)


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        ({("a", "b", "c"): "w"}, ValueError, r"unknown edge type \('a', 'b', 'c'\), expected \('author'"),
        (
            {CITES: "wieght"},
            ValueError,
            r"edge type \(paper, cites, paper\): weight_attr 'wieght' is no edge tensor, the edge tensors are "
            "'weight'; did you mean 'weight'",
        ),
        ({CITES: 3}, TypeError, "or a dict of names by edge type"),
        ({CITES: None}, TypeError, "or a dict of names by edge type"),
        ({CITES: ""}, ValueError, "empty string"),
        ({}, ValueError, "at least one edge type"),
        (3, TypeError, "or a dict of names by edge type"),
    ],
    ids=str,
)
def test_weights_that_there_are_not(weights: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Loader(typed(cites="weight"), [2], "paper", weight_attr=weights)


def test_a_homogeneous_graph_has_no_weights_by_type() -> None:
    data = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "w": torch.ones(2)}
    with pytest.raises(errors.DTypeError, match=r"weight_attr must be .* in a homogeneous graph, got a dict"):
        Loader(data, [2], weight_attr={CITES: "w"})


def test_num_neighbors_of_pyg() -> None:
    make = pytest.importorskip("torch_geometric.sampler").NumNeighbors
    data, lists = typed(), {WRITES: [3, 1], CITES: [2, 2]}
    assert drawn(data, num_neighbors=make([3, 2])) == drawn(data, num_neighbors=[3, 2])
    assert drawn(data, num_neighbors=make(lists)) == drawn(data, num_neighbors=lists)
    some = make({WRITES: [3, 1]}, default=[2, 2])
    assert drawn(data, num_neighbors=some) == drawn(data, num_neighbors=lists)
    assert drawn(data, num_neighbors=make({}, default=[2, 2])) == drawn(data, num_neighbors=[2, 2])
    assert drawn(data, CITES, num_neighbors=some) == drawn(data, CITES, num_neighbors=lists)
    with pytest.raises(errors.InvalidArgumentError, match="hops must be the same"):
        Loader(data, make({WRITES: [3, 1]}, default=[2]), "paper")
    with pytest.raises(errors.InvalidArgumentError, match="needs a list for every edge type"):
        Loader(data, make({WRITES: [3, 1]}), "paper")
    with pytest.raises(errors.InvalidArgumentError, match="num_neighbors names"):
        Loader(data, make({("a", "b", "c"): [3, 1]}, default=[2, 2]), "paper")


def test_directed_of_pyg() -> None:
    """As in PyG, it is deprecated, and False means the induced subgraph."""
    data = typed()
    with pytest.warns(UserWarning, match="directed=False is deprecated.*subgraph_type='induced'"):
        undirected = drawn(data, directed=False)
    assert undirected == drawn(data, subgraph_type="induced")
    assert undirected != drawn(data)
    assert drawn(data, directed=True) == drawn(data)
    with pytest.raises(errors.DTypeError, match="directed must be True or False"):
        Loader(data, [2], "paper", directed="no")
