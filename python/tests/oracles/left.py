"""What a test leaves in the library."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from freshgo._native.process import counters


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Check that the library holds afterwards what it held before: no handle, no buffer, an empty pool."""
    gc.collect()
    before = counters()
    yield
    gc.collect()
    assert counters() == before


def fixture(scope: Any = "function") -> Any:
    """A fixture that checks this around each test, or around all tests of a module."""

    @pytest.fixture(autouse=True, scope=scope)
    def check() -> Iterator[None]:
        with nothing_left():
            yield

    return check
