"""What a history saves, and how it goes on from it: with all of it or with nothing."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from freshgo._history.estimation import Estimation, Trail
from freshgo.errors import FormatError, FreshgoError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._history.interfaces import Decisions
    from freshgo._history.training_step import Buffer

VERSION = 3


def checksum(value: object, crc: int = 0) -> int:
    """Return the CRC-32 of a state, but for the checksum in it: of tensors by their bytes, wherever they are."""
    if isinstance(value, Tensor):
        crc = zlib.crc32(f"{value.dtype}{list(value.shape)}".encode(), crc)
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return zlib.crc32(raw.numpy().data, crc)
    if isinstance(value, dict):
        value = [(key, value[key]) for key in sorted(value, key=repr) if key != "checksum"]
    if isinstance(value, list | tuple):
        for one in value:
            crc = checksum(one, crc)
        return zlib.crc32(b"%d]" % len(value), crc)
    return zlib.crc32(repr(value).encode(), crc)


def entries(native: Decisions, buffer: Buffer) -> dict[str, Any]:
    """Return what a state says of the entries and their rows."""
    state: dict[str, Any] = {"entries": torch.frombuffer(bytearray(native.history_save()), dtype=torch.uint8)}
    if buffer.dtype is not None:
        used = min(int(native.history_stats()["embedding_bytes"]), buffer.raw.numel())
        state |= {"dtype": str(buffer.dtype).removeprefix("torch."), "width": buffer.width}
        state["widths"] = [[level, *widths] for level, widths in sorted(buffer.widths.items())]
        state["rows"] = buffer.raw[:used].clone().cpu()
    return state


def check(state: object, settings: dict[str, Any]) -> tuple[Trail, Estimation]:
    """Return the figures of a state that is whole and of these settings; what its entries say the library checks."""
    saved = state.get("settings") if isinstance(state, dict) else None
    if not isinstance(state, dict) or not isinstance(saved, dict):
        raise InvalidArgumentError("expected what state_dict() of a freshgo.History returned")
    if repr(state.get("version")) != repr(VERSION):
        raise InvalidArgumentError(
            f"the state of a history has version {state.get('version')!r}, expected {VERSION}: it needs the freshgo "
            "that saved it; without it the history fills again within t_stale"
        )
    different = [
        f"{key} was {saved.get(key)!r}, is {value!r}"
        for key, value in settings.items()
        if repr(saved.get(key)) != repr(value)  # a damaged one may be anything, a tensor too
    ]
    if different:
        raise InvalidArgumentError(f"the state belongs to a history with other options: {'; '.join(different)}")
    _check_rows(state)
    trail, estimation = Trail(), Estimation()
    trail.load(state.get("saving"))
    estimation.load(state.get("error"))
    return trail, estimation


def _check_rows(state: dict[str, Any]) -> None:
    """Check what the entries and their rows are made of."""
    if repr(state.get("checksum")) != repr(checksum(state)):
        raise FormatError("history state: it does not match its checksum, so it is damaged or was changed")
    for name in ("entries", "rows"):
        value = state.get(name)
        if name in state and not (isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1):
            raise FormatError(f"history state: {name} must be a vector of bytes")
    if "rows" in state:
        dtype, width = getattr(torch, str(state.get("dtype")), None), state.get("width")
        floating = isinstance(dtype, torch.dtype) and dtype.is_floating_point
        if not floating or not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise FormatError(
                f"history state: rows of dtype {state.get('dtype')!r} and width {width!r}, expected a floating dtype "
                "and a width of at least 1"
            )
        if not _are_widths(state.get("widths", [])):  # older states have none
            raise FormatError(
                f"history state: widths is {state['widths']!r}, expected lists of a level and its numbers of columns"
            )


def _are_widths(value: object) -> bool:
    """Return whether these are lists of a level and the columns of the parts of its rows."""
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) > 1 and all(type(n) is int and n > 0 for n in one) for one in value
    )


def restore(state: dict[str, Any], native: Decisions, buffer: Buffer) -> None:
    """Take entries and rows over from a checked state."""
    rows = state.get("rows")
    if rows is not None and rows.numel() > buffer.raw.numel():
        raise InvalidArgumentError(
            f"the state has {rows.numel()} bytes of rows, the buffer holds {buffer.raw.numel()}: use the memory= "
            "that it was saved with"
        )
    row_bytes = 0 if rows is None else state["width"] * getattr(torch, state["dtype"]).itemsize
    kept, before = state["entries"].cpu().numpy().tobytes(), native.history_save()

    def take() -> None:
        native.history_restore(kept)
        found = native.history_stats()
        expected = min(int(found["embedding_bytes"]), buffer.raw.numel())
        if row_bytes != found["row_bytes"] or (rows is not None and rows.numel() != expected):
            native.history_restore(before)
            raise FormatError(
                f"history state: entries of {found['row_bytes']} bytes in {expected}, got rows of {row_bytes} "
                f"bytes in {0 if rows is None else rows.numel()}"
            )
        buffer.dtype, buffer.width, buffer.widths = None, 0, {}
        if rows is not None:
            buffer.dtype, buffer.width = getattr(torch, state["dtype"]), state["width"]
            buffer.widths = {level: tuple(widths) for level, *widths in state.get("widths", [])}
            buffer.raw[: rows.numel()].copy_(rows)

    try:
        take()
    except FreshgoError:
        raise
    except BaseException:  # Ctrl-C may strike between entries and their rows: all of it or nothing
        take()
        raise
