"""The device path of the library: operators and gathers queued on PyTorch's current stream.

Structs are those of the CPU's operators with addresses on the device, and a queue that says where to run.
Nothing here waits for the device. What a kernel finds wrong in an index it notes in a word of pinned host memory, one
for each device, which the next call looks at without waiting; :func:`check` waits and looks.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading
import warnings
from ctypes import c_int64
from typing import Any

import torch
from torch import Tensor

from freshgo._native import abi
from freshgo._native.header import BAD_EDGE, BAD_INDEX, BAD_PTR, BAD_SLOT, CudaQueue, Drawing, Gathering, Mapping
from freshgo._native.libraries import CUDA_NAME
from freshgo._observe.log import LOG
from freshgo.errors import CudaError, InvalidArgumentError

_lock = threading.Lock()
_status: dict[int, Tensor] = {}  # by device: what its kernels found wrong, int64 [1] in pinned memory

_obstacles: dict[int, str | None] = {}  # by device, once asked: what keeps the operators from it

_NOWHERE = 16
"""The address of a tensor without elements: it is there, and nothing reads it."""

_KINDS = {BAD_INDEX: "index", BAD_EDGE: "edge", BAD_PTR: "ptr", BAD_SLOT: "slot"}


def takes(tensor: Tensor) -> bool:
    """Whether the device path computes over this tensor."""
    return tensor.is_cuda


def usable(tensor: Tensor) -> bool:
    """Whether the operators of this process run where ``tensor`` is."""
    return tensor.device.type == "cpu" or (tensor.is_cuda and obstacle(tensor.device) is None)


def obstacle(device: torch.device) -> str | None:
    """Why the operators of this process do not run on a CUDA device; None where they do.

    Warns once for a device that the library with CUDA is there for and cannot use: its driver or the device itself is
    too old.
    """
    library = abi.library()
    if not library.cuda:
        return f"they need {CUDA_NAME}; this process uses {library}"
    index = device.index or 0
    if index not in _obstacles:
        try:
            memory = c_int64(), c_int64()
            abi.call("fg_cuda_memory", index, *map(ctypes.byref, memory))
            _obstacles[index] = None
        except CudaError as error:
            _obstacles[index] = str(error)
            LOG.warning("operators do not run on cuda:%d: %s", index, error)
            warnings.warn(
                f"freshgo's operators do not run on cuda:{index}, accelerated layers are PyG's there: {error}",
                UserWarning,
                stacklevel=2,
            )
    return _obstacles[index]


def check_device(name: str, tensor: Tensor, index: Tensor) -> None:
    """Raise InvalidArgumentError unless ``tensor`` is where ``index`` is, and operators of this process run there."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(f"{name} is on {tensor.device}, expected the CPU or a CUDA device")
    if tensor.device != index.device:
        raise InvalidArgumentError(f"{name} is on {tensor.device} and index on {index.device}, expected one device")
    if takes(tensor) and not usable(tensor):
        raise InvalidArgumentError(
            f"{name} is on {tensor.device}, where the operators do not run: {obstacle(tensor.device)}"
        )


def run(function: str, raw: ctypes.Structure, device: torch.device) -> None:
    """Queue an operator on ``device``."""
    _raise_noted(device.index or 0)
    abi.call(function, ctypes.byref(raw), _queue(device))


def run_with_scratch(function: str, raw: ctypes.Structure, device: torch.device) -> None:
    """The same of one that needs memory of the device for as long as it runs."""
    _raise_noted(device.index or 0)
    n_bytes, queue = c_int64(), _queue(device)
    abi.call(function, ctypes.byref(raw), None, ctypes.byref(n_bytes), queue)
    # Freed when this returns, for use by what is queued later on the same stream.
    scratch = torch.empty(max(n_bytes.value, 1), dtype=torch.uint8, device=device)
    abi.call(function, ctypes.byref(raw), scratch.data_ptr(), ctypes.byref(n_bytes), queue)


@dataclasses.dataclass(frozen=True)
class Ids:
    """Ids on a device or in locked memory of the host, as ``fg_stored_list`` has them."""

    data: Tensor
    """their memory"""
    bits: int
    """of an id"""


@dataclasses.dataclass(frozen=True)
class Lists:
    """Neighbour lists: the in-edges of node v have the positions ``ptr[v]`` to ``ptr[v + 1]``. ``ptr`` and ``positive``
    are on the device, the others there or in locked memory of the host."""

    ptr: Tensor
    """int64 ``[num_nodes + 1]``"""
    num_edges: int
    source: Ids
    """the source of each edge"""
    edge: Ids | None
    """the number of each edge; None: its position"""
    weight: Tensor | None
    """float32 or float64 ``[num_edges]``: edges are drawn in proportion to it"""
    sums: Tensor | None
    """float64 ``[num_edges // 16]``: sums of weights; with ``weight``"""
    positive: Tensor | None
    """int32 ``[num_nodes]``: in-edges with a weight above 0; None: all have"""


@dataclasses.dataclass(frozen=True)
class Layerwise:
    """How edges are drawn layer by layer (LABOR)."""

    keep: int
    """Batches for which a source keeps its variate."""
    batch: int
    """The number of the batch in its epoch."""
    weighs: bool
    """Edges have weights in the batch."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The in-edges of the targets of a hop. All tensors are int64."""

    first: Tensor
    """``[targets]``: where the edges of each target begin"""
    total: Tensor
    """``[1]``: the number of edges"""
    neighbor: Tensor
    """``[edges]``: their sources"""
    edge_id: Tensor | None
    """``[edges]``: their numbers, if they are requested"""
    weight: Tensor | None = None
    """float32 ``[edges]``: their weights in the batch, if they have any; 1 behind the edges"""


