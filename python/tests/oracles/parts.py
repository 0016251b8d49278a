"""Which cases of a product run: all, or with ``FRESHGO_TEST_PART=3/NUMBER`` a third of them, drawn by NUMBER.

The cases of a test with several parameters run the same code. So ``make test`` runs each value of each parameter, and a
third of their combinations, which change with the commit, as those of Go do (``core/internal/explore``). Without the
variable every case runs, each night.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

GIVEN = os.environ.get("FRESHGO_TEST_PART", "1")
EVERY = int(GIVEN.partition("/")[0])
"""How many cases stand for one that runs."""
BY = GIVEN.partition("/")[2]
"""By what they are drawn."""


def _drawn(name: str) -> int:
    return zlib.crc32(f"{BY} {name}".encode())


def part(name: str, cases: Sequence[Case]) -> list[Case]:
    """Return some of the cases of a loop within a test, at least one, in their order."""
    first = _drawn(name)
    return [case for at, case in enumerate(cases) if (first + at) % min(EVERY, len(cases)) == 0]


def product(cases: dict[str, set[Any]]) -> set[str]:
    """Return the names of the cases of a test that run, of names with the values of the parameters: one for each value
    at least, and a part of all."""
    left = dict(sorted(cases.items(), key=lambda case: _drawn(case[0])))
    wanted = -(-len(left) // EVERY)
    unseen = set().union(*left.values())
    chosen: set[str] = set()
    while unseen or len(chosen) < wanted:
        name = max(left, key=lambda name: len(unseen & left[name]))
        unseen -= left.pop(name)
        chosen.add(name)
    return chosen


def _values(item: pytest.Function) -> set[Any]:
    """Return the values of a case: one of each parametrization, whose names may be several, and of each fixture."""
    left = dict(item.callspec.params)
    values = set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        values.add((*names, *(id(left.pop(name.strip())) for name in names)))
    return values | {(name, id(value)) for name, value in left.items()}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that this run does not draw."""
    if EVERY == 1:
        return
    cases: dict[str, dict[str, set[Any]]] = defaultdict(dict)
    for item in items:
        if hasattr(item, "callspec"):
            cases[item.nodeid.partition("[")[0]][item.nodeid] = _values(item)
    drawn = set().union(*map(product, cases.values()))
    left_out = [item for item in items if hasattr(item, "callspec") and item.nodeid not in drawn]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not hasattr(item, "callspec") or item.nodeid in drawn]
