"""The picture of policies over the size of the cache."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, Protocol

from freshgo._plots.canvas import new_figure, open_frame


class Simulated(Protocol):
    """What the picture shows of a :class:`freshgo.Simulation`."""

    @property
    def accesses(self) -> int: ...
    @property
    def hit_rate(self) -> float: ...
    @property
    def read_rate(self) -> float: ...
    @property
    def reads_per_batch(self) -> Sized: ...


Curve = tuple[str, Sequence[Simulated]]
"""A label, and what was simulated for each size of the cache."""


def figure(curves: list[Curve], sizes: list[int], num_nodes: int, unique: int) -> Any:
    """Return a figure of two panels: hits per access, and rows fetched per access."""
    result = new_figure(figsize=(12, 4.6))
    hits, reads = result.subplots(1, 2)
    x = [100 * size / num_nodes for size in sizes]
    styles = ["-", "--", "-.", ":"]
    for i, (label, simulations) in enumerate(curves):
        style = {"marker": "o", "markersize": 3.5, "linestyle": styles[i // 10 % len(styles)]}
        line = {**style, "color": f"C{i % 10}", "linewidth": 2.2 if i == 0 else 1.3, "zorder": 3 if i == 0 else 2}
        hits.plot(x, [100 * s.hit_rate for s in simulations], label=label, **line)
        reads.plot(x, [100 * s.read_rate for s in simulations], label=label, **line)
    accesses = curves[0][1][0].accesses
    floor = 100 * unique / max(1, accesses)
    reads.axhline(floor, color="0.5", linestyle=":", linewidth=1)
    reads.annotate(
        "every row once",
        (0.01, floor),
        xycoords=("axes fraction", "data"),
        va="top" if floor > 8 else "bottom",  # under the line where there is room
        color="0.4",
    )
    hits.set(title="found in the cache; the first fill is free", ylabel="% of accesses")
    reads.set(title="read from disk; the first fill counts", ylabel="% of accesses")
    for axes in (hits, reads):
        axes.set(xlabel=f"cache, % of {num_nodes:,} nodes", ylim=(0, None))
        axes.grid(color="0.92")
        open_frame(axes)
    _legend(reads, curves)
    result.suptitle(f"{accesses:,} accesses to {unique:,} rows in {len(curves[0][1][0].reads_per_batch):,} batches")
    return result


def _legend(axes: Any, curves: list[Curve]) -> None:
    """List the policies from the fewest reads to the most."""
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(curves)), key=lambda c: sum(s.read_rate for s in curves[c][1]))
    shown = [handles[c] for c in order], [labels[c] for c in order]
    axes.legend(*shown, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
