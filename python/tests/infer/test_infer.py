"""infer: every node's row, against the model's forward over the whole graph, whatever ends it on the way."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import BACK, CITES, WRITES, hetero_graph, random_graph
from infer_jobs import said
from seeds import seed as seed_of

import freshgo
from freshgo import convert, errors, infer
from freshgo._args.size import least_size
from freshgo._infer import input as infer_input

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore

INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError
NODES, EDGES = 2000, 16_000
HOW: dict[str, Any] = {"memory": "64MiB", "batch_size": 300, "progress": False}

MODELS: dict[str, Callable[[], Any]] = {
    "sage": lambda: tg.GraphSAGE(24, 16, 3, 5),
    "sage, max": lambda: tg.GraphSAGE(24, 16, 3, 5, aggr="max"),
    "sage, max, norm": lambda: tg.GraphSAGE(24, 16, 2, 5, aggr="max", norm="BatchNorm", jk="last"),
    "gcn": lambda: tg.GCN(24, 16, 3, 5),
    "gcn, one layer": lambda: tg.GCN(24, 5, 1),
    "gcn, improved": lambda: tg.GCN(24, 16, 2, 5, improved=True),
    "gcn, no loops": lambda: tg.GCN(24, 16, 2, 5, add_self_loops=False, act="elu", act_first=True),
    "gin": lambda: tg.GIN(24, 16, 2, 5),
    "gat": lambda: tg.GAT(24, 16, 3, 5, heads=4),
    "gatv2": lambda: tg.GAT(24, 16, 2, 5, heads=2, v2=True),
    "edge cnn": lambda: tg.EdgeCNN(24, 16, 2, 5),
}


@pytest.fixture(scope="module")
def flat() -> dict[str, Any]:
    graph = random_graph(NODES, EDGES, seed=3)
    loops = np.arange(0, NODES, 9)
    edges = np.concatenate([graph["edge_index"], np.stack([loops, loops]), np.stack([loops[:9], loops[:9]])], 1)
    rng = np.random.default_rng(seed_of(1))
    weight = rng.random(edges.shape[1]).astype(np.float32)
    return {"num_nodes": NODES, "x": graph["x"], "y": graph["y"], "edge_index": edges, "edge_weight": weight}


@pytest.fixture(scope="module", params=["plain", "relaid"])
def path(request: pytest.FixtureRequest, flat: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("infer") / "graph"
    how = {"relayout": "community"} if request.param == "relaid" else {}
    convert({**flat, "edge_type": flat["edge_index"][0] % 3}, path, progress=False, **how).close()
    return path


def made(model: Callable[[], Any]) -> Any:
    torch.manual_seed(5)
    result = model().eval()
    for norm in result.modules():
        if isinstance(norm, torch.nn.BatchNorm1d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            norm.weight.data.normal_()
    return result


def forward(model: Any, graph: dict[str, Any], **more: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"]), **more)


def assert_near(found: Any, want: torch.Tensor) -> None:
    found = torch.from_numpy(np.load(found))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4 * want.abs().max().item())


@pytest.mark.parametrize("kind", MODELS)
def test_equals_the_forward_over_the_whole_graph(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model = made(MODELS[kind])
    out = infer(model, path, tmp_path / "out.npy", **HOW)
    assert_near(out, forward(model, flat))
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("kind", ["gcn", "gcn, no loops", "gcn, improved"])
def test_weights_of_edges(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model = made(MODELS[kind])
    want = forward(model, flat, edge_weight=torch.from_numpy(flat["edge_weight"]))
    assert_near(infer(model, path, tmp_path / "out.npy", edge_weight="edge_weight", **HOW), want)


def test_attributes_of_edges(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    model = made(lambda: tg.GAT(24, 16, 2, 5, heads=2, edge_dim=1))
    want = forward(model, flat, edge_attr=torch.from_numpy(flat["edge_weight"]))
    assert_near(infer(model, path, tmp_path / "out.npy", edge_attr="edge_weight", **HOW), want)


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_accelerated_models(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model = made(MODELS[kind])
    want = forward(model, flat)
    freshgo.nn.accelerate(model)
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW), want)


@pytest.mark.parametrize(
    "nodes", [[7, 3, 7, 1999], torch.arange(NODES) % 5 == 2, np.arange(1000)], ids=["ids", "mask", "range"]
)
def test_some_nodes(path: Path, flat: dict[str, Any], tmp_path: Path, nodes: Any) -> None:
    for kind in ("sage", "gcn, one layer"):
        model = made(MODELS[kind])
        chosen = torch.as_tensor(nodes)
        assert_near(infer(model, path, tmp_path / kind, nodes=nodes, **HOW), forward(model, flat)[chosen])


def test_layers_as_functions_and_relations_of_edges(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    """R-GCN, whose edge types are a tensor of the edges."""
    torch.manual_seed(2)
    convs = [tg.RGCNConv(24, 16, 3).eval(), tg.RGCNConv(16, 5, 3).eval()]
    edges, kinds = torch.from_numpy(flat["edge_index"]), torch.from_numpy(flat["edge_index"][0] % 3)
    with torch.no_grad():
        want = convs[1](convs[0](torch.from_numpy(flat["x"]), edges, kinds).relu(), edges, kinds)

    def first(h: torch.Tensor, batch: Any) -> torch.Tensor:
        assert "e_id" not in batch
        return convs[0](h, batch.edge_index, batch.edge_type)[: batch.batch_size].relu()

    def second(h: torch.Tensor, batch: Any) -> torch.Tensor:
        return convs[1](h, batch.edge_index, batch.edge_type)[: batch.batch_size]

    assert_near(infer(None, path, tmp_path / "out.npy", layers=[first, second], **HOW), want)
    half = np.load(infer(None, path, tmp_path / "half.npy", layers=[first, second], dtype=torch.float16, **HOW))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.astype(np.float32), want.numpy(), atol=0.02 * want.abs().max().item())


def test_types_of_nodes(tmp_path: Path) -> None:
    graph = hetero_graph(150)
    relations = [WRITES, CITES, BACK]
    x = {name: torch.from_numpy(np.asarray(graph[name]["x"], np.float32)) for name in ("paper", "author")}
    edges = {relation: torch.from_numpy(graph[relation]["edge_index"]) for relation in relations}
    torch.manual_seed(0)
    convs = [tg.HeteroConv({r: tg.SAGEConv((-1, -1), size) for r in relations}).eval() for size in (16, 5)]
    with torch.no_grad():
        hidden = {name: rows.relu() for name, rows in convs[0](x, edges).items()}
        want = convs[1](hidden, edges)

    def layer(i: int) -> Callable[[Any, Any], Any]:
        def compute(h: Any, batch: Any) -> Any:
            block = batch.blocks()[0]
            edge_index = {relation: block.edge_index_dict[relation] for relation in relations}
            out = convs[i](block.pairs(h, relations), edge_index)
            return {name: rows.relu() if i == 0 else rows for name, rows in out.items()}

        return compute

    convert(graph, tmp_path / "graph", progress=False).close()
    out = infer(None, tmp_path / "graph", tmp_path / "out", layers=[layer(0), layer(1)], **HOW)
    assert sorted(file.name for file in out.iterdir()) == ["author.npy", "paper.npy"]
    for name in want:
        assert_near(out / f"{name}.npy", want[name])
    ids = {"author": [5, 1], "paper": range(400)}
    some = infer(None, tmp_path / "graph", tmp_path / "some", layers=[layer(0), layer(1)], nodes=ids, **HOW)
    assert_near(some / "author.npy", want["author"][[5, 1]])
    assert_near(some / "paper.npy", want["paper"][:400])


@pytest.mark.parametrize(
    ("layer", "error", "words"),
    [
        (
            lambda h, batch: {"writer": h["author"]},
            INVALID,
            "layer 1 returned rows of 'writer', expected of 'paper', 'author'",
        ),
        (lambda h, batch: {}, INVALID, "layer 1 returned no rows, and it is the last one"),
        (lambda h, batch: {"paper": h["paper"].long()}, INVALID, r"rows of floats of 'paper'.* and torch\.int64"),
        (lambda h, batch: {"paper": h["paper"][1:]}, INVALID, "one for each of the"),
        (lambda h, batch: h["paper"], DTYPE, "a dict of rows by node type"),
        (
            lambda h, batch: {"paper": h["paper"][: batch["paper"].batch_size]} if batch["paper"].n_id[0] < 50 else {},
            INVALID,
            "returned rows of 'paper' for some batches and left them out for others",
        ),
    ],
    ids=["unknown type", "no rows", "integers", "too few", "no dict", "some batches"],
)
def test_what_layers_return_of_types(tmp_path: Path, layer: Any, error: type[Exception], words: str) -> None:
    convert(hetero_graph(150), tmp_path / "graph", progress=False).close()
    with pytest.raises(error, match=words):
        infer(None, tmp_path / "graph", tmp_path / "out", layers=[layer], **{**HOW, "batch_size": 40})
    assert not (tmp_path / "out").exists()


WIDE: dict[str, Callable[[], Any]] = {
    "sage": lambda: tg.GraphSAGE(900, 1000, 3, 5),
    "sage, sums of wide rows": lambda: tg.GraphSAGE(900, 950, 2, 920, aggr="sum", bias=False),
    "sage, normal": lambda: tg.GraphSAGE(900, 200, 2, 5, normalize=True, root_weight=False),
    "gcn": lambda: tg.GCN(900, 950, 3, 5),
    "gcn, no loops": lambda: tg.GCN(900, 910, 2, 5, add_self_loops=False),
    "gin": lambda: tg.GIN(900, 950, 3, 150),
    "gin, norm": lambda: tg.GIN(900, 200, 2, 5, norm="BatchNorm", train_eps=True, jk="last"),
    "graph conv, norm": lambda: GraphConvs(900, 950, 3, 5, norm="BatchNorm", act="elu", act_first=True),
}


class GraphConvs(tg.models.basic_gnn.BasicGNN):
    """A BasicGNN of GraphConv, which PyG has none of."""

    supports_edge_weight = True
    supports_edge_attr = False

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> Any:
        return tg.GraphConv(in_channels, out_channels, aggr="mean")


@pytest.fixture(scope="module")
def wide(flat: dict[str, Any]) -> dict[str, Any]:
    x = np.random.default_rng(seed_of(4)).standard_normal((NODES, 900)).astype(np.float32)
    return {**flat, "x": x}


@pytest.fixture(scope="module", params=["plain", "relaid", "by target"])
def wide_path(request: pytest.FixtureRequest, wide: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("infer") / "wide"
    how = {"relaid": {"relayout": "community"}, "by target": {"weight_attr": "edge_weight"}}.get(request.param, {})
    convert(wide, path, progress=False, **how).close()
    return path


@pytest.mark.parametrize("memory", ["7MiB", pytest.param("12MiB", marks=pytest.mark.long), "64MiB"])
@pytest.mark.parametrize("kind", WIDE)
def test_rows_by_slices_and_whole(
    wide_path: Path, wide: dict[str, Any], tmp_path: Path, kind: str, memory: str
) -> None:
    model = made(WIDE[kind])
    weights = {"edge_weight": torch.from_numpy(wide["edge_weight"])} if model.supports_edge_weight else {}
    named = dict.fromkeys(weights, "edge_weight")
    out = infer(model, wide_path, tmp_path / "out.npy", **{**HOW, "memory": memory, **named})
    assert_near(out, forward(model, wide, **weights))
    assert list(tmp_path.iterdir()) == [out]
    chosen = torch.tensor([1999, 5, 5, 700])
    some = infer(model, wide_path, tmp_path / "some.npy", nodes=chosen, **{**HOW, "memory": memory})
    assert_near(some, forward(model, wide)[chosen])


def test_the_smallest_memory_divides_columns(wide_path: Path, tmp_path: Path) -> None:
    files: set[str] = set()

    def look(stage: str, done: int, total: int) -> None:
        files.update(file.name for file in (tmp_path / "out.npy.partial").iterdir())

    infer(made(WIDE["gin"]), wide_path, tmp_path / "out.npy", **{**HOW, "memory": "7MiB", "progress": look})
    assert {"messages0_1.npy", "sums0_1.npy", "messages1_1.npy"} <= files
    files.clear()
    how = {**HOW, "memory": "7MiB", "progress": look, "overwrite": True}
    infer(made(WIDE["gcn"]), wide_path, tmp_path / "out.npy", **how)
    assert {"messages0_1.npy", "messages1_1.npy"} <= files  # the first layer by columns
    assert not any(name.startswith("sums0") for name in files)
    files.clear()
    how = {**HOW, "memory": "64MiB", "progress": look}
    infer(made(WIDE["gin"]), wide_path, tmp_path / "out.npy", overwrite=True, **how)
    assert "messages1_0.npy" in files
    assert not any(name.startswith(("messages0", "sums", "messages1_1")) for name in files)


class StopError(Exception):
    pass


def test_the_first_slice_goes_from_the_input_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is ended before and after all of the input was read, for which there are several loaders."""
    monkeypatch.setattr(infer_input, "_NODES", 17_001)
    rng, nodes = np.random.default_rng(seed_of(7)), 40_000
    graph = {
        "x": rng.standard_normal((nodes, 64)).astype(np.float32),
        "edge_index": rng.integers(0, nodes, (2, 4 * nodes)),
    }
    convert(graph, tmp_path / "graph", progress=False, relayout="community").close()
    model, calls = made(lambda: tg.GraphSAGE(64, 64, 3, 8, norm="BatchNorm")), 0
    how: dict[str, Any] = {"memory": 11_840_000, "overwrite": True}
    work = tmp_path / "out.npy.partial"

    def filled(name: str) -> bool:
        return (work / name).exists() and (work / name).stat().st_blocks > 1024

    def look(stage: str, done: int, total: int) -> None:
        nonlocal calls
        calls += stage.startswith("layer")
        if calls == 3 or (calls > 3 and filled("messages1_0.npy")):
            assert filled("messages0_1.npy") and filled("own0_0.npy") and not filled("messages0_0.npy")
            raise StopError

    for _ in range(2):
        with pytest.raises(StopError):
            infer(model, tmp_path / "graph", tmp_path / "out.npy", progress=look, **how)
    found = infer(model, tmp_path / "graph", tmp_path / "out.npy", progress=False, **how)
    assert_near(found, forward(model, graph))


