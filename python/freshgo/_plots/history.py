"""The picture of a history."""

from __future__ import annotations

from typing import Any

from freshgo._plots.canvas import new_figure, open_frame

_MIB = 2**20


def figure(stats: dict[str, Any]) -> Any:
    """Return a figure with the saving over time, hits by layer, ages of hits, the buffer, and errors if measured."""
    result = new_figure(figsize=(12, 6))
    names: list[Any] = [["saving", "saving", "layers"], ["ages", "buffer", "error" if stats.get("error") else "buffer"]]
    axes = result.subplot_mosaic(names)
    draw_saving(axes["saving"], stats.get("saving") or [])
    draw_layers(axes["layers"], stats.get("layers") or [])
    draw_ages(axes["ages"], stats.get("ages") or [])
    draw_buffer(axes["buffer"], stats)
    if "error" in axes:
        draw_error(axes["error"], stats["error"])
    for one in axes.values():
        open_frame(one)
    return result


def draw_saving(axes: Any, points: list[dict[str, int]]) -> None:
    """Draw rows and edges against those of plain batches, over iterations."""
    at = [p["iteration"] for p in points]
    rows, edges = (
        [100 * (1 - p[mine] / p[plain]) if p[plain] else 0.0 for p in points]
        for mine, plain in (("loaded", "plain_rows"), ("edges", "plain_edges"))
    )
    looked = [p["hits"] + p["computed"] for p in points]
    hits = [100 * p["hits"] / n if n else 0.0 for p, n in zip(points, looked, strict=True)]
    for values, label, color in ((rows, "rows of features", "C0"), (edges, "edges", "C1"), (hits, "hits", "C7")):
        axes.plot(at, values, label=label, color=color, linewidth=1, marker="." if len(at) == 1 else None)
    plain = sum(p["plain_rows"] for p in points)
    saved = 100 * (1 - sum(p["loaded"] for p in points) / plain) if plain else 0.0
    axes.set(title=f"saved against plain batches: {saved:.1f} % of the rows", xlabel="iteration", ylabel="%")
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, ncols=3, loc="upper left")


def draw_layers(axes: Any, layers: list[dict[str, int]]) -> None:
    """Draw the hit rate of every hidden layer."""
    rates = [100 * one["hits"] / max(1, one["hits"] + one["misses"]) for one in layers]
    bars = axes.barh([f"layer {i}" for i, _ in enumerate(layers, start=1)], rates, color="C2")
    axes.bar_label(bars, [f" {r:.1f} %, {one['live']:,} live" for r, one in zip(rates, layers, strict=True)])
    axes.invert_yaxis()
    axes.set(title="rows found in the cache", xlabel="%")
    axes.set_xlim(0, 170)  # the labels stand right of the bars
    axes.set_xticks([0, 25, 50, 75, 100])


def draw_ages(axes: Any, ages: list[int]) -> None:
    """Draw how old the rows were that were read."""
    total = max(1, sum(ages))
    axes.bar(range(len(ages)), [100 * n / total for n in ages], color="C0", width=0.9)
    axes.set_xticks(range(len(ages)), _powers(len(ages)))
    axes.set(title="age of what was read", xlabel="iterations, up to twice as many", ylabel="% of hits")


def draw_buffer(axes: Any, stats: dict[str, Any]) -> None:
    """Draw how much of the buffer is in use."""
    held = stats.get("embedding_bytes", 0)
    parts = [n / _MIB for n in (held, stats.get("bytes", held) - held)]
    bars = axes.barh(["embeddings", "free"], parts, color=["C2", "C7"])
    axes.bar_label(bars, [f" {n:,.1f}" for n in parts])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set(title="the buffer holds", xlabel="MiB")


def draw_error(axes: Any, errors: list[dict[str, float]]) -> None:
    """Draw how far stored rows were from computed ones."""
    at = range(len(errors))
    axes.plot(at, [e["relative"] for e in errors], marker="o", color="C3", label="relative error")
    axes.plot(at, [1 - e["cosine"] for e in errors], marker="o", color="C4", label="1 - cosine")
    axes.set_xticks(at, [f"{e['age']:,.0f}" for e in errors])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.set(title="stored against computed rows", xlabel="age, up to twice as many iterations")


def _powers(count: int) -> list[str]:
    return [f"{1 << k:,}" if count <= 10 or k % 2 == 0 else "" for k in range(count)]
