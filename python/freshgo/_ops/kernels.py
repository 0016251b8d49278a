"""The operators of the library over tensors: addresses and sizes into a struct, one call, an error out.

Callers (``torch_library``) hand over tensors of the right dtypes, sizes and devices. The library checks everything
inside an index or a pointer array itself, as it uses it.
"""

from __future__ import annotations

import ctypes
import os
import threading

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from freshgo._native import abi, cuda, header, openmp
from freshgo._native.dlpack import use_versioned
from freshgo._native.header import DOT, ROW_DOT, SPREAD

_FLOAT, _BFLOAT = 2, 4
_DTYPES = {
    torch.float32: (_FLOAT, 32),
    torch.float64: (_FLOAT, 64),
    torch.float16: (_FLOAT, 16),
    torch.bfloat16: (_BFLOAT, 16),
}
DTYPES = tuple(_DTYPES)
"""What rows may consist of."""

INDEX_DTYPES = (torch.int64, torch.int32)

_AGGREGATION_BYTES = ctypes.sizeof(header.Aggregation)

_ready = False
_in_child = False
_lock = threading.Lock()


def real(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums, weights and scales over rows of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def prepare(isa: int = -1) -> int:
    """Choose the instruction set (-1: the best, 0: portable, 1: AVX2, 2: AVX-512) and hand torch's threads over.

    A second team would compete with torch's. Returns the instruction set in use.
    Called before the first operator; calling it again is for tests.
    """
    global _ready
    with _lock:
        used = abi.operators_init(None if _in_child else openmp.parallel(), isa)
        _ready = True
        return used


def _after_fork_in_child() -> None:
    global _in_child, _lock
    _in_child = True  # the OpenMP threads of the parent do not exist here
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


_REUSED_FROM = 2 << 20  # bytes; below, malloc keeps what is freed by itself


def reused(on: Tensor, rows: int, columns: int, dtype: torch.dtype) -> bool:
    """Whether :func:`empty` has memory of earlier results: of a device PyTorch keeps such memory itself."""
    return rows * columns * dtype.itemsize >= _REUSED_FROM and not cuda.takes(on)


def empty(on: Tensor, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """A result ``[rows, columns]`` with undefined contents where ``on`` is."""
    if not reused(on, rows, columns, dtype):
        return torch.empty(rows, columns, dtype=dtype, device=on.device)
    code, bits = _DTYPES[dtype]
    versioned = use_versioned()
    out = (header.Tensor * 1)()
    abi.operate("fg_result", (ctypes.c_int64 * 2)(rows, columns), 2, header.DataType(code, bits, 1), versioned, out)
    return from_dlpack(abi.new_capsules(out, 1, versioned)[0])


def _run(function: str, raw: ctypes.Structure, on: Tensor, *, scratch: bool = False) -> None:
    """Call an operator where ``on`` is: at once on the CPU, queued on a device, where it may need ``scratch``."""
    if cuda.takes(on):
        queue = cuda.run_with_scratch if scratch else cuda.run
        queue(function.replace("fg_", "fg_cuda_"), raw, on.device)
    else:
        abi.operate(function, ctypes.byref(raw))


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _rows(x: Tensor) -> Tensor:
    """``x`` with elements of a row side by side and rows in any distance that does not fold them."""
    if x.is_contiguous() or (x.stride(1) == 1 and x.stride(0) >= x.size(1)):
        return x
    return x.contiguous()


def aggregate(
    kind: int,
    x: Tensor,
    index: Tensor,
    ptr: Tensor,
    out: Tensor,
    *,
    heads: int = 1,
    y: Tensor | None = None,
    own: Tensor | None = None,
    edge: Tensor | None = None,
    weight: Tensor | None = None,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    self_weight: Tensor | None = None,
    skip_self: bool = False,
    cut: int | Tensor = -1,
    count: Tensor | None = None,
    dot: Tensor | None = None,
) -> None:
    """fg_aggregate over 2-dimensional ``x``; ``out``, ``count`` and ``dot`` are contiguous and filled. On a device
    ``cut`` may be a number there, int64 ``[1]``, with lists of a larger graph."""
    if not _ready:
        prepare()
    if y is not None:
        x, y = x.contiguous(), y.contiguous()  # one layout for both
    else:
        x = _rows(x)
    index, ptr = index.contiguous(), ptr.contiguous()
    rows, columns = x.shape
    code, bits = _DTYPES[x.dtype]
    # What is not named is absent, and zero.
    raw = header.Aggregation(
        _AGGREGATION_BYTES,
        kind,
        torch.get_num_threads(),
        index.element_size(),
        (code, bits, 1),
        skip_self,
        x=x.data_ptr(),
        x_rows=rows,
        x_stride=x.stride(0),
        columns=columns,
        heads=heads,
        ptr=ptr.data_ptr(),
        rows=ptr.size(0) - 1,
        index=index.data_ptr(),
        num_index=index.size(0),
        self_heads=1,
        out=out.data_ptr(),
    )
    if isinstance(cut, int):
        raw.cut = cut
    else:
        raw.cut, raw.cut_at = -1, cut.data_ptr()
    if row_scale is not None:
        row_scale = row_scale.contiguous()
        raw.row_scale = row_scale.data_ptr()
    if col_scale is not None:
        col_scale = col_scale.contiguous()
        raw.col_scale = col_scale.data_ptr()
    if self_weight is not None:
        self_weight = self_weight.contiguous()
        raw.self_weight, (raw.self_rows, raw.self_heads) = self_weight.data_ptr(), self_weight.shape
    if weight is not None:
        weight = weight.contiguous()
        raw.weight, raw.num_weights = weight.data_ptr(), weight.size(0)
    if edge is not None:
        edge = edge.contiguous()
        raw.edge = edge.data_ptr()
    if own is not None:
        own = _rows(own)
        raw.own, raw.own_stride = own.data_ptr(), own.stride(0)
    if y is not None:
        raw.y = y.data_ptr()
    if count is not None:
        raw.count = count.data_ptr()
    if dot is not None:
        raw.dot = dot.data_ptr()
    _run("fg_aggregate", raw, x, scratch=True)


def attention(function: str, index: Tensor, ptr: Tensor, slope: float, **tensors: Tensor | None) -> None:
    """``function`` is fg_attention_forward or fg_attention_back; tensors by the names of the struct."""
    if not _ready:
        prepare()
    kept = {name: None if t is None else t.contiguous() for name, t in tensors.items()}
    index, ptr = index.contiguous(), ptr.contiguous()
    src, own = kept["src"], kept["alpha_self"]
    assert src is not None
    assert own is not None
    raw = header.Attention(
        struct_size=ctypes.sizeof(header.Attention),
        threads=torch.get_num_threads(),
        index_bytes=index.element_size(),
        is_double=src.dtype == torch.float64,
        heads=src.size(1),
        src_rows=src.size(0),
        ptr=ptr.data_ptr(),
        rows=ptr.numel() - 1,
        index=index.data_ptr(),
        num_index=index.numel(),
        self_rows=own.size(0),
        slope=slope,
        **{name: _address(t) for name, t in kept.items()},
    )
    _run(function, raw, src)


def heads(kind: int, x: Tensor, y: Tensor | None, d: Tensor, out: Tensor | None = None) -> None:
    """fg_heads_run over 2-dimensional ``x``; ``y`` is like it, or one row. ``d`` and ``out`` are contiguous."""
    if cuda.takes(x):
        _heads_on_device(kind, x, y, d, out)
        return
    if not _ready:
        prepare()
    x = _rows(x)
    y = None if y is None else _rows(y)
    code, bits = _DTYPES[x.dtype]
    raw = header.Heads(
        struct_size=ctypes.sizeof(header.Heads),
        kind=kind,
        threads=torch.get_num_threads(),
        dtype=header.DataType(code, bits, 1),
        rows=d.size(0),
        columns=x.size(1),
        heads=d.size(1),
        x=x.data_ptr(),
        x_stride=x.stride(0),
        y=_address(y),
        y_stride=0 if y is None or y.size(0) == 1 else y.stride(0),
        d=d.data_ptr(),
        out=_address(out),
    )
    abi.operate("fg_heads_run", ctypes.byref(raw))


def _heads_on_device(kind: int, x: Tensor, y: Tensor | None, d: Tensor, out: Tensor | None) -> None:
    """The same by what a device has: nothing of rows by columns is written but ``out``."""
    rows, count, channels = *d.shape, x.size(1) // d.size(1)
    if kind == ROW_DOT:  # over edges that lead from each row of y, or from its only one, to a row of x
        assert y is not None
        each = torch.arange(rows + 1, device=x.device)
        index = each[:rows] if y.size(0) == rows else torch.zeros(rows, dtype=torch.int64, device=x.device)
        aggregate(DOT, y, index, each, d, heads=count, own=x)
        return
    assert out is not None
    if kind == SPREAD:
        assert y is not None
        out.view(rows, count, channels).addcmul_(d.unsqueeze(-1), y.view(1, count, channels))
    else:
        by_head = x.view(rows, count, channels).transpose(0, 1)
        torch.bmm(d.t().unsqueeze(1), by_head, out=out.view(count, 1, channels))


def transpose(index: Tensor, ptr: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """fg_transpose: ``source_ptr``, ``target``, ``edge``."""
    if not _ready:
        prepare()
    index, ptr = index.contiguous(), ptr.contiguous()
    source_ptr = ptr.new_empty(sources + 1)
    target, edge = torch.empty_like(index), torch.empty_like(index)
    raw = header.Transposition(
        struct_size=ctypes.sizeof(header.Transposition),
        threads=torch.get_num_threads(),
        index_bytes=index.element_size(),
        ptr=ptr.data_ptr(),
        rows=ptr.numel() - 1,
        index=index.data_ptr(),
        num_index=index.numel(),
        sources=sources,
        source_ptr=source_ptr.data_ptr(),
        target=target.data_ptr(),
        edge=edge.data_ptr(),
    )
    if cuda.takes(index):
        cuda.run_with_scratch("fg_cuda_transpose", raw, index.device)
    else:
        abi.operate("fg_transpose", ctypes.byref(raw))
    return source_ptr, target, edge


def group(target: Tensor, targets: int) -> tuple[Tensor, Tensor | None]:
    """fg_group: ``ptr``, and ``order`` where ``target`` decreases somewhere, or is on a device, which does not say."""
    target = target.contiguous()
    ptr = target.new_empty(targets + 1, dtype=torch.int64)
    order = torch.empty_like(target)
    if cuda.takes(target):
        raw = header.Transposition(
            struct_size=ctypes.sizeof(header.Transposition),
            index_bytes=target.element_size(),
            index=target.data_ptr(),
            num_index=target.numel(),
            sources=targets,
            source_ptr=ptr.data_ptr(),
            edge=order.data_ptr(),
        )
        cuda.run_with_scratch("fg_cuda_transpose", raw, target.device)
        return ptr, order
    is_sorted = ctypes.c_int32()
    abi.operate(
        "fg_group",
        target.data_ptr(),
        target.element_size(),
        target.numel(),
        targets,
        ptr.data_ptr(),
        order.data_ptr(),
        ctypes.byref(is_sorted),
    )
    return ptr, None if is_sorted.value else order