def test_a_hub_whose_list_is_longer_than_a_piece(tmp_path: Path) -> None:
    rng = np.random.default_rng(seed_of(6))
    edges = np.concatenate([rng.integers(0, 300, (2, 900)), np.stack([rng.integers(0, 300, 20_000), [7] * 20_000])], 1)
    graph = {"x": rng.standard_normal((300, 64)).astype(np.float32), "edge_index": edges}
    convert(graph, tmp_path / "graph", progress=False).close()
    model = made(lambda: tg.GCN(64, 32, 2, 5))
    assert_near(
        infer(model, tmp_path / "graph", tmp_path / "out.npy", **{**HOW, "memory": "7MiB"}), forward(model, graph)
    )


@pytest.mark.parametrize(
    ("model", "memory", "ended_by", "relayout"),
    [
        ("GAT(900, 16, 3, 5, jk='cat')", "64MiB", signal.SIGKILL, None),  # layers by a loader
        ("GCN(900, 950, 3, 5)", "7MiB", signal.SIGINT, None),  # in streams
        ("GCN(900, 950, 3, 5, jk='max')", "7MiB", signal.SIGKILL, "community"),  # in the order of the rows
        pytest.param("GAT(900, 16, 3, 5)", "64MiB", signal.SIGINT, "community", marks=pytest.mark.long),
        pytest.param("GCN(900, 950, 3, 5)", "7MiB", signal.SIGKILL, None, marks=pytest.mark.long),
    ],
)
def test_goes_on_after_it_was_ended(
    wide: dict[str, Any], tmp_path: Path, model: str, memory: str, ended_by: int, relayout: str | None
) -> None:
    path, out = tmp_path / "graph", tmp_path / "out.npy"
    convert(wide, path, progress=False, relayout=relayout).close()
    draw = random.Random(seed_of(int(ended_by)))
    heard = [said(path, out, draw.randrange(3, 25), ended_by, model=model, memory=memory) for _ in range(2)]
    assert not out.exists()
    heard.append(said(path, out, 0, ended_by, model=model, memory=memory))
    for before, after in itertools.pairwise(heard):
        assert after[0] >= before[-1]  # the last batch again, or the next one
    assert len(heard[-1]) > 3
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert_near(out, forward(eval(f"tg.{model}").eval(), wide))


