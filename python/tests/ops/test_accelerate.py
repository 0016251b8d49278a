"""PyG's layers over the operators: equal results, equal training, what is swapped and what is left."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of
from torch import Tensor, nn
from torch._inductor import cpp_builder as inductor
from torch.autograd import forward_ad

from freshgo import Loader, ops
from freshgo._batch.structure import recall
from freshgo._native import abi
from freshgo.errors import InvalidArgumentError

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg
from torch_geometric import EdgeIndex
from torch_geometric.utils import trim_to_layer

from freshgo._nn.adjacency import adjacency
from freshgo.nn import accelerate

RESIDUAL = {"residual": True} if "residual" in inspect.signature(pyg.GATConv).parameters else {}
"""Of GATConv, since PyG 2.6."""

LAYERS: dict[str, Callable[[], Any]] = {
    "sage": lambda: pyg.SAGEConv(16, 8),
    "sage-sum": lambda: pyg.SAGEConv(16, 8, aggr="sum", normalize=True),
    "sage-max": lambda: pyg.SAGEConv(16, 8, aggr="max"),
    "sage-min": lambda: pyg.SAGEConv(16, 8, aggr="min", project=True),
    "gin": lambda: pyg.GINConv(nn.Linear(16, 8), train_eps=True),
    "gin-fixed": lambda: pyg.GINConv(nn.Linear(16, 8), eps=0.3),
    "gcn": lambda: pyg.GCNConv(16, 8),
    "gcn-improved": lambda: pyg.GCNConv(16, 8, improved=True),
    "gcn-plain": lambda: pyg.GCNConv(16, 8, normalize=False),
    "gcn-loopless": lambda: pyg.GCNConv(16, 8, add_self_loops=False, bias=False),
    "gat": lambda: pyg.GATConv(16, 8, heads=4),
    "gat-mean": lambda: pyg.GATConv(16, 7, heads=3, concat=False, **RESIDUAL),
    "gat-loopless": lambda: pyg.GATConv(16, 5, add_self_loops=False, negative_slope=0.1),
}


def pair(layer: Any) -> tuple[Any, Any]:
    other = copy.deepcopy(layer)
    report = accelerate(other)
    assert list(report.swapped) == [""]
    assert not report.left
    assert isinstance(other, type(layer))
    assert list(other.state_dict()) == list(layer.state_dict())
    return layer, other


def compare(layers: tuple[Any, Any], call: Callable[[Any, Tensor], Tensor], x: Tensor) -> None:
    results = []
    for layer in layers:
        leaf = x.clone().requires_grad_()
        layer.zero_grad()
        out = call(layer, leaf)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        results.append([out, leaf.grad, *(p.grad for p in layer.parameters())])
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [*LAYERS, "rgcn"])
@pytest.mark.parametrize("from_loader", [False, True])
def test_training_after_inference_mode_over_the_same_edges(kind: str, from_loader: bool) -> None:
    """What is kept of the edges is made in inference mode, and autograd saves nothing that is."""
    torch.manual_seed(seed_of(0))
    x, edge_index = torch.randn(60, 16), torch.randint(60, (2, 400))
    if from_loader:
        batch = next(iter(Loader({"x": x, "edge_index": edge_index}, [3, 3], batch_size=20, transpose=True)))
        x, edge_index = batch.x, batch.edge_index
    types = torch.arange(edge_index.size(1)) % 3
    layers = pair(pyg.RGCNConv(16, 8, 3) if kind == "rgcn" else LAYERS[kind]())
    call = (lambda layer, rows: layer(rows, edge_index, types)) if kind == "rgcn" else lambda of, y: of(y, edge_index)
    with torch.inference_mode():
        torch.testing.assert_close(call(layers[1], x), call(layers[0], x), rtol=1e-3, atol=1e-4)
    compare(layers, call, x)


@pytest.mark.parametrize("kind", LAYERS)
def test_transforms_and_forward_mode_differentiate_layers(kind: str) -> None:
    torch.manual_seed(seed_of(0))
    x, tangent, edge_index = torch.randn(60, 16), torch.randn(60, 16), torch.randint(60, (2, 400))

    def forward(layer: Any) -> Tensor:
        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent), edge_index)).tangent
        assert found is not None
        return found

    theirs, ours = pair(LAYERS[kind]())
    for transform in (
        lambda layer: torch.func.jvp(lambda rows: layer(rows, edge_index), (x,), (tangent,)),
        lambda layer: torch.func.grad(lambda rows: layer(rows, edge_index).square().sum())(x),
        forward,
    ):
        torch.testing.assert_close(transform(ours), transform(theirs), rtol=1e-3, atol=1e-4)


def test_a_layer_whose_root_weight_was_cleared() -> None:
    """DirGNNConv clears it in copies of a layer that has the weight."""
    torch.manual_seed(seed_of(0))
    x, edge_index = torch.randn(60, 16), torch.randint(60, (2, 400))
    layer = pyg.DirGNNConv(pyg.SAGEConv(16, 8))
    other = copy.deepcopy(layer)
    assert "conv_in" in accelerate(other).swapped
    compare((layer, other), lambda conv, leaf: conv(leaf, edge_index), x)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("is_sorted", [False, True])
def test_layers_equal_those_of_pyg(kind: str, is_sorted: bool) -> None:
    torch.manual_seed(seed_of(0))
    edge_index = torch.stack([torch.randint(60, (400,)), torch.randint(50, (400,))])  # with loops and repeated edges
    if is_sorted:
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)].contiguous()
    layers, x, weight = pair(LAYERS[kind]()), torch.randn(60, 16), torch.rand(400)
    compare(layers, lambda layer, x: layer(x, edge_index), x)
    if kind.startswith("gcn"):
        compare(layers, lambda layer, x: layer(x, edge_index, weight), x)
    else:
        keep = edge_index[:, edge_index[1] < 40].contiguous()
        compare(layers, lambda layer, x: layer((x, x[:40]), keep), x)
    again = edge_index.clone()
    layers[1](x, again)
    again[0, :] = 3  # another graph in the same tensor
    compare(layers, lambda layer, x: layer(x, again), x)


class Net(nn.Module):
    def __init__(self, layers: list[Any]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(layers)

    def forward(self, batch: Any, how: str) -> Tensor:
        h, edge_index, blocks = batch.x, batch.edge_index, batch.blocks()
        for i, conv in enumerate(self.convs):
            if how == "blocks":
                h = conv((h, h[: blocks[i].num_dst]), blocks[i].edge_index)
                continue
            if how == "trim":
                h, edge_index, _ = trim_to_layer(i, batch.num_sampled_nodes, batch.num_sampled_edges, h, edge_index)
            h = conv(h, edge_index)
        return h[: batch.batch_size]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("hops", [[3, 2, 1], [1, 2, 3], [2, 1, 3]])
def test_layers_of_a_trimmed_model_share_the_scales_of_gcn(
    graph: dict[str, Any], hops: list[int], trimmed: bool, loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever comes first, and with rows that have no edges yet."""
    made: list[int] = []
    scale_of = ops.gcn_scale
    monkeypatch.setattr(ops, "gcn_scale", lambda *args: made.append(args[2]) or scale_of(*args))
    with Loader(graph, [5, 4, 3], np.arange(300), batch_size=100) as loader:
        for batch in loader:
            made.clear()
            nodes = np.cumsum(batch.num_sampled_nodes)
            for hop in hops:
                edges, rows = sum(batch.num_sampled_edges[:hop]), int(nodes[hop if trimmed else -1])
                edge_index = batch.edge_index[:, :edges]
                scale = adjacency(edge_index, rows, rows).gcn_scale(rows, torch.float64, loops)
                index, target = edge_index
                degree = torch.bincount(target[index != target] if loops else target, minlength=rows) + loops
                expected = degree.double().pow(-0.5).masked_fill(degree == 0, 0.0)
                torch.testing.assert_close(scale, expected)
            assert len(made) == ({3: 1, 1: 3, 2: 2}[hops[0]] if loops else 3)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", ["sage", "sage-max", "gin", "gcn", "gat"])
