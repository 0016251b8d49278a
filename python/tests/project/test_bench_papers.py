"""The benchmarks of the papers in short: on a small graph, every count as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import policy_oracle
import pytest
import torch

import freshgo

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "bench" / "papers"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not beside the tests")


class Tables(dict[str, list[list[Any]]]):
    """What a benchmark reports, in place of its ``Report``."""

    def add(self, name: str, columns: list[str], rows: list[list[Any]], part: str = "") -> None:
        assert all(len(row) == len(columns) for row in rows)
        self[name] = rows


def arguments(**given: object) -> Any:
    return type("Args", (), given)


def test_ginex_bytes(bench: Any) -> None:
    ginex = bench("ginex")
    w = ginex.Workload(bench("report").rmat(11, 16_000), batch_size=8, fanouts=[4, 4])
    assert w.each == 26
    read = ginex.bytes_read(w, 256, ginex.tenth(w), superbatch=4)
    assert read == {"map": 5140480, "degree": 2842624, "ginex": 5431296, "freshgo": 2613248, "epoch": 2158592}
    wide = ginex.bytes_read(w, 768, ginex.tenth(w), superbatch=4)
    assert wide == {"map": 8785920, "degree": 6426624, "ginex": 8146944, "freshgo": 5572608, "epoch": 5548032}
    assert w.pages(256, 50) == pages_by_hand(w, 256, 50)


def pages_by_hand(w: Any, width: int, capacity: int) -> int:
    """Pages that a page cache misses in the second epoch."""
    size = 4 * width
    touched = [
        torch.tensor(sorted({byte // 4096 for v in batch.tolist() for byte in (v * size, v * size + size - 1)}))
        for batch in w.trace
    ]
    hits, _ = policy_oracle.lru(touched, capacity)
    return sum(map(len, touched[w.each :])) - sum(hits[w.each :])


@pytest.mark.parametrize("width", [1, 100, 128, 256, 512, 768, 1024, 1500])
def test_pages_of_a_row(bench: Any, width: int) -> None:
    last = np.arange(1, 4097) * 4 * width - 1
    assert bench("ginex").pages_of_row(width) == (last // 4096 - (last + 1 - 4 * width) // 4096 + 1).mean()


def test_ginex_epochs(bench: Any, tmp_path: Path) -> None:
    tables = Tables()
    bench("ginex").epochs("rmat", bench("report").rmat(11, 16_000), tmp_path, tables, widths=(128,))
    counted = {(label, epoch): requests for _, label, epoch, requests, *_ in tables["epochs"]}
    expected = {("degree", 1): 44, ("degree", 2): 42, ("ginex", 1): 40, ("ginex", 2): 40}
    assert {key: n for key, n in counted.items() if key[0] != "freshgo"} == expected  # freshgo's depend on the disk
    assert list(counted)[-2:] == [("freshgo", 1), ("freshgo", 2)]
    assert not list(tmp_path.iterdir())


def test_fgnn_hits(bench: Any) -> None:
    fgnn = bench("fgnn")
    edges = bench("report").rmat(11, 16_000)
    weight = (torch.arange(16_000) % 7 + 1).float()
    found = {}
    for sampler in fgnn.SAMPLERS:
        w = fgnn.Workload(edges, weight, sampler, batches=16)
        rows, seconds = fgnn.hit_rows("rmat", sampler, w, epochs=4)
        found[sampler] = rows[2]
        assert len(rows) == len(fgnn.SHARES) and len(seconds) == 3 + len(fgnn.METRICS)
    assert found == {
        "uniform": ["rmat", "uniform", "10", 0.347, 0.9952, 0.9967, 0.9824, 0.9886, 0.9963, 0.9961],
        "weighted": ["rmat", "weighted", "10", 0.347, 0.9933, 0.9964, 0.9759, 0.9877, 0.9968, 0.9903],
        "walks": ["rmat", "walks", "10", 0.4883, 0.9255, "", 0.9764, 0.9881, 0.9955, 0.9947],
    }


def test_fgnn_cost(bench: Any) -> None:
    fgnn = bench("fgnn")
    edges, weight = bench("report").rmat(11, 16_000), (torch.arange(16_000) % 7 + 1).float()
    counted = {}
    for sampler in fgnn.SAMPLERS:
        w = fgnn.Workload(edges, weight, sampler, batches=4)
        _, _, of_an_epoch, counted[sampler], *_ = fgnn.cost_row("rmat", sampler, w)
        assert of_an_epoch > 0
    assert counted == {"uniform": 3.1, "weighted": 1.5, "walks": 2.2}  # of two epochs, of one, of two


def test_fgnn_similarity(bench: Any) -> None:
    first, second = torch.tensor([9, 4, 0, 1]), torch.tensor([6, 0, 4, 0])
    similarity = bench("fgnn").similarity
    assert similarity(first, second, 0.5) == 6 / 10  # the two most used are 0 and 1, and 0 and 2
    assert similarity(second, second, 0.5) == 1


def test_fgnn_staleness(bench: Any, tmp_path: Path) -> None:
    tables = Tables()
    asked = arguments(data=tmp_path, labelled="community:8200:16")
    bench("fgnn").staleness(asked, tables, bounds=(0, 2), epochs=1)
    (none, late, plain), (two, some, _) = tables["staleness"]
    assert (none, late, two) == (0, 0, 2)
    assert 0 <= some <= 2
    assert plain > 100 / 32  # of as many classes


def test_fgnn_pinsage(bench: Any, tmp_path: Path) -> None:
    tables = Tables()
    bench("fgnn").pinsage(arguments(data=tmp_path, labelled="community:8200:16"), tables, epochs=1)
    assert [row[1] for row in tables["pinsage"]] == [76_101, 84_496]
    assert all(row[2] > 100 / 32 for row in tables["pinsage"])


def test_fgnn_roles(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fgnn, tables = bench("fgnn"), Tables()
    factored = bench("factored")
    monkeypatch.setattr(factored, "CASES", {"training": factored.CASES["training"]})
    fgnn.roles(arguments(rounds=1), tables, nodes=10_000)  # which compares the losses of all roles
    samplers = {label: row[0] for _, label, *row in tables["roles"]}
    assert samplers.pop("auto") in (1, 2)
    assert samplers == {"1 of 2 sample": 1, "1 of 2 sample, without switching": 1, "2 of 2 sample": 2}


def test_fastgl_match_and_order(bench: Any) -> None:
    fastgl = bench("fastgl")
    edges = bench("report").rmat(11, 16_000)
    trace = fastgl.batches_of(edges, [3, 3], 50)
    degree = fastgl.degrees(trace, 1 << 11)
    sets = [set(batch.tolist()) for batch in trace]
    assert degree[3, 7] == len(sets[3] & sets[7]) / min(len(sets[3]), len(sets[7]))
    order = fastgl.greedy(degree)
    assert sorted(order) == list(range(len(trace)))
    assert order[1] == 1 + int(degree[0, 1:].argmax())
    assert fastgl.match_line(trace, 1 << 11) == [31.47, 32.05, 14.59]
    assert fastgl.reorder_line(trace, 1 << 11) == [0.711, 0.6765, 0.4691, 0.4674]


def test_fastgl_loader(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.freshgo"
    graph = {"edge_index": bench("report").rmat(11, 16_000), "x": torch.zeros(1 << 11, 32)}
    freshgo.convert(graph, path, progress=False).close()
    assert bench("fastgl").loader_line(path, 1 << 11, 16) == [0.3438, 0.3314, 0.2813, 0.2702]


def test_fastgl_operators(bench: Any, tmp_path: Path) -> None:
    tables = Tables()
    bench("fastgl").operators(arguments(data=tmp_path, rounds=1), tables, scale=10, widths=(8,))
    assert [title.split(",")[0] for _, title, *_ in tables["operators"]] == ["sum", "mean", "GAT", "layer GCN"]


def test_fastgl_map(bench: Any, tmp_path: Path) -> None:
    tables = Tables()
    bench("fastgl").mapped(arguments(data=tmp_path, graphs="rmat:11:16000"), tables)
    assert [row[:2] for row in tables["map"]] == [["rmat:11:16000", 7845]]


def test_freshgnn_grid(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freshgnn = bench("freshgnn")
    monkeypatch.setattr(freshgnn, "P_GRADS", ("1.0",))  # whatever the gradients are
    monkeypatch.setattr(freshgnn, "T_STALES", ("10", "0.5"))
    tables = Tables()
    training = freshgnn.Training(arguments(data=tmp_path, graph="community:1000", long=False, epochs=1), tmp_path)
    freshgnn.grid(training, tables, arguments(seeds=1))
    assert [(stale, saved) for _, stale, _, _, saved in tables["grid"]] == [("10", 49.2), ("0.5", 58.8)]


def test_freshgnn_rows(bench: Any, tmp_path: Path) -> None:
    freshgnn = bench("freshgnn")
    graph = bench("graphs").community(3000, 8)
    args = arguments(data=tmp_path)
    buffer = ["--memory", "0.1", "--stale", "1.0", "--lag", "0"]
    batches = ["--epochs", "2", "--batch-size", "10", "--fanouts", "5,5"]
    assert freshgnn.saved_rows(graph, args, ["features", "gas"], *buffer, *batches) == [31.5, 11.4]


@pytest.mark.parametrize("paper", ["ginex", "fgnn", "fastgl", "freshgnn"])
def test_figures_say_where_they_come_from(paper: str) -> None:
    """Every table has its command, seed and machine, and docs/papers.md names the command."""
    page = " ".join((ROOT / "docs" / "papers.md").read_text(encoding="utf-8").split())
    tables = json.loads((FOLDER / f"{paper}.json").read_text(encoding="utf-8"))["tables"]
    for name, table in tables.items():
        assert {"command", "seed", "machine", "date", "commit", "load"} <= table.keys(), name
        assert f"`{table['command']}`" in page, name
        assert all(len(row) == len(table["columns"]) for row in table["rows"]), name
    assert re.search(rf"!\[[^\]]+\]\(papers-{paper}\.svg\)", page)


def test_claims_lead_to_their_tables() -> None:
    """README.md and docs/features.md link to headings of docs/papers.md, all papers to some, and a line of its first
    table names tables of its paper."""
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    headings = re.findall(r"^(#{2,3}) (.+)$", page, re.MULTILINE)
    anchors, paper = {}, ""
    for level, title in headings:
        paper = title if level == "##" else paper
        anchors[title.lower().replace(" ", "-")] = paper
    assert len(anchors) == len(headings)
    linked = set()
    for name in ("README.md", "docs/features.md"):
        for anchor in re.findall(r"\((?:docs/)?papers\.md#([^)]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            assert anchor in anchors, f"{name}: docs/papers.md has no heading {anchor}"
            linked.add(anchors[anchor])
    assert linked == {"Ginex", "FGNN", "FastGL", "FreshGNN"}
    claims = page[page.index("| paper | claim |") : page.index("\n## ")].strip().splitlines()[2:]
    for line in claims:
        named, *_, status, where = (cell.strip() for cell in line.strip("|").split("|"))
        paper = named.split("]")[0].strip("[") or paper
        tables = json.loads((FOLDER / f"{paper.lower()}.json").read_text(encoding="utf-8"))["tables"]
        assert set(where.split(", ")) <= {*tables, ""}, line
        assert where or status == "not shown", line
