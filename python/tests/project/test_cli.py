"""The command line."""

from __future__ import annotations

import json
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
    assert main(["convert", str(source), both, "--overwrite", "--hotness", "degree"]) == 2
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
    assert "pass --overwrite to replace it" in capsys.readouterr().err
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
    assert "pass --overwrite to replace it" in capsys.readouterr().err
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
    assert f"On the command line: `freshgo {' | '.join(commands)}`" in " ".join(readme.read_text().split())


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
    assert main(["demo", "--out", str(tmp_path), "--nodes", "60000", "--epochs", "1"]) == 0
    out = capsys.readouterr().out
    assert "losses are equal to the last digit" in out
    assert "belady" in out
    assert "window      batch" in out, "the plan is shown"
    for picture in ("demo.png", "timeline.png"):
        assert (tmp_path / picture).stat().st_size > 10_000


WITHOUT_TORCH = """
import sys
from freshgo.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
print(status, *sorted({"torch", "numpy"} & set(sys.modules)))
"""


@pytest.mark.parametrize("command", ["inspect", "inspect --json", "verify", "--help", "convert --help", "infer --help"])
def test_commands_that_do_not_import_torch(store_path: Path, command: str) -> None:
    arguments = [*command.split(), *([] if "--help" in command else [store_path])]
    program = [sys.executable, "-I", "-c", WITHOUT_TORCH, *arguments]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) > 1
    assert said[-1] == "0"


def test_a_description_is_the_same_without_torch(store_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(store_path)]) == 0
    with freshgo.Store.open(store_path) as store:
        assert capsys.readouterr().out == f"{store.inspect()}\n"
        for name, info in store.tensors.items():
            n_bytes = torch.Size(info.shape).numel() * info.dtype.itemsize
            assert f"{name}: {str(info.dtype)[6:]} {list(info.shape)}, {freshgo._args.size.format_size(n_bytes)}" in (
                store.inspect()
            )


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A store of two types, with a tensor of edges."""
    graph = {
        "user": {"x": torch.arange(8.0).view(4, 2), "train_mask": torch.tensor([True, False, True, False])},
        "item": {"x": torch.arange(6.0).view(3, 2)},
        ("user", "buys", "item"): {"edge_index": torch.tensor([[0, 1, 3], [0, 2, 1]]), "w": torch.arange(3.0)},
    }
    freshgo.convert(graph, tmp_path / "typed", progress=False).close()
    return tmp_path / "typed"


def test_update(source: Path, typed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, changed = str(tmp_path / "plain"), str(tmp_path / "changed")
    assert main(["convert", str(source), plain, "--quiet"]) == 0
    x = np.load(source / "x.npy") + 1
    np.save(tmp_path / "new.npy", x)
    np.save(tmp_path / "ids.npy", np.array([3, 1]))
    given = ["--tensor", f"x={tmp_path}/new.npy", "--split", f"val={tmp_path}/ids.npy", "--drop", "y"]
    assert main(["update", plain, changed, *given]) == 0
    assert "update" in capsys.readouterr().out
    with freshgo.Store.open(changed) as store:
        assert store["x"].equal(torch.from_numpy(x))
        assert store.split("val").tolist() == [3, 1]
        assert "y" not in store.tensors
    np.save(tmp_path / "w.npy", np.full(3, 7.0, np.float32))
    given = ["--tensor", f"user__buys__item:w={tmp_path}/w.npy", "--drop", "item:x", "--overwrite"]
    assert main(["update", str(typed), str(typed), *given]) == 0
    with freshgo.Store.open(typed) as store:
        assert store["user", "buys", "item"]["w"].tolist() == [7.0] * 3
        assert not store["item"].tensors
    capsys.readouterr()
    assert main(["update", plain, changed]) == 2
    assert main(["update", plain, changed, "--drop", "y", "--drop", "user:y"]) == 2
    assert main(["update", plain, str(tmp_path / "z"), "--tensor", f"x={tmp_path}/nothing.npy"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert "nothing to change" in errors[0] and "a type for every name" in errors[1] and "nothing.npy" in errors[2]
    with pytest.raises(SystemExit):
        main(["update", plain, changed, "--drop", "user__buys:x"])


def test_append(source: Path, typed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, grown, new = str(tmp_path / "plain"), str(tmp_path / "grown"), tmp_path / "new"
    assert main(["convert", str(source), plain]) == 0
    x, edges = np.load(source / "x.npy"), np.load(source / "edge_index.npy")
    new.mkdir()
    np.save(new / "x.npy", x[:2])
    np.save(new / "y.npy", np.load(source / "y.npy")[:2])
    np.save(new / "train_mask.npy", np.array([True, False]))
    np.save(new / "edge_index.npy", np.array([[len(x), 0], [1, len(x) + 1]], edges.dtype))
    assert main(["append", plain, str(new), grown]) == 0
    with freshgo.Store.open(grown) as store:
        assert (store.num_nodes, store.num_edges) == (len(x) + 2, edges.shape[1] + 2)
        assert store["x"][-2:].equal(torch.from_numpy(x[:2]))
        assert store.split("train")[-1] == len(x)
    more = tmp_path / "more"
    (more / "item").mkdir(parents=True)
    (more / "user__buys__item").mkdir()
    np.save(more / "item" / "x.npy", np.ones((1, 2), np.float32))
    np.save(more / "user__buys__item" / "edge_index.npy", np.array([[2], [3]]))
    np.save(more / "user__buys__item" / "w.npy", np.array([5.0], np.float32))
    assert main(["append", str(typed), str(more), str(typed), "--overwrite"]) == 0
    with freshgo.Store.open(typed) as store:
        assert store.num_nodes_dict == {"user": 4, "item": 4}
        assert store["user", "buys", "item"]["w"].tolist() == [0.0, 1.0, 2.0, 5.0]
    capsys.readouterr()
    assert main(["append", plain, str(tmp_path / "nothing"), grown, "--overwrite"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


MODEL = """
import torch
from torch_geometric.nn import GraphSAGE