def test_batches_of_the_loader(graph: dict[str, Any], kind: str, transpose: bool) -> None:
    torch.manual_seed(seed_of(0))
    shapes = [(24, 16), (16, 12), (12, 7)]
    make: dict[str, Callable[[int, int], Any]] = {
        "sage": pyg.SAGEConv,
        "sage-max": lambda a, b: pyg.SAGEConv(a, b, aggr="max"),
        "gin": lambda a, b: pyg.GINConv(nn.Linear(a, b)),
        "gcn": pyg.GCNConv,
        "gat": lambda a, b: pyg.GATConv(a, b),
    }
    theirs = Net([make[kind](a, b) for a, b in shapes])
    ours = copy.deepcopy(theirs)
    assert len(accelerate(ours).swapped) == 3
    with Loader(graph, [5, 4, 3], np.arange(300), batch_size=100, transpose=transpose) as loader:
        for batch in loader:
            known = recall(batch.edge_index)
            assert known is not None
            assert (known.transposed is not None) == transpose
            if known.transposed is not None:
                expected = ops.transpose(batch.edge_index[0], nn.functional.pad(known.ptr, (0, 0)), batch.num_nodes)
                for mine, other in zip(known.transposed, expected, strict=True):
                    assert mine.long().equal(other)
            for how in ("whole", "trim", "blocks"):
                if kind == "gcn" and how == "blocks":
                    continue  # PyG's GCNConv takes no bipartite graphs
                compare((theirs, ours), lambda net, x, b=batch, h=how: net(with_x(b, x), h), batch.x)


