"""One JSON and one page of what the journals of a run say."""

from __future__ import annotations

import html
import io
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]

PARTS = ("tests", "ops", "epochs", "beyond")
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .6em 0 1.6em } td, th { padding: .15em .7em; text-align: right }
td:first-child, th:first-child { text-align: left } tr { border-bottom: 1px solid #ddd }
.no { color: #b00020 } .yes { color: #006b2d } pre { white-space: pre-wrap; background: #f6f6f6; padding: .6em }
"""


def read(out: Path) -> dict[str, list[Record]]:
    """The records of each part; a line that a stopped process left half written is left out."""
    found: dict[str, list[Record]] = {}
    for part in PARTS:
        path = out / f"{part}.jsonl"
        if path.exists():
            records = map(parsed, path.read_text().splitlines())
            found[part] = [record for record in records if record is not None]
    return found


def parsed(line: str) -> Record | None:
    try:
        record: Record = json.loads(line)
        return record
    except ValueError:
        return None


def write(out: Path, machine: Record) -> None:
    """results.json and report.html in ``out``, from the journals that are there."""
    parts = read(out)
    (out / "results.json").write_text(json.dumps({"machine": machine, **parts}, indent=1) + "\n")
    (out / "report.html").write_text(page(machine, parts))


def summary(out: Path) -> str:
    """A few lines for the terminal."""
    parts = read(out)
    outcomes = Counter(record["outcome"] for record in parts.get("tests", []) if "test" in record)
    lines = ["tests: " + (", ".join(f"{count} {what}" for what, count in outcomes.items()) or "none")]
    lines += [f"  failed: {r['test']}" for r in parts.get("tests", []) if r.get("outcome") == "failed"]
    everything = [record for records in parts.values() for record in records]
    lines += [f"failed: {record['failed']}: {record['why']}" for record in everything if "failed" in record]
    lines += [
        f"{'met ' if record['met'] else 'MISSED'} {record['goal']}: {record['got']} (goal {record['wanted']})"
        for record in everything
        if "goal" in record
    ]
    return "\n".join(lines)


def page(machine: Record, parts: dict[str, list[Record]]) -> str:
    everything = [record for records in parts.values() for record in records]
    body = [f"<h1>freshgo on {html.escape(machine['gpu'] or 'no GPU')}</h1>"]
    if machine.get("rehearsal"):
        body.append(
            f"<p class=no>A rehearsal on the CPU: {html.escape(machine['rehearsal'])}. The figures mean nothing.</p>"
        )
    body.append(table(("", ""), [(name, str(value)) for name, value in machine.items()]))
    body += ["<h2>Goals</h2>", goals(everything)]
    body += ["<h2>Limits of this device, in this run</h2>"]
    body.append(table(("", "GB/s"), [(r["limit"], r["gb_s"]) for r in everything if "limit" in r]))
    contests = [record for record in everything if "contest" in record]
    body += ["<h2>Contests</h2>", picture(contests), contest_table(contests)]
    body += ["<h2>Milliseconds of a batch, by option</h2>", levers(everything)]
    body += ["<h2>Tests</h2>", tests(parts.get("tests", []))]
    body += ["<h2>What went wrong, and what was left out</h2>"]
    for record in everything:
        if "failed" in record or "skipped" in record or "note" in record:
            text = " ".join(str(value) for name, value in record.items() if name != "trace")
            body.append(f"<p>{html.escape(text)}</p>")
            body.append(f"<pre>{html.escape(record['trace'])}</pre>" if "trace" in record else "")
    body += ["<h2>Steps</h2>"]
    taken = [(r["step"], "stopped at its limit" if r["code"] is None else r["code"], r["seconds"]) for r in everything
             if "step" in r]  # fmt: skip
    body.append(table(("", "exit code", "seconds"), taken))
    return f"<!doctype html><meta charset=utf-8><title>freshgo on a GPU</title><style>{STYLE}</style>" + "\n".join(body)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    def row(cells: Iterable[object], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{cell if raw(cell) else html.escape(str(cell))}</{kind}>" for cell in cells)

    return "<table>" + row(head, "th") + "".join(row(cells, "td") for cells in rows) + "</table>"


def raw(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith("<span class=")


def goals(everything: list[Record]) -> str:
    rows = [
        (r["goal"], r["wanted"], r["got"], "<span class=yes>met</span>" if r["met"] else "<span class=no>missed</span>")
        for r in everything
        if "goal" in r
    ]
    return table(("", "goal", "here", ""), rows)


def contest_table(contests: list[Record]) -> str:
    rows = []
    for record in contests:
        others = ", ".join(
            f"{name} {record['ms'][name]} ms ({ratio} x)"
            for name, ratio in record["ratio"].items()
            if name != "freshgo"
        )
        more = {k: v for k, v in record.items() if k not in ("contest", "graph", "ms", "ratio", "share")}
        said = ", ".join(f"{name} {value}" for name, value in more.items())
        rows.append(
            (record["contest"], record["graph"], record["ms"].get("freshgo", ""), others, record.get("share", ""), said)
        )
    return table(("", "", "freshgo, ms", "others", "share of the limit", ""), rows)


def levers(everything: list[Record]) -> str:
    found = [record for record in everything if "lever" in record]
    head = list(dict.fromkeys(name for record in found for name in record))
    return table(
        ["" if name == "lever" else name for name in head], [[r.get(name, "") for name in head] for r in found]
    )


def tests(records: list[Record]) -> str:
    results = [record for record in records if "test" in record]
    counted = Counter(record["outcome"] for record in results)
    text = [f"<p>{', '.join(f'{count} {outcome}' for outcome, count in counted.items()) or 'none'}</p>"]
    text += [
        f"<h3 class=no>{html.escape(record['test'])}</h3><pre>{html.escape(record['why'])}</pre>"
        for record in results
        if record["outcome"] == "failed"
    ]
    why = Counter(r["why"].rsplit("Skipped: ", 1)[-1].strip("')\n") for r in results if r["outcome"] == "skipped")
    text += [f"<p>{count} skipped: {html.escape(reason)}</p>" for reason, count in why.items()]
    return "\n".join(text)


def picture(contests: list[Record]) -> str:
    """How many times the time of freshgo the others took; nothing where there is no matplotlib."""
    bars = [
        (f"{r['contest']}\n{r['graph']}", name, ratio)
        for r in contests
        for name, ratio in r["ratio"].items()
        if name != "freshgo" and "freshgo" in r["ratio"]
    ]
    if not bars:
        return ""
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return "<p>There is no matplotlib here for a picture.</p>"
    figure, axes = pyplot.subplots(figsize=(10, 0.6 + 0.34 * len(bars)))
    colors = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(name for _, name, _ in bars))}
    axes.barh(range(len(bars)), [ratio for *_, ratio in bars], color=[colors[name] for _, name, _ in bars])
    axes.set_yticks(range(len(bars)), [title.replace("\n", ", ") for title, *_ in bars], fontsize=7)
    for place, (_, name, ratio) in enumerate(bars):
        axes.text(ratio, place, f" {ratio:g} x, {name}", va="center", fontsize=7)
    axes.axvline(1, color="#888", linewidth=0.8)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("time, relative to freshgo")
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight")
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
