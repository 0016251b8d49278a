"""What notebooks and terminals show: figures, one progress bar and its last line, short tracebacks."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import freshgo
from freshgo._args.progress import Bar, finish, progress_of

CELLS = [
    "import freshgo\nstore = freshgo.Store.open(PATH)\nloader = freshgo.Loader(store, [2, 2], batch_size=4)",
    "loader.plot()",
    "loader.plan().plot()",
    "%matplotlib inline\nloader.plot()",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nloader.plot()",
    "%config InlineBackend.figure_formats = ['svg']\nloader.plot()",
    "freshgo.Loader(store, [2, 2], 'trian', batch_size=4)",
    "store = freshgo.relayout(store, PATH + '.new', hotness='degree')",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells after they ran in a kernel of Jupyter."""
    for needed in ("nbclient", "nbformat", "ipykernel", "matplotlib"):
        pytest.importorskip(needed)
    import nbformat
    from nbclient import NotebookClient

    path = tmp_path_factory.mktemp("notebook") / "g.freshgo"
    data = {"edge_index": torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), "x": torch.ones(4, 2), "train_idx": [0, 1]}
    data["splits"] = {"train": data.pop("train_idx")}
    freshgo.convert(data, path, progress=False).close()
    made = [nbformat.v4.new_code_cell(cell.replace("PATH", repr(str(path)))) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=made)
    NotebookClient(notebook, timeout=120, allow_errors=True).execute()
    return list(notebook.cells)


def pictures(cell: Any) -> list[set[str]]:
    """The kinds of picture of each output."""
    data = [output["data"] for output in cell.outputs if "data" in output]
    assert data, cell.outputs
    for of in data:
        if "image/png" in of:
            assert base64.b64decode(of["image/png"]).startswith(b"\x89PNG")
    return [{kind for kind in of if kind.startswith("image/")} for of in data]


def test_a_figure_shows_itself_once(cells: list[Any]) -> None:
    assert pictures(cells[1]) == [{"image/png"}]
    assert pictures(cells[2]) == [{"image/png"}]
    assert pictures(cells[3]) == [{"image/png"}], "the inline backend is on"
    # The value of the cell, and at its end the figure of pyplot.
    assert pictures(cells[4]) == [{"image/png"}] * 2
    assert len(pictures(cells[5])) == 1


def test_a_misspelled_split_is_a_short_error(cells: list[Any]) -> None:
    (error,) = [output for output in cells[6].outputs if output.output_type == "error"]
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    assert error.ename == "InvalidArgumentError"
    assert "the store has no split 'trian'" in text
    assert 1 <= len(re.findall(r"^File .*freshgo/", text, re.MULTILINE)) <= 4


def test_a_conversion_ends_with_a_line(cells: list[Any]) -> None:
    text = "".join(output.text for output in cells[7].outputs if output.output_type == "stream")
    last = text.rsplit("\r", 1)[-1].strip()
    assert re.fullmatch(r"wrote \S+/g\.freshgo\.new: 4 nodes, 4 edges, [\d.]+ KiB in [\d.]+ s", last), text


def test_a_figure_can_be_pickled_and_saved(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import pickle

    from freshgo._plots.canvas import new_figure

    figure = new_figure(figsize=(2, 1))
    figure.subplots().plot([1, 2])
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_().startswith(b"\x89PNG")


def test_there_is_one_bar_and_a_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of(True) as report:
        assert isinstance(report, Bar)
        for stage in ("one", "two", "three"):
            for done in (0, 5, 10):
                report(stage, done, 10)
            assert report._bar.n == 10 and report._bar.total == 10
        report("four", 5, 0)
        report._bar.refresh()
        bar = report._bar
        finish(report, "inner", "is replaced")
        finish(report, tmp_path / "x", "3 rows")
    assert bar.disable  # tqdm has closed it
    said = capsys.readouterr().err
    assert all(stage in said for stage in ("one", "two", "three")) and "four: 5.00 [" in said
    assert re.fullmatch(rf"wrote {re.escape(str(tmp_path))}/x: 3 rows in [\d.]+ s", said.rsplit("\r", 1)[-1].strip())


def test_a_call_that_fails_writes_no_last_line(store_path: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(freshgo.FreshgoError):
        freshgo.relayout(store_path, store_path, hotness="degree")
    assert "wrote" not in capsys.readouterr().err


def test_every_call_that_writes_ends_with_one_line(
    graph: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb")
    pyg = pytest.importorskip("torch_geometric.nn")
    pandas = pytest.importorskip("pandas")
    data = {"edge_index": graph["edge_index"], "x": graph["x"]}
    columns = np.asarray(graph["x"]).shape[1]
    model = pyg.GraphSAGE(columns, 4, num_layers=2, out_channels=3).eval()
    table = freshgo.Table(pandas.DataFrame({"source": [1, 2, 3], "target": [2, 3, 1]}), src="source", dst="target")
    nodes = freshgo.Table(pandas.DataFrame({"id": [1, 2, 3], "a": [0.5, 1.5, 2.5]}), id="id", features=["a"])
    store = tmp_path / "a"
    for name, call in {
        "a": lambda: freshgo.convert(data, store),
        "b": lambda: freshgo.relayout(store, tmp_path / "b", hotness="degree"),
        "c": lambda: freshgo.update(store, tmp_path / "c", drop=["x"]),
        "d": lambda: freshgo.append(tmp_path / "c", tmp_path / "d", nodes={"num_nodes": 2}),
        "e": lambda: freshgo.shard(store, tmp_path / "e", parts=2, hotness="degree"),
        "t": lambda: freshgo.convert_tables(nodes, table, tmp_path / "t"),
        "o.npy": lambda: freshgo.infer(model, store, tmp_path / "o.npy"),
        "a ": lambda: freshgo.propagate(store),
    }.items():
        call()
        said = capsys.readouterr().err.rsplit("\r", 1)[-1].strip()
        assert re.fullmatch(rf"wrote {re.escape(str(tmp_path))}/{re.escape(name.strip())}: .+ in [\d.]+ s", said), name
