"""What the code of a model computes with while it is traced."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from freshgo._traced.levels import CONSTANT, ENDS, OTHER, level


class Value(fx.Proxy):
    """A value of the model while it runs. Code takes it for the tensor that it is."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance(x, Tensor) chooses a branch in many models
        return Tensor if isinstance(self.node.meta.get("value"), Tensor) else Value

    def __getattr__(self, name: str) -> Any:
        value = self.node.meta.get("value")
        if name.startswith("_") or not isinstance(value, Tensor):
            raise AttributeError(name)
        if name == "shape":
            return self.size()
        if name in ("dtype", "device", "ndim", "layout", "is_cuda", "is_sparse", "requires_grad", "is_quantized"):
            return getattr(value, name)
        if name == "data":
            return self
        return super().__getattr__(name)

    def size(self, dim: int | None = None) -> Any:
        """The number of rows, or of edges, as a value, other sizes as they are."""
        value = self.node.meta["value"]
        of = level(self.node)
        if dim is not None:
            return self.size()[dim]
        if of.kind == CONSTANT:
            return value.shape
        counts = {ENDS: (1,), OTHER: range(value.dim())}.get(of.kind, (of.dim or 0,))
        return tuple(
            self.tracer.create_proxy("call_method", "size", (self, at), {}) if at in counts else size
            for at, size in enumerate(value.shape)
        )

    def dim(self) -> int:
        return int(self.node.meta["value"].dim())

    def squeeze(self, *dims: Any) -> Any:
        """Without a dimension, of those beside the rows: a batch may have one node."""
        value = self.node.meta["value"]
        rows = level(self.node).dim
        if not dims and rows is not None:
            dims = (tuple(i for i in range(value.dim()) if value.size(i) == 1 and i != rows),)
            if not dims[0]:
                return self
        return self.tracer.create_proxy("call_method", "squeeze", (self, *dims), {})

    def __len__(self) -> int:
        raise TypeError("len() of rows is a number that this model would be traced with: use x.size(0)")