def test_another_inference_begins_anew(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "layer 2 of 3":
            raise StopError

    one, other = made(MODELS["sage"]), made(lambda: tg.GraphSAGE(24, 8, 3, 5))
    out, how = tmp_path / "out.npy", {**HOW, "progress": stop}
    with pytest.raises(StopError):
        infer(one, path, out, **how)
    assert (tmp_path / "out.npy.partial").exists()
    assert_near(infer(other, path, out, **HOW), forward(other, flat))
    with pytest.raises(errors.StoreExistsError, match="already exists; pass overwrite=True"):
        infer(one, path, out, **HOW)
    with pytest.raises(StopError):
        infer(one, path, out, overwrite=True, **how)
    assert_near(out, forward(other, flat))  # until the new one is complete
    stages: list[str] = []
    infer(one, path, out, overwrite=True, **{**HOW, "progress": lambda stage, *_: stages.append(stage)})
    assert "layer 1 of 3" not in stages
    assert_near(out, forward(one, flat))


def test_damage(path: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "layer 2 of 3" and done > 300:
            raise StopError

    model, out, partial = made(MODELS["sage, max"]), tmp_path / "out.npy", tmp_path / "out.npy.partial"
    with pytest.raises(StopError):
        infer(model, path, out, **{**HOW, "progress": stop})
    rows = next(partial.glob("value_*.npy"))
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-5])
    with pytest.raises(errors.CorruptError, match="damaged, remove it to begin anew") as error:
        infer(model, path, out, **HOW)
    assert error.value.filename == str(rows)
    rows.write_bytes(whole)
    page = next((partial / "layer1").glob("node*_value_*.bin"))
    data = bytearray(page.read_bytes())
    data[5000] ^= 4
    page.write_bytes(data)
    with pytest.raises(errors.CorruptError):
        infer(model, path, out, **HOW)
    assert not out.exists()


