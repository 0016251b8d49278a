"""What a loader shows while it is opened, and while the loop waits for a batch."""

from __future__ import annotations

import pytest
import torch

import freshgo
from freshgo import Loader
from freshgo._args import progress
from freshgo._native import header
from freshgo._native import loader as native_loader
from freshgo.errors import DTypeError

GRAPH = {"x": torch.arange(40.0).view(20, 2), "edge_index": torch.randint(20, (2, 60))}


def slow(monkeypatch: pytest.MonkeyPatch, state: tuple[bytes, int, int], polls: int = 3) -> None:
    """Make every batch come after some polls, and the library be in this state meanwhile."""
    received, left = native_loader.Loader._received, [polls]

    def late(self, function, *args):
        if function == "fg_loader_next" and left[0]:
            left[0] -= 1
            return header.TIMEOUT, None
        left[0] = polls
        return received(self, function, *args)

    def call(name, *args, real=native_loader.abi.call):
        if name == "fg_loader_progress":
            args[1]._obj.stage, args[1]._obj.done, args[1]._obj.total = state
            return header.OK
        return real(name, *args)

    monkeypatch.setattr(native_loader.Loader, "_received", late)
    monkeypatch.setattr(native_loader.abi, "call", call)


def test_a_callable_hears_what_a_batch_waits_for(monkeypatch):
    heard = []
    with Loader(GRAPH, [2], batch_size=10, progress=lambda *what: heard.append(what)) as loader:
        slow(monkeypatch, (b"sampling batches", 3, 8))
        heard.clear()
        assert [batch.batch_size for batch in loader] == [10, 10]
        assert heard[:3] == [("sampling batches", 3, 8)] * 3
        slow(monkeypatch, (b"", 0, 0))
        heard.clear()
        next(iter(loader))
        assert set(heard) == {("preparing a batch", 0, 0)}


def test_an_exception_of_the_callable_loses_no_batch(monkeypatch):
    def fails(stage, done, total):
        raise ValueError(stage)

    with Loader(GRAPH, [2], batch_size=10, progress=fails) as loader:
        slow(monkeypatch, (b"planning batches", 0, 0), polls=2)
        epoch = iter(loader)
        with pytest.raises(ValueError, match="planning batches"):
            next(epoch)
        monkeypatch.undo()
        assert [batch.input_id.tolist() for batch in epoch] == [list(range(10)), list(range(10, 20))]


@pytest.mark.parametrize(("shown", "patience"), [(True, 0), (False, 0), (True, 60)])
def test_a_bar_appears_after_a_while(monkeypatch, capsys, shown, patience):
    monkeypatch.setattr(native_loader, "_PATIENCE", patience)
    with Loader(GRAPH, [2], batch_size=10, progress=shown) as loader:
        capsys.readouterr()
        slow(monkeypatch, (b"sampling batches", 3, 8))
        next(iter(loader))
    written = capsys.readouterr()
    assert written.out == ""
    assert ("sampling batches" in written.err) == (shown and not patience)


def test_a_bar_waits_for_its_delay(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress_of(True, 5) as report:
        report("reading offsets", 0, 0)
        now[0] = 104.9
        report("reading offsets", 0, 0)
        assert capsys.readouterr().err == ""
        now[0] = 105.0
        report("ranking nodes", 0, 0)
        assert "ranking nodes" in capsys.readouterr().err


def test_opening_names_its_stages(monkeypatch, tmp_path):
    monkeypatch.setattr("freshgo._native.handle.POLL_MS", 0)
    store, heard = freshgo.convert(GRAPH, tmp_path / "s", progress=False), set()
    for _ in range(20):  # each opening takes several polls
        with Loader(store, [2], memory="16MiB", progress=lambda stage, done, total: heard.add(stage)):
            pass
    assert heard & {"reading offsets", "measuring batches", "reading neighbour lists", "reading tensors"}


@pytest.mark.parametrize("wrong", [None, 1, "yes"])
def test_wrong_progress(wrong):
    with pytest.raises(DTypeError, match="progress must be True, False or a callable"):
        Loader(GRAPH, [2], progress=wrong)
