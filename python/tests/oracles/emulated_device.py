"""Run with an emulated driver: the device path of the library, from Python to the kernels, over memory of the host.

Prints what every check found, as JSON. test_device_emulated.py builds the driver and runs this.
"""

from __future__ import annotations

import ctypes
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from device_fakes import LateStreams

import freshgo
from freshgo import errors, ops
from freshgo._device import delivery, pinned_memory, row_cache
from freshgo._native import abi, cuda

REAL = cuda.takes, cuda._stream, cuda._status
STATUS = {0: torch.zeros(1, dtype=torch.int64)}


def on_device(compute: Callable[[], Any]) -> Any:
    """Compute by the kernels for CUDA, which here run over memory of the host."""
    cuda.takes, cuda._stream, cuda._status = lambda tensor: True, lambda device: 0, STATUS
    try:
        return compute()
    finally:
        cuda.takes, cuda._stream, cuda._status = REAL


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    degrees = torch.randint(0, 40, (60,), generator=generator)
    degrees[:3] = 0
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    return torch.randint(0, 80, (int(ptr[-1]),), generator=generator), ptr


CASES: dict[str, Callable[..., torch.Tensor]] = {
    "sum": lambda x, i, p, w, t: ops.aggregate(x, i, p, transposed=t),
    "mean": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="mean", transposed=t),
    "max": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="max", transposed=t),
    "min": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="min", transposed=t),
    "weighted": lambda x, i, p, w, t: ops.aggregate(x, i, p, w, transposed=t),
    "gcn": lambda x, i, p, w, t: ops.gcn(x, i, p, transposed=t),
    "gcn, weighted": lambda x, i, p, w, t: ops.gcn(x, i, p, w.abs(), transposed=t),
    "attention": lambda x, i, p, w, t: ops.attention(
        x.view(-1, 2, x.size(1) // 2), x[:, :2], x[: p.numel() - 1, 2:4], i, p, add_self_loops=True, transposed=t
    ).flatten(1),
    "gat": lambda x, i, p, w, t: ops.gat(
        x,
        x[:2, : x.size(1) // 2].detach() / 4,  # the derivatives by these are PyTorch's products, see test_device_ops.py
        x[2:4, : x.size(1) // 2].detach() / 4,
        None,
        i,
        p,
        negative_slope=0.2,
        add_self_loops=True,
        dropout=0.0,
        transposed=t,
    ),
}


def difference(case: str, dtype: torch.dtype, part: str) -> float:
    """The largest difference of values and gradients, relative to what a rounding of ``dtype`` is."""
    index, ptr = graph()
    transposed = ops.transpose(index, ptr, 80) if part != "alone" else None
    if part == "first targets":
        ptr = ptr[:31]
        index = index[: int(ptr[-1])]

    def compute() -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(80, 12, generator=generator).to(dtype).requires_grad_()
        weight = torch.randn(index.numel(), generator=generator, dtype=torch.promote_types(dtype, torch.float32))
        weight.requires_grad_()
        out = CASES[case](x, index, ptr, weight, transposed)
        out.backward(torch.randn(out.shape, generator=generator).to(out.dtype))
        return [t.detach() for t in (out, x.grad, weight.grad) if t is not None]

    want, got = compute(), on_device(compute)
    assert len(want) == len(got)
    return max(
        float(((a - b).abs() / (a.abs() + 1)).max()) / torch.finfo(a.dtype).eps for a, b in zip(want, got, strict=True)
    )


def tables() -> dict[str, bool]:
    index, ptr = graph()
    edges = torch.stack([index, index.flip(0) % 25])
    node, local, count = ops.number(index)
    on_node, on_local, on_count = on_device(lambda: ops.number(index))
    n = int(count)
    table, missed = torch.randn(7, 3), torch.randn(4, 3)
    place = torch.tensor([6, ~0, 0, ~3, ~3, 2, 2, ~1], dtype=torch.int32)
    pairs = {
        "transpose": (ops.transpose(index, ptr, 80), on_device(lambda: ops.transpose(index, ptr, 80))),
        "group": (ops.group(edges, 25), on_device(lambda: ops.group(edges, 25))),
        "number": ((node[:n], local, count), (on_node[:n], on_local, on_count)),
        "assemble": (
            (row_cache.assemble(table, missed, place),),
            (on_device(lambda: cuda.assemble(table, missed, place)),),
        ),
    }
    return {name: all(a.equal(b) for a, b in zip(*both, strict=True)) for name, both in pairs.items()}


def wrong_index() -> str:
    index, ptr = graph()
    bad = index.clone()
    bad[5] = 99
    on_device(lambda: ops.aggregate(torch.ones(80, 2), bad, ptr))
    try:
        on_device(lambda: ops.aggregate(torch.ones(80, 2), index, ptr))
    except errors.InvalidArgumentError as error:
        return str(error)
    return "nothing was raised"


def loader() -> dict[str, Any]:
    """Batches through the device cache, put together by the kernel, out of buffers that the driver has locked."""
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(0, 4000, (2, 60_000), generator=generator)
    data = {"num_nodes": 4000, "edge_index": edges, "x": torch.randn(4000, 150, generator=generator)}
    given: dict[str, Any] = {"num_neighbors": [5, 5], "batch_size": 512, "shuffle": True}

    class Streams(LateStreams):
        def assemble(self, *rows: torch.Tensor) -> torch.Tensor:
            self.advance(len(self.queue))
            return on_device(lambda: cuda.assemble(*rows))

    delivery.resolve = lambda device: None if device is None else torch.device("cpu")
    delivery.CudaStreams = Streams  # type: ignore[misc, assignment]
    row_cache.assembler = lambda: Streams.last.assemble
    with (
        freshgo.Loader(data, **given) as plain,
        freshgo.Loader(data, **given, device="cuda", device_cache="500kB") as moved,
    ):
        same = all(a.x.equal(b.x) and a.n_id.equal(b.n_id) for a, b in zip(plain, moved, strict=True))
        return {"locking": pinned_memory._locking, "same": same, "held": moved.stats()["held"]}


def main() -> None:
    warnings.simplefilter("ignore")
    devices, version = ctypes.c_int32(), ctypes.c_int32()
    abi.call("fg_cuda_probe", ctypes.byref(devices), ctypes.byref(version))
    result: dict[str, Any] = {"library": str(freshgo.library()), "devices": devices.value}
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for part in ("alone", "transposed", "first targets"):
            for case in CASES:
                result[f"{case}, {dtype}, {part}"] = difference(case, dtype, part)
    json.dump({**result, "tables": tables(), "wrong index": wrong_index(), "loader": loader()}, sys.stdout)


if __name__ == "__main__":
    main()
