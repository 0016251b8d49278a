"""Batches of one size: the graph's part is the batch without ``pad``, and nothing leads into it."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import CITES, WRITES, Form
from torch import Tensor, nn

from freshgo import Disk, History, Labor, LinkLoader, Loader, RandomWalk, Ranks, errors, propagate

OPTIONS: dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 11, "progress": False}


def graph_part(form: Form, batch: Any) -> dict[Any, dict[str, Any]]:
    """What a padded batch has of the graph, as the batch without padding has it."""
    parts = form.by_type(batch)
    real = {name: parts[name]["n_id"] >= 0 for name in parts.node_types}
    place = {name: mask.cumsum(0) - 1 for name, mask in real.items()}
    found: dict[Any, dict[str, Any]] = {}
    for name in parts.node_types:
        part = {key: parts[name][key] for key in parts[name].keys() if key != "padded"}  # noqa: SIM118
        del part["num_nodes"], part["num_sampled_nodes"]
        found[name] = {
            key: rows(value, real[name], zeros=key != "n_id") if key not in ("input_id", "batch_size") else value
            for key, value in part.items()
        }
    for edge_type in parts.edge_types:
        source, _, target = edge_type
        part = {key: parts[edge_type][key] for key in parts[edge_type].keys()}  # noqa: SIM118
        del part["num_sampled_edges"]
        ends = part.pop("edge_index")
        mask = real[source][ends[0]]
        assert torch.equal(mask, real[target][ends[1]]), "an edge joins the graph and what pads it"
        assert (ends[1].diff() >= 0).all()
        assert source != target or (ends[0] != ends[1])[~mask].all()
        found[edge_type] = {"edge_index": torch.stack([place[source][ends[0, mask]], place[target][ends[1, mask]]])}
        for key, value in part.items():
            own = key in ("edge_label_index", "edge_label", "input_id", "batch_size")
            found[edge_type][key] = value if own else rows(value, mask, zeros=key not in ("e_id", "edge_weight"))
    return found


def rows(value: Tensor, mask: Tensor, *, zeros: bool) -> Tensor:
    assert len(value) == len(mask)
    assert not zeros or not value[~mask].any()
    return value[mask]


def compare(form: Form, plain: Any, padded: Any) -> None:
    want, found = form.by_type(plain), graph_part(form, padded)
    for key, part in found.items():
        for name, value in part.items():
            expected = want[key][name]
            assert torch.equal(value, expected) if isinstance(value, Tensor) else value == expected, (key, name)
        assert set(part) == set(want[key].keys()) - {"num_nodes", "num_sampled_nodes", "num_sampled_edges"}


def sizes(form: Form, batch: Any) -> list[int]:
    parts = form.by_type(batch)
    nodes = [parts[name]["num_sampled_nodes"] for name in parts.node_types]
    return [*itertools.chain(*nodes, *(parts[name]["num_sampled_edges"] for name in parts.edge_types))]


DRAWN: dict[str, dict[str, Any]] = {
    "uniform": {},
    "transposed": {"transpose": True},
    "without numbers": {"return_edge_id": False},
    "replaced": {"replace": True},
    "LABOR": {"neighbor_sampler": Labor(edge_weight=False)},
}
ON_DISK: list[dict[str, Any]] = [
    {},
    {"feature_cache": 0, "neighbor_cache": 0, "disk": Disk(io="pread")},
    {"cache": "belady", "feature_cache": 40_000, "neighbor_cache": 20_000, "memory": "64MiB"},
    {"cache": "degree", "feature_cache": 30_000},
    {"cache": "lru", "feature_cache": 30_000},
]


@pytest.mark.parametrize("drawn", DRAWN)
def test_the_part_of_the_graph_is_the_batch_without_padding(form: Form, drawn: str) -> None:
    options = {**OPTIONS, "input_nodes": form.inputs("train"), "num_neighbors": [6, 4, 3], **DRAWN[drawn]}
    if form.several:
        relations = form.fanouts([3, 2]) | {CITES: [-1, 1], WRITES: [2, 0]}
        options |= {"num_neighbors": relations, "input_nodes": {"paper": None, "author": "test"}}
    with Loader(form.data, **options) as loader:
        plain = [*loader, *loader]
    for data, places in ((form.data, [{}]), (form.path, ON_DISK)):
        for place in places:
            with Loader(data, pad=True, **options, **place) as loader:
                found = [*loader, *loader]
                stats = loader.stats()
            for one, other in zip(plain, found, strict=True):
                compare(form, one, other)
                assert other.padded == (sizes(form, other) == stats["envelope"])
                blocks = zip(one.blocks(), other.blocks(), strict=True)
                assert all(type(block) is type(padded) for block, padded in blocks)
            assert stats["padded"] >= sum(batch.padded for batch in found) > 0.9 * len(found), place
            assert found[len(plain) // 2 - 1].padded  # the last one of the first epoch, which is not full


def test_edges_by_source_are_all_edges(form: Form) -> None:
    """With ``transpose=True`` they are the edges that pad, too."""
    from freshgo._batch.structure import recall

    with Loader(form.data, [4, 3], form.inputs("train"), pad=True, transpose=True, **OPTIONS) as loader:
        for batch in loader:
            parts = form.by_type(batch)
            for edge_type in parts.edge_types:
                edge_index = parts[edge_type]["edge_index"]
                transposed = recall(edge_index).transposed  # type: ignore[union-attr]
                ends = torch.stack([torch.repeat_interleave(transposed.ptr.diff()), transposed.target.long()])
                assert torch.equal(ends, edge_index[:, transposed.edge.long()])


@pytest.mark.parametrize("negatives", [None, "binary", "triplet"])
def test_links(form: Form, negatives: Any) -> None:
    options = {**OPTIONS, "neg_sampling": negatives, "num_neighbors": [4, 3]}
    links = form.links(None)
    with LinkLoader(form.data, edge_label_index=links, **options) as loader:
        plain = list(loader)
    with LinkLoader(form.path, edge_label_index=links, pad=True, **options) as loader:
        found = list(loader)
    for one, other in zip(plain, found, strict=True):
        compare_links(form, one, other)
    assert sum(batch.padded for batch in found) > 0.9 * len(found)


def compare_links(form: Form, plain: Any, padded: Any) -> None:
    """Ends of links are input nodes, in the places that they have without padding."""
    parts, want = form.by_type(padded), form.by_type(plain)
    for name in ("edge_label_index", "edge_label", "input_id"):
        if name in want[form.within]:
            assert torch.equal(parts[form.within][name], want[form.within][name])
    for key in parts.node_types:
        real = parts[key]["n_id"] >= 0
        assert torch.equal(parts[key]["n_id"][real], want[key]["n_id"])
        if "x" in want[key]:
            assert torch.equal(parts[key]["x"][real], want[key]["x"])
        for name in {"src_index", "dst_pos_index", "dst_neg_index"} & set(want[key].keys()):
            assert torch.equal(parts[key][name], want[key][name])


def test_walks(graph: dict[str, Any]) -> None:
    options = {**OPTIONS, "num_neighbors": [RandomWalk(6, 2, top=3)] * 2, "input_nodes": "train"}
    with Loader(graph, **options) as plain, Loader(graph, pad=True, **options) as padded:
        for one, other in zip(plain, padded, strict=True):
            real = (other.n_id >= 0)[other.edge_index[0]]
            assert torch.equal(other.edge_weight[real], one.edge_weight)
            assert (other.edge_weight[~real] == 1).all()
            assert torch.equal(other.n_id[other.edge_index[:, real]], one.n_id[one.edge_index])


def test_aggregates(graph: dict[str, Any], tmp_path: Path) -> None:
    import freshgo

    freshgo.convert(graph, tmp_path / "graph", progress=False).close()
    propagate(tmp_path / "graph", reduce="mean", progress=False).close()
    options = {**OPTIONS, "num_neighbors": [4], "input_nodes": "train", "first_layer": "mean"}
    with Loader(tmp_path / "graph", **options) as plain, Loader(tmp_path / "graph", pad=True, **options) as padded:
        for one, other in zip(plain, padded, strict=True):
            real = other.n_id >= 0
            assert torch.equal(other.x_mean[real], one.x_mean)
            assert not other.x_mean[~real].any()


def conv(kind: str, columns: int, out: int) -> nn.Module:
    from torch_geometric import nn as pyg

    made: dict[str, Callable[[], nn.Module]] = {
        "SAGE": lambda: pyg.SAGEConv(columns, out),
        "GCN": lambda: pyg.GCNConv(columns, out),
        "GIN": lambda: pyg.GINConv(nn.Linear(columns, out)),
        "GAT": lambda: pyg.GATConv(columns, out // 2, heads=2),
    }
    return made[kind]()


class Model(nn.Module):
    def __init__(self, kind: str, columns: int, hops: int = 3) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(kind, 8 if i else columns, 8) for i in range(hops))

    def forward(self, x: Tensor, edge_index: Tensor, nodes: list[int], edges: list[int]) -> Tensor:
        from torch_geometric.utils import trim_to_layer

        for i, layer in enumerate(self.convs):
            x, edge_index, _ = trim_to_layer(i, nodes, edges, x, edge_index)
            x = layer(x, edge_index).relu()
        return x


def call(model: nn.Module, batch: Any) -> Tensor:
    out: Tensor = model(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
    return out[: batch.batch_size]


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("kind", ["SAGE", "GCN", "GIN", "GAT"])
def test_outputs_and_gradients_of_trimmed_layers(graph: dict[str, Any], kind: str, accelerated: bool) -> None:
    pytest.importorskip("torch_geometric")
    options = {**OPTIONS, "num_neighbors": [6, 4, 3], "input_nodes": "train", "transpose": accelerated}
    torch.manual_seed(0)
    model = Model(kind, torch.as_tensor(graph["x"]).size(1))
    if accelerated:
        from freshgo.nn import accelerate

        assert len(accelerate(model).swapped) == 3
    other_model = copy.deepcopy(model)
    with Loader(graph, **options) as plain, Loader(graph, pad=True, **options) as padded:
        for batch, other in zip(plain, padded, strict=True):
            out, found = call(model, batch), call(other_model, other)
            torch.testing.assert_close(found, out, rtol=1e-6, atol=1e-6)
            for one, value in ((model, out), (other_model, found)):
                one.zero_grad()
                (value.square().sum() / value.numel()).backward()
            for mine, other_mine in zip(model.parameters(), other_model.parameters(), strict=True):
                assert mine.grad is not None
                scale = max(1.0, float(mine.grad.abs().max()))
                torch.testing.assert_close(other_mine.grad, mine.grad, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("pad", [True, False])
def test_a_model_is_compiled_once(graph: dict[str, Any], pad: bool) -> None:
    """Without padding it is compiled again."""
    pytest.importorskip("torch_geometric")
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model = torch.compile(Model("SAGE", torch.as_tensor(graph["x"]).size(1)), backend=counter)
    frames = []
    with Loader(graph, [6, 4, 3], "train", pad=pad, **OPTIONS) as loader:
        for _ in range(2):
            for batch in loader:
                assert batch.padded if pad else not hasattr(batch, "padded")
                call(model, batch).sum().backward()
                frames.append(counter.frame_count)
    torch._dynamo.reset()
    assert (frames[-1] == frames[0]) == pad


def test_a_batch_that_is_too_large_comes_as_it_is(graph: dict[str, Any], form: Form) -> None:
    with Loader(graph, [4, 3], "train", **OPTIONS) as loader:
        plain = list(loader)
    most = max(batch.num_sampled_edges[1] for batch in plain)
    with Loader(graph, [4, 3], "train", pad=True, **OPTIONS) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        state["config"]["envelope"][-1] = most - 1
        loader.load_state_dict(state)
        assert loader.state_dict() == state  # which it goes on with
        found = list(loader)
        assert loader.stats()["envelope"] == state["config"]["envelope"]
        assert loader.stats()["padded"] == sum(batch.padded for batch in found)
    assert 0 < sum(batch.padded for batch in found) < len(found)
    for one, other in zip(plain, found, strict=True):
        assert other.padded == (one.num_sampled_edges[1] < most)
        if not other.padded:
            assert one.to_dict().keys() | {"padded"} == other.to_dict().keys()
            assert all(torch.equal(other[name], value) for name, value in one if torch.is_tensor(value))


def test_the_envelope_of_a_state(graph: dict[str, Any]) -> None:
    with Loader(graph, [4, 3], "train", pad=True, **OPTIONS) as loader:
        state = loader.state_dict()
        for wrong in (None, [1, 2], "sizes", [*state["config"]["envelope"], 5]):
            with pytest.raises(errors.InvalidArgumentError, match="expected 5 sizes"):
                loader.load_state_dict({**state, "config": {**state["config"], "envelope": wrong}})
        with pytest.raises(errors.InvalidArgumentError, match="envelope must be at least 0"):
            loader.load_state_dict({**state, "config": {**state["config"], "envelope": [-1] * 5}})
    with Loader(graph, [4, 3], "train", **OPTIONS) as loader:
        assert "envelope" not in loader.stats()
        with pytest.raises(errors.InvalidArgumentError, match="pad was True, is None"):
            loader.load_state_dict(state)


def test_processes_that_sample_have_the_envelope(graph: dict[str, Any]) -> None:
    """They are told the options and the assembler of a loader, and learn no envelope."""
    with Loader(graph, [4, 3], "train", pad=True, **OPTIONS) as loader:
        engine = loader._engine
        envelope = loader.state_dict()["config"]["envelope"]
        assert engine.options["envelope"] == pickle.loads(pickle.dumps(engine.assembler)).envelope == envelope


def test_ranks_have_one_envelope(graph: dict[str, Any]) -> None:
    with Loader(graph, [4, 3], "train", pad=True, **OPTIONS) as loader:
        engine = loader._engine
        engine._agreement.gather = lambda mine: [dict(mine), {**mine, "envelope": [9] * 5}]  # type: ignore[method-assign]
        with pytest.raises(errors.RankError, match="envelope"):
            engine._agree(engine.ranks.now())


def test_batches_on_demand_and_traces_are_not_padded(graph: dict[str, Any]) -> None:
    with Loader(graph, [4, 3], "train", pad=True, **OPTIONS) as loader:
        batch = loader.sample([3, 1])
        assert not batch.padded
        assert (batch.n_id >= 0).all()
        assert batch.num_sampled_nodes[0] == 2
        padded = list(loader)
        for ids, other in zip(loader.trace(0), padded, strict=True):
            assert torch.equal(ids, other.n_id[other.n_id >= 0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subgraph_type": "induced"}, "subgraph_type='induced'"),
        ({"disjoint": True}, "disjoint trees"),
        ({"time_attr": "time", "input_time": torch.arange(3)}, "disjoint trees"),
        ({"history": History()}, "history"),
        ({"ranks": Ranks(features="sharded")}, "features='sharded'"),
    ],
)
def test_what_padding_does_not_go_with(graph: dict[str, Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"pad=True cannot be used with {words}"):
        Loader(graph, [4, 3], pad=True, **options)
    with pytest.raises(errors.DTypeError, match="pad must be True or False"):
        Loader(graph, [4, 3], pad="yes")  # type: ignore[arg-type]


def test_a_graph_smaller_than_a_batch() -> None:
    """All nodes are input nodes, so no hop finds another."""
    graph = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]), "x": torch.arange(3.0).view(3, 1)}
    with Loader(graph, [2, 2], batch_size=8, pad=True) as loader:
        for batch in [*loader, *loader]:
            assert batch.padded
            assert batch.batch_size == 3
            assert batch.n_id[:3].tolist() == [0, 1, 2]
            assert batch.x.flatten().tolist()[:3] == [0, 1, 2]
