"""Values under names, as PyG's data classes have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor


class Attributes:
    """Values that are attributes, items and pairs of an iteration."""

    _of = ""
    """What has the names, in messages."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the batch has no {name!r}{self._of}, only {', '.join(self.__dict__)}")

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self.__dict__)

    def __repr__(self) -> str:
        parts = (f"{name}={list(value.shape) if isinstance(value, Tensor) else value}" for name, value in self)
        return f"{type(self).__name__}({', '.join(parts)})"
