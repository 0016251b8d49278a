"""A part of the cases of a product runs: each value of each parameter, and all combinations over the commits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import parts
import pytest

CASES: dict[str, set[Any]] = {f"{a} {b} {c}": {a, b, c} for a, b, c in itertools.product("uvwxy", "pqr", "01")}


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Ask for a part."""

    def ask(every: int, by: object = "") -> None:
        monkeypatch.setattr(parts, "EVERY", every)
        monkeypatch.setattr(parts, "BY", str(by))

    return ask


def test_each_value_and_a_third_of_the_combinations(draw: Callable[..., None]) -> None:
    drawn = []
    for number in range(40):
        draw(3, number)
        drawn.append(names := parts.product(CASES))
        assert len(names) == len(CASES) // 3
        assert set().union(*(CASES[name] for name in names)) == set("uvwxypqr01")
        assert parts.product(dict(reversed(CASES.items()))) == names
    assert set().union(*drawn) == set(CASES)
    assert parts.product({"a": {1}, "b": {2}, "c": {3}, "d": {4}}) == set("abcd")
    draw(1)
    assert parts.product(CASES) == set(CASES)


def test_a_part_of_a_loop(draw: Callable[..., None]) -> None:
    drawn = []
    for number in range(40):
        draw(3, number)
        drawn.append(parts.part("loop", range(10)))
        assert len(drawn[-1]) in (3, 4)
        assert parts.part("loop", "ab") in (["a"], ["b"])
    assert set().union(*drawn) == set(range(10))
    draw(1)
    assert parts.part("loop", "ab") == ["a", "b"]


def test_a_list_of_cases_is_one_parameter(draw: Callable[..., None]) -> None:
    """Values that are in several cases of a list stand for none of them."""

    def item(name: str, **params: Any) -> Any:
        marks = [pytest.mark.parametrize("a, b", [])] if "a" in params else []
        callspec = {"callspec": SimpleNamespace(params=params)} if params else {}
        return SimpleNamespace(nodeid=name, iter_markers=lambda kind: (mark.mark for mark in marks), **callspec)

    gone: list[Any] = []
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: gone.extend(items)))
    listed = [item(f"listed[{a}{b}]", a=a, b=b) for a in (0, 1) for b in (0, 1)]
    free = [item(f"free[{c}{d}]", c=c, d=d) for c in range(3) for d in range(3)]
    items = [item("alone"), *listed, *free]
    draw(1)
    parts.pytest_collection_modifyitems(config, items)
    assert len(items) == 14 and not gone, "every case runs"
    draw(3)
    parts.pytest_collection_modifyitems(config, items)
    names = [item.nodeid.partition("[")[0] for item in items]
    assert [names.count(name) for name in ("alone", "listed", "free")] == [1, 4, 3]
    assert len(gone) == 6
