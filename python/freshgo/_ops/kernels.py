"""The operators of the library over tensors: addresses and sizes into a struct, one call, an error out.

Callers (``torch_library``) hand over tensors of the right dtypes, sizes and devices. The library checks everything
inside an index or a pointer array itself, as it uses it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from freshgo._native import abi, cuda, header, openmp
from freshgo._native.dlpack import use_versioned
from freshgo._native.header import DOT, ROW_DOT, SPREAD

_FLOAT, _BFLOAT = 2, 4
_DTYPES = {
    torch.float32: (_FLOAT, 32, 1),
    torch.float64: (_FLOAT, 64, 1),
    torch.float16: (_FLOAT, 16, 1),
    torch.bfloat16: (_BFLOAT, 16, 1),
}
DTYPES = tuple(_DTYPES)
"""What rows may consist of."""

INDEX_DTYPES = (torch.int64, torch.int32)


def _packing(kind: type[ctypes.Structure]) -> struct.Struct:
    """What writes all members of a struct at once, in its order. By name, ctypes takes several times as long."""
    code = {ctypes.c_uint32: "I", ctypes.c_int32: "i", ctypes.c_int64: "q", ctypes.c_double: "d", ctypes.c_void_p: "P"}
    members = (code.get(member[1], "BBH") for member in kind._fields_)  # a dtype has three
    packing = struct.Struct("".join(members))
    assert packing.size == ctypes.sizeof(kind)
    return packing


_AGGREGATION, _ATTENTION, _HEADS = map(_packing, (header.Aggregation, header.Attention, header.Heads))

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
        return on.new_empty((rows, columns), dtype=dtype)
    versioned = use_versioned()
    out = (header.Tensor * 1)()
    abi.operate("fg_result", (ctypes.c_int64 * 2)(rows, columns), 2, header.DataType(*_DTYPES[dtype]), versioned, out)
    return from_dlpack(abi.new_capsules(out, 1, versioned)[0])


def _run(function: str, raw: ctypes.Structure, on: Tensor, *, scratch: bool = False) -> None:
    """Call an operator where ``on`` is: at once on the CPU, queued on a device, where it may need ``scratch``."""
    if cuda.takes(on):
        queue = cuda.run_with_scratch if scratch else cuda.run
        queue(function.replace("fg_", "fg_cuda_"), raw, on.device)
    else:
        abi.operate(function, ctypes.byref(raw))


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _whole(tensor: Tensor | None) -> Tensor | None:
    return tensor if tensor is None else tensor.contiguous()


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
    own = None if own is None else _rows(own)
    index, ptr, edge, weight = index.contiguous(), ptr.contiguous(), _whole(edge), _whole(weight)
    row_scale, col_scale, self_weight = _whole(row_scale), _whole(col_scale), _whole(self_weight)
    self_rows, self_heads = (0, 1) if self_weight is None else self_weight.shape
    rows, columns = x.shape
    raw = header.Aggregation()
    _AGGREGATION.pack_into(
        raw,
        0,
        _AGGREGATION.size,
        kind,
        torch.get_num_threads(),
        index.element_size(),
        *_DTYPES[x.dtype],
        skip_self,
        cut if isinstance(cut, int) else -1,
        0 if isinstance(cut, int) else cut.data_ptr(),
        columns,
        heads,
        x.data_ptr(),
        rows,
        x.stride(0),
        _address(y),
        _address(own),
        0 if own is None else own.stride(0),
        ptr.data_ptr(),
        ptr.size(0) - 1,
        index.data_ptr(),
        index.size(0),
        _address(edge),
        _address(weight),
        0 if weight is None else weight.size(0),
        _address(row_scale),
        _address(col_scale),
        _address(self_weight),
        self_rows,
        self_heads,
        out.data_ptr(),
        _address(count),
        _address(dot),
    )
    _run("fg_aggregate", raw, x, scratch=True)


def attention(
    function: str,
    index: Tensor,
    ptr: Tensor,
    slope: float,
    src: Tensor,
    dst: Tensor | None,
    edge: Tensor | None,
    alpha: Tensor,
    alpha_self: Tensor,
    grad: Tensor | None = None,
    grad_self: Tensor | None = None,
    grad_edge: Tensor | None = None,
    grad_edge_self: Tensor | None = None,
    grad_dst: Tensor | None = None,
) -> None:
    """``function`` is fg_attention_forward or fg_attention_back; tensors have the names of the struct. What it writes
    is contiguous."""
    if not _ready:
        prepare()
    index, ptr, src, dst, edge = index.contiguous(), ptr.contiguous(), src.contiguous(), _whole(dst), _whole(edge)
    alpha, alpha_self, grad, grad_self = alpha.contiguous(), alpha_self.contiguous(), _whole(grad), _whole(grad_self)
    raw = header.Attention()
    _ATTENTION.pack_into(
        raw,
        0,
        _ATTENTION.size,
        torch.get_num_threads(),
        index.element_size(),
        src.dtype == torch.float64,
        src.size(1),
        src.data_ptr(),
        src.size(0),
        _address(dst),
        _address(edge),
        ptr.data_ptr(),
        ptr.size(0) - 1,
        index.data_ptr(),
        index.size(0),
        alpha_self.size(0),
        slope,
        alpha.data_ptr(),
        alpha_self.data_ptr(),
        _address(grad),
        _address(grad_self),
        _address(grad_edge),
        _address(grad_edge_self),
        _address(grad_dst),
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
    rows, count = d.shape
    raw = header.Heads()
    _HEADS.pack_into(
        raw,
        0,
        _HEADS.size,
        kind,
        torch.get_num_threads(),
        0,
        *_DTYPES[x.dtype],
        0,
        rows,
        x.size(1),
        count,
        x.data_ptr(),
        x.stride(0),
        _address(y),
        0 if y is None or y.size(0) == 1 else y.stride(0),
        d.data_ptr(),
        _address(out),
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