def test_damage_of_what_streams(path: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "layer 2 of 3":
            raise StopError

    model, out = made(MODELS["sage"]), tmp_path / "out.npy"
    with pytest.raises(StopError):
        infer(model, path, out, **{**HOW, "progress": stop})
    rows = tmp_path / "out.npy.partial" / "messages2_0.npy"
    rows.write_bytes(rows.read_bytes()[:-5])
    with pytest.raises(errors.CorruptError, match="damaged, remove it to begin anew") as error:
        infer(model, path, out, **HOW)
    assert error.value.filename == str(rows)
    shutil.rmtree(tmp_path / "out.npy.partial")
    lists = path / "indices.bin"
    data = bytearray(lists.read_bytes())
    data[5000] ^= 1
    (tmp_path / "copy").mkdir()
    shutil.copytree(path, tmp_path / "copy", dirs_exist_ok=True)
    (tmp_path / "copy" / lists.name).write_bytes(data)
    with pytest.raises(errors.CorruptError, match=lists.name):
        infer(model, tmp_path / "copy", out, **HOW)
    assert not out.exists()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": made(MODELS["sage"]).train()}, INVALID, r"call model.eval\(\)"),
        (
            {"model": torch.nn.Linear(2, 2).eval()},
            INVALID,
            r"forward\(\) of Linear takes 'input', which infer\(\) does not know",
        ),
        ({"model": 3}, DTYPE, "torch.nn.Module or None, got int"),
        ({"model": None}, INVALID, r"infer\(\) needs a model, or its layers"),
        (
            {"model": made(lambda: tg.GIN(24, 8, 1, 5, norm="LayerNorm"))},
            INVALID,
            r"GINConv returns other .* LayerNorm\)",
        ),
        (
            {"model": made(lambda: tg.GraphSAGE(24, 8, 2, 5, norm="GraphNorm"))},
            INVALID,
            "GraphNorm normalises over all nodes",
        ),
        ({"edge_weight": "edge_weight"}, INVALID, "GraphSAGE takes no edge_weight"),
        ({"model": made(MODELS["gcn"]), "edge_weight": "z"}, INVALID, "no edge-level tensor 'z', only '"),
        ({"model": None, "layers": []}, DTYPE, "a list of functions"),
        ({"model": None, "layers": [3]}, DTYPE, r"layers\[0\] must be callable"),
        ({"model": None, "layers": [lambda h, batch: h]}, INVALID, r"layer 1 must return rows .* 300 nodes"),
        (
            {"model": made(lambda: tg.GraphSAGE(23, 8, 2, 5))},
            INVALID,
            r"rows of 23 .* tensor 'x' has shape \[2000, 24\]",
        ),
        ({"tensor": "z"}, INVALID, "no node-level tensor 'z'"),
        ({"tensor": "xx"}, INVALID, r"first layer, only .*'x'.*; did you mean 'x'\?"),
        ({"tensor": 3}, DTYPE, "tensor must be the name"),
        ({"dtype": torch.int8}, DTYPE, "torch.float32 or torch.float16"),
        ({"nodes": [5000]}, INVALID, "5000"),
        ({"batch_size": 0}, INVALID, "batch_size"),
        ({"memory": "1KiB"}, errors.BudgetError, 'memory="1KiB" is too small: these options need at least .* [KM]iB$'),
        ({"out": 5}, DTYPE, "out must be a path"),
        ({"out": "/nowhere/out.npy"}, errors.StoreNotFoundError, "no such directory to write in"),
        ({"store": "/nowhere"}, errors.StoreNotFoundError, "nowhere"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
def test_bad_input(path: Path, tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"model": made(MODELS["sage"]), "store": path, "out": tmp_path / "out.npy", **HOW, **change}
    with pytest.raises(error, match=words) as raised:
        infer(given.pop("model"), given.pop("store"), given.pop("out"), **given)
    assert isinstance(raised.value, errors.FreshgoError)
    assert not (tmp_path / "out.npy").exists()


def casting(conv: Any, dtype: torch.dtype) -> Callable[[Any, Any], Any]:
    """A layer that converts its rows by itself."""
    return lambda h, batch: conv(h.to(dtype), batch.edge_index)[: batch.batch_size]


@pytest.mark.parametrize(
    ("kind", "stored", "parameters", "words"),
    [
        ("sage, max", "float64", "float32", r"layer 1 takes the tensor 'x' as torch\.float64, .* store the tensor as"),
        ("gat", "int64", "float32", r"layer 1 takes the tensor 'x' as torch\.int64, .* are torch\.float32: .*update"),
        ("sage, max", "float64", "float64", r"layer 2 takes the rows of layer 1 as torch\.float32, .*float\(\)"),
        ("gat", "float32", "float16", r"layer 1 takes the tensor 'x' as torch\.float32, .*float16: .*; call"),
        ("sage", "float64", "float64", r"the model takes the tensor 'x' and .*float32, .* are torch\.float64: "),
        ("gcn", "float32", "float64", r"layer 1 takes the tensor 'x' as torch\.float32, .* are torch\.float64: .*call"),
    ],
)
def test_rows_of_another_dtype_than_the_parameters(
    flat: dict[str, Any], tmp_path: Path, kind: str, stored: str, parameters: str, words: str
) -> None:
    """That is said where a layer fails; one that converts its rows does not."""
    x = (9 * flat["x"]).astype(stored)
    convert({"edge_index": flat["edge_index"], "x": x}, tmp_path / "graph", progress=False).close()
    dtype = getattr(torch, parameters)
    with pytest.raises(errors.DTypeError, match=words) as error:
        infer(made(MODELS[kind]).to(dtype), tmp_path / "graph", tmp_path / "out.npy", **HOW)
    assert isinstance(error.value.__cause__, RuntimeError)
    assert not (tmp_path / "out.npy").exists()
    if dtype != torch.float16:
        conv = made(lambda: tg.SAGEConv(24, 5, aggr="max")).to(dtype)
        out = infer(conv, tmp_path / "graph", tmp_path / "cast.npy", layers=[casting(conv, dtype)], **HOW)
        with torch.no_grad():
            assert_near(out, conv(torch.from_numpy(x).to(dtype), torch.from_numpy(flat["edge_index"])).float())


def test_other_errors_of_layers_are_their_own(path: Path, tmp_path: Path) -> None:
    """Also those of dtypes, where rows and parameters have the same one."""

    def layer(h: torch.Tensor, batch: Any) -> torch.Tensor:
        return h @ torch.eye(24, dtype=torch.float64)

    def fails(h: torch.Tensor, batch: Any) -> torch.Tensor:
        raise RuntimeError("of the layer")

    for model, layers, words in (
        (made(MODELS["sage"]), [layer], "same dtype"),
        (None, [layer], "same dtype"),
        (made(MODELS["sage"]).double(), [fails], "of the layer"),
    ):
        with pytest.raises(RuntimeError, match=words) as error:
            infer(model, path, tmp_path / "out.npy", layers=layers, **HOW)
        assert not isinstance(error.value, errors.FreshgoError)


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_the_smallest_memory_that_is_named_works(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model = made(MODELS[kind])
    with pytest.raises(errors.BudgetError) as error:
        infer(model, path, tmp_path / "out.npy", **{**HOW, "memory": "1KiB"})
    named = re.fullmatch(r'memory="1KiB" is too small: these options need at least ([\d.]+) ([KM])iB', str(error.value))
    assert named is not None and f"{named[1]}{named[2]}iB" == least_size(error.value.minimum).replace(" ", "")
    for memory in (error.value.minimum, f"{named[1]}{named[2]}iB"):
        out = infer(model, path, tmp_path / "out.npy", **{**HOW, "memory": memory}, overwrite=True)
        assert_near(out, forward(model, flat))


def test_one_at_a_time(path: Path, tmp_path: Path) -> None:
    model, out = made(MODELS["sage"]), tmp_path / "out.npy"
    refused: list[Exception] = []

    def again(stage: str, done: int, total: int) -> None:
        if not refused:
            try:
                infer(model, path, out, **HOW)
            except errors.BusyError as error:
                refused.append(error)

    infer(model, path, out, **{**HOW, "progress": again})
    assert len(refused) == 1


@pytest.mark.long
def test_a_real_graph_with_little_of_it_cached(arxiv: Path, tmp_path: Path) -> None:
    with convert(arxiv, tmp_path / "graph", progress=False) as store:
        x = store["x_struct"].float()
    torch.manual_seed(0)
    model = tg.GraphSAGE(x.size(1), 32, 2, 8).eval()
    how = {"tensor": "x_struct", "memory": "52MiB", "batch_size": 512, "progress": False}
    out = infer(model, tmp_path / "graph", tmp_path / "out.npy", **how)
    with freshgo.Loader(tmp_path / "graph", [-1, -1], range(0, x.size(0), 997), batch_size=10_000) as loader:
        whole = next(iter(loader))
    with torch.no_grad():
        want = model(whole.x_struct.float(), whole.edge_index)[: whole.batch_size]
    found = torch.from_numpy(np.load(out))[::997]
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("relayout", [None, "community"])
def test_the_input_takes_few_loaders_and_layers_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relayout: Any
) -> None:
    """However many nodes there are: a loader reads the offsets of all of them when it is opened."""
    nodes, rng = 40_000, np.random.default_rng(seed_of(8))
    graph = {
        "x": rng.standard_normal((nodes, 4)).astype(np.float32),
        "edge_index": rng.integers(0, nodes, (2, 2 * nodes)),
    }
    convert(graph, tmp_path / "graph", progress=False, relayout=relayout).close()
    monkeypatch.setattr(infer_input, "_NODES", 1000)
    opened, computed, opening, linear = 0, 0, infer_input.Input._open, torch.nn.functional.linear

    def counted_opening(self: Any, *arguments: Any) -> Any:
        nonlocal opened
        opened += arguments[2] > 1  # else it measures
        return opening(self, *arguments)

    def counted_linear(rows: Any, *others: Any) -> Any:
        nonlocal computed
        computed += rows.size(0) > 1  # else it tries the layer
        return linear(rows, *others)

    model = made(lambda: tg.GraphSAGE(4, 4, 2, 4))
    monkeypatch.setattr(infer_input.Input, "_open", counted_opening)
    how: dict[str, Any] = {"memory": "64MiB", "batch_size": 100, "progress": False}
    found = infer(model, tmp_path / "graph", tmp_path / "out.npy", **how)
    assert opened == (1 if relayout is None else 8)
    monkeypatch.setattr(torch.nn.functional, "linear", counted_linear)
    infer(model, tmp_path / "graph", tmp_path / "again.npy", **how)
    assert 0 < computed < 40  # 1,600 in batches of 100 rows; beside them the model on a small random graph
    monkeypatch.undo()
    assert_near(found, forward(model, graph))
