"""What a loader did, for people: a line of text, a table in a notebook, a figure."""

from __future__ import annotations

import html as _html
from typing import Any

from freshgo._size import format_size

_STAGES = {
    "opening": "open",
    "sampling": "sample",
    "reading": "read rows",
    "gathering": "gather",
    "waiting": "training waited",
}


def rows(stats: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of ``Loader.stats()`` as pairs of a name and a readable value."""
    found = stats["hits"] / stats["rows"] if stats["rows"] else 0.0
    limit = format_size(stats["memory_limit"]) if stats["memory_limit"] else "no limit"
    held = sorted(((n, name) for name, n in stats["memory"].items() if n), reverse=True)
    engine = stats["engine"] + (f" ({stats['engine_why']})" if stats.get("engine_why") else "")
    return [
        ("batches", f"{stats['batches']:,}"),
        ("edges sampled", f"{stats['edges']:,}"),
        ("rows", f"{stats['rows']:,}: {stats['hits']:,} in memory ({found:.1%}), {stats['misses']:,} read from disk"),
        ("read", f"{format_size(stats['bytes_read'])} in {stats['requests']:,} requests by {engine}"),
        ("seconds of work", ", ".join(f"{label} {stats[f'seconds_{key}']:.1f}" for key, label in _STAGES.items())),
        ("memory", f"{format_size(stats['memory_used'])}, at most {format_size(stats['memory_peak'])}, budget {limit}"),
        ("of it", ", ".join(f"{name} {format_size(n)}" for n, name in held) or "nothing"),
    ]


def text(stats: dict[str, Any]) -> str:
    """Return :func:`rows` as lines."""
    return "\n".join(f"  {name:16} {value}" for name, value in rows(stats))


def html(title: str, stats: dict[str, Any]) -> str:
    """Return :func:`rows` as a table under ``title``."""
    body = "".join(
        f"<tr><th style='text-align:left'>{_html.escape(name)}</th>"
        f"<td style='text-align:left'>{_html.escape(value)}</td></tr>"
        for name, value in (rows(stats) if stats else [])
    )
    return f"<b>{_html.escape(title)}</b><table>{body}</table>"


def figure(stats: dict[str, Any]) -> Any:
    """Return a matplotlib figure of :func:`rows`: time, rows, memory against the budget."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display

    result = Figure(figsize=(11, 3.4), layout="constrained")
    time, cache, memory = result.subplots(1, 3, width_ratios=[5, 4, 6])
    draw_time(time, stats)
    draw_cache(cache, stats)
    draw_memory(memory, stats)
    return result


def draw_time(axes: Any, stats: dict[str, Any]) -> None:
    """Draw the seconds of every stage."""
    seconds = [stats[f"seconds_{key}"] for key in _STAGES]
    colors = ["C0"] * (len(seconds) - 1) + ["C3"]  # the wait is the consumer's, the rest is work beside it
    bars = axes.barh(list(_STAGES.values()), seconds, color=colors)
    axes.bar_label(bars, [f" {s:.2f}" for s in seconds])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set(title="where time went", xlabel="seconds, summed over threads")
    _bare(axes)


def draw_cache(axes: Any, stats: dict[str, Any]) -> None:
    """Draw how many rows were found in memory, and what the rest cost."""
    total = max(1, stats["rows"])
    bottom = 0.0
    for label, count, color in (("in memory", stats["hits"], "C2"), ("from disk", stats["misses"], "C1")):
        share = count / total
        axes.bar(["rows"], [share], bottom=bottom, color=color, width=0.5)
        if share > 0:
            axes.text(0, bottom + share / 2, f"{label}\n{count:,}\n{share:.1%}", ha="center", va="center")
        bottom += share
    axes.set(title=f"rows: {stats['rows']:,}", ylim=(0, 1), yticks=[], xticks=[])
    axes.set_xlabel(f"{format_size(stats['bytes_read'])} read, {stats['requests']:,} requests, {stats['engine']}")
    _bare(axes)


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
    _bare(axes)


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
