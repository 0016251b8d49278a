"""TensorFrames of PyTorch Frame: taken apart into tensors with a row for each node, and put together again per batch.

The columns of a semantic type are one tensor, ``tf.numerical`` of the frame ``tf``. What else a frame knows, names of
columns and where embeddings begin, is described by a :class:`Frame`, which a store keeps as JSON.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.types import label_of
from freshgo.errors import DTypeError, FormatError, InvalidArgumentError, LibraryError

ATTACHMENT = "frames"
"""What a store calls the description of its frames."""

_TARGET = "y"


@dataclasses.dataclass(frozen=True)
class Columns:
    """Those of a semantic type."""

    names: tuple[str, ...]
    starts: tuple[int, ...] | None = None
    """For embeddings, where that of each column begins in a row, and the length of a row."""

    @property
    def width(self) -> int:
        """The length of a row."""
        return len(self.names) if self.starts is None else self.starts[-1]

    def __str__(self) -> str:
        if self.starts is None:
            return ", ".join(self.names)
        ends = zip(self.names, self.starts, self.starts[1:], strict=False)
        return ", ".join(f"{name}[{end - begin}]" for name, begin, end in ends)


@dataclasses.dataclass(frozen=True)
class Frame:
    """What a TensorFrame has beside its tensors: columns by semantic type."""

    columns: Mapping[str, Columns]

    def __str__(self) -> str:
        return "; ".join(f"{stype}: {columns}" for stype, columns in self.columns.items())

    def widths(self, name: str) -> dict[str, int]:
        """The tensors of the frame of this name but for the target's, with the length of a row of each."""
        return {f"{name}.{stype}": columns.width for stype, columns in self.columns.items()}

    def put_together(self, name: str, tensors: dict[str, Any]) -> Any:
        """Take the tensors of the frame of this name out of a batch and return the frame. What the store no longer has
        is left out."""
        import torch_frame
        from torch_frame.data import MultiEmbeddingTensor

        features, names = {}, {}
        for stype, columns in self.columns.items():
            rows = tensors.pop(f"{name}.{stype}", None)
            if rows is None:
                continue
            if columns.starts is not None:
                starts = torch.tensor(columns.starts, device=rows.device)
                rows = MultiEmbeddingTensor(rows.size(0), len(columns.names), rows, starts)
            features[torch_frame.stype(stype)] = rows
            names[torch_frame.stype(stype)] = list(columns.names)
        return torch_frame.TensorFrame(features, names, tensors.pop(f"{name}.{_TARGET}", None))


Frames = dict[str, dict[str, Frame]]
"""By node type and name."""


def is_frame(value: object) -> bool:
    """Whether a value is a TensorFrame, of a package that nothing here imports before."""
    package = sys.modules.get("torch_frame")
    return package is not None and isinstance(value, package.TensorFrame)


def take_apart(items: dict[str, Any], label: str) -> tuple[dict[str, Any], dict[str, Frame]]:
    """Return what is given of some nodes with the tensors of frames in their place, and the frames by name.

    Raises:
        DTypeError: a frame has columns whose rows differ in length.
        InvalidArgumentError: a tensor of a frame has the name of another one.
    """
    plain: dict[str, Any] = {}
    frames: dict[str, Frame] = {}
    for name, value in items.items():
        if is_frame(value):
            made, frames[name] = _apart(name, value, label)
        else:
            made = {name: value}
        for of, tensor in made.items():
            if of in plain:
                raise InvalidArgumentError(f"{label}{of} is given twice: as a tensor, and by the TensorFrame {name!r}")
            plain[of] = tensor
    return plain, frames


def _apart(name: str, frame: Any, label: str) -> tuple[dict[str, Tensor], Frame]:
    tensors: dict[str, Tensor] = {}
    columns: dict[str, Columns] = {}
    for stype, rows in frame.feat_dict.items():
        names, starts = tuple(frame.col_names_dict[stype]), None
        if not isinstance(rows, Tensor):
            if isinstance(rows, Mapping) or rows.offset.numel() != len(names) + 1 or rows.values.dim() != 2:
                raise DTypeError(
                    f"{label}{name} has columns {', '.join(map(repr, names))} of stype {stype.value}, whose rows "
                    "differ in length: a store has rows of one length (numerical, categorical, timestamp, embedding)"
                )
            rows, starts = rows.values, tuple(rows.offset.tolist())
        tensors[f"{name}.{stype.value}"] = rows
        columns[stype.value] = Columns(names, starts)
    if frame.y is not None:
        tensors[f"{name}.{_TARGET}"] = frame.y
    return tensors, Frame(columns)


def check_package(frames: Frames) -> None:
    """Check that frames can be put together.

    Raises:
        LibraryError: PyTorch Frame is not installed.
    """
    if any(frames.values()) and importlib.util.find_spec("torch_frame") is None:
        named = ", ".join(label_of(node_type) + name for node_type, of in frames.items() for name in of)
        raise LibraryError(f"the TensorFrame {named} needs PyTorch Frame: pip install 'freshgo[frames]'")


def written(frames: Frames) -> np.ndarray[Any, Any]:
    """Describe frames as the bytes of JSON, uint8."""
    described: dict[str, Any] = {}
    for node_type, of in frames.items():
        described[node_type] = {name: dataclasses.asdict(frame)["columns"] for name, frame in of.items()}
    return np.array(list(json.dumps(described).encode()), np.uint8)


def read(described: Tensor) -> Frames:
    """Return the frames that bytes describe.

    Raises:
        FormatError: they do not.
    """
    try:
        return {
            node_type: {name: _frame(columns) for name, columns in of.items()}
            for node_type, of in json.loads(described.numpy().tobytes()).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"the description of the store's TensorFrames is not valid: {error}") from None


def _frame(columns: Mapping[str, Any]) -> Frame:
    made = {}
    for stype, of in columns.items():
        made[stype] = Columns(tuple(of["names"]), None if of["starts"] is None else tuple(of["starts"]))
    return Frame(made)
