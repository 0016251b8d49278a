"""Tensors of floats that are stored in fewer bytes: what is read is what the definition says, whoever reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from numpy.typing import NDArray
from seeds import seed as seed_of
from torch_geometric.nn import GraphSAGE

import freshgo
from freshgo import Auto, Belady, Disk, Loader, Store, convert, quantization_error
from freshgo._data.narrow import Narrow
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import loader_options
from freshgo.errors import CorruptError, DTypeError, InvalidArgumentError

FORMS = ("float16", "bfloat16", "int8", "int8-per-row", "int8-per-column")
Floats = NDArray[np.float32]


def scale_of(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The scale and the offset of numbers between two, as docs/format.md defines them."""
    wide_low, wide_high = low.astype(np.float64), high.astype(np.float64)
    offset = ((wide_low + wide_high) / 2).astype(np.float32)
    half = np.maximum(wide_high - offset, offset - wide_low)
    return (half / 127).astype(np.float32), offset


def int8(rows: Floats, axis: int) -> Floats:
    """What int8 with a scale for each row (``axis=1``) or column (``axis=0``) makes of rows."""
    flat = rows.reshape(len(rows), -1)
    scale, offset = scale_of(flat.min(axis, keepdims=True), flat.max(axis, keepdims=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.rint((flat.astype(np.float64) - offset) / scale.astype(np.float64))
    steps = np.where(scale == 0, 0, np.clip(steps, -127, 127)).astype(np.int8)
    return (scale * steps.astype(np.float32) + offset).reshape(rows.shape)


def expected(rows: Floats, form: str) -> Floats:
    if form in ("float16", "bfloat16"):
        return torch.from_numpy(rows).to(getattr(torch, form)).float().numpy()
    if form == "int8":
        by_row, by_column = int8(rows, 1), int8(rows, 0)
        by_row_error, by_column_error = (float(((kind - rows) ** 2).sum()) for kind in (by_row, by_column))
        return by_row if by_row_error < by_column_error else by_column
    return int8(rows, 1 if form == "int8-per-row" else 0)


def graph_with(rows: Floats, **more: Any) -> dict[str, Any]:
    graph = random_graph(num_nodes=len(rows), num_edges=10 * len(rows), seed=3)
    return {**graph, "x": rows, "attr": np.float32(np.arange(10 * len(rows)) % 97) / 8, **more}


@pytest.fixture(scope="module")
def rows() -> Floats:
    """Rows whose columns differ in scale, and one that is constant."""
    values = np.random.default_rng(seed_of(7)).standard_normal((2000, 30), dtype=np.float32)
    values *= np.float32(10) ** (np.arange(30, dtype=np.float32) % 5 - 2)
    values[17] = 3.25
    return values


@pytest.fixture(scope="module")
def stores(rows: Floats, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("narrow")
    graph = graph_with(rows)
    for form in FORMS:
        convert(graph, folder / form, dtype={"x": form}, progress=False).close()
    return {form: folder / form for form in FORMS}


@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_reads_as_the_definition_says(stores: dict[str, Path], rows: Floats, form: str) -> None:
    with Store.open(stores[form]) as store:
        store.verify()
        assert store.tensors["x"].dtype == torch.float32
        assert store.tensors["x"].shape == rows.shape
        stored = store.tensors["x"].stored
        assert stored is not None and stored.startswith(form)
        assert f"stored as {stored}" in store.inspect()
        np.testing.assert_array_equal(store["x"].numpy(), expected(rows, form))
        assert store.tensors["half"].stored is None  # it was narrow before


@pytest.mark.parametrize("form", FORMS)
def test_the_error_is_that_of_what_is_read(stores: dict[str, Path], rows: Floats, form: str) -> None:
    with Store.open(stores[form]) as store:
        difference = np.abs(store["x"].numpy().astype(np.float64) - rows)
        error = quantization_error(store, "x")
        assert error.max == pytest.approx(difference.max())
        assert error.rmse == pytest.approx(np.sqrt((difference**2).mean()))
        assert error.relative == pytest.approx(np.sqrt((difference**2).sum() / (rows.astype(np.float64) ** 2).sum()))
        assert quantization_error(store, "half") == (0, 0, 0)


CASES: list[dict[str, Any]] = [
    {"memory": "64MiB"},  # everything held
    {"cache": Belady(scratch_size="4MiB"), "feature_cache": "40KiB"},
    {"cache": Belady(scratch_size=0, transfer="scan"), "feature_cache": "40KiB"},
    {"cache": Belady(transfer="pack+forward", scratch_size="4MiB"), "feature_cache": "40KiB"},
    {"cache": "degree", "feature_cache": "40KiB"},
    {"cache": "sieve", "feature_cache": "40KiB"},
    {"cache": "none", "feature_cache": 0, "disk": Disk(io="pread", checksums=True)},
]


@pytest.mark.parametrize("options", CASES, ids=lambda case: "-".join(map(str, case.values())))
@pytest.mark.parametrize("form", FORMS)
def test_batches_have_the_same_rows_however_they_come(
    stores: dict[str, Path], form: str, options: dict[str, Any]
) -> None:
    with Store.open(stores[form]) as store:
        x, attr = store["x"], store["attr"]
        for num_workers in (1, 3):
            with Loader(
                store, [5, 3], "train", batch_size=64, shuffle=True, seed=5, num_workers=num_workers, **options
            ) as loader:
                for _ in range(2):
                    for batch in loader:
                        assert torch.equal(batch.x, x[batch.n_id])
                        assert torch.equal(batch.attr, attr[batch.e_id])


@pytest.mark.parametrize("options", CASES[:2], ids=["held", "planned"])
@pytest.mark.parametrize("form", FORMS)
def test_stored_numbers_come_with_their_scales(stores: dict[str, Path], form: str, options: dict[str, Any]) -> None:
    with (
        Store.open(stores[form]) as store,
        Loader(store, [4], feature_dtype="stored", batch_size=100, **options) as loader,
    ):
        x = store["x"]
        for batch in loader:
            if form in ("float16", "bfloat16"):
                assert batch.x.dtype == getattr(torch, form)
                assert torch.equal(batch.x.float(), x[batch.n_id])
            else:
                assert batch.x.dtype == torch.int8
                assert batch.x.shape == (batch.num_nodes, 30)
                assert batch.x_scale.shape == (
                    (30,) if store.tensors["x"].stored == "int8-per-column" else (batch.num_nodes, 1)
                )
                assert torch.equal(batch.x_scale * batch.x.float() + batch.x_offset, x[batch.n_id])


@pytest.mark.parametrize("form", FORMS)
def test_rows_widened_by_torch_have_the_same_bits(stores: dict[str, Path], form: str) -> None:
    """On a device rows are widened after the copy."""
    with Store.open(stores[form]) as store:
        x = store["x"]
        how = next(Narrow(t) for t in store._contents.info["tensors"] if t["name"] == "x")
        options = loader_options(seeds=torch.arange(2000), batch_size=500, feature_dtype="stored")
        native = NativeLoader(store._contents.native, options)
        native.start(0, 0)
        while (batch := native.next()) is not None:
            assert torch.equal(how.widen(batch.tensors["x"]), x[batch.tensors["n_id"]])
        native.close()


@pytest.mark.parametrize("form", FORMS)
def test_a_relayout_keeps_the_numbers(stores: dict[str, Path], rows: Floats, tmp_path: Path, form: str) -> None:
    with Store.open(stores[form]) as store:
        relaid = freshgo.relayout(store, tmp_path / "relaid", hotness="degree", progress=False)
        at_once = convert(graph_with(rows), tmp_path / "at-once", dtype={"x": form}, relayout="hot", progress=False)
        for other in (relaid, at_once):
            with other:
                other.verify()
                assert other.tensors["x"] == store.tensors["x"]
                assert torch.equal(other["x"], store["x"])
                assert quantization_error(other, "x") == quantization_error(store, "x")
                with Loader(other, [3], feature_cache="40KiB", batch_size=200) as loader:
                    for batch in loader:
                        assert torch.equal(batch.x, store["x"][batch.n_id])


@pytest.mark.parametrize("form", FORMS)
def test_propagate_adds_up_the_numbers_that_are_read(rows: Floats, tmp_path: Path, form: str) -> None:
    with convert(graph_with(rows), tmp_path / "store", dtype={"x": form}, progress=False) as store:
        wide = {**graph_with(rows), "x": store["x"]}
    convert(wide, tmp_path / "wide", progress=False).close()
    with (
        freshgo.propagate(tmp_path / "store", reduce="mean", progress=False) as ours,
        freshgo.propagate(tmp_path / "wide", reduce="mean", progress=False) as theirs,
    ):
        assert ours.tensors["x_mean"].dtype == torch.float32
        assert torch.equal(ours["x_mean"], theirs["x_mean"])


def test_types_are_narrowed_one_by_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(seed_of(11))
    graph = {
        "paper": {"x": rng.random((300, 16), dtype=np.float32), "z": rng.random((300, 9), dtype=np.float32)},
        "author": {"x": rng.random((200, 8), dtype=np.float32)},
        ("author", "writes", "paper"): {
            "edge_index": np.stack([rng.integers(200, size=900), rng.integers(300, size=900)]),
            "attr": rng.random((900, 3, 4), dtype=np.float32),
        },
    }
    edge_type = ("author", "writes", "paper")
    dtype = {"x": "float16", "paper": {"z": torch.bfloat16}, edge_type: {"attr": "int8-per-row"}}
    with convert(graph, tmp_path / "store", dtype=dtype, progress=False) as store:
        forms = {
            ("paper", "x"): "float16",
            ("author", "x"): "float16",
            ("paper", "z"): "bfloat16",
            (edge_type, "attr"): "int8-per-row",
        }
        for (owner, name), form in forms.items():
            assert store[owner].tensors[name].stored == form
            np.testing.assert_array_equal(store.read(name, owner).numpy(), expected(graph[owner][name], form))  # type: ignore[index]
        assert quantization_error(store, "attr", edge_type).max > 0
        for feature_cache in (None, "4KiB"):
            with Loader(
                store, [4, 4], {"paper": torch.arange(300)}, batch_size=50, feature_cache=feature_cache
            ) as loader:
                for batch in loader:
                    for owner, name in (("paper", "x"), ("paper", "z"), ("author", "x")):
                        assert torch.equal(batch[owner][name], store.read(name, owner)[batch[owner].n_id])
                    links = batch[edge_type]
                    assert torch.equal(links.attr, store.read("attr", edge_type)[links.e_id])
        with Loader(store, [4], {"paper": torch.arange(300)}, batch_size=50, feature_dtype="stored") as loader:
            links = next(iter(loader))[edge_type]
            wide = links.attr_scale * links.attr.float() + links.attr_offset
            assert torch.equal(wide, store.read("attr", edge_type)[links.e_id])


def test_edges_are_drawn_by_narrow_weights_as_by_their_values(rows: Floats, tmp_path: Path) -> None:
    graph = graph_with(rows)
    half = graph["attr"].astype(np.float16).astype(np.float32)
    with (
        convert(graph, tmp_path / "narrow", dtype={"attr": "float16"}, progress=False) as narrow,
        convert({**graph, "attr": half}, tmp_path / "wide", progress=False) as wide,
    ):
        loaders = [Loader(store, [3, 3], weight_attr="attr", batch_size=300, seed=2) for store in (narrow, wide)]
        for ours, theirs in zip(*loaders, strict=True):
            assert torch.equal(ours.n_id, theirs.n_id)
            assert torch.equal(ours.attr, theirs.attr)
        for loader in loaders:
            loader.close()


@pytest.mark.parametrize("memory", [None, "6MiB"], ids=["held", "from disk"])
def test_rows_that_a_history_leaves_out_are_zero(stores: dict[str, Path], memory: str | None) -> None:
    """As they are without narrowing: also where a stored zero stands for another number."""
    model = GraphSAGE(30, 8, num_layers=2, out_channels=7)
    history = freshgo.History(memory="1MiB", policy="gradient", keep="rows")
    history.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    left_out = 0
    with (
        Store.open(stores["int8-per-column"]) as store,
        Loader(
            store, [4, 4], "train", batch_size=100, history=history, memory=memory, cache=Auto(scratch_size=0)
        ) as loader,
    ):
        x = store["x"]
        assert not (x == 0).any()
        for _ in range(3):
            for batch in loader:
                zero = (batch.x == 0).all(1)
                assert torch.equal(batch.x[~zero], x[batch.n_id][~zero])
                left_out += int(zero.sum())
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
                history.update()
    assert left_out > 0


@pytest.mark.parametrize(
    ("dtype", "error", "message"),
    [
        ("float16", DTypeError, "dtype must be a mapping from names of tensors to dtypes, got 'float16'"),
        ({"z": "float16"}, InvalidArgumentError, "dtype names the tensor 'z', which .* it has 'attr', "),
        ({"x": "float8"}, InvalidArgumentError, "dtype\\['x'\\] must be one of 'float16', .*, got 'float8'"),
        ({"x": torch.float32}, InvalidArgumentError, "must be one of 'float16', .*, got 'float32'"),
        (
            {"paper": {"x": "float16"}},
            InvalidArgumentError,
            "dtype names the type 'paper', which .* it has none at all",
        ),
        ({"y": "float16"}, InvalidArgumentError, "y holds int64, expected floats to store as float16"),
        ({"half": "float16"}, InvalidArgumentError, "half holds float16, which float16 does not make narrower"),
        ({"half": "int8"}, InvalidArgumentError, "rows of 5 numbers, expected at least 8 to store as int8"),
    ],
)
def test_wrong_dtypes(rows: Floats, tmp_path: Path, dtype: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        convert(graph_with(rows), tmp_path / "store", dtype=dtype, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("bad", "dtype", "message"),
    [
        (65520.0, "float16", r"x\[1234, 5\] is 65520, too large for float16"),
        (np.finfo(np.float32).max, "bfloat16", r"x\[1234, 5\] is 3.4028234663852886e\+38, too large for bfloat16"),
        (np.nan, "int8", r"x\[1234, 5\] is NaN, expected finite numbers to store as int8"),
        (-np.inf, "int8-per-row", r"x\[1234, 5\] is -Inf, expected finite numbers to store as int8-per-row"),
    ],
)
def test_numbers_that_a_dtype_cannot_hold(rows: Floats, tmp_path: Path, bad: float, dtype: str, message: str) -> None:
    rows = rows.copy()
    rows[1234, 5] = bad
    with pytest.raises(InvalidArgumentError, match=message):
        convert(graph_with(rows), tmp_path / "store", dtype={"x": dtype}, progress=False)
    assert not list(tmp_path.iterdir())


def test_clipped_numbers_become_the_largest(rows: Floats, tmp_path: Path) -> None:
    rows = rows.astype(np.float64)
    rows[3, 4], rows[7, 8], rows[9, 10] = 1e9, np.inf, np.nan
    with pytest.raises(InvalidArgumentError, match=r"x\[3, 4\] is 1e\+09, too large for float16"):
        convert(graph_with(rows), tmp_path / "store", dtype={"x": "float16"}, progress=False)
    rows[5, 6] = -1e300
    with convert(graph_with(rows), tmp_path / "store", dtype={"x": "float16"}, clip=True, progress=False) as store:
        x = store["x"].numpy()
        assert (x[3, 4], x[5, 6], x[7, 8]) == (65504, -65504, np.inf)
        assert np.isnan(x[9, 10])
        assert np.isfinite(quantization_error(store, "x").max)


def test_wide_floats_that_float32_cannot_hold(rows: Floats, tmp_path: Path) -> None:
    rows = rows.astype(np.float64)
    rows[99, 1] = 1e300
    with pytest.raises(InvalidArgumentError, match=r"x\[99, 1\] is 1e\+300, too large for float32"):
        convert(graph_with(rows), tmp_path / "store", dtype={"x": "int8"}, progress=False)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_sources_of_all_kinds_become_int8(tmp_path: Path, dtype: Any, order: str) -> None:
    rows = np.random.default_rng(seed_of(1)).standard_normal((500, 2, 11)).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(rows, order="F" if order == "F" else "C"))
    for source in (np.asarray(rows, order="F" if order == "F" else "C"), tmp_path / "x.npy"):
        graph = {"edge_index": np.zeros((2, 1), np.int64), "num_nodes": 500, "x": source}
        with convert(graph, tmp_path / "store", dtype={"x": "int8-per-row"}, overwrite=True, progress=False) as store:
            np.testing.assert_array_equal(store["x"].numpy(), int8(rows.astype(np.float32), 1))


def test_a_small_budget_suffices(tmp_path: Path) -> None:
    rows = np.random.default_rng(seed_of(1)).standard_normal((20_000, 100), dtype=np.float32)
    graph = {"edge_index": np.zeros((2, 1), np.int64), "num_nodes": 20_000, "x": rows}
    with pytest.raises(freshgo.errors.BudgetError) as caught:
        convert(graph, tmp_path / "store", dtype={"x": "int8"}, memory=1000, progress=False)
    with convert(graph, tmp_path / "store", dtype={"x": "int8"}, memory=caught.value.minimum, progress=False) as store:
        np.testing.assert_array_equal(store["x"].numpy(), expected(rows, "int8"))


def test_weights_by_target_are_stored_as_they_are(rows: Floats, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="attr is to be stored as float16, but weights by position"):
        convert(graph_with(rows), tmp_path / "store", dtype={"attr": "float16"}, weight_attr="attr", progress=False)


def test_names_of_scales_are_free(rows: Floats, tmp_path: Path) -> None:
    with convert(graph_with(rows, x_scale=rows), tmp_path / "store", dtype={"x": "int8"}, progress=False) as store:
        Loader(store, [2]).close()
        with pytest.raises(InvalidArgumentError, match="'x_scale' for 'x', but the graph has a tensor of this name"):
            Loader(store, [2], feature_dtype="stored")
        with pytest.raises(
            InvalidArgumentError, match="feature_dtype must be one of 'float32', 'stored', got 'float16'"
        ):
            Loader(store, [2], feature_dtype="float16")
        with pytest.raises(InvalidArgumentError, match="the store has no tensor 'w'"):
            quantization_error(store, "w")
        with pytest.raises(DTypeError, match="the tensor 'y' holds int64, expected floats"):
            quantization_error(store, "y")


def test_a_flipped_bit_is_found(stores: dict[str, Path], tmp_path: Path, rows: Floats) -> None:
    path = tmp_path / "store"
    convert(graph_with(rows), path, dtype={"x": "int8-per-row"}, progress=False).close()
    file = next(path.glob("node*_x.bin"))
    data = bytearray(file.read_bytes())
    data[5000] ^= 4
    file.write_bytes(data)
    with Store.open(path) as store, pytest.raises(CorruptError, match=r"node0_x\.bin"):
        store.verify()
