"""Rows on a device and rows of a batch, put together: by PyTorch, and by the kernel's arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_fakes import HostKernels
from seeds import seed as seed_of

from freshgo._device import row_cache
from freshgo._device import rows as device_rows

DTYPES = [torch.bool, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
          torch.float16, torch.bfloat16, torch.float32, torch.float64]  # fmt: skip


def rows(count: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    values = torch.randint(0, 100, (count, *shape), generator=torch.Generator().manual_seed(seed_of(seed)))
    return values.bool() if dtype == torch.bool else values.to(dtype)


@pytest.fixture(params=["torch", "kernel"])
def assemble(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "torch":
        return device_rows.assemble
    HostKernels().install(monkeypatch)
    return device_rows.by_kernel


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (8,), (2, 3)], ids=str)
def test_rows_of_every_kind(assemble: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    table, missed = rows(7, shape, dtype, 1), rows(4, shape, dtype, 2)
    place = torch.tensor([6, ~0, 0, ~3, ~3, 2, 2, ~1], dtype=torch.int32)
    want = torch.stack([table[p] if p >= 0 else missed[~p] for p in place.tolist()])
    got = assemble(table, missed, place)
    assert got.dtype == dtype
    assert got.shape == (8, *shape)
    assert got.tolist() == want.tolist()
    for p in (place[place >= 0], place[:0]):
        assert assemble(table, missed[:0], p).tolist() == [table[i].tolist() for i in p.tolist()]
    only = place[place < 0]
    assert assemble(table[:0], missed, only).tolist() == [missed[~i].tolist() for i in only.tolist()]
    assert assemble(table[:0], missed[:0], place[:0]).shape == (0, *shape)


def test_rows_without_columns(assemble: Any) -> None:
    got = assemble(torch.empty(3, 0), torch.empty(2, 0), torch.tensor([0, ~1, 2], dtype=torch.int32))
    assert got.shape == (3, 0)


def test_the_hottest_are_those_of_a_stable_sort() -> None:
    generator = torch.Generator().manual_seed(seed_of(4))
    for levels in (1, 3, 1000):
        scores = torch.randint(0, levels, (200,), generator=generator).float()
        ranked = scores.sort(descending=True, stable=True).indices
        for count in (0, 1, 17, 100, 199, 200):
            assert row_cache.hottest(scores, count).tolist() == ranked[:count].sort().values.tolist()


def test_the_hottest_of_types_fit_together() -> None:
    generator = torch.Generator().manual_seed(seed_of(5))
    parts = [device_rows.Part("n0/", 50, {"n0/x": 8, "n0/y": 2}), device_rows.Part("n1/", 30, {}),
             device_rows.Part("n2/", 0, {"n2/x": 4}), device_rows.Part("n3/", 60, {"n3/x": 3})]  # fmt: skip
    widths = torch.cat([torch.full((part.num_nodes,), part.width) for part in parts]).tolist()
    for levels in (1, 3, 1000):
        scores = torch.randint(0, levels, (140,), generator=generator).float()
        for room in (0, 9, 10, 57, 300, 679, 680, 1000):
            want, used = [], 0
            for v in sorted(range(140), key=lambda v: (-scores[v].item(), v)):
                if widths[v] == 0:
                    continue
                used += widths[v]
                if used > room:
                    break
                want.append(v)
            assert row_cache.hottest_bytes(scores, parts, room).tolist() == sorted(want)


def test_filling_keeps_the_order_of_the_ids() -> None:
    ids = torch.tensor([2, 3, 5, 8])
    x = rows(10, (3,), torch.float32, 3)
    y = rows(10, (), torch.int64, 4)
    parts = [device_rows.Part("", 10, {"x": 12, "y": 8})]
    cache = row_cache.DeviceCache(ids, parts)
    cache.fill(({"x": x[part], "y": y[part]} for part in ids.split(3)), torch.device("cpu"))
    assert cache.row_of_node.tolist() == [-1, -1, 0, 1, -1, 2, -1, -1, 3, -1]
    assert cache.tables["x"].equal(x[ids])
    assert cache.n_bytes == 4 * (12 + 8)
    n_id = torch.tensor([5, 0, 8])
    missed = torch.tensor([0])
    place = torch.tensor([2, ~0, 3], dtype=torch.int32)
    complete = device_rows.Rows(parts, device_rows.assemble, torch.device("cpu"))
    complete.hold(cache.tables)
    batch = complete.finish({"n_id": n_id, "place": place, "x": x[missed], "y": y[missed], "edge_attr": y})
    assert list(batch) == ["n_id", "x", "y", "edge_attr"]
    assert batch["x"].equal(x[n_id])
    assert batch["y"].equal(y[n_id])
    assert batch["edge_attr"] is y
