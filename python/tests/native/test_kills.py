"""Processes that are killed, ended, stopped and interrupted in long calls: ``kills.py``, which ``make kills`` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from seeds import seed as seed_of

pytest.importorskip("torch_geometric")

DRIVER = Path(__file__).parents[1] / "oracles" / "kills.py"


@pytest.mark.explore
def test_kills(tmp_path: Path) -> None:
    """What is left is whole, and who begins again ends with what he would have had, to the bit."""
    environment = {**os.environ, "PYTHONPATH": str(DRIVER.parent)}
    works = ["convert over a store", "update", "propagate", "train"]  # make kills does all
    command = [sys.executable, DRIVER, tmp_path, "2", str(seed_of(1)), *works]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count(" sent, ") == 4 * len(works), answer.stdout
