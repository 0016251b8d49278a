"""What tests of the benchmark programs share."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a benchmark of the module's ``FOLDER`` by its name. The imports are forgotten afterwards."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr(sys, "path", [str(request.module.FOLDER), *sys.path])
    monkeypatch.delitem(sys.modules, "graphs", raising=False)  # the tests have one too
    known = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(BENCH)):
            del sys.modules[name]
