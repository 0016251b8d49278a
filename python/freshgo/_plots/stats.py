"""What a loader did, for people: a line of text, a table in a notebook, a figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from freshgo._args.size import format_size
from freshgo._plots.canvas import new_figure, open_frame
from freshgo._plots.table import html_table, html_title

_STAGES = {
    "opening": "open",
    "sampling": "sample",
    "planning": "plan",
    "reading": "read rows",
    "gathering": "gather",
    "waiting": "training waited",
}


def rows(stats: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of ``Loader.stats()`` as pairs of a name and a readable value."""
    limit = format_size(stats["memory_limit"]) if stats["memory_limit"] else "no limit"
    held = sorted(((n, name) for name, n in stats["memory"].items() if n), reverse=True)
    engine = stats["engine"] + (f" ({stats['engine_why']})" if stats.get("engine_why") else "")
    return [
        ("batches", f"{stats['batches']:,}"),
        ("edges sampled", f"{stats['edges']:,}"),
        (
            "rows",
            f"{stats['rows']:,}: " + ", ".join(f"{n:,} {where} ({share:.1%})" for where, n, share in _found(stats)),
        ),
        *_planned(stats),
        ("read", f"{format_size(stats['bytes_read'])} in {stats['requests']:,} requests by {engine}"),
        ("seconds of work", ", ".join(f"{label} {seconds:.1f}" for label, seconds in _stages(stats))),
        ("memory", f"{format_size(stats['memory_used'])}, at most {format_size(stats['memory_peak'])}, budget {limit}"),
        ("of it", ", ".join(f"{name} {format_size(n)}" for n, name in held) or "nothing"),
    ]


def _stages(stats: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the seconds of every stage that the loader has."""
    return [(label, stats[f"seconds_{key}"]) for key, label in _STAGES.items() if f"seconds_{key}" in stats]


def _found(stats: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Return where rows were found: how many, and their share."""
    places = [
        ("on the device", stats.get("held", 0)),
        ("in memory", stats["hits"]),
        ("put aside before", stats.get("packed", 0)),
        ("from disk", stats["misses"]),
    ]
    total = max(1, stats["rows"])
    return [(place, n, n / total) for place, n in places if n or place not in ("on the device", "put aside before")]


def _planned(stats: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a planned loader has beside the others."""
    if not stats.get("superbatch"):
        return []
    said = f"{stats['cache']}, up to {stats['superbatch']:,} batches at a time"
    if stats.get("prediction_error"):
        said += f", seconds predicted within {stats['prediction_error']:.0%} (median)"
    return [("planned", said)]


def text(stats: dict[str, Any]) -> str:
    """Return :func:`rows` as lines."""
    return "\n".join(f"  {name:16} {value}" for name, value in rows(stats))


def html(title: str, stats: dict[str, Any]) -> str:
    """Return :func:`rows` as a table under ``title``."""
    return html_title(title) + html_table(rows(stats) if stats else [])


def figure(stats: dict[str, Any]) -> Any:
    """Return a matplotlib figure of :func:`rows`: time, rows, memory against the budget, and epoch by epoch."""
    epochs = stats.get("epochs") or []
    result: Any = new_figure(figsize=(11, 6.4 if epochs else 3.4))
    upper, lower = result, result
    if epochs:
        upper, lower = result.subfigures(2, height_ratios=[8, 7])
    time, cache, memory = upper.subplots(1, 3, width_ratios=[5, 4, 6])
    draw_time(time, stats)
    draw_cache(cache, stats)
    draw_memory(memory, stats)
    if epochs:
        hits, read, seconds = lower.subplots(1, 3)
        draw_epochs(hits, epochs, "found in memory, by epoch", "% of rows", _found_share, (0, 100))
        draw_epochs(read, epochs, "read from disk, by epoch", "MiB", lambda e: e["bytes_read"] / 2**20)
        draw_epochs(seconds, epochs, "took, by epoch", "seconds", lambda e: e["seconds"])
    return result


def draw_epochs(
    axes: Any,
    epochs: list[dict[str, Any]],
    title: str,
    unit: str,
    value: Callable[[dict[str, Any]], float],
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw one figure of every epoch that was consumed whole, in the order in which they ran."""
    values = [value(epoch) for epoch in epochs]
    bars = axes.bar([str(epoch["epoch"]) for epoch in epochs], values, color="C0", width=0.6)
    if len(values) <= 8:
        axes.bar_label(bars, [f"{v:.3g}" if v < 1000 else f"{v:,.0f}" for v in values])
    else:
        axes.xaxis.get_major_locator().set_params(nbins=8)
    axes.margins(y=0.15)
    axes.set(title=title, ylabel=unit, xlabel="epoch")
    if limits:
        axes.set_ylim(*limits)
    open_frame(axes)


def _found_share(epoch: dict[str, Any]) -> float:
    return float(100 * (epoch["hits"] + epoch.get("held", 0)) / max(1, epoch["rows"]))


def draw_time(axes: Any, stats: dict[str, Any]) -> None:
    """Draw the seconds of every stage."""
    labels, seconds = zip(*_stages(stats), strict=True)
    colors = ["C0"] * (len(seconds) - 1) + ["C3"]  # the wait is the consumer's, the rest is work beside it
    bars = axes.barh(labels, seconds, color=colors)
    axes.bar_label(bars, [f" {s:.2f}" for s in seconds])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set(title="where time went", xlabel="seconds, summed over threads")
    open_frame(axes)


def draw_cache(axes: Any, stats: dict[str, Any]) -> None:
    """Draw how many rows were found in memory, and what the rest cost."""
    colors = {"on the device": "C4", "in memory": "C2", "put aside before": "C8", "from disk": "C1"}
    bottom = 0.0
    for label, count, share in _found(stats):
        color = colors[label]
        axes.bar(["rows"], [share], bottom=bottom, color=color, width=0.8)
        if share > 0.2:
            axes.text(0, bottom + share / 2, f"{label}\n{count:,}\n{share:.1%}", ha="center", va="center")
        elif share > 0.04:
            axes.text(0, bottom + share / 2, f"{label} {share:.1%}", ha="center", va="center", fontsize="small")
        bottom += share
    axes.set(title=f"rows: {stats['rows']:,}", ylim=(0, 1), yticks=[], xticks=[])
    axes.set_xlabel(f"{format_size(stats['bytes_read'])} read\n{stats['requests']:,} requests, {stats['engine']}")
    open_frame(axes)


def draw_memory(axes: Any, stats: dict[str, Any]) -> None:
    """Draw the peak of every purpose, and of all together against the budget."""
    mib = 2**20
    held = sorted(((n / mib, name) for name, n in stats["memory_peaks"].items() if n), reverse=True)
    names = ["together", *(name.replace("_", " ") for _, name in held)]
    sizes = [stats["memory_peak"] / mib, *(n for n, _ in held)]
    bars = axes.barh(names, sizes, color=["C7", *["C0"] * len(held)])
    axes.bar_label(bars, [f" {n:.1f}" for n in sizes])
    if stats["memory_limit"]:
        axes.axvline(stats["memory_limit"] / mib, color="C3", linestyle="--")
        axes.text(stats["memory_limit"] / mib, len(names) - 0.5, "budget ", color="C3", ha="right", va="bottom")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title="memory, at most", xlabel="MiB")
    open_frame(axes)
