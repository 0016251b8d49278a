"""How arrays of every kind are described to the library, and that it reads them right."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import native_inputs
import numpy as np
import pytest
import torch
from seeds import seed as seed_of

from freshgo import errors
from freshgo._args.arrays import NpyFile
from freshgo._native import dlpack
from freshgo._native.graph import Graph as NativeGraph
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.process import counters
from freshgo._native.store import Store as NativeStore

pytestmark = pytest.mark.explore

NODES = 60


def described(array: Any, *, map_files: bool = False) -> Any:
    return dlpack.ArrayList(map_files=map_files).one("a", array)


def read_back(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What somebody who follows the description finds."""
    raw = described(array)
    shape, strides = raw.shape[: raw.ndim], raw.strides[: raw.ndim]
    out = np.empty(shape, array.dtype)
    for index in np.ndindex(*shape):
        at = raw.data + sum(i * s for i, s in zip(index, strides, strict=True))
        out[index] = np.frombuffer(ctypes.string_at(at, array.itemsize), array.dtype)[0]
    return out


def views(seed: int) -> list[np.ndarray[Any, Any]]:
    """Random slices, flips and transposes of an array."""
    rng = np.random.default_rng(seed_of(seed))
    base = rng.integers(-(2**15), 2**15, size=tuple(rng.integers(1, 6, size=3))).astype(
        rng.choice(["<i2", "<f4", "<i8"])
    )
    out = [base, np.asfortranarray(base), base.T, base[:, :0]]
    for _ in range(10):
        steps = [slice(None, None, int(step)) for step in rng.choice([-2, -1, 1, 2], size=3)]
        out.append(base[tuple(steps)].transpose(rng.permutation(3)))
    return out


@pytest.mark.parametrize("seed", range(5))
def test_memory_is_described_as_it_lies(seed: int) -> None:
    for view in views(seed):
        assert np.array_equal(read_back(view), view)
        layout = dlpack._layout("a", view)
        assert layout.extent() == np.lib.array_utils.byte_bounds(view) or view.size == 0


def test_tensors_and_arrays_look_the_same() -> None:
    for view in views(9):
        if min(view.strides) >= 0 and view.size > 0:
            a, b = described(view), described(torch.from_numpy(view))
            same = ("data", "ndim", "offset", "path")
            assert [getattr(a, name) for name in same] == [getattr(b, name) for name in same]
            assert a.shape[: a.ndim] == b.shape[: b.ndim]
            assert a.strides[: a.ndim] == b.strides[: b.ndim]
            assert (a.dtype.code, a.dtype.bits, a.dtype.lanes) == (b.dtype.code, b.dtype.bits, b.dtype.lanes)


@pytest.mark.parametrize(
    ("array", "error", "match"),
    [
        (np.zeros(3, ">f4"), errors.DTypeError, "big-endian"),
        (np.zeros(3, np.complex64), errors.DTypeError, "complex64"),
        (np.zeros(3, object), errors.DTypeError, "object"),
        (np.zeros(3, "M8[s]"), errors.DTypeError, "datetime64"),
        (torch.zeros(3, dtype=torch.complex64), errors.DTypeError, "complex64"),
        ([1, 2, 3], errors.DTypeError, "list"),
        (torch.zeros(3, device="meta"), errors.DTypeError, "meta"),
        (torch.zeros(3, 3).to_sparse(), errors.DTypeError, "sparse"),
    ],
)
def test_what_cannot_be_described(array: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"^a .*{match}"):
        described(array)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_shared_mappings_are_read_as_files(mode: Any, tmp_path: Path) -> None:
    path = tmp_path / "größe 1.npy"
    whole = np.arange(40_000, dtype=np.float32).reshape(4000, 10)
    np.save(path, whole)
    mapped = np.load(path, mmap_mode=mode)
    for view in (
        mapped,
        mapped[100:],
        mapped[::3],
        mapped[10:20],
        torch.from_numpy(mapped) if mode == "r+" else mapped,
    ):
        raw = described(view, map_files=True)
        if mode == "c":  # private: may hold changes that the file does not have
            assert raw.path is None
            continue
        assert Path(raw.path.decode()) == path
        assert not raw.data
        with path.open("rb") as file:
            file.seek(raw.offset)
            assert np.frombuffer(file.read(4), np.float32)[0] == view[0, 0]
        assert raw.strides[: raw.ndim] == list(dlpack._layout("a", view).strides)
    for view in (mapped[::-1], mapped[:, ::2], mapped[:, ::-1], whole, mapped[:0]):
        raw = described(view, map_files=True)
        assert raw.path is None, "an order that files are not read in, or no file"
    assert described(mapped).path is None
    path.unlink()
    assert described(mapped, map_files=True).path is None, "no longer there"
    np.save(path, whole)
    assert described(mapped, map_files=True).path is None, "another file of the same name"


