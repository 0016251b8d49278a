"""The pictures of README.md and of docs/benchmarks.md from the figures in speed.json and parts.json beside this file.

python bench/readme/draw.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WIDTH, LABEL, ROW = 760, 210, 26
COLOURS = {True: ("#0b7a75", "#5fb3ae"), False: ("#8c959f", "#bcc3ca")}
"""Of freshgo and of others: of a bar, and of the bar below it for the second epoch."""
SCALE = WIDTH - LABEL - 90  # the longest bar of a panel
STYLE = "text{font-family:system-ui,sans-serif;font-size:14px;fill:#1f2328}.t{font-weight:600}.u{font-size:12px;fill:#59636e}"


def text(x: float, y: float, what: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(what)}</text>'


def bar(x: float, y: float, length: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{length:.1f}" height="{ROW - 8}" fill="{colour}"/>'


def panel(data: dict[str, Any], y: float) -> tuple[list[str], float]:
    """A panel from y on, and where it ends."""
    drawn = [text(16, y + 16, data["title"], ' class="t"'), text(16, y + 34, data["unit"], ' class="u"')]
    y += 44
    longest = max(b["value"] + b.get("preparation", 0) for b in data["bars"])
    for b in data["bars"]:
        before, unit, ours = b.get("preparation", 0), b.get("unit", "s"), b["name"].startswith("freshgo")
        start = SCALE * before / longest
        drawn.append(text(LABEL - 8, y + 14, b["name"], ' text-anchor="end"'))
        if before:
            drawn.append(bar(LABEL, y, start, "#d0d7de"))
            drawn.append(text(LABEL + 8, y + 14, f"{before:g} s of preparation", ' class="u"'))
        for key, colour in (("value", COLOURS[ours][0]), ("second", COLOURS[ours][1])):
            if key in b:
                length = SCALE * b[key] / longest
                drawn.append(bar(LABEL + start, y, length, colour))
                drawn.append(text(LABEL + start + length + 6, y + 14, f"{b[key]:g} {unit}"))
                y += ROW if key == "second" or "second" not in b else ROW - 7
    return drawn, y + 14


def draw(results: dict[str, Any]) -> str:
    """The picture as SVG."""
    drawn, y = [], 14.0
    for data in results["panels"]:
        more, y = panel(data, y)
        drawn += more
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" width="{WIDTH}" role="img">'
    named = f"<title>{escape(results['title'])}</title>"
    ground = f'<rect width="{WIDTH}" height="{y:g}" rx="6" fill="#ffffff"/>'
    return "\n".join([head, named, f"<style>{STYLE}</style>", ground, *drawn, "</svg>", ""])


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "docs"
    for figures in sorted(HERE.glob("*.json")):
        picture = draw(json.loads(figures.read_text(encoding="utf-8")))
        (folder / figures.with_suffix(".svg").name).write_text(picture, encoding="utf-8")
