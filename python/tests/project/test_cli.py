"""The command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import freshgo
from freshgo.cli import main


@pytest.fixture
def source(graph: dict[str, Any], tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    for name in ("edge_index", "x", "y", "train_mask"):
        np.save(directory / f"{name}.npy", graph[name])
    np.save(directory / "test_idx.npy", graph["splits"]["test"])
    return directory


def test_convert_inspect_verify(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "g.freshgo")
    assert main(["convert", str(source), target, "--memory", "64MiB"]) == 0
    assert main(["inspect", target]) == 0
    first, second = capsys.readouterr().out.split(target)[1:]
    assert first.strip() == second.strip()
    assert "split    test:" in second
    assert main(["verify", target]) == 0
    assert "every block matches" in capsys.readouterr().out


def test_relayout(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, hot, both = (str(tmp_path / name) for name in ("plain", "hot", "both"))
    assert main(["convert", str(source), plain]) == 0
    options = ["--hotness", "expected", "--num-neighbors", "5,5", "--input-nodes", "train", "--memory", "64MiB"]
    assert main(["relayout", plain, hot, "--order", "hot+community", *options]) == 0
    assert main(["convert", str(source), both, "--relayout", "hot+community", *options]) == 0
    assert "order    rows" in capsys.readouterr().out
    assert main(["verify", hot]) == 0
    order = [(Path(path) / "order.bin").read_bytes() for path in (hot, both)]
    assert order[0] == order[1]
    with freshgo.Store.open(plain) as one, freshgo.Store.open(both) as other:
        assert one["x"].equal(other["x"])
    assert main(["convert", str(source), both, "--overwrite", "--hotness", "degree"]) == 1
    assert "need --relayout" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["relayout", plain, hot, "--order", "warm"])
    with pytest.raises(SystemExit):
        main(["relayout", plain, hot, "--num-neighbors", "many"])


def test_shard(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, out = str(tmp_path / "g"), tmp_path / "parts"
    assert main(["convert", str(source), store]) == 0
    capsys.readouterr()
    assert main(["shard", store, str(out), "--parts", "2", "--num-neighbors", "5,5", "--input-nodes", "train"]) == 0
    assert re.findall(r"part-\d|graph", capsys.readouterr().out) == ["graph", "part-0", "part-1"]
    for name in ("graph", "part-0", "part-1"):
        assert main(["verify", str(out / name)]) == 0
    with freshgo.Store.open(store) as whole:
        rows = [freshgo.Store.open(out / name)["x"] for name in ("part-0", "part-1")]
        assert torch.cat(rows).equal(whole["x"]) and rows[0].size(0) not in (0, whole.num_nodes)
    assert main(["shard", store, str(out), "--parts", "3"]) == 1
    assert "overwrite replaces it" in capsys.readouterr().err
    assert main(["shard", store, str(out), "--parts", "3", "--overwrite"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "parts", "source"]
    assert (out / "part-2").is_dir()
    assert main(["shard", store, store, "--parts", "2", "--overwrite"]) == 1
    assert "has no parts.json, so it is not replaced" in capsys.readouterr().err
    assert main(["shard", store, str(tmp_path / "many"), "--parts", "3001"]) == 1
    assert "parts must be at most 3000" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["shard", store, str(out), "--parts", "0"])


def test_propagate(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "g.freshgo")
    assert main(["convert", str(source), target]) == 0
    assert main(["propagate", target, "--reduce", "gcn", "--hops", "2", "--memory", "64MiB"]) == 0
    assert "gcn of 'x' over in-neighbours, 2 times" in capsys.readouterr().out
    assert main(["propagate", target, "--reduce", "gcn"]) == 1
    assert "overwrite replaces it" in capsys.readouterr().err
    assert main(["propagate", target, "--reduce", "gcn", "--overwrite"]) == 0
    assert main(["verify", target]) == 0


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "nothing")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("freshgo: ")
    assert "nothing" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["convert", "relayout"])
@pytest.mark.parametrize(("place", "said"), [("missing", "there is no directory"), ("file", "is not a directory")])
def test_a_store_in_no_directory(
    source: Path,
    store_path: Path,
    tmp_path: Path,
    command: str,
    place: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    graph = source if command == "convert" else store_path
    options = [] if command == "convert" else ["--hotness", "degree"]
    assert main([command, str(graph), str(tmp_path / place / "g.freshgo"), *options]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert str(tmp_path / place) in error
    assert error.count("\n") == 1
    assert ".partial" not in error


def test_as_module() -> None:
    answer = subprocess.run([sys.executable, "-m", "freshgo", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"freshgo {freshgo.__version__}\n{freshgo.library()}\n"


def test_the_readme_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    readme = Path(__file__).resolve().parents[3] / "README.md"
    if not readme.exists():
        pytest.skip("the tests run outside of the repository")
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    (\w+)(?: |$)", capsys.readouterr().out, re.MULTILINE)
    assert f"On the command line: `freshgo {' | '.join(commands)}`" in readme.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--nodes", "-5"],
        ["demo", "--nodes", "0"],
        ["demo", "--epochs", "0"],
        ["demo", "--epochs", "many"],
        ["demo", "--out", ""],
        ["verify", ""],
        ["inspect", ""],
        ["convert", "", "store"],
    ],
    ids=" ".join,
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert f"expected a {'path' if '' in arguments else 'whole number'}" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_geometric")
    pytest.importorskip("matplotlib")
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("freshgo: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("piped", [False, True])
def test_output_that_cannot_be_written(store_path: Path, piped: bool) -> None:
    command = f"{sys.executable} -m freshgo inspect {store_path} {'| true' if piped else '> /dev/full'}"
    answer = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert "Traceback" not in answer.stderr
    assert "Exception ignored" not in answer.stderr
    if not piped:
        assert answer.returncode == 1
        assert answer.stderr.startswith("freshgo: [Errno 28]")


def test_demo_of_few_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_geometric")
    pytest.importorskip("matplotlib")
    assert main(["demo", "--out", str(tmp_path), "--nodes", "1000", "--epochs", "1"]) == 0
    assert "losses are equal to the last digit" in capsys.readouterr().out


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_geometric")
    pytest.importorskip("matplotlib")
    assert main(["demo", "--out", str(tmp_path), "--nodes", "50000", "--epochs", "1"]) == 0
    out = capsys.readouterr().out
    assert "losses are equal to the last digit" in out
    assert "belady" in out
    assert "window      batch" in out, "the plan is shown"
    for picture in ("demo.png", "timeline.png"):
        assert (tmp_path / picture).stat().st_size > 10_000
