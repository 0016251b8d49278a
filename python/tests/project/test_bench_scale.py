"""The benchmark of graphs of the size of real ones in short: its shapes, its stages, its rivals and its picture."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import policy_oracle
import pytest
import torch

from freshgo import Store

FOLDER = Path(__file__).resolve().parents[3] / "bench" / "scale"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not beside the tests")

FRACTION = {"papers": 1e-3, "mag": 1e-4}
MEMORY = {"papers": "6MiB", "mag": "26MiB"}
COLUMNS = {"papers": 64, "mag": 768}


@pytest.fixture(params=["papers", "mag"])
def task(request: pytest.FixtureRequest, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The epochs of a small graph, converted."""
    run = bench("run")
    command = ["run.py", str(tmp_path), "--shape", request.param, "--fraction", str(FRACTION[request.param])]
    monkeypatch.setattr("sys.argv", [*command, "--batch-size", "16", "--batches", "6", "--rival-batches", "2"])
    task = run.task_of(run.parsed(), MEMORY[request.param])
    assert task.shape.columns == COLUMNS[request.param]
    task.shape.write(tmp_path)
    run.converted(task)
    return task


def written(shape: Any, folder: Path) -> dict[Any, np.ndarray]:
    return {name: np.array(relation.index(folder)) for name, relation in shape.relations.items()}


