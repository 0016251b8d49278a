"""With parameters that stand still and all neighbours a kept row is what computing it gives: pruned training is plain
training, up to the gradients that hits stop.

Not so of GCN: a row of the last hop counts as many in-edges as the batch has of it, none, so that its neighbours' rows
depend on the batch in which they were computed.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from history_models import attach, loss_of, small_graph
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader
from freshgo._batch import tables
from freshgo._batch.structure import recall
from freshgo.history import History

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate

GRAPH = small_graph(num_nodes=400, num_edges=1600)
OPTIONS: dict[str, Any] = {"batch_size": 25, "seed": 5, "shuffle": True}
MODELS: dict[str, Any] = {
    "GraphSAGE": lambda: pyg.GraphSAGE(12, 8, 3, 5),
    "GAT": lambda: pyg.GAT(12, 8, 3, 5),
    "GAT-heads": lambda: pyg.GAT(12, 8, 3, 5, heads=4),
    "GATv2-heads": lambda: pyg.GAT(12, 8, 3, 5, heads=4, v2=True),
    "GAT-norm": lambda: pyg.GAT(
        12, 8, 3, 5, heads=2, act="elu", act_first=True, norm="layer_norm", norm_kwargs={"mode": "node"}
    ),
}


def scale(model: Any, factors: list[Tensor | None]) -> list[Any]:
    """Multiply the gradients of the rows that each layer reads."""

    def hook(at: int) -> Any:
        def scaled(_: nn.Module, args: tuple[Any, ...]) -> Any:
            factor, x = factors[at], args[0]
            return None if factor is None else (x.detach() + (x - x.detach()) * factor[:, None], *args[1:])

        return scaled

    return [conv.register_forward_pre_hook(hook(at)) for at, conv in enumerate(model.convs)]


@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("kind", MODELS)
def test_standing_still_pruned_training_is_plain_training_but_for_the_gradients_of_hits(kind: str, fast: bool) -> None:
    torch.manual_seed(seed_of(1))
    model = MODELS[kind]().train()
    reference = copy.deepcopy(model)  # of PyG, never accelerated
    if fast:
        accelerate(model)
    history = History(0.9, 1000, policy="gradient", memory="1MiB", lag=1, keep="rows")
    attach(history, model)
    found = less = 0
    with (
        Loader(GRAPH, [-1, -1, -1], history=history, **OPTIONS) as loader,
        Loader(GRAPH, [-1, -1, -1], **OPTIONS) as plain,
    ):
        for _ in range(2):
            for batch, whole in zip(loader, plain, strict=True):
                known = recall(batch.edge_index)
                assert known is not None
                levels = known.levels
                place = {node: row for row, node in enumerate(whole.n_id.tolist())}
                factors: list[Tensor | None] = [None]
                for level in (1, 2):
                    factor = torch.ones(whole.num_nodes)
                    hits = batch.n_id[levels.nodes[level][levels.hit[level]]].tolist()
                    for node in hits:
                        factor[place[node]] = 0
                    factors.append(factor)
                    found += len(hits)
                model.zero_grad()
                reference.zero_grad()
                out = model(batch.x, batch.edge_index)
                hooks = scale(reference, factors)
                expected = reference(whole.x, whole.edge_index)[: whole.batch_size]
                torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
                loss_of(out, batch).backward()
                loss_of(expected, whole).backward()
                for hook in hooks:
                    hook.remove()
                theirs = dict(reference.named_parameters())
                for name, mine in model.named_parameters():
                    assert mine.grad is not None
                    torch.testing.assert_close(mine.grad, theirs[name].grad, rtol=1e-3, atol=1e-6, msg=name)
                less += whole.num_nodes - levels.loaded
                history.update()
    assert found > 1000
    assert less > 500


def hetero_graph() -> dict[Any, Any]:
    """Two node types with three edge types between and among them."""
    generator = torch.Generator().manual_seed(seed_of(3))

    def edges(sources: int, targets: int, count: int) -> Tensor:
        ends = [torch.randint(high, (count,), generator=generator) for high in (sources, targets)]
        return torch.stack(ends)

    return {
        "a": {"x": torch.randn(200, 6, generator=generator), "y": torch.randint(4, (200,), generator=generator)},
        "b": {"x": torch.randn(150, 6, generator=generator)},
        ("a", "to", "b"): edges(200, 150, 500),
        ("b", "back", "a"): edges(150, 200, 500),
        ("a", "knows", "a"): edges(200, 200, 400),
    }


def over_types(convs: nn.ModuleList, rows: Any, edges: Any) -> Any:
    """Layers over node types; rows(level, h) is what the next layer reads, edges(level, h) what it is called with."""
    h: Any = None
    for level, conv in enumerate(convs):
        h = conv(*edges(level, rows(level, h)))
        h = {node_type: of.relu() for node_type, of in h.items()} if level + 1 < len(convs) else h
    return h


def test_of_heterogeneous_graphs_too_only_the_gradients_of_hits_are_missing() -> None:
    torch.manual_seed(seed_of(1))
    graph = hetero_graph()
    relations = [key for key in graph if isinstance(key, tuple)]
    convs = nn.ModuleList(
        pyg.HeteroConv({key: pyg.SAGEConv((6, 6), 6) for key in relations}, aggr="sum") for _ in range(3)
    )
    reference = copy.deepcopy(convs)
    history = History(0.9, 1000, policy="gradient", memory="1MiB", lag=1, keep="rows")
    found = 0
    with (
        Loader(graph, [-1] * 3, "a", history=history, **OPTIONS) as loader,
        Loader(graph, [-1] * 3, "a", **OPTIONS) as plain,
    ):
        for _ in range(2):
            for batch, whole in zip(loader, plain, strict=True):
                levels = batch.blocks()[0].levels
                place = {kind: {node: at for at, node in enumerate(whole[kind].n_id.tolist())} for kind in ("a", "b")}
                factors: list[dict[str, Tensor]] = []
                for level in (1, 2):
                    factor = {kind: torch.ones(whole[kind].num_nodes, 1) for kind in ("a", "b")}
                    hit = torch.zeros(levels.nodes[level].numel(), dtype=torch.bool)
                    hit[levels.hit[level]] = True
                    nodes = tables.split(levels, level, levels.nodes[level])
                    for kind, hits in tables.split(levels, level, hit).items():
                        for node in batch[kind].n_id[nodes[kind][hits]].tolist():
                            factor[kind][place[kind][node]] = 0
                            found += 1
                    factors.append(factor)
                convs.zero_grad()
                reference.zero_grad()
                blocks = batch.blocks()

                def read(level: int, h: Any, batch: Any = batch, blocks: Any = blocks) -> Any:
                    return history(batch.x_dict if level == 0 else h, blocks[level])

                def scaled(level: int, h: Any, whole: Any = whole, factors: Any = factors) -> Any:
                    if level == 0:
                        return whole.x_dict
                    of = factors[level - 1]
                    return {kind: x.detach() + (x - x.detach()) * of[kind] for kind, x in h.items()}

                out = over_types(convs, read, lambda level, h, b=blocks: (b[level].pairs(h), b[level].edge_index_dict))[
                    "a"
                ]
                expected = over_types(reference, scaled, lambda _, h, w=whole: (h, w.edge_index_dict))["a"]
                seeds = batch["a"].batch_size
                torch.testing.assert_close(out[:seeds], expected[:seeds], rtol=1e-4, atol=1e-5)
                for rows in (out, expected):
                    nn.functional.cross_entropy(rows[:seeds], batch["a"].y[:seeds]).backward()
                theirs = dict(reference.named_parameters())
                for name, mine in convs.named_parameters():
                    got, want = (torch.zeros_like(mine) if of.grad is None else of.grad for of in (mine, theirs[name]))
                    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5)
                history.update()
    assert found > 200
