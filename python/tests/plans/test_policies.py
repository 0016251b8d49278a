"""What a user may say about a cache, and what the library is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from freshgo import policies
from freshgo._args import checks
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.policies import NAMES, Auto, Belady, Hotness, Online, resolve


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_policy(name: str) -> None:
    assert resolve("cache", name).name == name


def test_none_is_no_cache() -> None:
    assert resolve("cache", None).name == "none"


def test_objects_carry_their_parameters() -> None:
    belady = resolve("cache", Belady(superbatch=7, carry_over=False, lookahead=False))
    assert (belady.name, belady.plan) == ("belady", Belady(superbatch=7, carry_over=False, lookahead=False))
    presc = resolve("cache", Hotness("presc", k=3))
    assert (presc.name, presc.k) == ("presc", 3)
    random = resolve("cache", Hotness("random", seed=-5))
    assert (random.name, random.seed) == ("random", -5)
    assert resolve("cache", Online("sieve")).name == "sieve"
    assert resolve("cache", Online("match", reorder=True)).options()["reorder"] is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16])
def test_scores_of_any_real_dtype(dtype: torch.dtype) -> None:
    scores = torch.tensor([0, 1, 1, 0]).to(dtype)
    for given in (scores, scores.numpy(), Hotness(scores)):
        found = resolve("cache", given)
        assert found.name == "vector"
        assert found.scores is not None
        assert found.scores.dtype == torch.float32
        assert found.scores.tolist() == [0, 1, 1, 0]


def test_scores_in_float32_are_not_copied() -> None:
    scores = torch.rand(5)
    assert Hotness(scores).scores.data_ptr() == scores.data_ptr()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Belady(superbatch=0), InvalidArgumentError, r"superbatch must be at least 1, got 0"),
        (lambda: Belady(superbatch=-3), InvalidArgumentError, r"superbatch must be at least 1, got -3"),
        (lambda: Belady(superbatch=2**64), InvalidArgumentError, r"superbatch must be at most"),
        (lambda: Belady(superbatch=True), DTypeError, r"superbatch must be an int, got True"),
        (lambda: Belady(superbatch=1.5), DTypeError, r"superbatch"),  # type: ignore[arg-type]
        (lambda: Belady(carry_over=1), DTypeError, r"carry_over must be True or False"),  # type: ignore[arg-type]
        (lambda: Belady(lookahead="yes"), DTypeError, r"lookahead"),  # type: ignore[arg-type]
        (lambda: Online("lruu"), InvalidArgumentError, r"'lru', 'clock'.*got 'lruu'; did you mean 'lru'\?"),
        (lambda: Online("belady"), InvalidArgumentError, r"'sieve'.*got 'belady'"),
        (lambda: Online("match", reorder=1), InvalidArgumentError, r"reorder must be at least 2, got 1"),
        (lambda: Online("match", reorder="yes"), DTypeError, r"reorder must be an int, got 'yes'"),  # type: ignore[arg-type]
        (lambda: Hotness("degrees"), InvalidArgumentError, r"'presc'.*got 'degrees'; did you mean 'degree'\?"),
        (lambda: Hotness("degree", k=2), InvalidArgumentError, r"k is a parameter of Hotness\('presc'\), got .*degree"),
        (lambda: Hotness("presc", seed=2), InvalidArgumentError, r"seed is a parameter of Hotness\('random'\)"),
        (lambda: Hotness(torch.ones(4), k=2), InvalidArgumentError, r"a vector of 4 scores"),
        (lambda: Hotness("presc", k=0), InvalidArgumentError, r"k must be at least 1, got 0"),
        (lambda: Hotness("presc", k=True), DTypeError, r"k must be an int"),
        (lambda: Hotness([1.0, 2.0]), DTypeError, r"a vector of scores, got list"),  # type: ignore[arg-type]
        (lambda: Hotness(torch.ones(2, 2)), InvalidArgumentError, r"one-dimensional.*\[2, 2\]"),
        (lambda: Hotness(torch.tensor([1.0, np.nan])), InvalidArgumentError, r"hotness of node 1 is nan"),
        (lambda: Hotness(torch.tensor([1.0, 2.0, np.inf])), InvalidArgumentError, r"hotness of node 2 is inf"),
        (lambda: Hotness(np.array([0, -1])), InvalidArgumentError, r"hotness of node 1 is -1"),
        (lambda: Hotness(np.array([1e39])), InvalidArgumentError, r"hotness of node 0 is inf"),
        (lambda: Hotness(np.array([1j])), DTypeError, r"real numbers"),
        (lambda: Hotness(np.array(["a"])), DTypeError, r"real numbers"),
    ],
)
def test_what_cannot_work(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_a_misspelt_name_lists_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve("cache", "S3_FIFO")
    assert all(repr(name) in str(caught.value) for name in NAMES)
    assert "did you mean 's3fifo'?" in str(caught.value)


def test_scores_of_another_graph() -> None:
    with pytest.raises(InvalidArgumentError, match="each of the 5 nodes, got 4"):
        resolve("cache", torch.ones(4)).check_nodes(5)
    resolve("cache", torch.ones(5)).check_nodes(5)


def test_policies_say_what_they_are() -> None:
    assert repr(Hotness("presc", k=2)) == "Hotness('presc', k=2)"
    assert repr(Hotness("degree")) == "Hotness('degree')"
    assert repr(Hotness(torch.ones(3))) == "Hotness(a vector of 3 scores)"
    assert repr(Belady(8)) == "Belady(superbatch=8)"
    assert repr(Auto(transfer="scan", carry_over=False)) == "Auto(carry_over=False, transfer='scan')"
    assert repr(Online("lru")) == "Online(name='lru')"
    assert repr(Online("match", reorder=8)) == "Online(name='match', reorder=8)"


def test_scratch_is_beside_the_store_where_that_can_be_written(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, other = tmp_path / "stores", tmp_path / "tmp"
    beside.mkdir()
    other.mkdir()
    monkeypatch.setattr(checks.tempfile, "gettempdir", lambda: str(other))
    monkeypatch.setattr(checks, "_in_memory", lambda path: False)
    assert checks.scratch(None, beside) == beside
    assert checks.scratch(str(other), beside) == other
    assert checks.scratch(None, None) is None
    monkeypatch.setattr(checks, "_may_write", lambda path: path != beside)
    assert checks.scratch(None, beside) == other
    with pytest.raises(InvalidArgumentError, match="can be written"):
        checks.scratch(beside, None)
    monkeypatch.setattr(checks, "_in_memory", lambda path: path == other)
    assert checks.scratch(None, beside) is None


def test_a_directory_in_memory_is_known() -> None:
    from pathlib import Path

    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    in_memory = [Path(fields[1]) for fields in mounts if fields[2] == "tmpfs" and Path(fields[1]).is_dir()]
    if not in_memory:
        pytest.skip("nothing is mounted in memory")
    assert checks._in_memory(in_memory[-1])


def test_calibration_goes_where_caches_go(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = checks.calibration_file("abc", "auto")
    assert path == tmp_path / "cache" / "freshgo" / "device-abc-auto.json"
    assert path.parent.is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert checks.calibration_file("abc", "auto") == tmp_path / "home" / ".cache" / "freshgo" / "device-abc-auto.json"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert checks.calibration_file("abc", "auto") is None


def test_the_module_lists_each_name_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {*policies.METRICS, *policies.ONLINE} < set(NAMES)