def draw(
    lists: Lists,
    targets: Tensor,
    fanout: int,
    key: int,
    *,
    replace: bool,
    numbered: bool,
    layerwise: Layerwise | None = None,
    room: int | None = None,
) -> Drawn:
    """fg_cuda_draw: the in-edges of ``targets`` (int64 ``[n]``) in the hop with this key; ``numbered``: with their
    numbers. Waits for the device, which says how many there are; not with ``room`` for that many, which -1 fills behind
    the edges. Targets of -1 then pad."""
    first = torch.empty_like(targets)
    total = torch.zeros(1, dtype=torch.int64, device=targets.device)
    raw = Drawing(
        struct_size=ctypes.sizeof(Drawing),
        source_bits=lists.source.bits,
        ptr=lists.ptr.data_ptr(),
        num_nodes=lists.ptr.numel() - 1,
        source=lists.source.data.data_ptr(),
        num_edges=lists.num_edges,
        target=targets.data_ptr(),
        num_targets=targets.numel(),
        fanout=fanout,
        key=key % 2**64,
        replace=replace,
        weight_bytes=0 if lists.weight is None else lists.weight.element_size(),
        weight=_address(lists.weight),
        sums=_address(lists.sums),
        positive=_address(lists.positive),
        keep=0 if layerwise is None else layerwise.keep,
        batch=0 if layerwise is None else layerwise.batch,
        first=first.data_ptr(),
        total=total.data_ptr(),
        padded=room is not None,
        edge_bits=0 if lists.edge is None else lists.edge.bits,
        edge=None if lists.edge is None else _address(lists.edge.data),
    )
    run_with_scratch("fg_cuda_draw_count", raw, targets.device)
    raw.num_drawn = count = int(total) if room is None else room
    position, neighbor = (torch.full((count,), -1, dtype=torch.int64, device=targets.device) for _ in range(2))
    edge_id = None
    if numbered:
        edge_id = position if lists.edge is None else torch.full_like(position, -1)
    weighs = layerwise is not None and layerwise.weighs
    weight = torch.ones(count, dtype=torch.float32, device=targets.device) if weighs else None
    raw.position, raw.neighbor, raw.edge_weight = position.data_ptr(), neighbor.data_ptr(), _address(weight)
    raw.edge_id = None if lists.edge is None else _address(edge_id)
    run("fg_cuda_draw", raw, targets.device)
    return Drawn(first, total, neighbor, edge_id, weight)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr() or _NOWHERE


def number(
    ids: Tensor, kept: int = 0, *, padded: bool = False, node: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """fg_cuda_map: ``node``, ``local``, ``count`` of :func:`freshgo.ops.number`. The first ``kept`` ids keep their
    places as numbers. ``padded``: ids of -1 pad. ``node`` is written if it is given."""
    ids = ids.contiguous()
    node, local = torch.empty_like(ids) if node is None else node, torch.empty_like(ids)
    count = torch.empty(1, dtype=torch.int64, device=ids.device)
    raw = Mapping(
        struct_size=ctypes.sizeof(Mapping),
        index_bytes=ids.element_size(),
        id=ids.data_ptr(),
        n=ids.numel(),
        kept=kept,
        node=node.data_ptr(),
        local=local.data_ptr(),
        count=count.data_ptr(),
        padded=padded,
    )
    run_with_scratch("fg_cuda_map", raw, ids.device)
    return node, local, count


def gather(table: Tensor, missed: Tensor, place: Tensor | None, index: Tensor) -> Tensor:
    """fg_cuda_gather: ``table[place[i]]`` where there are places and this one is not negative, else
    ``missed[index[i]]``, of a tensor on the device or in locked memory of the host."""
    out = table.new_empty((index.numel(), *table.shape[1:]))
    row_bytes = out.shape[1:].numel() * out.element_size()
    if out.numel() == 0:
        return out
    raw = Gathering(
        struct_size=ctypes.sizeof(Gathering),
        index_bytes=index.element_size(),
        n=index.numel(),
        row_bytes=row_bytes,
        index=index.data_ptr(),
        table=missed.data_ptr() if missed.numel() else None,
        table_rows=missed.size(0),
        table_stride=row_bytes,
        slot=None if place is None else place.data_ptr(),
        cache=table.data_ptr() if table.numel() else None,
        cache_rows=table.size(0),
        cache_stride=row_bytes,
        out=out.data_ptr(),
    )
    run("fg_cuda_gather", raw, table.device)
    return out


def check() -> None:
    """Wait for the devices that operators ran on and raise for what they found wrong in an index.

    Raises:
        InvalidArgumentError: an index or a pointer that was out of range; edges with one were ignored.
    """
    for device in list(_status):
        torch.cuda.synchronize(device)
        _raise_noted(device)


def _queue(device: torch.device) -> Any:
    """A pointer to where what is called now is to run."""
    index = device.index or 0
    return ctypes.pointer(
        CudaQueue(
            struct_size=ctypes.sizeof(CudaQueue),
            device=index,
            stream=_stream(device),
            status=_status_of(index).data_ptr(),
        )
    )


def _stream(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def _status_of(index: int) -> Tensor:
    with _lock:
        if index not in _status:
            _status[index] = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        return _status[index]


def _raise_noted(index: int) -> None:
    """Raise for what a kernel has noted by now, once."""
    if index not in _status:
        return
    noted = int(_status[index])
    if noted == 0:
        return
    _status[index].zero_()
    kind = _KINDS.get(noted >> 56, "index")
    position = 0xFF_FFFF_FFFF_FFFF - (noted & 0xFF_FFFF_FFFF_FFFF)
    raise InvalidArgumentError(
        f"an operator that ran on cuda:{index} found {kind}[{position}] out of range, and ignored it"
    )
