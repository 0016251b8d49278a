"""Numbers of edges in five bytes, which stores with more than 2^32 edges have, as Python reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshgo import convert
from freshgo._args.arrays import read_uint40, stored_dtype
from freshgo._infer.files import Moved
from freshgo._infer.lists import Lists, Numbers


def written(path: Path, numbers: np.ndarray[Any, Any]) -> None:
    """Write numbers as a store does: 819 to a page of 4096 bytes."""
    pages = np.zeros((-(-len(numbers) // 819), 4096), np.uint8)
    rows = np.zeros((len(pages) * 819, 5), np.uint8)
    rows[: len(numbers)] = numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :5]
    pages[:, :4095] = rows.reshape(len(pages), 4095)
    pages.tofile(path)


@pytest.mark.parametrize("count", [0, 1, 818, 819, 820, 5000])
def test_any_part_is_read(tmp_path: Path, count: int) -> None:
    numbers = np.random.default_rng(count).integers(1 << 40, size=count)
    written(tmp_path / "n.bin", numbers)
    with (tmp_path / "n.bin").open("rb") as file:

        def read(into: memoryview, at: int) -> None:
            file.seek(at)
            assert file.readinto(into) == len(into)

        for first in {0, count // 3, max(0, count - 819), count}:
            for n in {0, (count - first) // 2, count - first}:
                np.testing.assert_array_equal(read_uint40(read, first, n), numbers[first : first + n])


def test_lists_of_inference_read_weights_by_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    numbers, weights = rng.permutation(2000), rng.random(2000, np.float32)
    written(tmp_path / "ids.bin", numbers)
    np.array([0, 1200, 2000]).tofile(tmp_path / "ptr.bin")
    np.zeros(2000, np.int32).tofile(tmp_path / "sources.bin")
    arrays = {
        "indptr": Numbers(tmp_path / "ptr.bin", np.dtype("int64")),
        "indices": Numbers(tmp_path / "sources.bin", np.dtype("int32")),
        "edge_ids": Numbers(tmp_path / "ids.bin", stored_dtype("uint40")),
    }
    lists = Lists(arrays, 2, 2000, 700, Moved(), weights)
    found = [piece.weight.numpy() for piece in lists.pieces(0, 2) if piece.weight is not None]
    np.testing.assert_array_equal(np.concatenate(found), weights[numbers])
    lists.close()


def test_pyg_sees_the_edges_in_their_order(tmp_path: Path) -> None:
    topology = pytest.importorskip("freshgo._remote.topology")
    numbers = np.random.default_rng(4).permutation(3000)
    graph = {"edge_index": np.stack([numbers % 50, numbers % 31]), "num_nodes": 50}
    with convert(graph, tmp_path / "g", progress=False) as store:
        written(Path(store.path) / "five.bin", numbers)
        array = {"file": "five.bin", "dtype": "uint40", "shape": [3000]}
        np.testing.assert_array_equal(topology.StoreTopology(store)._read(array), numbers)
