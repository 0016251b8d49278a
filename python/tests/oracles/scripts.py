"""Programs of the checkout (examples, benchmarks, those of the site) as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load(script: str | Path, *, register: bool = False) -> Any:
    """Import a program by its path below the checkout; the test is skipped where there is none.

    ``register`` puts it into ``sys.modules``, where dataclasses and the programs beside it look for it.
    """
    path = ROOT / script
    if not path.is_file():
        pytest.skip(f"{script} is not beside the tests")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if register:
        sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
