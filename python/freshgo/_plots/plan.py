"""The picture of a plan."""

from __future__ import annotations

from typing import Any, Protocol

from freshgo._plots.canvas import new_figure, open_frame
from freshgo._plots.table import by_size

_MIB = 2**20
_CHOSEN, _OTHER, _UNFIT = "C2", "C0", "0.8"


class Planned(Protocol):
    """What the picture shows of a :class:`freshgo.Plan`."""

    data: dict[str, Any]

    @property
    def windows(self) -> list[dict[str, Any]]: ...
    @property
    def ratios(self) -> list[float]: ...


def figure(plan: Planned) -> Any:
    """Return a figure with the memory, the cost of every option, and how the windows went."""
    options = _Options(plan.windows)
    if not options.names:
        result = new_figure(figsize=(6, 3.4))
        draw_memory(result.subplots(), plan)
        return result
    result = new_figure(figsize=(12, 6))
    axes = result.subplot_mosaic([["seconds", "bytes", "requests"], ["memory", "windows", "windows"]])
    draw_memory(axes["memory"], plan)
    draw_seconds(axes["seconds"], options)
    draw_bytes(axes["bytes"], options)
    draw_requests(axes["requests"], options)
    draw_windows(axes["windows"], plan)
    return result


class _Options:
    """The options of all windows, summed over those windows in which each was weighed."""

    def __init__(self, windows: list[dict[str, Any]]) -> None:
        found: dict[str, list[dict[str, Any]]] = {}
        for window in windows:
            for option in window.get("options") or ():
                found.setdefault(option.get("name", "?"), []).append(option)
        self.names = list(found)
        self._found = found
        self.chosen = {name: sum(w.get("chosen") == name for w in windows) for name in found}
        self.windows = len(windows)

    def mean(self, key: str) -> list[float]:
        return [sum(o.get(key) or 0.0 for o in self._found[n]) / len(self._found[n]) for n in self.names]

    def colors(self) -> list[str]:
        fits = {n: any(o.get("fits", True) for o in self._found[n]) for n in self.names}
        return [_CHOSEN if self.chosen[n] else _OTHER if fits[n] else _UNFIT for n in self.names]

    def labels(self) -> list[str]:
        many = self.windows > 1
        return [f"{n}: {self.chosen[n]} x" if many and self.chosen[n] else n for n in self.names]


def draw_memory(axes: Any, plan: Planned) -> None:
    """Draw the parts of the memory."""
    split = by_size(plan.data.get("split")) or [("nothing", 0)]
    bars = axes.barh([name for name, _ in split], [n / _MIB for _, n in split], color="C7")
    axes.bar_label(bars, [f" {n / _MIB:,.1f}" for _, n in split])
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set(title="the memory is divided into", xlabel="MiB")
    open_frame(axes)


def draw_seconds(axes: Any, options: _Options) -> None:
    """Draw what every option was predicted to take."""
    _bars(axes, options, [(options.mean("seconds"), options.colors())], "{:.3g}")
    mean = ", on average" if options.windows > 1 else ""
    axes.set(title=f"a window with what is ahead{mean}", xlabel="seconds, predicted; green: chosen")


def draw_bytes(axes: Any, options: _Options) -> None:
    """Draw what every option reads and writes."""
    read = [n / _MIB for n in options.mean("bytes_read")]
    written = [n / _MIB for n in options.mean("bytes_written")]
    parts = [(read, options.colors())]
    if any(written):
        parts.append((written, ["C1"] * len(written)))
    _bars(axes, options, parts, "{:,.1f}")
    axes.set(title="moves", xlabel="MiB" + ("; orange: written" if any(written) else ""), yticklabels=[])


def draw_requests(axes: Any, options: _Options) -> None:
    """Draw how many requests every option makes."""
    _bars(axes, options, [(options.mean("requests"), options.colors())], "{:,.0f}")
    axes.set(title="and makes requests", xlabel="requests", yticklabels=[])


def draw_windows(axes: Any, plan: Planned) -> None:
    """Draw predicted and measured seconds of every window, batch by batch in time."""
    windows = [w for w in plan.windows if w.get("predicted_seconds") is not None]
    start = [w.get("first", i) for i, w in enumerate(windows)]
    width = [max(1, w.get("batches", 1)) for w in windows]
    axes.bar(
        start,
        [w["predicted_seconds"] for w in windows],
        [w * 0.45 for w in width],
        align="edge",
        color=_OTHER,
        label="predicted",
    )
    ran = [
        (s + w * 0.45, w, x["measured_seconds"])
        for s, w, x in zip(start, width, windows, strict=True)
        if x.get("measured_seconds") is not None
    ]
    if ran:
        axes.bar(
            [s for s, _, _ in ran],
            [m for _, _, m in ran],
            [w * 0.45 for _, w, _ in ran],
            align="edge",
            color="C1",
            label="measured",
        )
    title = f"the windows, {len(windows):,} so far"
    if plan.ratios:
        from statistics import median  # slow to import

        title += f": the median took {median(plan.ratios):.2f} of what was predicted"
    axes.set(title=title, xlabel="batch", ylabel="seconds")
    axes.margins(y=0.2)  # for the legend
    axes.legend(frameon=False, ncols=2, loc="upper right")
    open_frame(axes)


def _bars(axes: Any, options: _Options, parts: list[tuple[list[float], list[str]]], form: str) -> None:
    """Draw stacked bars, labelled with their sum."""
    left = [0.0] * len(options.names)
    for values, colors in parts:
        bars = axes.barh(options.labels(), values, left=left, color=colors)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.bar_label(bars, [" " + form.format(n) for n in left])
    axes.invert_yaxis()
    axes.margins(x=0.18)
    open_frame(axes)