def with_x(batch: Any, x: Tensor) -> Any:
    other = copy.copy(batch)
    other.x = x
    return other


def test_what_is_known_dies_with_its_edge_index(graph: dict[str, Any]) -> None:
    conv = pyg.SAGEConv(24, 4)
    accelerate(conv)
    with Loader(graph, [5, 4], np.arange(50), batch_size=50, transpose=True) as loader:
        (batch,) = loader
    edge_index = torch.randint(50, (2, 300))
    ordered = edge_index[:, edge_index[1].argsort()].contiguous()
    block = batch.blocks()[-1]
    conv((batch.x[: block.num_src], batch.x[: block.num_dst]), block.edge_index).sum().backward()
    for graph_of in (batch.edge_index, edge_index, ordered):
        conv(batch.x, graph_of).sum().backward()
    dead = [weakref.ref(t) for t in (batch.edge_index, edge_index, ordered)]
    del batch, edge_index, ordered, block, graph_of
    gc.collect()
    assert [ref() for ref in dead] == [None, None, None]


def test_blocks_with_the_operators_alone(graph: dict[str, Any]) -> None:
    with Loader(graph, [5, 4], np.arange(100), batch_size=50, transpose=True) as loader:
        for batch in loader:
            h = batch.x.clone().requires_grad_()
            top, plain = h, h
            for block in batch.blocks():
                top = ops.aggregate(top, block.index, block.ptr, reduce="mean", transposed=block.transposed)
                degree = block.ptr.diff().clamp(min=1).unsqueeze(1)
                plain = torch.zeros(block.num_dst, 24).index_add_(0, block.edge_index[1], plain[block.index]) / degree
            torch.testing.assert_close(top, plain)
            grads = [torch.autograd.grad(out.square().sum(), h)[0] for out in (top, plain)]
            torch.testing.assert_close(*grads)


@pytest.mark.parametrize("transpose", [False, True])
def test_heterogeneous_batches_with_an_edge_index_of_pyg(transpose: bool) -> None:
    random = np.random.default_rng(seed_of(5))
    types = {("a", "to", "a"): (200, 200), ("a", "to", "b"): (200, 80), ("b", "back", "a"): (80, 200)}
    data: dict[Any, Any] = {
        key: {"edge_index": np.stack([random.integers(n, size=900) for n in ends])} for key, ends in types.items()
    }
    data |= {"a": {"x": random.normal(size=(200, 6)).astype("f")}, "b": {"x": random.normal(size=(80, 6)).astype("f")}}
    options: dict[str, Any] = {"input_nodes": "a", "batch_size": 50, "transpose": transpose}
    layers = [pyg.SAGEConv((6, 6), 4), pyg.GraphConv((6, 6), 4), pyg.SAGEConv((6, 6), 4, aggr="max")]
    with Loader(data, [5, 4], **options, edge_index="EdgeIndex") as loader, Loader(data, [5, 4], **options) as other:
        for batch, same in zip(loader, other, strict=True):
            assert {key for key in types if isinstance(batch[key].edge_index, EdgeIndex)} == {("a", "to", "a")}
            batch["a", "to", "a"].edge_index.validate()
            for layer in layers:
                conv, results = pyg.HeteroConv({key: copy.deepcopy(layer) for key in types}), []
                for one in (batch, same):
                    x = {key: rows.clone().requires_grad_() for key, rows in one.x_dict.items()}
                    out = conv(x, one.edge_index_dict)
                    loss = sum(rows.square().sum() for rows in out.values())
                    results.append((*out.values(), *torch.autograd.grad(loss, list(x.values()))))
                for mine, expected in zip(*results, strict=True):
                    torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4)


