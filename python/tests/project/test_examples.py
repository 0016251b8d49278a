"""The scripts of examples/ need no data: without arguments they generate their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))

pytestmark = pytest.mark.skipif(not SCRIPTS, reason="the examples are not beside the tests")


def test_no_script_needs_a_directory_of_a_layout_of_its_own() -> None:
    for name in SCRIPTS:
        code = (EXAMPLES / name).read_text(encoding="utf-8")
        positional = re.findall(r"add_argument\(\"([a-z]\w*)\".*\)", code)
        optional = re.findall(r"add_argument\(\"([a-z]\w*)\", .*nargs=\"\?\"", code)
        assert positional == optional, f"{name} cannot be run without {set(positional) - set(optional)}"


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_on_what_it_generates(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    short = {"infer.py": [], "accelerate.py": []}.get(name, ["--epochs", "1"])
    command = [sys.executable, EXAMPLES / name, *short]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"\d", done.stdout)