def test_edges_and_rows_are_functions_of_their_numbers(task: Any) -> None:
    shape, folder = task.shape, task.folder
    x = np.load(folder / "x.npy")
    assert np.array_equal(x, shape.row(np.arange(shape.nodes)))
    assert len(np.unique(x, axis=0)) == shape.nodes
    for name, index in written(shape, folder).items():
        relation = shape.relations[name]
        edges, ends = relation.edges, index[::-1] if relation.reverse else index
        assert np.array_equal(np.stack(edges.edge(np.arange(edges.count))), ends)
        assert (np.diff(ends[1]) >= 0).all()
        node = np.arange(edges.regular)
        skewed, at = edges.into(node)
        assert np.array_equal(skewed, ends[0]) and np.array_equal(node[at], ends[1])
        pairs = np.random.default_rng(0).integers((edges.skewed, edges.regular), size=(500, 2)).T
        known = set(zip(*ends.tolist(), strict=True))
        assert edges.has(*pairs).tolist() == [pair in known for pair in zip(*pairs.tolist(), strict=True)]
        degrees = np.sort(np.bincount(ends[0], minlength=edges.skewed))
        assert degrees[-max(1, edges.skewed // 100) :].sum() > 0.2 * edges.count, "the skewed end is not skewed"


def test_the_reverse_of_a_relation_has_its_edges(task: Any) -> None:
    found = written(task.shape, task.folder)
    reversed_of = {name: found[name[2], f"rev_{name[1]}", name[0]] for name in found if name and name[1][:4] != "rev_"}
    assert len(reversed_of) == (3 if len(found) > 1 else 0)
    for name, index in reversed_of.items():
        assert np.array_equal(index, found[name][::-1])


def test_the_store_has_the_shape(bench: Any, task: Any) -> None:
    shape = task.shape
    with Store.open(task.store) as store:
        rows = bench("stages").stored_rows(store, "x", shape.owner)
        assert np.array_equal(rows, shape.row(np.arange(shape.nodes)))
        edges = {name: relation.edges.count for name, relation in shape.relations.items()}
        if shape.owner is None:
            assert {None: store.num_nodes} == shape.counts and {None: store.num_edges} == edges
        else:
            assert store.num_nodes_dict == shape.counts and store.num_edges_dict == edges


@pytest.mark.parametrize(
    ("task", "spoil"),
    [("papers", "x"), ("papers", "edge_index"), ("papers", "e_id"), ("mag", "x"), ("mag", "edge_index")],
    indirect=["task"],
)
def test_a_batch_that_differs_is_found(task: Any, spoil: str) -> None:
    shape = task.shape
    with Store.open(task.store) as store, task.loader(store, task.seeds()) as loader:
        batch = next(iter(loader))
    shape.check(batch)
    part = shape.part(batch, shape.owner if spoil == "x" else next(iter(shape.relations)))
    value = part[spoil]
    part[spoil] = value.roll(1, 0) if spoil != "edge_index" else torch.stack([value[0].roll(1), value[1]])
    with pytest.raises(AssertionError, match="rows differ" if spoil == "x" else "edges differ"):
        shape.check(batch)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found = map(json.loads, capsys.readouterr().out.splitlines())
    return [line for line in found if "stage" in line]


def test_epochs_have_their_figures_beside_the_floor(bench: Any, task: Any, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    bench("epochs").epochs(task)
    opened, first, *epochs = lines(capsys)
    assert opened["stage"] == f"open, {task.memory}" and first["batches"] == 1
    assert [line["epoch"] for line in epochs] == [1, 2] and all(line["batches"] == 6 for line in epochs)
    with Store.open(task.store) as store, task.loader(store, task.seeds()) as loader:
        rows = [sum(len(task.shape.part(of, task.shape.owner)) for of in loader.trace(number)) for number in (0, 1)]
    assert [line["rows"] for line in epochs] == rows
    for line in epochs:
        assert 0 < line["cold"] <= line["rows"]
        assert line["floor"] == bench("epochs").least(task.shape, line["cold"])


@pytest.mark.parametrize("row_bytes", [16, 128, 1536, 4096, 6144])
def test_the_floor_is_the_way_of_fewer_bytes(bench: Any, row_bytes: int) -> None:
    stages, epochs = bench("stages"), bench("epochs")
    first = np.arange(4096) * row_bytes
    pages = ((first + row_bytes - 1) // 4096 - first // 4096 + 1).sum()
    assert stages.floor_bytes(stages.random_reads(4096, row_bytes)) == 4096 * pages
    shape = types.SimpleNamespace(nodes=4096, row_bytes=row_bytes)
    for cold in (0, 1, 100, 2000, 4096, 40960):
        scan, random = row_bytes * (4096 + 2 * cold), stages.floor_bytes(stages.random_reads(cold, row_bytes))
        assert stages.floor_bytes(epochs.least(shape, cold)) == min(scan, random)
    assert "written" not in epochs.least(shape, 1)
    assert ("written" in epochs.least(shape, 40960)) == (row_bytes < 4096), "twice a row, or a row with its pages"


def test_policies_are_counted(
    bench: Any, task: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for a twentieth of the rows."""
    rivals, shape = bench("rivals"), task.shape
    with Store.open(task.store) as store, task.loader(store, task.seeds()) as loader:
        traces = [[shape.part(of, shape.owner).numpy() for of in loader.trace(number)] for number in (0, 1)]
    capacity = shape.nodes // 20
    capsys.readouterr()
    with Store.open(task.store) as store, task.loader(store, task.seeds(), memory=task.memory) as loader:
        room = rivals.room(loader, task.memory)
        assert 0 < room < rivals.parse_size("memory", task.memory) - rivals.kept(loader)
    monkeypatch.setattr(rivals, "room", lambda _loader, _memory: capacity * shape.row_bytes)
    rivals.policies(task)
    found = {(line["system"], line["epoch"]): line["floor"]["random"] for line in lines(capsys)}
    for number, trace in enumerate(traces, 1):
        accesses, hits = sum(map(len, trace)), sum(policy_oracle.belady(trace, capacity))
        assert found["Ginex, counted", number] == accesses - hits
        assert 0 < found["SIEVE, counted", number] <= accesses
    assert found["Ginex, counted", 1] < found["SIEVE, counted", 1]


def test_a_memory_map_has_what_lists_leave(
    bench: Any, task: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals, limits = bench("rivals"), []
    group = types.SimpleNamespace(held=lambda: 1000, limit=limits.append)
    monkeypatch.setattr(rivals.limited, "Group", lambda *names: group if names == ("a", "b") else None)
    monkeypatch.setenv(rivals.GROUP, '["a", "b"]')
    capsys.readouterr()
    rivals.mapped(task)
    opened, mapped = lines(capsys)
    memory = rivals.parse_size("memory", task.memory)
    assert limits == [1000 + memory - opened["floor"]["read"] + rivals.SLACK]
    assert mapped["batches"] == 2 and mapped["system"] == "memory map"
    with Store.open(task.store) as store, task.loader(store, task.seeds()) as loader:
        trace = [task.shape.part(of, task.shape.owner) for of in loader.trace(0)]
    assert mapped["rows"] == sum(map(len, trace[:2]))


def test_graphbolt_gets_the_graph(
    bench: Any, task: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of an adapter in the place of GraphBolt's, which keeps the graph that it has read."""
    run, rivals, shape = bench("run"), bench("rivals"), task.shape
    (task.folder / "graphbolt.py").write_text(
        f"import sys\nsys.path.insert(0, {str(FOLDER.parent / 'adapters')!r})\nfrom serve import serve\n"
        "def make(graph):\n    def epoch():\n        for part in graph.seeds.reshape(-1, graph.batch_size):\n"
        "            yield part, graph.x[part]\n    return epoch\nserve('GraphBolt', lambda: None, make)\n"
    )
    monkeypatch.setattr(rivals.others, "HERE", task.folder)
    assert rivals.others.installed(None, ("graphbolt",)) == {"graphbolt": sys.executable}
    rivals.write_graphbolt(task)
    capsys.readouterr()
    rivals.graphbolt(run.task_of(run.parsed(), task.memory, sys.executable))
    (line,) = lines(capsys)
    assert (line["batches"], line["rows"], line["system"]) == (2, 32, "GraphBolt")
    monkeypatch.syspath_prepend(str(FOLDER.parent / "adapters"))
    graph = bench("serve").Graph.read(rivals.graph_of(task))
    first = dict(zip(shape.counts, np.cumsum([0, *shape.counts.values()]), strict=False))
    wanted: list[tuple[int, int, int]] = []
    for place, (name, (source, target)) in enumerate(written(shape, task.folder).items()):
        from_, to = (first[name[0]], first[name[2]]) if name else (0, 0)
        wanted += zip((target + to).tolist(), [place] * len(source), (source + from_).tolist(), strict=True)
    target = np.repeat(np.arange(len(graph.indptr) - 1), np.diff(graph.indptr))
    place_of = np.zeros(len(target), np.uint8) if graph.edge_types is None else graph.edge_types
    found = list(zip(target.tolist(), place_of.tolist(), graph.indices.tolist(), strict=True))
    assert sorted(found) == sorted(wanted)
    assert [key[:2] for key in found] == sorted(key[:2] for key in found), "edges are not in the order of their types"
    if shape.owner is None:
        assert graph.types is None
    else:
        assert list(graph.types["nodes"].items()) == list(shape.counts.items()) and graph.types["owner"] == shape.owner
    lists = len(target) * (8 + bool(shape.owner)) + 8 * len(graph.indptr)
    assert graph.cache == max(0, rivals.parse_size("memory", task.memory) - lists - 4 * shape.nodes)


def measured_line(system: str, epoch: int, **figures: Any) -> dict[str, Any]:
    floor = {"floor_bytes": 8e6, "floor_seconds": 0.5}
    return {"system": system, "memory": "1GiB", "epoch": epoch, "batches": 4, **floor, **figures}


def test_a_picture_has_batches_beside_floor_and_rivals(bench: Any, tmp_path: Path) -> None:
    picture, line = bench("picture"), measured_line
    moved = {"read_bytes": 3e6, "write_bytes": 1e6, "seconds": 0.2}
    measured = [
        {"stage": "open"},
        line("freshgo", 1, **moved) | {"batches": 1},
        line("freshgo", 1, **moved),
        line("freshgo", 2, **moved),
        line("Ginex, counted", 2),
    ]
    assert picture.table(measured)["rows"] == [
        ["1", "freshgo, 1GiB", 2.0, 100.0],
        ["1", "floor, 1GiB", 2.0, 125.0],
        ["2", "freshgo, 1GiB", 1.0, 50.0],
        ["2", "floor, 1GiB", 2.0, 125.0],
        ["2", "Ginex, counted, 1GiB", 2.0, 125.0],
    ]
    picture.draw({"shape": "mag-0.1-768", "lines": measured}, tmp_path / "drawn.svg")
    drawn = (tmp_path / "drawn.svg").read_text()
    for text in ("mag-0.1-768: MB a batch", "mag-0.1-768: ms a batch", "freshgo, 1GiB", "Ginex, counted, 1GiB"):
        assert text in drawn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "mag", "--stages", "verify"], "--unsorted and --stages are of --shape papers, got --shape mag"),
        (["--shape", "mag", "--unsorted"], "--unsorted and --stages are of --shape papers, got --shape mag"),
        (["--stages", "verify,infr"], "--stages infr: expected one of propagate, infer"),
    ],
)
def test_options_that_a_shape_lacks(
    bench: Any, options: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "folder", *options])
    with pytest.raises(SystemExit):
        bench("run").parsed()
    assert message in capsys.readouterr().err


