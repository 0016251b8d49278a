"""The picture of when a loader did what."""

from __future__ import annotations

from typing import Any, Protocol

from freshgo._plots.canvas import new_figure, open_frame

_LABELS = {
    "sampling": "samples a window",
    "planning": "plans it",
    "scanning": "scans the store for it",
    "updating": "updates the cache",
    "reading": "reads a batch",
    "waiting": "the loop waits",
}


class Timed(Protocol):
    """What the picture shows of a :class:`freshgo.Plan`."""

    data: dict[str, Any]

    @property
    def windows(self) -> list[dict[str, Any]]: ...


def timeline(plan: Timed) -> Any:
    """Return a figure with a row for each activity, in time. Lines mark the first batch of each window."""
    found = plan.data.get("timeline") or {}
    kept = [found.get(name) or [] for name in _LABELS]
    result = new_figure(figsize=(12, 3.2))
    axes = result.subplots()
    for row, (name, spans) in enumerate(zip(_LABELS, kept, strict=True)):
        color = "C3" if name == "waiting" else f"C{row % 3}"
        # Batches are read several at a time: where spans overlap, the colour is darker.
        axes.broken_barh([(b, e - b) for _, b, e in spans], (row - 0.35, 0.7), color=color, alpha=0.55, linewidth=0)
    begins = {first: begin for first, begin, _ in reversed(found.get("reading") or [])}
    for window in plan.windows:
        if window.get("first") in begins:
            axes.axvline(begins[window["first"]], color="0.4", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(_LABELS)), _LABELS.values())
    axes.invert_yaxis()
    axes.margins(x=0.01)
    if spans := [span for one in kept for span in one]:
        waited = sum(end - begin for _, begin, end in kept[-1])
        whole = max(end for _, _, end in spans) - min(begin for _, begin, _ in spans)
        title = f"{whole:.3g} seconds, {waited:.3g} of them waiting; dotted: the first batch of a window"
    else:
        title = "nothing was planned"
    axes.set(title=title, xlabel="seconds since the loader was opened")
    open_frame(axes)
    return result
