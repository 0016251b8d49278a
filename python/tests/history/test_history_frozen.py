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
from torch import Tensor, nn

from freshgo import Loader, errors
from freshgo._batch.structure import recall
from freshgo._history.saved_state import checksum
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


@pytest.mark.parametrize("catch_up", [False, True])
@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("kind", MODELS)
def test_standing_still_pruned_training_is_plain_training_but_for_the_gradients_of_hits(
    kind: str, fast: bool, catch_up: bool
) -> None:
    """Hits pass none; with ``catch_up`` a computed row's counts once more for each hit of its node since the last."""
    torch.manual_seed(1)
    model = MODELS[kind]().train()
    reference = copy.deepcopy(model)  # of PyG, never accelerated
    if fast:
        accelerate(model)
    history = History(0.9, 1000, policy="gradient", memory="1MiB", features=False, lag=1, catch_up=catch_up)
    attach(history, model)
    missed: dict[tuple[int, int], int] = {}
    found = less = most = 0
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
                    hits, computed = (
                        batch.n_id[levels.nodes[level][rows[level]]].tolist() for rows in (levels.hit, levels.computed)
                    )
                    for node in hits:
                        factor[place[node]] = 0
                        missed[level, node] = missed.get((level, node), 0) + 1
                    for node in computed:
                        owed = missed.pop((level, node), 0)
                        factor[place[node]] += owed if catch_up else 0
                        most = max(most, owed)
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
    assert most > 1


def test_catching_up_is_refused_where_it_cannot_be() -> None:
    edges = torch.randint(50, (2, 200))
    typed = {"a": {"x": torch.randn(50, 4)}, "b": {"x": torch.randn(50, 4)}, ("a", "to", "b"): edges}
    with pytest.raises(errors.InvalidArgumentError, match="catch_up=True counts the hits"):
        Loader(typed, [4, 4], "b", history=History(catch_up=True))


@pytest.mark.parametrize("bad", [None, [torch.zeros(3, dtype=torch.int16)], [torch.zeros(400)]])
def test_damaged_counts_are_refused(bad: Any) -> None:
    history = History(policy="gradient", memory="1MiB", features=False, catch_up=True)
    model = pyg.GraphSAGE(12, 8, 3, 5)
    attach(history, model)
    with Loader(GRAPH, [4, 3, 3], history=history, **OPTIONS) as loader:
        for batch in loader:
            loss_of(model(batch.x, batch.edge_index), batch).backward()
            history.update()
        state = history.state_dict()
        assert len(state["catch_up"]) == 2
        assert max(int(hits.max()) for hits in state["catch_up"]) > 1
        with pytest.raises(errors.FormatError, match="catch_up must be vectors of int16 for 400 nodes"):
            damaged = {**state, "catch_up": bad}
            history.load_state_dict({**damaged, "checksum": checksum(damaged)})
        assert all(map(torch.equal, history.state_dict()["catch_up"], state["catch_up"]))
