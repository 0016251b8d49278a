"""Grouping, numbering and gathering by the kernels of the device: every value as on the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from freshgo import errors, ops
from freshgo._device import rows
from freshgo._native import abi

SIZES = [0, 1, 31, 1025, 20_000]


def size_on(machine: Any, n: int) -> int:
    """A GPU gets the largest one 150 times larger."""
    return 150 * n if machine.real and n == SIZES[-1] else n


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_transpose_and_group(machine: Any, n: int, kind: torch.dtype) -> None:
    n = size_on(machine, n)
    generator = torch.Generator().manual_seed(n)
    sources, targets = n // 3 + 1, n // 7 + 1
    index = (sources * torch.rand(n, generator=generator) ** 3).to(kind).clamp_(max=sources - 1)
    target = torch.randint(targets, (n,), generator=generator, dtype=kind)
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(target.long(), minlength=targets).cumsum(0)])
    edges = torch.stack([index, target])
    want = ops.transpose(index, ptr, sources), ops.group(edges, targets)

    def there() -> Any:
        return (
            [t.cpu() for t in ops.transpose(index.to(machine.device), ptr.to(machine.device), sources)],
            [t.cpu() for t in ops.group(edges.to(machine.device), targets)],
        )

    got = machine.run(there)
    for expected, found in zip(want, got, strict=True):
        assert all(a.equal(b) and a.dtype == b.dtype for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_numbers(machine: Any, n: int, kind: torch.dtype) -> None:
    n = size_on(machine, n)
    ids = torch.randint(n // 2 + 1, (n,), generator=torch.Generator().manual_seed(n), dtype=kind)
    node, local, count = ops.number(ids)
    on_node, on_local, on_count = machine.run(lambda: [t.cpu() for t in ops.number(ids.to(machine.device))])
    assert on_count.equal(count)
    assert on_node[: int(count)].equal(node[: int(count)])
    assert on_local.equal(local)


def test_a_negative_id_is_told(machine: Any) -> None:
    def negative() -> None:
        local = ops.number(torch.tensor([4, 7, -3, 4], device=machine.device))[1].cpu()
        assert local.tolist() == [0, 1, -1, 0]
        with pytest.raises(errors.InvalidArgumentError, match=r"index\[2\] out of range"):
            ops.number(torch.tensor([4], device=machine.device))

    machine.run(negative)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8, 12, 16, 24, 100, 512, 1000])
def test_rows_from_the_cache_and_from_memory_of_the_host(machine: Any, width: int) -> None:
    """The table of missed rows stays on the host, locked: the device reads it where it is."""
    generator = torch.Generator().manual_seed(width)
    n = 20_000 if machine.real else 300
    table, missed = (torch.randint(256, (r, width), generator=generator, dtype=torch.uint8) for r in (70, 200))
    place = torch.randint(-200, 70, (n,), generator=generator, dtype=torch.int32)
    want = rows.assemble(table, missed, place)
    host = missed.pin_memory() if machine.real else missed
    got = machine.run(lambda: rows.by_kernel(table.to(machine.device), host, place.to(machine.device)).cpu())
    assert got.equal(want)


def test_memory_that_the_library_locks(machine: Any) -> None:
    missed = torch.arange(64 * 1024, dtype=torch.float32).view(-1, 16)
    address = ctypes.c_void_p()
    abi.call("fg_cuda_register_host", 0, missed.data_ptr(), missed.nbytes, ctypes.byref(address))
    assert address.value == missed.data_ptr()  # unified addressing
    try:
        if machine.real:
            assert missed.is_pinned()
        place = ~torch.randperm(missed.size(0), generator=torch.Generator().manual_seed(0)).int()
        table = torch.empty(0, 16, device=machine.device)
        got = machine.run(lambda: rows.by_kernel(table, missed, place.to(machine.device)).cpu())
        assert got.equal(missed[(~place).long()])
    finally:
        abi.call("fg_cuda_unregister_host", 0, missed.data_ptr())
    with pytest.raises(errors.CudaError):
        abi.call("fg_cuda_unregister_host", 0, missed.data_ptr())


def test_a_slot_beyond_the_cache_is_told(machine: Any) -> None:
    def wrong() -> None:
        table, missed = torch.ones(4, 8, device=machine.device), torch.ones(2, 8, device=machine.device)
        place = torch.tensor([0, 9, ~1], dtype=torch.int32, device=machine.device)
        assert rows.by_kernel(table, missed, place).cpu()[1].eq(0).all()
        with pytest.raises(errors.InvalidArgumentError, match=r"slot\[1\] out of range"):
            rows.by_kernel(table, missed, place)

    machine.run(wrong)
