"""Without hops, ``num_neighbors=[]``, a batch is its input nodes and their rows, whatever the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import Form, forms, hetero_graph, random_graph
from oracle import assert_equal, check_batch

import freshgo
from freshgo import LinkLoader, Loader

OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


form = forms(lambda: random_graph(num_nodes=600, num_edges=4000), lambda: hetero_graph(200))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_neighbors": "by edge type"},
        {"transpose": True, "replace": True},
        {"neighbor_sampler": freshgo.Labor(edge_weight=False)},
        {"edge_index": "EdgeIndex"},
        {"cache": "expected", "feature_cache": 20_000},
        {"cache": "belady", "feature_cache": 20_000, "memory": "32MiB"},
        {"neighbor_cache": 0},
    ],
    ids=str,
)
def test_batches_are_input_nodes(form: Form, options: dict[str, Any]) -> None:
    seeds = np.array([5, 3, 5, 17, *range(100, 300)])
    options = {"num_neighbors": [], **OPTIONS, **options, "input_nodes": form.inputs(seeds)}
    if options["num_neighbors"]:
        options["num_neighbors"] = form.bare(form.fanouts([]))
    with Loader(form.data, **options) as memory, Loader(form.path, **options) as disk:
        trace = list(memory.trace(0))
        for one, other, nodes in zip(memory, disk, trace, strict=True):
            assert_equal(one, other)
            check_batch(one, form.graph, [], seeds)
            assert one.blocks() == []
            ids = nodes[form.node_type] if isinstance(nodes, dict) else nodes
            assert ids.equal(form.by_type(one)[form.node_type].n_id)


def test_trees(form: Form) -> None:
    with Loader(form.path, [], form.inputs([3, 3, 4]), batch_size=3, disjoint=True) as loader:
        (batch,) = form.batches(loader)
    assert batch[form.node_type].n_id.tolist() == [3, 3, 4]
    assert batch[form.node_type].batch.tolist() == [0, 1, 2]


def test_induced_batches_have_the_edges_between_input_nodes(form: Form) -> None:
    with Loader(form.path, [], form.inputs(range(200)), batch_size=200, subgraph_type="induced") as loader:
        (batch,) = form.batches(loader)
    source, target = form.graph[form.within]["edge_index"]
    edges = np.flatnonzero((source < 200) & (target < 200))
    assert sorted(batch[form.within].e_id.tolist()) == edges.tolist()
    assert len(edges)


def test_links(form: Form) -> None:
    what: dict[str, Any] = {"neg_sampling": "binary", "exclude_seed_edges": True, **OPTIONS}
    with LinkLoader(form.path, [], form.links(), **what) as loader:
        for batch in form.batches(loader):
            part = batch[form.within]
            assert part.edge_index.shape == (2, 0)
            ends = batch[form.node_type].n_id[part.edge_label_index]
            links = form.graph[form.within]["edge_index"][:, part.input_id.numpy()]
            np.testing.assert_array_equal(ends[:, : part.batch_size], links)


def test_expected_counts_input_nodes_alone(form: Form) -> None:
    hot = freshgo.hotness(form.path, "expected", num_neighbors=[], input_nodes=form.inputs([1, 4]))
    hot = hot[form.node_type] if isinstance(hot, dict) else hot
    assert hot.nonzero().view(-1).equal(torch.tensor([1, 4]))


def test_pyg_graphs_without_edges() -> None:
    """PyG's objects may leave edges out; in a mapping that stays an error."""
    data = pytest.importorskip("torch_geometric.data")
    with Loader(data.Data(x=torch.arange(7.0)[:, None]), [-1], batch_size=3) as loader:
        assert [batch.x.flatten().tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    ends = torch.randint(0, 100, (2, 60), generator=torch.Generator().manual_seed(0))
    with LinkLoader(data.Data(num_nodes=100), [], ends, batch_size=20) as loader:
        for at, batch in enumerate(loader):
            want = ends[:, 20 * at : 20 * at + 20]
            assert batch.n_id[batch.edge_label_index].equal(want)
            assert batch.num_nodes == want.unique().numel()
    graph = data.HeteroData(paper={"num_nodes": 100})
    for of in (("paper", "paper"), ("paper", "cites", "paper")):
        with LinkLoader(graph, [], (of, ends), batch_size=20) as loader:
            batch = next(iter(loader))
            assert batch["paper"].n_id[batch[of].edge_label_index].equal(ends[:, :20])
            assert batch[of].input_id.tolist() == list(range(20))
    for wrong in ({"x": torch.zeros(7, 1)}, graph):
        with pytest.raises(freshgo.errors.InvalidArgumentError, match=r"no 'edge_index'|no edge types"):
            Loader(wrong, [-1])
