"""What a loader over a graph with types may be asked, and the batch without PyG."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from freshgo import HeteroBatch, Labor, RandomWalk, TypeBatch, errors
from freshgo._args.types import UNNAMED, Types, by_relation
from freshgo._loader.sampling import sampling

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
TYPES = Types({"paper": 10, "author": 5, "term": 0}, [WRITES, CITES])
INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError


def split(name: str, node_type: str) -> torch.Tensor:
    if (name, node_type) != ("train", "paper"):
        raise INVALID(f"{node_type} has no split {name}")
    return torch.tensor([7, 3])


def splits(node_type: str) -> set[str]:
    return {"train"} if node_type == "paper" else set()


@pytest.mark.parametrize(
    ("num_neighbors", "expected"),
    [
        ([3, 2], {WRITES: [3, 2], CITES: [3, 2]}),
        ({CITES: [3, -1], WRITES: [0, 2]}, {WRITES: [0, 2], CITES: [3, -1]}),
        ({CITES: np.array([1]), WRITES: torch.tensor([2])}, {WRITES: [2], CITES: [1]}),
    ],
)
def test_fanouts(num_neighbors: Any, expected: Any) -> None:
    found = TYPES.fanouts(sampling(num_neighbors, None, None).fanouts)
    assert found == expected
    assert list(found) == TYPES.edge_types


@pytest.mark.parametrize(
    ("num_neighbors", "error", "message"),
    [
        (
            {WRITES: [3]},
            INVALID,
            r"a list for every edge type, \('paper', 'cites', 'paper'\) is missing; to draw nothing .* give it \[0\]",
        ),
        (
            {("a", "b", "c"): [3], CITES: [1]},
            INVALID,
            r"names \('a', 'b', 'c'\), the edge types of the graph are \('auth",
        ),
        ({("paper", "cites"): [3]}, DTYPE, r"edge types \(source, relation, target\).*got \('paper', 'cites'\)"),
        ({"paper__cites__paper": [3]}, DTYPE, r"got 'paper__cites__paper'"),
        ({("paper", 1, "paper"): [3]}, DTYPE, r"got \('paper', 1, 'paper'\)"),
        (
            {WRITES: [3], CITES: [3, 2]},
            INVALID,
            r"hops must be the same across all edge types, got .*: \[3\], .*: \[3, 2\]",
        ),
        ({WRITES: [-2], CITES: [3]}, INVALID, r"num_neighbors\[\('author', .*\)\]\[0\] must be at least 0, or -1.*-2"),
        ({WRITES: 3, CITES: 3}, DTYPE, r"num_neighbors\[.*\] must be a list of ints"),
        ({WRITES: [1.5], CITES: [3]}, DTYPE, r"num_neighbors\[.*\]\[0\] must be an int, got 1.5"),
        ({WRITES: [RandomWalk()], CITES: [3]}, INVALID, r"\[0\] is a RandomWalk without a metapath"),
        ({}, INVALID, r"empty mapping"),
        ([3, -2], INVALID, r"num_neighbors\[1\] must be at least 0, or -1"),
    ],
)
def test_bad_fanouts(num_neighbors: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TYPES.fanouts(sampling(num_neighbors, None, None).fanouts)


def test_relations_go_with_other_options() -> None:
    drawn = sampling({CITES: [1]}, Labor(), "weight")
    assert (drawn.fanouts, drawn.sampler, drawn.weight_attr) == ({CITES: [1]}, Labor(), "weight")
    with pytest.raises(DTYPE, match="list of ints in a homogeneous graph, got a dict"):
        Types({"": 3}, [UNNAMED]).fanouts({CITES: [1]})
    assert by_relation({CITES: (1, np.int64(2))}) == {CITES: [1, 2]}


@pytest.mark.parametrize(
    ("given", "seeds", "masked"),
    [
        ("paper", range(10), set()),
        (("paper", None), range(10), set()),
        (["author", [4, 0, 4]], [14, 10, 14], set()),
        (("author", torch.tensor([True, False, False, False, True])), [10, 14], {"author"}),
        (("paper", "train"), [7, 3], set()),
        ({"author": np.array([1]), "paper": "train"}, [7, 3, 11], set()),
        ({"author": np.arange(5) > 3, "paper": None}, [*range(10), 14], {"author"}),
    ],
)
def test_inputs(given: Any, seeds: Any, masked: set[str]) -> None:
    inputs = TYPES.inputs(given, split, splits)
    assert inputs.seeds.dtype == torch.int64
    assert inputs.seeds.tolist() == list(seeds)
    assert inputs.masked == masked
    names = {given} if isinstance(given, str) else set(given) if isinstance(given, dict) else {given[0]}
    assert set(inputs.config) == names


def test_inputs_are_identified_by_their_types() -> None:
    def config(given: Any) -> Any:
        return TYPES.inputs(given, split, splits).config

    assert config("paper") == config(("paper", None)) == config({"paper": None}) == {"paper": "all"}
    assert config(("paper", [1, 2])) != config(("author", [1, 2]))
    assert config(("paper", [1, 2])) != config(("paper", [2, 1]))
    assert config({"paper": [1], "author": [2]}) == config({"author": [2], "paper": [1]})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (None, DTYPE, r"a node type such as 'paper', .* for the node types 'paper', 'author', 'term'; got None"),
        ([1, 2, 3], DTYPE, r"got \[1, 2, 3\]"),
        (torch.arange(3), DTYPE, r"a pair such as"),
        ({}, DTYPE, r"got {}"),
        (
            "papers",
            INVALID,
            r"of the node type 'papers', which the graph does not have; it has 'paper', 'author', 'term'",
        ),
        (("papers", [1]), INVALID, r"'papers'"),
        ({"paper": [1], 3: [1]}, INVALID, r"node type 3"),
        (("paper", [1], 3), DTYPE, r"got \('paper', \[1\], 3\)"),
        (("author", [0, 5]), INVALID, r"node type 'author': input_nodes\[1\] is 5, expected an id in \[0, 5\)"),
        (("author", [0, -1]), INVALID, r"node type 'author': input_nodes\[1\] is -1"),
        (("author", []), INVALID, r"node type 'author': input_nodes is empty"),
        (("author", np.zeros(5, bool)), INVALID, r"node type 'author': input_nodes is empty"),
        (
            ("author", np.zeros(4, bool)),
            INVALID,
            r"node type 'author': a mask of input_nodes must have 5 entries, got 4",
        ),
        (("author", [[1]]), INVALID, r"one-dimensional"),
        (("author", [0.5]), DTYPE, r"node type 'author': input_nodes must be integers"),
        (("author", "train"), INVALID, r"author has no split train"),
        ("train", INVALID, r"it has 'paper', 'author', 'term'; a split is named with its type: \('paper', 'train'\)$"),
        ("trian", INVALID, r"it has 'paper', 'author', 'term'$"),
        (("train", [1]), INVALID, r"it has 'paper', 'author', 'term'$"),
        ("term", INVALID, r"all nodes of type 'term', which has none"),
        (("author", ("paper", [1])), DTYPE, r"node type 'author'"),
    ],
)
def test_bad_inputs(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TYPES.inputs(given, split, splits)


def batch() -> HeteroBatch:
    return HeteroBatch(
        {
            "paper": TypeBatch(x=torch.ones(3, 2), num_nodes=3, num_sampled_nodes=[1, 2], batch_size=1),
            "author": TypeBatch(num_nodes=0, num_sampled_nodes=[0, 0]),
            CITES: TypeBatch(edge_index=torch.tensor([[1, 2], [0, 0]]), num_sampled_edges=[2]),
        }
    )


def test_hetero_batch() -> None:
    one = batch()
    assert one.metadata() == (["paper", "author"], [CITES]) == (one.node_types, one.edge_types)
    assert one.x_dict == {"paper": one["paper"].x}
    assert one.num_sampled_nodes_dict == {"paper": [1, 2], "author": [0, 0]}
    assert one.edge_index_dict[CITES] is one[CITES]["edge_index"]
    assert ("paper" in one, "term" in one, CITES in one) == (True, False, True)
    assert ("x" in one["paper"], "x" in one["author"]) == (True, False)
    assert dict(one["paper"])["num_nodes"] == 3
    one["author"]["h"] = torch.zeros(0, 4)
    assert one["author"].keys() == ["num_nodes", "num_sampled_nodes", "h"]
    assert "x=[3, 2]" in repr(one)
    with pytest.raises(AttributeError, match=r"no 'y_dict', only its types 'paper', .* and x_dict, num_nodes_dict"):
        _ = one.y_dict
    with pytest.raises(AttributeError, match="no 'x'"):
        _ = one.x
    with pytest.raises(AttributeError, match="no 'y' of this type, only x, num_nodes"):
        _ = one["paper"].y
    with pytest.raises(KeyError):
        one["term"]


def test_hetero_batch_moves_and_is_copied() -> None:
    one = batch()
    moved = one.to("meta")
    assert moved["paper"].x.is_meta
    assert moved["paper"].batch_size == 1
    assert not one["paper"].x.is_meta
    doubled = one.apply(lambda tensor: 2 * tensor)
    assert doubled["paper"].x.sum() == 12
    for other in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert other.metadata() == one.metadata()
        assert other["paper"].x.equal(one["paper"].x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs a CUDA device")
def test_hetero_batch_is_pinned() -> None:
    pinned = batch().pin_memory()
    assert pinned["paper"].x.is_pinned()
    assert pinned[CITES].edge_index.is_pinned()