def test_parts_of_a_run(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts run in their order with their limits, arrays go once the store is there, and figures name no folder."""
    run, parts = bench("run"), []

    class Runner:
        def __init__(self, folder: Path, script: str, arguments: list[str]) -> None:
            self.lines: list[dict[str, Any]] = []
            self.failed: list[str] = []
            self.rates = {"random_iops": 1.0}

        def run(self, part: str, limit: int | None) -> None:
            parts.append((part, limit))
            if part.startswith("convert"):
                run.converted(run.task_of(run.parsed(), part.partition("=")[2]))
            elif part.startswith("epochs"):
                self.lines.append(measured_line("freshgo", 1, read_bytes=3e6, write_bytes=1e6, seconds=0.2))

        def measure(self, store: Path) -> None:
            assert store.exists() and not list(tmp_path.glob("*.npy"))

    figures = tmp_path / "figures.json"
    options = ["--shape", "mag", "--fraction", "1e-4", "--memory", "1GiB", "--rival-batches", "2", "--with", "none"]
    monkeypatch.setattr("sys.argv", ["run.py", str(tmp_path), *options, "--json", str(figures)])
    monkeypatch.setattr(run, "Runner", Runner)
    run.main()
    limit = (1 << 30) + run.BESIDE
    rest = [("epochs=1GiB", limit), ("map=1GiB", limit), ("policies=1GiB", None)]
    assert parts == [("convert=1GiB", limit), *rest]
    told = json.loads(figures.read_text())
    assert told["command"] == f"python bench/scale/run.py DIR {' '.join(options)} --json FILE"
    assert (told["shape"], told["rates"]) == ("mag-0.0001-768", {"random_iops": 1.0})
    assert (tmp_path / "figures.svg").exists()
    parts.clear()
    run.main()
    assert parts == rest
