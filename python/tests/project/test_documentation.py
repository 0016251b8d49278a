"""The Python of the pages of documentation runs: every piece of a page, in order, and nothing before it."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]

PAGES = {  # how many pieces of code a page has
    "docs/data.md": 9,
    "docs/device.md": 1,
    "docs/embeddings.md": 4,
    "docs/distributed.md": 4,
    "docs/format.md": 1,
    "docs/history.md": 4,
    "docs/inference.md": 4,
    "docs/links.md": 4,
    "docs/ops.md": 2,
    "docs/precomputed.md": 1,
    "docs/samplers.md": 9,
    "docs/types.md": 8,
    "docs/how-to/budgets.md": 3,
    "docs/how-to/from-tables.md": 6,
    "docs/how-to/link-splits.md": 3,
    "docs/how-to/remote.md": 2,
    "docs/how-to/reproduce.md": 2,
    "docs/how-to/from-neighborloader.md": 2,
    "docs/how-to/watch.md": 5,
    "docs/how-to/from-graphbolt.md": 1,
    "docs/start.md": 1,
    "README.md": 1,
}


def test_every_page_with_python_is_run() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if not pages[0].exists():
        pytest.skip("the documentation is not beside the tests")
    fences = {str(page.relative_to(ROOT)): re.findall(r"^```(.+)$", page.read_text(), re.MULTILINE) for page in pages}
    others = {"{eval-rst}", "{command-help}", "toml"}  # directives of the site; the file whose form a page describes
    assert {kind for kinds in fences.values() for kind in kinds} <= {"python", *others}
    assert {page for page, kinds in fences.items() if "python" in kinds} == set(PAGES)


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
    code = "\n".join(pieces(page))
    assert len(pieces(page)) == PAGES[page]
    for word, needed in (("torch_geometric", "torch_geometric"), ("Table(", "duckdb"), ("lightning", "lightning")):
        if word in code:
            pytest.importorskip(needed)
    if page == "docs/device.md" and not torch.cuda.is_available():
        code = code.replace('device="cuda", device_cache="2GiB"', 'device="cpu"').replace('.to("cuda")', "")
    monkeypatch.chdir(tmp_path)
    run(code, page)


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
