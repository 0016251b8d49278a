"""Processes that are killed, ended, stopped and interrupted in long calls: ``kills.py``, which ``make kills`` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from seeds import seed as seed_of

pytest.importorskip("torch_geometric")
pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

DRIVER = Path(__file__).parents[1] / "oracles" / "kills.py"


@pytest.mark.explore
def test_kills(tmp_path: Path) -> None:
    """What is left is whole, and who begins again ends with what he would have had, to the bit."""
    environment = {**os.environ, "PYTHONPATH": str(DRIVER.parent)}
    command = [sys.executable, DRIVER, tmp_path, "1", str(seed_of(1))]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) >= 11, lines
    assert all(": 1 SIGKILL, 1 SIGTERM, 1 SIGINT, 1 SIGSTOP sent, " in line for line in lines), lines
