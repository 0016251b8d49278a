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
from test_history import attach, loss_of, small_graph
from torch import Tensor, nn

from freshgo import Loader
from freshgo._graph import recall
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


def stop(model: Any, hits: list[Tensor | None]) -> list[Any]:
    """Let no gradient through the rows at these positions of what each layer reads."""

    def hook(at: int) -> Any:
        def detach(_: nn.Module, args: tuple[Any, ...]) -> Any:
            mask = hits[at]
            return None if mask is None else (torch.where(mask[:, None], args[0].detach(), args[0]), *args[1:])

        return detach

    return [conv.register_forward_pre_hook(hook(at)) for at, conv in enumerate(model.convs)]


@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("kind", MODELS)
def test_standing_still_pruned_training_is_plain_training_without_the_gradients_of_hits(kind: str, fast: bool) -> None:
    torch.manual_seed(1)
    model = MODELS[kind]().train()
    reference = copy.deepcopy(model)  # of PyG, never accelerated
    if fast:
        accelerate(model)
    history = History(0.9, 1000, policy="gradient", memory="1MiB", features=False, lag=1)
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
                hits: list[Tensor | None] = [None]
                for level in (1, 2):
                    mask = torch.zeros(whole.num_nodes, dtype=torch.bool)
                    nodes = batch.n_id[levels.nodes[level][levels.hit[level]]].tolist()
                    mask[[place[node] for node in nodes]] = True
                    hits.append(mask)
                    found += len(nodes)
                model.zero_grad()
                reference.zero_grad()
                out = model(batch.x, batch.edge_index)
                hooks = stop(reference, hits)
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
