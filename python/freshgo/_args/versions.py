"""What a store says of how it came about: see :attr:`freshgo.Store.history`."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple


class StoreVersion(NamedTuple):
    """How one version of a store came about."""

    version: int
    """1 is the conversion."""
    action: str
    """``"convert"``, ``"relayout"``, ``"update"``, ``"append"`` or ``"propagate"``."""
    details: str
    """What was given or made, in a line for people: the order, the names of tensors, the numbers of nodes and edges."""
    time: datetime.datetime
    """When, in UTC, to the second."""
    generator: str
    """The program and its version: ``"freshgo 0.1.0"``."""

    def __str__(self) -> str:
        what = f"{self.action}: {self.details}" if self.details else self.action
        return f"{self.version}  {self.time:%Y-%m-%d %H:%M:%S} UTC  {what} ({self.generator})"

    @classmethod
    def of(cls, history: list[dict[str, Any]]) -> list[StoreVersion]:
        """Return the versions of a store, as the library describes them."""
        return [
            cls(
                number,
                entry["action"],
                entry["details"],
                datetime.datetime.fromisoformat(entry["time"].replace("Z", "+00:00")),
                entry["generator"],
            )
            for number, entry in enumerate(history, 1)
        ]
