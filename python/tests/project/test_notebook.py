"""The notebooks of examples/ are stored with their outputs, and these are what their code still gives.

Every notebook's code runs here without a kernel, those of minutes on less; `-m long` executes them as they are.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
import warnings
from typing import Any

import pytest
import scripts

EXAMPLES = scripts.ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))

LESS = {  # what is written in place of what, so that a run takes a second
    "history": [
        ("NODES, EDGES, WIDTH, CLASSES, HIDDEN = 40_000, 480_000, 32, 8, 32", "NODES, EDGES = 8_000, 64_000"),
        ("\nrng = ", "\nWIDTH, CLASSES, HIDDEN = 32, 8, 16\nrng = "),
        ("order[:1600]", "order[:600]"),
        ('"num_neighbors": [6, 5, 4]', '"num_neighbors": [3, 2, 2]'),
        ("epochs=4", "epochs=1"),
        ("48 batches and", "16 batches and"),
        ("len(losses) == 24", "len(losses) == 8"),
        ("48 if state is None else 24", "16 if state is None else 8"),
        ("whole[24:]", "whole[8:]"),
    ],
    "policies": [("300_000, 3_000_000, 64", "20_000, 200_000, 64")],
    "node_classification": [("10_000, 256, 8", "3_000, 256, 8")],
    "tables": [("6_000, 6", "600, 6")],
    "heterogeneous": [("8_000, 3_000, 40, 5", "800, 300, 40, 5")],
    "inference": [("10_000, 32, 8", "1_000, 32, 8")],
    "temporal": [("range(15)", "range(2)")],
    "embeddings": [("2_000, 1_000, 20, 12, 16", "400, 200, 10, 12, 8")],
    "links": [("3_000, 24_000, 60, 32", "600, 3_000, 60, 32")],
}
SELDOM = {"several_processes": r"^run = .*\n(?:.*\n)*"}
"""Code that starts processes: only the long test runs it, and test_ddp_example the like of it."""

NEEDS = {"tables": ("duckdb", "pyarrow", "pandas")}


def read(name: str) -> Any:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def writer() -> Any:
    """docs/site/notebooks.py, by which outputs are stored."""
    return scripts.load("docs/site/notebooks.py")


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


def test_every_notebook_has_the_outputs_of_its_code() -> None:
    if not NAMES:
        pytest.skip("the notebooks are not beside the tests")
    for name in NAMES:
        notebook, size = read(name), (EXAMPLES / f"{name}.ipynb").stat().st_size
        again = f"python docs/site/notebooks.py examples/{name}.ipynb"
        assert notebook.metadata.get("outputs_of") == writer().digest(notebook), f"its code was changed: {again}"
        assert printed(notebook), name
        assert size < 120_000, f"{name}: {size} bytes; smaller figures, fewer rows"
        shown = "".join(str(output.get("text") or output.get("data", {})) for output in outputs(notebook))
        assert not re.search(r"/(tmp|home|root|mnt|work|usr|var)/", shown), f"{name} names this machine"
        assert not re.search(r"Error\b|Warning\b", printed(notebook)), name


def shape(text: str) -> list[str]:
    """The lines of a text without figures: two runs of one code on two machines have the same."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "#", writer().tidy(text))  # the id of a store
    lines = [" ".join(re.sub(r"-?\d[\d.,]*( [KMG]iB)?", "#", line).split()) for line in text.splitlines()]
    return [line for before, line in zip(["", *lines], lines, strict=False) if line != before]


def code_of(notebook: Any, name: str) -> str:
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    code = code.replace("%matplotlib inline\n", "")
    for old, new in LESS.get(name, ()):
        assert old in code, f"{name} has no {old!r} any more"
        code = code.replace(old, new)
    return code


@pytest.mark.parametrize("name", NAMES)
def test_the_code_prints_what_is_stored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("matplotlib", "torch_geometric", *NEEDS.get(name, ())):
        pytest.importorskip(module)
    import matplotlib.pyplot as plt

    notebook = read(name)
    code, expected = code_of(notebook, name), shape(printed(notebook))
    if name in SELDOM:
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        left_out = [cell for cell in cells if re.search(SELDOM[name], cell.source, re.MULTILINE)]
        assert len(left_out) == 1
        code = code.replace(re.search(SELDOM[name], left_out[0].source + "\n", re.MULTILINE)[0].rstrip("\n"), "")
        said = shape("".join(output["text"] for output in left_out[0].outputs))
        expected = [line for line in expected if line not in said]
    monkeypatch.setattr(plt, "show", lambda: None)
    with contextlib.redirect_stdout(io.StringIO()) as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, name, "exec"), {"__name__": name})
    plt.close("all")
    assert shape(text.getvalue()) == expected


def check_policies(policies: Any) -> None:
    rates = percentages(policies, "reads", "%")
    assert rates["belady"] == min(rates.values())
    assert "the batches are the same" in printed(policies)
    shown = [output["data"] for output in outputs(policies) if "data" in output]
    assert any("predicted" in data.get("text/html", "") for data in shown), "the plan explains itself"
    assert len(pictures(policies)) == 2
    assert all(len(picture) > 4_000 for picture in pictures(policies))


def check_history(history: Any) -> None:
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
    assert all(len(picture) > 4_000 for picture in pictures(history))


def check_node_classification(notebook: Any) -> None:
    assert percentages(notebook, "accuracy", "%")["test"] > 60, "an eighth would be chance"
    assert len(pictures(notebook)) == 1


def check_tables(notebook: Any) -> None:
    assert float(re.search(r"(\d+)% of the hobbies", printed(notebook))[1]) > 60, "a sixth would be chance"


def check_heterogeneous(notebook: Any) -> None:
    assert percentages(notebook, "accuracy", "%")["test"] > 60, "a fifth would be chance"


def check_links(notebook: Any) -> None:
    assert float(re.search(r"AUC (\S+)", printed(notebook))[1]) > 0.7


def check_embeddings(notebook: Any) -> None:
    text = printed(notebook)
    for name in ("LightGCN", "GraphSAGE"):
        first, last = re.search(rf"{name}: recall@20 (\d+)% after one epoch, (\d+)% at the end", text).groups()
        assert int(last) > int(first) > 2, "chance"
        assert f"{name}: largest difference from memory: 0.0 of a row, 0.0 of a loss" in text
    assert len(pictures(notebook)) == 1


def check_temporal(notebook: Any) -> None:
    found = re.findall(r"trained (with times|without).* future (\d+)%, on the day (\d+)%", printed(notebook))
    (_, _, earnest), (_, splendid, worthless) = found
    assert int(splendid) > int(earnest) > int(worthless)


def check_inference(notebook: Any) -> None:
    every, sampled = (float(a) for a in re.findall(r"accuracy \D*([\d.]+)%", printed(notebook)))
    assert every > sampled > 50


def check_several_processes(notebook: Any) -> None:
    text = printed(notebook)
    assert "pad    rank 0: [0, 2, 4, 6, 8, 10]  rank 1: [1, 3, 5, 7, 9, 0]" in text
    assert "epoch 2: 6 steps on each rank" in text
    assert "three ranks make [6, 7, 8, 9, 10]" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_what_it_promises(name: str) -> None:
    globals()[f"check_{name}"](read(name))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_as_it_is(name: str) -> None:
    pytest.importorskip("nbclient")
    executed = writer().execute(EXAMPLES / f"{name}.ipynb")
    globals()[f"check_{name}"](executed)
    assert shape(printed(executed)) == shape(printed(read(name)))
    assert not any("freshgo" in o["text"] for o in outputs(executed) if o.get("name") == "stderr")
