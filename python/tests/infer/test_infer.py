"""infer: every node's row, against the model's forward over the whole graph, whatever ends it on the way."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import BACK, CITES, WRITES, hetero_graph

import freshgo
from freshgo import convert, errors, infer
from freshgo._args.size import least_size

tg = pytest.importorskip("torch_geometric.nn")
from infer_models import assert_near, forward, looped_graph, made  # noqa: E402

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
    return looped_graph(NODES, EDGES)


@pytest.fixture(scope="module", params=["plain", "relaid"])
def path(request: pytest.FixtureRequest, flat: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("infer") / "graph"
    how = {"relayout": "community"} if request.param == "relaid" else {}
    convert({**flat, "edge_type": flat["edge_index"][0] % 3}, path, progress=False, **how).close()
    return path


@pytest.mark.parametrize("kind", MODELS)
def test_equals_the_forward_over_the_whole_graph(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model = made(MODELS[kind])
    out = infer(model, path, tmp_path / "out.npy", **HOW)
    assert_near(out, forward(model, flat))
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("kind", ["gcn", "gcn, no loops", "gcn, improved"])
def test_weights_of_edges(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model = made(MODELS[kind])
    want = forward(model, flat, {"edge_weight": "edge_weight"})
    assert_near(infer(model, path, tmp_path / "out.npy", edge_weight="edge_weight", **HOW), want)


def test_attributes_of_edges(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    model = made(lambda: tg.GAT(24, 16, 2, 5, heads=2, edge_dim=1))
    want = forward(model, flat, {"edge_attr": "edge_weight"})
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
    with pytest.raises(errors.BudgetError, match="memory=1 is too small: these options need at least"):
        infer(model, path, tmp_path / "out.npy", **{**HOW, "memory": 1})
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
