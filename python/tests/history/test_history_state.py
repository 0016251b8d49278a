"""What History keeps of a run: the sampled error, a state to resume from, its figure."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import history_oracle
import pytest
import torch
from history_models import loss_of, model_of, plain_loader, train
from history_oracle import FakeLoader

from freshgo._plots.history import figure
from freshgo.history import History

pytest.importorskip("torch_geometric")

pytestmark = pytest.mark.usefixtures("no_warnings")


class TestSampledError:
    def trained(self, lr: float) -> History:
        model, history = model_of("GraphSAGE"), History(p_grad=1.0, policy="gradient", sample_error=0.25, keep="rows")
        history.attach(model)
        assert history._entries.settings.probe_every == 4
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        with plain_loader() as plain:
            loader = FakeLoader(plain, history, probe_every=4)
            for _ in range(3):
                for batch in loader:
                    optimizer.zero_grad()
                    loss_of(model(batch.x, batch.edge_index), batch).backward()
                    optimizer.step()
                    history.update()
            self.stats = history.stats()
        return history

    def test_deterministic_and_by_age(self) -> None:
        first = self.trained(0.05).stats()["error"]
        assert first == self.trained(0.05).stats()["error"]
        assert first
        for row in first:
            assert row["to"] == 2 * row["age"] - 1
            assert -1 <= row["cosine"] <= 1
            assert row["relative"] >= 0
            assert row["rows"] > 0

    def test_learning_faster_makes_it_larger(self) -> None:
        slow, fast = (self.trained(lr).stats()["error"] for lr in (0.001, 0.5))
        mean = [sum(r["relative"] * r["rows"] for r in some) / sum(r["rows"] for r in some) for some in (slow, fast)]
        assert mean[0] < mean[1]

    def test_of_rows_that_differ_as_told(self) -> None:
        history = History()
        exact = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
        stored = torch.tensor([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [-2.0, 0.0]])
        history._entries.estimation.add(1, exact, stored, torch.tensor([1, 2, 3, 3, 1]))
        assert history.stats()["error"] == [
            {"age": 1, "to": 1, "rows": 2, "cosine": 0.0, "relative": 1.0},
            {"age": 2, "to": 3, "rows": 3, "cosine": pytest.approx(1 / 3), "relative": pytest.approx(math.sqrt(5))},
        ]


@pytest.mark.parametrize("waits", [False, True])
def test_a_resumed_run_continues_identically(waits: bool) -> None:
    def start() -> tuple[Any, History, Any, Any]:
        model, history = model_of("GraphSAGE"), History(p_grad=0.8, policy="gradient", memory="1MiB", keep="rows")
        history.attach(model)
        plain = plain_loader(shuffle=True)
        return model, history, plain, FakeLoader(plain, history)

    model, history, plain, loader = start()
    train(model, loader, history)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "history": history.state_dict(), "loader": plain.state_dict()}, file)
    expected = train(model, loader, history, 2)
    hits = loader.native.hits

    file.seek(0)
    state = torch.load(file, weights_only=True)
    other, resumed, again, second = start()
    other.load_state_dict(state["model"])
    if waits:
        resumed = History(p_grad=0.8, policy="gradient", memory="1MiB", keep="rows")
        resumed.load_state_dict(state["history"])
        assert resumed.state_dict()["settings"] == state["history"]["settings"]
        second = FakeLoader(again, resumed)
        attach_to, resumed_model = resumed, model_of("GraphSAGE")
        resumed_model.load_state_dict(state["model"])
        attach_to.attach(resumed_model)
        other = resumed_model
    else:
        resumed.load_state_dict(state["history"])
    again.load_state_dict(state["loader"])
    assert train(other, second, resumed, 2) == expected
    assert second.native.hits[len(plain) :] == hits[len(plain) :]
    assert resumed.stats()["saving"] == history.stats()["saving"]


def test_what_is_saved_and_its_picture(tmp_path: Path) -> None:
    model, history = model_of("GraphSAGE"), History(policy="gradient", keep="rows")
    history.attach(model)
    with plain_loader() as plain:
        train(model, FakeLoader(plain, history), history, 3)
        with plain_loader() as same:
            whole = [(len(batch.n_id), batch.edge_index.size(1)) for _ in range(3) for batch in same]
    stats = history.stats()
    saving = stats["saving"]
    assert [(row["plain_rows"], row["plain_edges"]) for row in saving] == whole
    assert stats["rows_saved"] == sum(row["plain_rows"] - row["loaded"] for row in saving) > 500
    assert stats["edges_saved"] == sum(row["plain_edges"] - row["edges"] for row in saving) > 500
    assert stats["bytes_saved"] == 48 * stats["rows_saved"]
    pytest.importorskip("matplotlib")
    layers = [{"hits": 3, "misses": 1, "live": 7}, {"hits": 0, "misses": 0, "live": 0}]
    errors = [{"age": 1, "to": 1, "rows": 2, "cosine": 0.5, "relative": 1.0}]
    for error in ([], errors):
        figure({**stats, "layers": layers, "ages": [1, 2, 3], "error": error}).savefig(tmp_path / "a.png")
        text = (tmp_path / "a.png").read_bytes()
        assert text.startswith(b"\x89PNG")
        assert len(text) > 10_000


def test_a_trail_keeps_its_sums_and_its_size() -> None:
    from freshgo._history.estimation import _POINTS, Trail

    trail = Trail()
    block = history_oracle.Namespace(edge=torch.tensor([5]))
    for i in range(5 * _POINTS):
        trail.add(
            history_oracle.Namespace(
                index=i,
                hit=[None, torch.arange(i % 3)],
                computed=[None, torch.arange(2)],
                layers=[block],
                loaded=i,
                plain_nodes=2 * i,
                edges=6,
                plain_edges=7,
            )
        )
    rows = trail.rows()
    assert _POINTS <= len(rows) < 2 * _POINTS
    assert sum(row["batches"] for row in rows) == 5 * _POINTS
    assert sum(row["loaded"] for row in rows) == sum(range(5 * _POINTS))
    assert [row["iteration"] for row in rows] == sorted(row["iteration"] for row in rows)
    other = Trail()
    other.load(trail.save())
    assert other.rows() == rows
