"""What stands for the first layer of a batch: see ``first_layer`` of :class:`freshgo.Loader`."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class FirstUse:
    """Whether a layer has used what the batches of a loader bring."""

    def __init__(self) -> None:
        self._end: weakref.finalize[..., FirstUse] | None = None

    def await_with(self, hook: Callable[[nn.Module, tuple[Any, ...]], None]) -> None:
        """Until then, and for as long as there is the loader or a batch of it, let PyTorch call ``hook`` before every
        module. Done once."""
        if self._end is None:
            self._end = weakref.finalize(self, nn.modules.module.register_module_forward_pre_hook(hook).remove)
            self._end.atexit = False

    def note(self) -> None:
        """Note that a layer has."""
        if self._end is not None:
            self._end()


@dataclasses.dataclass(frozen=True)
class First:
    """What stands for the first layer of a batch's edges: see ``first_layer`` of :class:`freshgo.Loader`."""

    name: str
    """Of the aggregate in the batch."""
    tensor: str
    """Of what was aggregated."""
    reduce: str
    weight_attr: str | None
    rows: Tensor
    """The aggregate of each target."""
    own: Tensor | None
    """The targets' own rows; None: they are not in the batch."""
    source: Tensor | None
    """The rows of the sources, as the batch has them."""
    use: FirstUse
    """Whether a layer has used it, of this batch or another of its loader."""
    read: Tensor | None = None
    """Of a batch that history has pruned, which targets the second layer reads; None: all."""


_FIRST = "_freshgo_first"


def mark_first(rows: Tensor) -> None:
    """Mark the rows of a batch whose first layer is precomputed."""
    setattr(rows, _FIRST, True)


def is_first(rows: Tensor) -> bool:
    """Whether these are such rows."""
    return getattr(rows, _FIRST, False)
