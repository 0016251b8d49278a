"""The order of a loader's batches, which ``reorder`` changes, and states, which must keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshgo._args import checks
from freshgo._loader.openings import Openings
from freshgo._loader.position import Position
from freshgo._native.options import LoaderOptions
from freshgo.errors import InvalidArgumentError


class Order:
    """How many batches may change places, and the cache that their order is made for: as was found when the loader was
    opened first, or as a state or rank 0 says, whatever the memory is now."""

    def __init__(self, openings: Openings, options: LoaderOptions, at: Position) -> None:
        self._openings, self._options, self._at = openings, options, at
        self.value = self.planned()
        """None: batches come as they are drawn."""
        if self.value is not None:
            openings.keep(reorder=self.value["block"], reorder_rows=self.value["rows"])

    def planned(self) -> dict[str, Any] | None:
        """What the native loader does now."""
        if self._options["reorder"] == 0:
            return None
        plan = self._openings.plan()
        order = {"block": int(plan["reorder"]), "rows": int(plan["reorder_rows"])}
        return {**order, "cache": str(plan["cache"])} if order["block"] else order

    def adopt(self, saved: Any) -> None:
        """Make it that of a saved state.

        Raises:
            InvalidArgumentError: this loader has not the option, orders for another cache, or has nothing to reorder
        """
        mine, asked = self.value, self._options["reorder"]
        if isinstance(saved, dict) and saved.get("block"):
            saved = {**saved, "cache": saved.get("cache", "belady")}  # the only one without a name
        if saved == mine:
            return
        if (
            mine is None
            or not isinstance(saved, dict)
            or asked not in (None, saved.get("block"))
            or (mine["block"] and saved.get("block") and mine["cache"] != saved["cache"])
        ):
            raise InvalidArgumentError(
                f"the state belongs to a loader with another order of batches: reorder was {saved!r}, is {mine!r}"
            )
        block, rows = (checks.count(f"reorder {key}", saved.get(key), 0) for key in ("block", "rows"))
        with self._at.lock:
            self._at.end()
            self._openings.change(reorder=block, reorder_rows=rows)
        self.value = self.planned() if block else saved
        if self.value != saved:
            raise InvalidArgumentError(
                f"the state needs the order of batches {saved!r}, this loader makes {self.value!r}: nothing is "
                "reordered if all rows are in memory; give it less memory"
            )

    def check(self) -> None:
        """Raise where a loader that was opened again makes another order."""
        if self.planned() != self.value:
            raise InvalidArgumentError(
                f"the order of batches was {self.value!r} and is {self.planned()!r} with another memory: "
                "nothing is reordered if all rows are in memory; give a loader that reorders memory of its own"
            )


def position(state: Any, mine: Mapping[str, Any], num_batches: int) -> tuple[int, int]:
    """Check a state against what the batches of a loader depend on, but for their order, and return the epoch and the
    number of batches in it that it was saved after.

    Raises:
        InvalidArgumentError: it is none, or that of a loader that yields other batches
    """
    if not isinstance(state, dict) or state.get("version") != 1 or not isinstance(state.get("config"), dict):
        raise InvalidArgumentError(
            f"expected what state_dict() of a freshgo.Loader returned, got {checks.shown(state)}"
        )
    saved = state["config"]
    different = [
        f"{key} was {saved.get(key)!r}, is {mine.get(key)!r}"
        for key in {**mine, **saved}  # those of links are missing from either
        if key not in ("reorder", "envelope") and saved.get(key) != mine.get(key)
    ]
    if different:
        raise InvalidArgumentError(f"the state belongs to a loader with other batches: {'; '.join(different)}")
    batches = checks.count("batches", state.get("batches"), 0)
    if batches > num_batches:
        raise InvalidArgumentError(f"the state is that after {batches} batches, but an epoch has {num_batches}")
    return checks.count("epoch", state.get("epoch"), 0), batches
