"""The picture of the executors' work over time: sampling and training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from freshgo._plots.canvas import new_figure, open_frame

_COLORS = {"sampling": "C0", "training": "C2", "standing in": "C1"}


def figure(spans: Sequence[tuple[int, str, float, float]], stats: dict[str, Any]) -> Any:
    """Return a figure with a row for each executor. A span is an executor, what it did, and from when to when."""
    count = stats["executors"]
    result = new_figure(figsize=(12, 1.6 + 0.45 * count))
    axes = result.subplots()
    origin = min((begin for _, _, begin, _ in spans), default=0.0)
    for kind, color in _COLORS.items():
        for executor in range(count):
            own = [(begin - origin, end - begin) for of, what, begin, end in spans if of == executor and what == kind]
            axes.broken_barh(own, (executor - 0.38, 0.76), color=color, linewidth=0, label=None if executor else kind)
    axes.set_yticks(range(count), [_named(executor, stats) for executor in range(count)])
    axes.set_ylim(count - 0.5, -0.5)
    axes.margins(x=0.01)
    axes.set(title=_title(stats), xlabel="seconds since the first of these")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    open_frame(axes)
    return result


def _named(executor: int, stats: dict[str, Any]) -> str:
    role = "samples" if executor < stats["samplers"] else "trains"
    return f"{executor} {role}: {stats['sampled_by'][executor]:,} made, {stats['trained_by'][executor]:,} trained"


def _title(stats: dict[str, Any]) -> str:
    said = [f"{stats['samplers']} of {stats['executors']} sample"]
    if stats["ratio"] is not None:
        made, trained = 1e3 * stats["sampling_seconds"], 1e3 * stats["training_seconds"]
        said.append(f"a batch: {made:.3g} ms to make, {trained:.3g} ms to train, K = {stats['ratio']:.3g}")
    profits = [switch["profit"] for switch in stats["last_switches"] if math.isfinite(switch["profit"])]
    gained = f" with a profit of {1e3 * sum(profits) / len(profits):.3g} ms on average" if profits else ""
    said.append(f"{stats['switches']:,} switches{gained}")
    return "; ".join(said)
