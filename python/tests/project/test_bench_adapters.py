"""The adapters of other loaders in bench/adapters, over modules that have the functions they call.

The real loaders want Pythons of their own; FRESHGO_TEST_GRAPHBOLT=PYTHON names one that has GraphBolt.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts
import torch

ADAPTERS = scripts.ROOT / "bench" / "adapters"

pytestmark = pytest.mark.skipif(not ADAPTERS.exists(), reason="the benchmarks are not beside the tests")

NODES, COLUMNS, FANOUTS = 300, 16, [3, 2]


def load(name: str) -> Any:
    return scripts.load(f"bench/adapters/{name}.py", register=True)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The adapters import one another by their bare names; nothing of that stays."""
    before = dict(sys.modules)
    monkeypatch.syspath_prepend(str(ADAPTERS))
    yield
    for name in set(sys.modules) - set(before):
        if name.split(".")[0] in ("serve", "others", "graphbolt", "agnes", "diskgnn", "offgs", "lib", "dgl"):
            del sys.modules[name]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A graph as the adapters read it, all of whose features differ."""
    g = torch.Generator().manual_seed(0)
    x = torch.arange(NODES * COLUMNS, dtype=torch.float32).view(NODES, COLUMNS)
    edges = torch.randint(NODES, (2, 4000), generator=g)
    seeds = torch.randperm(NODES, generator=g)[:128]
    load("others").write(tmp_path, edges, x, x[:, 0], seeds, FANOUTS, 32, cache=40 * COLUMNS * 4)
    return tmp_path


def neighbours(graph: Any, node: int) -> set[int]:
    return set(graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist())


def sampled(graph: Any, seeds: torch.Tensor, fanouts: list[int]) -> torch.Tensor:
    """The nodes of a batch, the input nodes first: the first neighbours of each."""
    nodes = list(dict.fromkeys(seeds.tolist()))
    for fanout in fanouts:
        for node in list(nodes):
            begin, end = graph.indptr[node : node + 2]
            nodes += [other for other in graph.indices[begin : min(end, begin + fanout)].tolist() if other not in nodes]
    return torch.tensor(nodes)


def check(graph: Any, batches: list[Any]) -> None:
    assert len(batches) == 4
    seeds = []
    for n_id, x in batches:
        assert np.array_equal(np.asarray(x), graph.x[np.asarray(n_id)])
        assert len(n_id) > 60
        seeds += np.asarray(n_id)[:32].tolist()
    assert sorted(seeds) == sorted(graph.seeds.tolist())


def module(name: str, **members: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(members)
    made.__spec__ = importlib.util.spec_from_loader(name, loader=None)
    sys.modules[name] = made
    return made


def test_diskgnn(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load("serve").Graph.read(written)
    adapter = load("diskgnn")
    assert "there is no offgs" in adapter.obstacle()

    def loader(topology: Any, seeds: torch.Tensor, fanouts: list[int], *, batch_size: int, **_: Any) -> Any:
        assert fanouts == FANOUTS[::-1]  # the last is that of the input nodes
        for part in seeds.split(batch_size):
            yield sampled(graph, part, FANOUTS), part, []

    class Ops:
        """Of offgs, over files."""

        freed = 0

        def _CAPI_GatherPReadDirect(self, path: str, ids: torch.Tensor, columns: int) -> torch.Tensor:  # noqa: N802
            rows = np.fromfile(path, np.float32, NODES * columns).reshape(NODES, columns)
            return torch.from_numpy(rows[ids.numpy()])

        def _CAPI_SaveFeats(self, path: str, rows: torch.Tensor) -> None:  # noqa: N802
            rows.numpy().tofile(path)

        def _CAPI_LoadFeats_Direct(self, path: str, count: int, columns: int) -> torch.Tensor:  # noqa: N802
            return torch.from_numpy(np.fromfile(path, np.float32).reshape(count, columns))

        def _CAPI_FreeTensor(self, rows: torch.Tensor) -> None:  # noqa: N802
            self.freed += 1

    ops = Ops()
    monkeypatch.setattr(torch.ops, "offgs", ops, raising=False)
    module("offgs")
    loading = module("dgl.dataloading", DataLoader=loader, NeighborSampler=lambda fanouts: fanouts)
    module("dgl", graph=lambda parts, num_nodes: parts, dataloading=loading)
    assert adapter.obstacle() is None
    epoch = adapter.make(graph)
    check(graph, list(epoch()))
    check(graph, list(epoch()))
    assert ops.freed == 8


def test_agnes(written: Path) -> None:
    graph = load("serve").Graph.read(written)
    adapter = load("agnes")
    assert "checkout of AGNES" in adapter.obstacle()

    def read_lists(stem: str) -> dict[int, list[int]]:
        """The neighbour lists, by the structs of buffer.hpp."""
        index, blocks = Path(f"{stem}.graphindex").read_bytes(), Path(f"{stem}.graphblock").read_bytes()
        count, inner, nodes, edges = struct.unpack("<iiQQ", Path(f"{stem}.graphinfo").read_bytes())
        assert (inner, nodes, edges, len(index), len(blocks)) == (0, NODES, 4000, 24 * count, count << 20)
        lists = {}
        for number in range(count):
            block, _, low, high = struct.unpack_from("<iiQQ", index, 24 * number)
            assert block == number
            data = blocks[number << 20 : number + 1 << 20]
            for slot in range(high - low + 1):
                length, offset = struct.unpack_from("<ii", data, (1 << 20) - 16 - 8 * slot)
                lists[low + slot] = np.frombuffer(data, "<u8", length, offset).tolist()
        return lists

    class Sample:
        """Of lib/cpp_extension."""

        rows: np.ndarray
        open = 0

        def bb_sample(
            self, folder: str, batches: Any, fanouts: list[int], size: int, name: str, room: int, workers: int
        ) -> Any:
            lists = read_lists(folder + name)
            assert all(set(lists[node]) == neighbours(graph, node) for node in range(NODES))
            hops = [[sampled(graph, part, fanouts[: hop + 1]) for part in batches] for hop in range(len(fanouts))]
            return [], [], hops

        def bb_gather(self, n_ids: Any, nodes: int, columns: int, room: int, workers: int, folder: str) -> None:
            raw = Path(folder, f"features{columns}.dat")
            assert raw.stat().st_size % (1 << 20) == 0
            self.rows = np.fromfile(raw, np.float32, nodes * columns).reshape(nodes, columns)

        def gather_sagnn(self, path: str, n_id: torch.Tensor, columns: int, number: int, workers: int) -> torch.Tensor:
            assert self.open == 1 and Path(path).exists()
            return torch.from_numpy(self.rows[n_id.numpy()])

        def allocate_global_buffer(self) -> None:
            self.open += 1

        def free_global_buffer(self) -> None:
            self.open -= 1

    sample = Sample()
    module("lib.cpp_extension.wrapper", sample=sample)
    module("lib.cpp_extension", wrapper=sys.modules["lib.cpp_extension.wrapper"], __path__=[])
    module("lib", cpp_extension=sys.modules["lib.cpp_extension"], __path__=[])
    assert adapter.obstacle() is None
    adapter.HYPERBATCH = 2  # two of them
    epoch = adapter.make(graph)
    check(graph, list(epoch()))
    check(graph, list(epoch()))
    assert sample.open == 0


def test_graphbolt_of_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Papers have features and input nodes; ids of a batch are the type's, ids of the lists count through the types."""
    papers, authors = 200, 100
    g = torch.Generator().manual_seed(0)
    ends = torch.stack([torch.randint(authors, (900,), generator=g), torch.randint(papers, (900,), generator=g)])
    merged = torch.cat([torch.stack([ends[0] + papers, ends[1]]), torch.stack([ends[1], ends[0] + papers])], dim=1)
    x = torch.arange(papers * COLUMNS, dtype=torch.float32).view(papers, COLUMNS)
    types_of = {"nodes": {"paper": papers, "author": authors}, "edges": ["author:writes:paper", "paper:by:author"]}
    load("others").write(
        tmp_path, merged, x, x[:, 0], torch.randperm(papers, generator=g)[:128], FANOUTS, 32, cache=999,
        types=types_of | {"owner": "paper"}, edge_types=torch.arange(2, dtype=torch.uint8).repeat_interleave(900),
    )  # fmt: skip

    class Pipe:
        """Of graphbolt: an ItemSampler and what follows it."""

        def __init__(self, items: dict[str, Any], batch_size: int, shuffle: bool) -> None:
            self.seeds, self.size = items["paper"], batch_size

        def sample_neighbor(self, topology: Any, fanouts: list[torch.Tensor]) -> Pipe:
            indptr, _, typed = topology
            assert typed["node_type_offset"].tolist() == [0, papers, papers + authors] and len(indptr) == 301
            assert typed["node_type_to_id"] == {"paper": 0, "author": 1}
            assert typed["edge_type_to_id"] == {"author:writes:paper": 0, "paper:by:author": 1}
            assert [fanout.tolist() for fanout in fanouts] == [[2, 2], [3, 3]]  # the last is that of the input nodes
            self.topology = topology
            return self

        def fetch_feature(self, store: dict[Any, Any], node_feature_keys: Any) -> Pipe:
            assert node_feature_keys == {"paper": ["x"]}
            self.x = store["node", "paper", "x"]
            return self

    def batches(pipe: Pipe, num_workers: int) -> Iterator[Any]:
        lists = types.SimpleNamespace(**dict(zip(("indptr", "indices"), pipe.topology[:2], strict=True)))
        for part in pipe.seeds.split(pipe.size):
            nodes = sampled(lists, part, FANOUTS)
            ids = {"paper": nodes[nodes < papers], "author": nodes[nodes >= papers] - papers}
            yield types.SimpleNamespace(input_nodes=ids, node_features={("paper", "x"): pipe.x[ids["paper"]]})

    cached = []
    gb = module(
        "dgl.graphbolt", ItemSet=lambda seeds, names: seeds, HeteroItemSet=dict, ItemSampler=Pipe, DataLoader=batches,
        BasicFeatureStore=dict, fused_csc_sampling_graph=lambda indptr, indices, **typed: (indptr, indices, typed),
        DiskBasedFeature=lambda path: torch.from_numpy(np.load(path)),
        cpu_cached_feature=lambda feature, n_bytes, policy: cached.append((n_bytes, policy)) or feature,
    )  # fmt: skip
    module("dgl", graphbolt=gb)
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda _threads: None)
    adapter, graph = load("graphbolt"), load("serve").Graph.read(tmp_path)
    epoch = adapter.make(graph)
    assert cached == [(999, "sieve")]
    check(graph, list(epoch()))


