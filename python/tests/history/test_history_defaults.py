"""A history without options: what it keeps, where it keeps nothing and says so, and for how long."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from seeds import seed
from torch_geometric.nn import GAT, GATConv, GraphSAGE, SAGEConv

from freshgo import History, Loader, convert, errors
from freshgo._history.estimation import Estimation

NODES, WIDTH = 3000, 64
OPTIONS: dict[str, Any] = {"batch_size": 25, "seed": 5, "shuffle": True}


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    rng = np.random.default_rng(seed(4))
    return {
        "edge_index": rng.integers(NODES, size=(2, 30_000)),
        "x": rng.standard_normal((NODES, WIDTH), dtype=np.float32),
        "y": rng.integers(4, size=NODES),
    }


@pytest.fixture(scope="module")
def path(graph: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("defaults") / "graph"
    convert(graph, path, progress=False).close()
    return path


def model_of(kind: type[Any] = GraphSAGE) -> Any:
    torch.manual_seed(seed(1))
    return kind(WIDTH, 16, num_layers=2, out_channels=4)


def train(model: Any, loader: Any, history: History | None, epochs: int = 1, lr: float = 0.05) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=lr), []
    for _ in range(epochs):
        for batch in loader:
            loss = F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if history is not None:
                history.update()
            losses.append(loss.item())
    return losses


def test_sums_for_a_quarter_of_an_epoch_and_the_paper_by_one_word() -> None:
    ours, papers = History()._entries.settings, History(keep="rows")._entries.settings
    assert (ours.aggregates, ours.levels, ours.p_grad) == (True, 1, 1.0)
    assert (ours.t_stale.count, ours.t_stale.epochs, ours.probe_every) == (0.25, True, 0)
    assert (papers.aggregates, papers.levels, papers.p_grad) == (False, 0, 0.9)
    assert (papers.t_stale.count, papers.t_stale.epochs, papers.probe_every) == (200, False, 0)
    assert math.isinf(History(policy="gas")._entries.settings.t_stale.count)
    assert History(levels=[1, 2])._entries.settings.probe_every == 20
    with pytest.raises(errors.InvalidArgumentError, match=r"p_grad=0.9.*use keep='rows'"):
        History(0.9)


def test_a_layer_that_adds_up_is_kept_of(graph: dict[str, Any]) -> None:
    model, history = model_of(), History()
    with Loader(graph, [4, 4], range(2000), history=history, **OPTIONS) as loader:
        history.attach(model)
        train(model, loader, history, 2)
        stats = history.stats()
    assert stats["idle"] is None
    assert stats["layers"][0]["hits"] > 100
    assert stats["ages"][5:] == [0] * len(stats["ages"][5:])  # 80 batches: at most 20 iterations


def test_of_attention_nothing_is_kept_unless_its_level_is_named(graph: dict[str, Any]) -> None:
    plain, model, history = model_of(GAT), model_of(GAT), History()
    with (
        Loader(graph, [4, 4], range(2000), history=history, **OPTIONS) as loader,
        Loader(graph, [4, 4], range(2000), **OPTIONS) as other,
    ):
        with pytest.warns(UserWarning, match=r"keeps nothing: what GATConv .* History\(levels=1\)"):
            history.attach(model)
        assert train(model, loader, history, 2) == train(plain, other, None, 2)
        stats = history.stats()
        assert "GATConv" in stats["idle"]
        assert (stats["iterations"], stats["rows_saved"]) == (0, 0)
        with pytest.raises(errors.InvalidArgumentError, match=r"nothing to forecast.*GATConv"):
            history.forecast()
        history.detach()
        history.attach(model_of())  # another model
        assert history.stats()["idle"] is None
    named = History(levels=1)
    with Loader(graph, [4, 4], range(2000), history=named, **OPTIONS) as loader:
        named.attach(model)
        train(model, loader, named, 2)
        assert named.stats()["layers"][0]["hits"] > 100


@pytest.mark.parametrize("kind", [GATConv, SAGEConv])
def test_a_layer_that_is_called_by_hand(graph: dict[str, Any], kind: type[Any]) -> None:
    torch.manual_seed(seed(1))
    convs, history = [kind(WIDTH, 16), kind(16, 4)], History()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Loader(graph, [4, 4], range(2000), history=history, **OPTIONS) as loader:
            for _ in range(2):
                for batch in loader:
                    h = batch.x
                    for conv, block in zip(convs, batch.blocks(), strict=True):
                        h = history(h, block, conv).relu()
                    assert h.size(0) == batch.batch_size
                    F.cross_entropy(h, batch.y[: batch.batch_size]).backward()
                    history.update()
            stats = history.stats()
    (layer,) = stats["layers"]
    if kind is SAGEConv:
        assert layer["hits"] > 100
        return
    assert [str(one.message) for one in caught if "keeps nothing: what GATConv" in str(one.message)]
    assert (layer["hits"], layer["admitted"]) == (0, 0)
    assert stats["iterations"] == 80  # the second epoch is plain


def test_features_come_before_what_is_made_of_them(path: Path) -> None:
    """A loader whose memory does not hold all features reads what it reads without a history, and says why."""

    def read(history: History | None, memory: str) -> tuple[int, list[float], Any]:
        model = model_of()
        with Loader(path, [4, 4], range(2000), history=history, memory=memory, num_workers=1, **OPTIONS) as loader:
            if history is not None:
                history.attach(model)
            losses = train(model, loader, history, 2)
            return loader.stats()["bytes_read"], losses, None if history is None else history.stats()

    with Loader(path, [4, 4], range(2000), num_workers=1, memory="1GiB", **OPTIONS) as loader:
        smallest = loader.stats()["memory_smallest"]
    little, much = f"{smallest + (300 << 10)}", "64MiB"
    _, _, stats = read(History(), much)
    assert stats["idle"] is None
    assert stats["layers"][0]["hits"] > 100
    with pytest.warns(UserWarning, match="keeps nothing: its memory holds rows of features"):
        bytes_read, losses, stats = read(History(), little)
    assert (bytes_read, losses) == read(None, little)[:2]
    assert "rows of features" in stats["idle"]
    assert bytes_read > read(None, much)[0]
    _, _, stats = read(History(memory="64KiB"), f"{smallest + (600 << 10)}")
    assert stats["idle"] is None
    assert stats["layers"][0]["hits"] > 10


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([(2, 300, 0.5), (8, 300, 0.54), (32, 300, 0.6), (128, 300, 0.7)], (31, 1.2)),
        ([(2, 300, 0.5), (8, 300, 0.54), (32, 300, 0.54)], None),
        ([(2, 300, 0.5), (8, 100, 0.9), (32, 300, 0.54)], None),  # too few to judge by
        ([(1, 100, 0.1), (4, 300, 0.5), (8, 300, 0.56)], (7, 1.12)),
        ([], None),
    ],
)
def test_the_age_that_errors_allow(means: list[tuple[int, int, float]], expected: tuple[int, float] | None) -> None:
    estimation = Estimation()
    for age, count, error in means:
        exact = torch.ones(count, 4)
        estimation.add(1, exact, exact * (1 + error), torch.full((count,), age))
    found = estimation.stable()
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found == (expected[0], pytest.approx(expected[1]))


@pytest.mark.filterwarnings("ignore:entries of the history")
def test_where_errors_grow_with_age_entries_are_used_for_less_time(graph: dict[str, Any]) -> None:
    def made() -> tuple[Any, History, Any]:
        model, history = model_of(), History(1.0, 60, keep="rows", memory="4MiB", sample_error=0.2)
        loader = Loader(graph, [4, 4], range(2000), history=history, **OPTIONS)
        history.attach(model)
        return model, history, loader

    model, history, loader = made()
    with loader:
        train(model, loader, history, lr=2.0)
        assert sum(history.stats()["ages"][5:]) > 100
        with pytest.warns(UserWarning, match=r"older than \d+ iterations have .* times the error of the youngest"):
            next(iter(loader))
        allowed = history._entries.estimation.stable()
        assert allowed is not None
        assert 1 <= allowed[0] <= 31
        before = history.stats()["ages"]
        train(model, loader, history)
        older = [now - was for now, was in zip(history.stats()["ages"], before, strict=True)]
        assert sum(older) > 100
        assert not any(older[allowed[0].bit_length() :])
        state, place, weights = history.state_dict(), loader.state_dict(), copy.deepcopy(model.state_dict())
        rest = train(model, loader, history, lr=0.1)
    model, history, loader = made()
    with loader:
        model.load_state_dict(weights)
        loader.load_state_dict(place)
        history.load_state_dict(state)
        assert train(model, loader, history, lr=0.1) == rest


class Mapped(torch.nn.Module):
    """A layer that adds up rows which are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.conv1, self.conv2 = torch.nn.Linear(WIDTH, 16), SAGEConv(16, 16), SAGEConv(16, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> Any:
        return self.conv2(self.conv1(self.map(x), edge_index).relu(), edge_index)


@pytest.mark.parametrize("levels", [None, 1])
def test_sums_of_learned_rows_are_kept_where_their_level_is_named(graph: dict[str, Any], levels: int | None) -> None:
    torch.manual_seed(seed(1))
    model, history = Mapped(), History(levels=levels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Loader(graph, [4, 4], range(2000), history=history, **OPTIONS) as loader:
            history.attach(model, layers=[model.conv1, model.conv2])
            train(model, loader, history, 2)
            (layer,) = history.stats()["layers"]
    said = [str(one.message) for one in caught if "layer 1 reads are learned" in str(one.message)]
    assert (len(said), layer["hits"] > 100) == ((1, False) if levels is None else (0, True))
    assert levels is not None or layer["admitted"] == 0
