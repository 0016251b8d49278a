"""The example in C: compiled against the headers alone, linked with the installed library, run over a store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import freshgo

CSRC = Path(__file__).resolve().parents[3] / "csrc"
NODES, EDGES, COLUMNS, HOPS, BATCH_SIZE = 200, 2000, 7, 2, 64

pytestmark = pytest.mark.skipif(not (CSRC / "example").exists(), reason="the example is not beside the tests")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("there is no C compiler")
    output = tmp_path_factory.mktemp("example") / "batches"
    library = Path(freshgo.__file__).with_name("libfreshgo.so")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{CSRC / 'include'}"]
    subprocess.run([compiler, *flags, CSRC / "example" / "batches.c", library, "-o", output], check=True)
    return output


def run(program: Path, store: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, store], capture_output=True, text=True, timeout=60)


def test_it_prints_the_description_and_the_shapes_of_three_batches(program: Path, tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    graph = {
        "x": torch.randn(NODES, COLUMNS, generator=g),
        "edge_index": torch.randint(NODES, (2, EDGES), generator=g),
    }
    freshgo.convert(graph, tmp_path / "graph.freshgo", progress=False).close()
    done = run(program, tmp_path / "graph.freshgo")
    assert (done.returncode, done.stderr) == (0, "")
    description, *lines = done.stdout.splitlines()
    assert json.loads(description)["num_edges"] == EDGES
    batches: list[dict[str, list[int]]] = []
    for line in lines:
        if line.startswith("  "):
            name, shape = line.split(maxsplit=1)
            batches[-1][name] = json.loads(shape)
        else:
            assert line == f"batch {len(batches)}: {BATCH_SIZE} seeds"
            batches.append({})
    assert len(batches) == 3
    for batch in batches:
        nodes = batch["n_id"][0]
        assert batch["x"] == [nodes, COLUMNS]
        assert batch["edge_index"] == [2, batch["e_id"][0]]
        assert batch["input_id"] == [BATCH_SIZE] and batch["num_sampled_nodes"] == [HOPS + 1]


def test_it_reports_what_the_library_says(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path / "missing.freshgo")
    assert done.returncode == 1
    assert done.stderr.startswith("freshgo error 12: ") and "missing.freshgo" in done.stderr
