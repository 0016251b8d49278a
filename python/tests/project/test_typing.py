"""What pyright knows of options; what mypy knows, `make lint` checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONS = Path(__file__).with_name("typed_options.py")


def test_pyright_refuses_planted_mistakes_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="pyright is not installed")
    pytest.importorskip("lightning")
    lines = OPTIONS.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines) if "# type: ignore[" in line}
    assert len(wrong) > 40
    (tmp_path / "planted.py").write_text("\n".join(line.partition("# type: ignore[")[0] for line in lines))
    settings = {"typeCheckingMode": "standard", "reportMissingModuleSource": "none"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", tmp_path, "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["generalDiagnostics"]
    assert {one["range"]["start"]["line"]: one["message"] for one in found}.keys() == wrong