def test_an_edge_index_of_pyg_needs_an_edge_type_within_one_node_type() -> None:
    data = {"a": {"num_nodes": 2}, "b": {"num_nodes": 2}, ("a", "to", "b"): {"edge_index": np.zeros((2, 1), int)}}
    with pytest.raises(InvalidArgumentError, match=r"within one node type.*derivative"):
        Loader(data, [2], "b", edge_index="EdgeIndex")


@pytest.mark.parametrize("transpose", [False, True])
def test_batches_with_an_edge_index_of_pyg(graph: dict[str, Any], transpose: bool) -> None:
    options: dict[str, Any] = {"batch_size": 50, "transpose": transpose}
    layers = [pyg.SAGEConv(24, 8), pyg.GINConv(nn.Linear(24, 8)), pyg.GCNConv(24, 8), pyg.GATConv(24, 8)]
    with Loader(graph, [5, 4], np.arange(100), edge_index="EdgeIndex", **options) as loader:
        with Loader(graph, [5, 4], np.arange(100), **options) as other:
            for batch, same in zip(loader, other, strict=True):
                assert isinstance(batch.edge_index, EdgeIndex)
                batch.edge_index.validate()
                (colptr, _), perm = batch.edge_index.get_csc()
                assert perm in (None, slice(None))  # PyG 2.5 gives the slice
                assert colptr.diff().equal(torch.bincount(same.edge_index[1], minlength=same.num_nodes))
                (rowptr, col), perm = batch.edge_index.get_csr()
                assert same.edge_index[1][perm].equal(col)
                assert rowptr.diff().equal(torch.bincount(same.edge_index[0], minlength=same.num_nodes))
                for layer in layers:
                    for one in pair(copy.deepcopy(layer)):
                        results = []
                        for edge_index in (batch.edge_index, same.edge_index):
                            x = same.x.clone().requires_grad_()
                            out = one(x, edge_index)
                            results.append((out, *torch.autograd.grad(out.square().sum(), x)))
                        for mine, expected in zip(*results, strict=True):
                            torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4)


def test_the_report_and_undo() -> None:
    class Own(pyg.SAGEConv):  # type: ignore[misc, name-defined]
        def message(self, x_j: Tensor) -> Tensor:
            return 2 * x_j

    model = nn.ModuleDict(
        {
            "good": pyg.SAGEConv(4, 4),
            "own": Own(4, 4),
            "lstm": pyg.SAGEConv(4, 4, aggr="lstm"),
            "many": pyg.SAGEConv(4, 4, aggr=["max", "mean"]),
            "back": pyg.GCNConv(4, 4, flow="target_to_source"),
            "graph": pyg.GraphConv(4, 4),
            "linear": nn.Linear(4, 4),
        }
    )
    report = accelerate(model)
    assert report.swapped == {"good": "SAGEConv"}
    assert list(report.left) == ["own", "lstm", "many", "back", "graph"]
    text = str(report)
    assert "swapped 1 of 6" in text
    assert "own: left alone, Own is not one of SAGEConv, GCNConv, GINConv, GATConv, RGCNConv" in text
    assert "flow='target_to_source'" in text
    assert accelerate(model).swapped == report.swapped
    report.undo()
    assert type(model["good"]) is pyg.SAGEConv


def test_hooks_and_foreign_inputs_take_pygs_way() -> None:
    conv, plain = pyg.SAGEConv(4, 4), pyg.SAGEConv(4, 4)
    plain.load_state_dict(conv.state_dict())
    accelerate(conv)
    x, edge_index = torch.randn(5, 4), torch.randint(5, (2, 12))
    seen: list[int] = []
    hook = conv.register_message_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))
    assert seen
    hook.remove()
    adjacency = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(12), (5, 5)).coalesce().to_sparse_csr()
    torch.testing.assert_close(conv(x, adjacency), plain(x, adjacency))
    gat, other = pair(pyg.GATConv(4, 2))
    for mine, expected in zip(
        other(x, edge_index, return_attention_weights=True),
        gat(x, edge_index, return_attention_weights=True),
        strict=True,
    ):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, expected)


