"""The Python of the pages of documentation runs: of guides as it is, of other pages after a graph and a model."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

PRELUDE = """
import torch
import torch.nn.functional as F
from freshgo import History, Loader, convert

g = torch.Generator().manual_seed(0)
data = {
    "x": torch.randn(400, 8, generator=g),
    "y": torch.randint(4, (400,), generator=g),
    "train_mask": torch.rand(400, generator=g) < 0.2,
    "edge_index": torch.randint(400, (2, 4000), generator=g),
}
"""
PYG = """
from torch_geometric.nn import GraphSAGE, SAGEConv

model = GraphSAGE(8, 16, num_layers=3, out_channels=4)
optimizer = torch.optim.Adam(model.parameters())
"""
LIGHTNING = """
import lightning


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = GraphSAGE(8, 16, num_layers=2, out_channels=4)

    def training_step(self, batch, index):
        return self.net(batch.x, batch.edge_index).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


lightning_model = Model()
options = {"max_epochs": 1, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = lightning.Trainer(accelerator="cpu", **options)
"""
STORE = 'store = convert(data, "graph.freshgo", overwrite=True, progress=False)\n'

PAGES = {  # what a page takes for granted, and how many pieces of code it has
    "docs/data.md": ("", 6),
    "docs/links.md": ("", 4),
    "docs/samplers.md": ("", 9),
    "docs/types.md": ("", 8),
    "docs/distributed.md": (PRELUDE + PYG + "net = model\n" + LIGHTNING, 4),
    "docs/ops.md": (PRELUDE + PYG + STORE + "lins = [torch.nn.Linear(8, 8) for _ in range(3)]\n", 2),
    "docs/inference.md": (PRELUDE + PYG + STORE, 3),
    "docs/precomputed.md": (PRELUDE + PYG + STORE, 1),
    "docs/how-to/budgets.md": ("", 3),
    "docs/how-to/from-tables.md": ("", 6),
    "docs/how-to/reproduce.md": ("", 2),
    "docs/how-to/from-neighborloader.md": ("", 2),
    "docs/how-to/watch.md": ("", 4),
    "docs/how-to/from-graphbolt.md": ("", 1),
    "docs/start.md": ("", 1),
    "README.md": ("", 1),
}
ELSEWHERE = {  # the other pages with Python, and what runs it or why nothing does
    "docs/history.md": "test_the_models_of_the_page_on_history",
    "docs/format.md": "store_oracle.py reads every store of the tests with it",
    "docs/device.md": "it needs a GPU",
}


def test_every_page_with_python_is_run_or_says_why_not() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if not pages[0].exists():
        pytest.skip("the documentation is not beside the tests")
    fences = {str(page.relative_to(ROOT)): re.findall(r"^```(.+)$", page.read_text(), re.MULTILINE) for page in pages}
    others = {"{eval-rst}", "{command-help}", "toml"}  # directives of the site; the file whose form a page describes
    assert {kind for kinds in fences.values() for kind in kinds} <= {"python", *others}
    assert {page for page, kinds in fences.items() if "python" in kinds} == {*PAGES, *ELSEWHERE}


def test_pictures_show_the_measured_figures(tmp_path: Path) -> None:
    pictures = [ROOT / "docs" / f"{name}.svg" for name in ("parts", "speed")]
    if not pictures[0].exists():
        pytest.skip("the documentation is not beside the tests")
    subprocess.run([sys.executable, ROOT / "bench" / "readme" / "draw.py", tmp_path], check=True)
    assert sorted(drawn.name for drawn in tmp_path.iterdir()) == [picture.name for picture in pictures]
    for picture in pictures:
        assert (tmp_path / picture.name).read_text() == picture.read_text()


def pieces(page: str) -> list[str]:
    path = ROOT / page
    if not path.exists():
        pytest.skip("the documentation is not beside the tests")
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def run(code: str, page: str) -> None:
    scope: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a page shows may warn
        exec(compile(code, page, "exec"), scope)
    for value in scope.values():
        if type(value).__name__ in ("Loader", "LinkLoader", "Store"):
            value.close()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_from_its_first_line_to_its_last(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, count = PAGES[page]
    code = pieces(page)
    assert len(code) == count
    if "torch_geometric" in before + "".join(code):
        pytest.importorskip("torch_geometric")
    if "Table(" in "".join(code):
        pytest.importorskip("duckdb")
    if "lightning" in before:
        pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    run("\n".join([before, *code]), page)


def test_the_models_of_the_page_on_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training loop, then the insides of two ``forward`` methods, without and with types."""
    page = "docs/history.md"
    loop, forward, typed = pieces(page)
    pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    run(PRELUDE + PYG + STORE + loop, page)
    method = (
        "class Model(torch.nn.Module):\n    def forward(self, history, batch):\n{}        return h\n\nmodel = Model()\n"
    )
    for inside, convs, made in (
        (forward, "[SAGEConv(8, 8) for _ in range(2)]", "data, [4, 4]"),
        (typed, "[HeteroConv({r: SAGEConv((8, 8), 8) for r in [FROM, BACK]}) for _ in range(2)]", "typed, [4, 4], 'a'"),
    ):
        body = "".join(f"        {line}\n" for line in inside.splitlines())
        run(
            PRELUDE
            + PYG
            + "from torch_geometric.nn import HeteroConv\n"
            + "FROM, BACK = ('a', 'to', 'b'), ('b', 'rev_to', 'a')\n"
            + "edges = torch.randint(400, (2, 2000), generator=g)\n"
            + "typed = {'a': {'x': data['x']}, 'b': {'x': data['x']}, FROM: edges, BACK: edges.flip(0)}\n"
            + method.format(body)
            + f"model.convs = torch.nn.ModuleList({convs})\n"
            + "history = History(p_grad=1.0, t_stale=1.0, policy='gradient', memory='1MiB')\n"
            + f"loader = Loader({made}, batch_size=50, shuffle=True, history=history)\n"
            + "for batch in loader:\n"
            + "    h = model(history, batch)\n"
            + "    h = h['a'] if isinstance(h, dict) else h\n"
            + "    assert h.size(0) == 50\n"
            + "    h.square().sum().backward()\n"
            + "    history.update()\n"
            + "assert history.stats()['layers'][0]['admitted'] > 0\n",
            page,
        )


def test_every_promise_has_its_tests() -> None:
    """Tests and commands that docs/reliability.md names exist."""
    page = ROOT / "docs" / "reliability.md"
    if not page.exists() or not (ROOT / "core").exists():
        pytest.skip("the documentation is not beside the tests")
    go = "".join(path.read_text() for room in ("core", "capi") for path in (ROOT / room).rglob("*_test.go"))
    python = "".join(path.read_text() for path in (ROOT / "python" / "tests").rglob("test_*.py"))
    makefile = (ROOT / "Makefile").read_text()
    rows = [line.split("|")[1:-1] for line in page.read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if len(row) == 4 and row[1].strip() != "tests"]
    assert len(promises) > 5
    for promise, tests, command, figure in promises:
        names = re.findall(r"`(\w+)`", tests)
        assert names, promise
        for name in names:
            assert re.search(rf"func {name}\(|def {name}\(", go + python), name
        for target in re.findall(r"`make (\w+)", command):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        assert re.search(r"\d", figure), promise
