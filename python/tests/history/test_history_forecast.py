"""``history.forecast()`` says before an epoch what it will save, to the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
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
    history = History(**{**age, "memory": "1MiB", "features": False, **options})
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


def test_what_nobody_knows_ahead_is_refused(store: Path) -> None:
    model, history = made({"keep": "aggregates"})
    with pytest.raises(errors.ClosedError):
        history.forecast()
    with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
        with pytest.raises(errors.InvalidArgumentError, match="known from the first update on"):
            history.forecast()
        epoch(loader, model, history)
        batches = iter(loader)
        next(batches)
        with pytest.raises(errors.InvalidArgumentError, match="an epoch runs"):
            history.forecast()
        del batches
        model.eval()
        with pytest.raises(errors.InvalidArgumentError, match="in evaluation"):
            history.forecast()
    model, history = made({"p_grad": 0.5})
    with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
        epoch(loader, model, history)
        with pytest.raises(errors.InvalidArgumentError, match=r"p_grad=0\.5 gradients decide"):
            history.forecast()
    model, history = made({"keep": "aggregates", "features": True, "memory": "4KiB"})
    with Loader(store, HOPS, history=history, cache="degree", feature_cache=4096, **OPTIONS) as loader:
        epoch(loader, model, history)
        with pytest.raises(errors.InvalidArgumentError, match=r"features share the buffer.*features=False"):
            history.forecast()