def papers_and_authors() -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    torch.manual_seed(seed_of(0))
    x = {"paper": torch.randn(30, 6), "author": torch.randn(20, 6)}
    edges = {
        ("author", "writes", "paper"): torch.stack([torch.randint(20, (80,)), torch.randint(30, (80,))]),
        ("paper", "cites", "paper"): torch.randint(30, (2, 90)),
        ("paper", "rev", "author"): torch.stack([torch.randint(30, (70,)), torch.randint(20, (70,))]),
    }
    return x, edges


def test_heterogeneous_models() -> None:
    x, edges = papers_and_authors()
    kinds: list[Callable[[], Any]] = [
        lambda: pyg.SAGEConv((-1, -1), 5),
        lambda: pyg.GATConv((-1, -1), 5, add_self_loops=False),
    ]
    for kind in kinds:
        theirs = pyg.HeteroConv({key: kind() for key in edges}, aggr="sum")
        theirs(x, edges)
        ours = copy.deepcopy(theirs)
        assert len(accelerate(ours).swapped) == 3
        for name, out in theirs(x, edges).items():
            torch.testing.assert_close(ours(x, edges)[name], out, rtol=1e-4, atol=1e-5)


def rgcn(kind: Any = pyg.RGCNConv, size: Any = 16, **options: Any) -> Any:
    return kind(size, 8, num_relations=5, **options)


RELATIONAL: dict[str, Callable[[], Any]] = {
    "mean": rgcn,
    "sum": lambda: rgcn(aggr="sum", root_weight=False),
    "max": lambda: rgcn(aggr="max", bias=False),
    "bases": lambda: rgcn(num_bases=3),
    "blocks": lambda: rgcn(num_blocks=4),
    "fast": lambda: rgcn(pyg.FastRGCNConv),
    "fast-sum-bases": lambda: rgcn(pyg.FastRGCNConv, aggr="sum", num_bases=2),
}


@pytest.mark.parametrize("kind", RELATIONAL)
@pytest.mark.parametrize("is_sorted", [False, True])
def test_relations(kind: str, is_sorted: bool) -> None:
    torch.manual_seed(seed_of(0))
    edge_index, edge_type = torch.randint(50, (2, 400)), torch.randint(4, (400,))  # the last relation has no edges
    if is_sorted:
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)].contiguous()
    layers, x = pair(RELATIONAL[kind]()), torch.randn(50, 16)
    compare(layers, lambda layer, x: layer(x, edge_index, edge_type), x)
    keep = edge_index[1] < 30
    bipartite, types = edge_index[:, keep].contiguous(), edge_type[keep].contiguous()
    compare(layers, lambda layer, x: layer((x, x[:30]), bipartite, types), x)
    edge_type.zero_()  # another graph in the same tensor
    compare(layers, lambda layer, x: layer(x, edge_index, edge_type), x)
    other = torch.randint(5, (400,))
    compare(layers, lambda layer, x: layer(x, edge_index, other), x)
    with pytest.raises(InvalidArgumentError, match=r"edge_type has shape \[3\] for edge_index of shape \[2, 400\]"):
        layers[1](x, edge_index, other[:3])
    with pytest.raises(InvalidArgumentError, match=r"target\[0\] is 5"):
        layers[1](x, edge_index, torch.full((400,), 5))


def test_relations_of_embeddings_take_pygs_way() -> None:
    edge_index, edge_type = torch.randint(16, (2, 60)), torch.randint(5, (60,))
    theirs, ours = pair(rgcn())
    torch.testing.assert_close(ours(None, edge_index, edge_type), theirs(None, edge_index, edge_type))


def test_models_made_heterogeneous() -> None:
    """to_hetero: a layer for each kind of edge, none of them sorted, sources and targets of different numbers."""
    x, edges = papers_and_authors()
    for kind in (pyg.GraphSAGE, pyg.GAT):
        options = {"add_self_loops": False} if kind is pyg.GAT else {}
        model = kind((-1, -1), 8, num_layers=2, out_channels=3, **options)
        try:
            theirs = pyg.to_hetero(model, (list(x), list(edges)))
        except AttributeError as error:
            pytest.skip(f"this PyG does not trace models with this PyTorch: {error}")  # PyG 2.5, PyTorch 2.14
        theirs(x, edges)
        ours = copy.deepcopy(theirs)
        assert len(accelerate(ours).swapped) == 6
        results = []
        for net in (theirs, ours):
            leaves = {name: rows.clone().requires_grad_() for name, rows in x.items()}
            out = net(leaves, edges)
            sum(o.square().sum() for o in out.values()).backward()
            grads = [leaf.grad for leaf in leaves.values()]
            results.append([*out.values(), *grads, *(p.grad for p in net.parameters() if p.grad is not None)])
        for mine, expected in zip(*results[::-1], strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4)


