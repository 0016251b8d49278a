"""Memory for batches that processes share, by itself: where tensors lie, and when they are given back."""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator

import pytest
import torch
from warm import run

from freshgo import errors
from freshgo._native.shared import BLOCK, Place, SharedMapping

BLOCKS = 8


@pytest.fixture
def memory() -> Iterator[tuple[int, mmap.mmap]]:
    """Such memory as another process makes: numbers from the second block on, of which all are lent."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, BLOCKS * BLOCK)
    data = mmap.mmap(fd, BLOCKS * BLOCK)
    data[:BLOCKS] = b"\1" * BLOCKS
    data[BLOCK : BLOCK + 48] = torch.arange(6, dtype=torch.int64).numpy().tobytes()
    data[2 * BLOCK : 2 * BLOCK + 4] = b"\1\0\1\1"
    yield fd, data
    os.close(fd)


def test_tensors_give_their_blocks_back(memory: tuple[int, mmap.mmap]) -> None:
    fd, data = memory
    mapping = SharedMapping(fd)
    places = [
        Place("a", "int64", (2, 3), BLOCK),
        Place("b", "bool", (4,), 2 * BLOCK),
        Place("none", "float32", (0, 7), -1),
        Place("one", "float64", (), 3 * BLOCK),
    ]
    tensors = mapping.tensors(places)
    assert list(tensors) == ["a", "b", "none", "one"]
    assert tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["b"].tolist() == [True, False, True, True]
    assert (tensors["none"].shape, tensors["none"].dtype) == ((0, 7), torch.float32)
    assert tensors["one"].shape == ()
    data[BLOCK] = 9
    assert tensors["a"][0, 0] == 9  # no copy
    view = tensors.pop("a")[1]
    gc.collect()
    assert data[:BLOCKS] == b"\1" * BLOCKS
    mapping.close()
    assert view.tolist() == [3, 4, 5]  # outlives it
    child = os.fork()
    if child == 0:
        view = torch.empty(0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert data[1] == 1  # the child's was a copy
    del view, tensors
    gc.collect()
    assert data[:BLOCKS] == b"\1\0\0\0" + b"\1" * (BLOCKS - 4)


@pytest.mark.parametrize(
    ("shape", "offset"),
    [((8,), 0), ((8,), 100), ((8,), BLOCKS * BLOCK), ((BLOCK,), (BLOCKS - 1) * BLOCK), ((1 << 62, 4), BLOCK)],
)
def test_places_outside(memory: tuple[int, mmap.mmap], shape: tuple[int, ...], offset: int) -> None:
    mapping = SharedMapping(memory[0])
    within = Place("a", "int64", (6,), BLOCK)
    with pytest.raises(errors.InvalidArgumentError, match=r"array 1 at offset -?\d+ does not lie in the shared memory"):
        mapping.tensors([within, Place("b", "int64", shape, offset)])
    assert memory[1][1] == 0  # the one that was made has died
    mapping.close()
    with pytest.raises(errors.ClosedError):
        mapping.tensors([within])


def test_files_that_are_no_such_memory() -> None:
    fd = os.memfd_create("test")
    for n_bytes in (0, BLOCK, 2 * BLOCK + 1):
        os.ftruncate(fd, n_bytes)
        with pytest.raises(errors.InvalidArgumentError, match="is not of shared memory"):
            SharedMapping(fd)
    os.close(fd)
    with pytest.raises(errors.InvalidArgumentError, match="file descriptor -1"):
        SharedMapping(-1)


MAKER = """
import os, torch
from freshgo import Loader, errors
from freshgo._native.shared import BLOCK, Lent, SharedBatches, SharedMapping

for wrong in (0, BLOCK, 3 * BLOCK + 1):
    try:
        SharedBatches(wrong)
    except errors.InvalidArgumentError:
        continue
    raise AssertionError(wrong)
shared = SharedBatches(1 << 34)
try:
    SharedBatches(1 << 34)
    raise AssertionError("twice")
except errors.BusyError:
    pass

WIDTHS = 64, 64, 512  # of the last, rows of a batch take more than the 8 MiB from which huge pages are wanted
taken = lambda: os.fstat(shared.fd).st_blocks * 512
mapping, lent = SharedMapping(shared.fd), Lent(shared)
for width in WIDTHS:
    graph = {"edge_index": torch.arange(20_000).view(2, -1), "x": torch.rand(20_000, width)}
    with Loader(graph, [2], batch_size=3000, prefetch=2) as loader:
        for batch in loader:
            assert torch.equal(batch.x, graph["x"][batch.n_id])
            names = [name for name, value in batch.to_dict().items() if isinstance(value, torch.Tensor)]
            places = lent.send({name: batch[name] for name in names})
            there = mapping.tensors(places)
            assert all(torch.equal(there[name], batch[name]) for name in names)
            assert all(shared.lent(place) == (place.offset >= 0) for place in places)
            del there
            assert not any(shared.lent(place) for place in places)
            lent.settle()
        assert taken() > 1 << 20
    del batch
    assert taken() < 1 << 20, taken()  # what is unused goes back to the system
"""


def test_a_process_whose_batches_are_shared() -> None:
    run(MAKER)