def test_conversion_reads_every_kind_of_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(seed_of(3))
    edges = rng.integers(NODES, size=(2, 500))
    plain = rng.standard_normal((NODES, 6)).astype(np.float32)
    np.save(tmp_path / "c.npy", plain)
    np.save(tmp_path / "f.npy", np.asfortranarray(plain))
    offset = (tmp_path / "c.npy").stat().st_size - plain.nbytes
    np.save(tmp_path / "wide.npy", np.pad(plain.T, ((1, 1), (0, 5))))
    wide = np.load(tmp_path / "wide.npy", mmap_mode="r")
    np.save(tmp_path / "pairs.npy", edges.T)
    doubled = np.repeat(np.repeat(plain, 2, 0), 2, 1)
    tensors: dict[str, Any] = {
        "plain": plain,
        "fortran": np.asfortranarray(plain),
        "flipped": plain[::-1, ::-1].copy()[::-1, ::-1],
        "strided": doubled[::2, ::2],
        "torch": torch.from_numpy(plain),
        "torch_strided": torch.from_numpy(doubled)[::2, 1::2],
        "file": NpyFile(str(tmp_path / "c.npy"), offset, plain.dtype, plain.shape),
        "fortran_file": NpyFile(str(tmp_path / "f.npy"), offset, plain.dtype, plain.shape, True),
        "mapped": np.load(tmp_path / "c.npy", mmap_mode="r"),
        "mapped_fortran": np.load(tmp_path / "f.npy", mmap_mode="r"),
        "mapped_columns": wide[1:-1, :NODES].T,
        "mapped_private": np.load(tmp_path / "c.npy", mmap_mode="c"),
    }
    weights = rng.random(500)
    native_inputs.convert(
        tmp_path / "g",
        num_nodes=None,
        edge_index=np.load(tmp_path / "pairs.npy", mmap_mode="r").T,
        node_tensors=tensors,
        edge_tensors={"w": weights[::-1].copy()[::-1]},
        splits={"even": np.arange(0, NODES, 2), "mask": (np.arange(NODES) % 3 == 0)},
        memory=32 << 20,
    )
    store = NativeStore(tmp_path / "g")
    loader = NativeLoader(store, native_inputs.options(fanouts=[-1], batch_size=NODES))
    loader.start(0, 0)
    batch = loader.next()
    assert batch is not None
    found = batch.tensors["n_id"][batch.tensors["edge_index"]].numpy()
    assert np.array_equal(found, edges[:, batch.tensors["e_id"].numpy()])
    assert sorted(batch.tensors["e_id"].tolist()) == list(range(500))
    loader.close()
    for name in tensors:
        assert np.array_equal(store.read(name, kind="node").numpy(), plain), name
    assert np.array_equal(store.read("w", kind="edge").numpy(), weights)
    assert store.read("even", kind="split").tolist() == list(range(0, NODES, 2))
    assert store.read("mask", kind="split").tolist() == list(range(0, NODES, 3))
    store.close()


def test_graphs_refuse_rows_with_gaps() -> None:
    edges = torch.zeros(2, 5, dtype=torch.int64)
    for rows in (torch.zeros(NODES, 8)[:, ::2], torch.zeros(8, NODES).T):
        with pytest.raises(errors.InvalidArgumentError, match=r"strides.*rows without gaps.*'x'"):
            NativeGraph(native_inputs.parts(NODES, edges, {"x": rows}, {}))
    for wrong in (torch.zeros(NODES - 1, 2), torch.zeros(NODES + 1)):
        with pytest.raises(errors.InvalidArgumentError, match="x"):
            NativeGraph(native_inputs.parts(NODES, edges, {"x": wrong}, {}))
    with pytest.raises(errors.InvalidArgumentError, match=str(NODES)):
        NativeGraph(native_inputs.parts(NODES, edges + NODES, {}, {}))
    gc.collect()
    assert counters()["graphs"] == 0
    assert counters()["jobs"] == 0
