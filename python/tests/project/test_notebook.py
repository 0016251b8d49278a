"""The notebooks of examples/ run as they are, from the first cell to the last."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def execute(name: str) -> Any:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is stored without outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    return notebook


@pytest.fixture(scope="module")
def policies() -> Any:
    return execute("policies.ipynb")


@pytest.fixture(scope="module")
def history() -> Any:
    return execute("history.ipynb")


@pytest.fixture(params=["policies", "history"])
def executed(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def outputs(notebook: Any) -> list[dict[str, Any]]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def printed(notebook: Any) -> str:
    return "".join(output["text"] for output in outputs(notebook) if output["output_type"] == "stream")


def pictures(notebook: Any) -> list[bytes]:
    shown = [output["data"] for output in outputs(notebook) if "data" in output]
    return [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]


def percentages(notebook: Any, before: str, after: str) -> dict[str, float]:
    """The figure between two texts in each line that has both, by the line's first word."""
    lines = [line for line in printed(notebook).splitlines() if before in line and after in line.split(before)[1]]
    return {line.split()[0]: float(line.split(before)[1].split(after)[0]) for line in lines}


def test_policies_says_and_shows_what_it_promises(policies: Any) -> None:
    rates = percentages(policies, "reads", "%")
    assert rates["belady"] == min(rates.values())
    assert "the batches are the same" in printed(policies)
    shown = [output["data"] for output in outputs(policies) if "data" in output]
    assert any("predicted" in data.get("text/html", "") for data in shown), "the plan explains itself"
    assert len(pictures(policies)) == 2
    assert all(len(picture) > 10_000 for picture in pictures(policies))


def test_history_says_and_shows_what_it_promises(history: Any) -> None:
    text = printed(history)
    for promise in ("called by hand, the model has the same", "those without history", "the resumed run is the same"):
        assert promise in text
    accuracy = percentages(history, "accuracy ", "%")
    assert accuracy["with"] > accuracy["without"] - 5, "on a graph with one answer for each node"
    spans = [line for line in text.splitlines() if line.startswith("t_stale")]
    curve = [float(line.split("rows saved")[1].split("%")[0]) for line in spans]
    assert len(curve) == 5
    assert curve == sorted(curve), "what may be older saves more"
    saved = percentages(history, "rows saved", "%")
    assert saved["gradient"] < saved["performance"] < saved["gas"]
    assert len(pictures(history)) == 3
    assert all(len(picture) > 10_000 for picture in pictures(history))


def test_freshgo_warns_of_nothing(executed: Any) -> None:
    assert not any("freshgo" in o["text"] for o in outputs(executed) if o.get("name") == "stderr")