torch.manual_seed(0)
ready = GraphSAGE({width}, 4, num_layers=2, out_channels=3)


def make():
    return GraphSAGE({width}, 4, num_layers=2, out_channels=3)


nothing = 3
"""


def test_infer(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    store, out = str(tmp_path / "plain"), str(tmp_path / "out.npy")
    assert main(["convert", str(source), store]) == 0
    x, edges = torch.from_numpy(np.load(source / "x.npy")), torch.from_numpy(np.load(source / "edge_index.npy"))
    (tmp_path / "models_of_test.py").write_text(MODEL.format(width=x.size(1)))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    model = nn.GraphSAGE(x.size(1), 4, num_layers=2, out_channels=3).eval()
    torch.save(model.state_dict(), "weights.pt")
    torch.save(model, "whole.pt")
    with torch.no_grad():
        right = model(x, edges)
    for given in (["models_of_test:make", "--weights", "weights.pt"], ["whole.pt", "--allow-pickle"]):
        assert main(["infer", store, out, "--overwrite", "--json", "--model", *given]) == 0
        written = capsys.readouterr().out
        assert json.loads(written[written.rindex("{") :]) == {"path": out}
        torch.testing.assert_close(torch.from_numpy(np.load(out)), right)
    assert main(["infer", store, store, "--as", "emb", "--model", "models_of_test:ready", "--quiet"]) == 0
    with freshgo.Store.open(store) as opened:
        assert opened["emb"].shape == (len(x), 3)
    assert capsys.readouterr().out == ""
    for wrong, said in (
        (["whole.pt"], "needs --allow-pickle"),
        (["models_of_test:maek"], "did you mean 'make'?"),
        (["models_of_test:nothing"], "must be a torch.nn.Module, got int"),
        (["no_such_module:make"], "cannot import 'no_such_module'"),
        (["models_of_test:make", "--weights", "whole.pt"], "does not fit the model"),
    ):
        assert main(["infer", store, out, "--overwrite", "--model", *wrong]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert str(tmp_path) not in sys.path


def test_every_command_answers_as_json_or_not_at_all(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "s")
    for arguments in (
        ["convert", str(source), store],
        ["relayout", store, str(tmp_path / "r"), "--hotness", "degree"],
        ["propagate", store],
        ["shard", store, str(tmp_path / "p"), "--parts", "2", "--hotness", "degree"],
        ["update", store, str(tmp_path / "u"), "--drop", "y"],
        ["inspect", store],
        ["verify", store],
    ):
        assert main([*arguments, "--json", *([] if arguments[0] in ("inspect", "verify") else ["--overwrite"])]) == 0
        said = capfd.readouterr()
        found = json.loads(said.out)
        assert all(one["uuid"] for one in (found if isinstance(found, list) else [found]))
        assert said.err == ""
        assert main([*arguments, "--quiet", *([] if arguments[0] in ("inspect", "verify") else ["--overwrite"])]) == 0
        assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspct", "s"], "did you mean 'inspect'?"),
        (["inspect", "s", "--jsn"], "there is no option --jsn; did you mean '--json'?"),
        (["relayout", "a", "b", "--order", "comunity"], "did you mean 'community'?"),
        (["convert", "a", "b", "--dtype", "x=flaot16"], "did you mean 'float16'?"),
        (["propagate", "a", "--reduce", "maen"], "did you mean 'mean'?"),
        (["verify", "a", "b"], "unexpected arguments: b"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else None,
)
def test_misspelled_words_are_answered_with_the_nearest(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_a_traceback_is_printed_where_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "nothing"), "--traceback"]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("Traceback") and error[-1].startswith("freshgo: ")
