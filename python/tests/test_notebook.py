"""The notebooks of examples/ run as they are, from the first cell to the last."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def executed() -> Any:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "policies.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is stored without outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    return notebook


def outputs(notebook: Any) -> list[dict[str, Any]]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def test_it_says_and_shows_what_it_promises(executed: Any) -> None:
    printed = "".join(output["text"] for output in outputs(executed) if output["output_type"] == "stream")
    shown = [output["data"] for output in outputs(executed) if "data" in output]
    rates = {
        line.split()[0]: float(line.split("reads")[1].split("%")[0]) for line in printed.splitlines() if "reads" in line
    }
    assert rates["belady"] == min(rates.values())
    assert "the batches are the same" in printed
    assert any("predicted" in data.get("text/html", "") for data in shown), "the plan explains itself"
    pictures = [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]
    assert len(pictures) == 2
    assert all(len(picture) > 10_000 for picture in pictures)


def test_freshgo_warns_of_nothing(executed: Any) -> None:
    assert not any("freshgo" in o["text"] for o in outputs(executed) if o.get("name") == "stderr")
