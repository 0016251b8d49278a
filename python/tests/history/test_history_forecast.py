"""``history.forecast()`` says before an epoch what it will save, to the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from history_models import GRAPH, HOPS, loss_of, model_of, run
from torch import nn

from freshgo import Loader, convert, errors
from freshgo.history import History

pytest.importorskip("torch_geometric")

OPTIONS: dict[str, Any] = {"batch_size": 40, "seed": 5, "shuffle": True}
KINDS: dict[str, dict[str, Any]] = {
    "aggregates": {"keep": "aggregates"},
    "both levels": {"keep": "aggregates", "levels": [1, 2]},
    "a small buffer": {"keep": "aggregates", "memory": 40 * 2 * 12 * 4},
    "late, and compared": {"keep": "aggregates", "start": 5, "sample_error": 0.25},
    "gas": {"policy": "gas"},
    "all rows": {"p_grad": 1.0, "policy": "gradient"},
}


def epoch(loader: Any, model: Any, history: History) -> dict[str, Any]:
    """What an epoch was."""
    before = history.stats()
    rows = plain = edges = plain_edges = 0
    for batch in loader:
        levels = getattr(batch.blocks()[0], "levels", None)
        rows += batch.num_nodes if levels is None else levels.loaded
        plain += batch.num_nodes if levels is None else levels.plain_nodes
        edges += batch.num_edges if levels is None else levels.edges
        plain_edges += batch.num_edges if levels is None else levels.plain_edges
        model.zero_grad()
        loss_of(run(model, batch, "GraphSAGE"), batch).backward()
        history.update()
    after = history.stats()
    layers = [
        {name: one[name] - was[name] for name in ("hits", "misses")}
        for one, was in zip(after["layers"], before["layers"], strict=True)
    ]
    return {"rows": rows, "plain_rows": plain, "edges": edges, "plain_edges": plain_edges, "layers": layers}


def made(options: dict[str, Any]) -> tuple[nn.Module, History]:
    age = {} if options.get("policy") == "gas" else {"t_stale": 11}
    history = History(**{**age, "keep": "rows", "memory": "1MiB", **options})
    model = model_of("GraphSAGE")
    history.attach(model)
    return model, history


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forecast") / "graph.freshgo"
    convert(GRAPH, path, progress=False).close()
    return path


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_epoch_then_does(kind: str, lag: int) -> None:
    """In epoch after epoch, and it changes nothing: the run with forecasts is the run without."""
    runs = []
    for forecasts in (False, True):
        model, history = made({"lag": lag, **KINDS[kind]})
        with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
            found = [epoch(loader, model, history)]
            for _ in range(3):
                said = history.forecast() if forecasts else None
                found.append(epoch(loader, model, history))
                if forecasts:
                    assert said == found[-1]
                    assert said is not None
                    assert said["rows"] < said["plain_rows"]
            runs.append((found, history.stats()["ages"]))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("cache", ["belady", "none", "lru"])
def test_it_is_what_a_loader_over_a_store_does(store: Path, cache: str) -> None:
    model, history = made({"keep": "aggregates"})
    with Loader(store, HOPS, history=history, cache=cache, memory="16MiB", **OPTIONS) as loader:
        epoch(loader, model, history)
        said = history.forecast()
        assert said == epoch(loader, model, history)
        loader.load_state_dict({**loader.state_dict(), "batches": 2})
        assert history.forecast()["plain_rows"] < said["plain_rows"]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store, with rows that are too wide to be held whole where memory is short."""
    path = tmp_path_factory.mktemp("planned") / "graph.freshgo"
    convert({**GRAPH, "wide": torch.rand(GRAPH["num_nodes"], 32)}, path, progress=False).close()
    return path


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_plans_are_made_for_what_is_read(wide: Path, kind: str, lag: int) -> None:
    """From the first epoch on, to the row, whatever is kept; and the plan says so before an epoch begins."""
    model, history = made({"lag": lag, **KINDS[kind]})
    with Loader(wide, HOPS, history=history, cache="belady", feature_cache=20_000, **OPTIONS) as loader:
        rows = [epoch(loader, model, history) for _ in range(4)]
        said = {of["epoch"]: of for of in loader.plan().data["history"]}
        for number, found in enumerate(rows):
            assert said[number]["batches"] == len(loader)
            assert said[number]["drawn_rows"] == found["plain_rows"]
            assert said[number]["planned_rows"] == said[number]["read_rows"] == found["rows"]
            assert said[number]["unforeseen_rows"] == 0
        assert rows[-1]["rows"] < rows[-1]["plain_rows"]
        assert 0 < said[4]["planned_rows"] < said[4]["drawn_rows"]
        assert said[4]["read_rows"] == 0
        read = f"epoch 4: {said[4]['batches']} batches foreseen, which read {said[4]['planned_rows']:,} of"
        assert read in str(loader.plan())


def test_gradients_are_not_foreseen(wide: Path) -> None:
    model, history = made({"p_grad": 0.5})
    with Loader(wide, HOPS, history=history, cache="belady", feature_cache=20_000, **OPTIONS) as loader:
        epoch(loader, model, history)
        assert loader.stats()["superbatch"]
        assert "history" not in loader.plan().data


@pytest.mark.parametrize("lag", [0, 2])  # 0: the next batch is not pruned before the update of this one
def test_what_nobody_knows_ahead_is_refused(store: Path, lag: int) -> None:
    model, history = made({"keep": "aggregates", "lag": lag})
    with pytest.raises(errors.ClosedError):
        history.forecast()
    with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
        with pytest.raises(errors.InvalidArgumentError, match="known from the first update on"):
            history.forecast()
        epoch(loader, model, history)
        batches = iter(loader)
        next(batches)
        with pytest.raises(errors.InvalidArgumentError, match="an epoch is running"):
            history.forecast()
        del batches
        model.eval()
        with pytest.raises(errors.InvalidArgumentError, match="in evaluation"):
            history.forecast()
    model, history = made({"p_grad": 0.5})
    with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
        epoch(loader, model, history)
        with pytest.raises(errors.InvalidArgumentError, match=r"needs p_grad=1, got 0\.5"):
            history.forecast()