def test_an_adapter_answers_and_says_what_is_missing(written: Path, tmp_path: Path) -> None:
    """The process of an adapter, with a loader that needs NumPy alone; and the loaders that this Python lacks."""
    others, program = load("others"), tmp_path / "plain.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(ADAPTERS)!r})\nfrom serve import serve\n"
        "def make(graph):\n    print('noise')\n"
        "    def epoch():\n        for part in graph.seeds.reshape(-1, graph.batch_size):\n"
        "            yield part, graph.x[part] + (graph.num_neighbors != [3, 2])\n    return epoch\n"
        "serve('plain', lambda: None, make)\n"
    )
    opened = others.Other(sys.executable, program, written)
    assert opened.name == "plain" and opened.preparation >= 0
    for _ in range(2):
        turn = opened.epoch()
        assert (turn.rows, turn.batches) == (128, 4) and turn.seconds > 0
    opened.close()
    asked = written / "asked.json"
    asked.write_text(asked.read_text().replace("[3, 2]", "[3, 3]"))
    wrong = others.Other(sys.executable, program, written)
    with pytest.raises(RuntimeError, match=r"plain.py ended: 1"):
        wrong.epoch()
    assert others.installed(["none"]) == {}
    with pytest.raises(SystemExit, match="--with nobody: expected one of graphbolt, agnes, diskgnn"):
        others.installed(["nobody"])


@pytest.mark.skipif("FRESHGO_TEST_GRAPHBOLT" not in os.environ, reason="FRESHGO_TEST_GRAPHBOLT names no Python")
@pytest.mark.parametrize("on_disk", [False, True])
def test_graphbolt(written: Path, on_disk: bool) -> None:
    asked = written / "asked.json"
    asked.write_text(asked.read_text().replace('"on_disk": true', f'"on_disk": {str(on_disk).lower()}'))
    others, python = load("others"), os.environ["FRESHGO_TEST_GRAPHBOLT"]
    assert others.installed([f"graphbolt={python}"]) == {"graphbolt": python}
    opened = others.open_other("graphbolt", python, written)
    turns = [opened.epoch(), opened.epoch()]
    opened.close()
    assert opened.name == "GraphBolt"
    assert all(turn.batches == 4 and turn.rows > 4 * 60 for turn in turns)