def test_lazy_layers_may_be_accelerated_before_their_first_call() -> None:
    x, edge_index = (torch.randn(9, 5), torch.randn(7, 4)), torch.randint(7, (2, 30))
    for make in (
        lambda: pyg.SAGEConv((-1, -1), 3),
        lambda: pyg.GATConv((-1, -1), 3, add_self_loops=False),
    ):
        torch.manual_seed(seed_of(0))
        expected = make()(x, edge_index)
        torch.manual_seed(seed_of(0))
        conv = make()
        accelerate(conv)
        torch.testing.assert_close(conv(x, edge_index), expected)
        torch.testing.assert_close(conv(x, edge_index), expected)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("width", [4, 12, 40])
def test_the_order_of_product_and_sum(width: int, needs_grad: bool) -> None:
    """Layers that widen, narrow, and narrow by more than half; over rows with and without a gradient."""
    torch.manual_seed(seed_of(0))
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 16)
    for kind in (pyg.SAGEConv, pyg.GCNConv):
        theirs, ours = pair(kind(16, width))
        results = []
        for layer in (theirs, ours):
            leaf = x.clone().requires_grad_(needs_grad)
            out = layer(leaf, edge_index)
            (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
            results.append([out, leaf.grad, *(p.grad for p in layer.parameters())])
        for expected, mine in zip(*results, strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4)


def test_hooks_of_a_layers_product_see_what_pyg_shows_them() -> None:
    torch.manual_seed(seed_of(0))
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 16)
    for kind, name in ((pyg.SAGEConv, "lin_l"), (pyg.GCNConv, "lin"), (pyg.GATConv, "lin")):
        seen: list[Tensor] = []
        for layer in pair(kind(16, 4)):
            getattr(layer, name).register_forward_hook(lambda module, args, out, s=seen: s.append(out))
            layer(x, edge_index)
        torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("kind", LAYERS)
def test_a_copy_leaves_layers_accelerated(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG gives the class of a layer that is copied or unpickled another ``propagate``."""
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 16)
    layer = LAYERS[kind]()
    accelerate(layer)
    copies = [layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    operate, calls = abi.operate, []
    monkeypatch.setattr(abi, "operate", lambda name, *args: (calls.append(name), operate(name, *args))[1])
    for one in copies:
        calls.clear()
        with torch.no_grad():
            one(x, edge_index)
        assert calls, one


def test_a_compiled_model_equals_the_eager_one() -> None:
    torch.manual_seed(seed_of(0))
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 16)
    for kind in ("sage", "sage-max", "gin", "gcn", "gat"):
        model = LAYERS[kind]()
        accelerate(model)
        compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
        compare((model, compiled), lambda layer, x: layer(x, edge_index), x)


@pytest.mark.parametrize("last", ["sage", pytest.param("gat", marks=pytest.mark.long)])  # each half a minute of g++
def test_a_model_compiled_by_inductor_equals_the_eager_one(last: str) -> None:
    """The default backend, which writes C++ for what surrounds the operators."""
    try:
        inductor.get_cpp_compiler()
    except Exception as error:  # whatever says that there is none
        pytest.skip(f"inductor finds no C++ compiler: {error}")
    torch.manual_seed(seed_of(0))
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 16)
    layer = pyg.SAGEConv(16, 8) if last == "sage" else pyg.GATConv(16, 4, heads=2)
    model = pyg.Sequential("x, edge_index", [(nn.Linear(16, 16), "x -> x"), nn.ReLU(), (layer, "x, edge_index -> x")])
    assert len(accelerate(model).swapped) == 1
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True)
    compare((model, compiled), lambda layer, x: layer(x, edge_index), x)


def test_autocast() -> None:
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 16)
    for kind in ("sage", "sage-max", "gin", "gcn", "gat"):
        theirs, ours = pair(LAYERS[kind]())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected, out = theirs(x, edge_index), ours(x, edge_index)
        torch.testing.assert_close(out.float(), expected.float(), rtol=5e-2, atol=5e-2)
