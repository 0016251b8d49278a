"""What a loader decided, and why: the division of its memory, its cache, and how every window of batches is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from freshgo._args.entry import entry
from freshgo._args.size import format_size

_SHOWN = 12
"""Windows that the text lists; the data and the picture have all of them."""


@entry
class Plan:
    """How a loader divides its memory and reads its rows, from :meth:`freshgo.Loader.plan`.

    A plan prints as text, shows itself in notebooks and draws itself. The plan of a loader that has run also says what
    it took.

    Attributes:
        data: everything as a dict. ``"split"``: bytes by name. ``"cache"``, ``"capacity_rows"``, ``"superbatch"``,
            ``"why"``. ``"device"``: its performance, as it is known by now. ``"windows"``: a list, each with
            ``"first"`` (batch), ``"batches"``, ``"options"`` (``"name"``, ``"requests"``, ``"bytes_read"``,
            ``"bytes_written"``, ``"seconds"`` of the device, ``"processor_seconds"``, ``"cost_seconds"`` that the loop
            loses by both, ``"fits"``: over the window and what is ahead of it), ``"chosen"``, ``"forced"``, ``"why"``,
            ``"predicted_seconds"`` and ``"measured_seconds"`` in which the batches themselves are read (the latter is
            None before they have run), ``"predicted_device_seconds"`` and ``"predicted_processor_seconds"`` (what that
            takes of the device and of the processor), ``"wall_seconds"`` and ``"waited_seconds"`` (of these, those in
            which the loop waited for a batch), ``"missed_rows"`` (accesses to rows that are not cached),
            ``"floor_bytes"`` and ``"floor_seconds"`` (one scan of the features, no more of them than these rows touch,
            and each of these rows written once and read once, at the device's rates in sequence),
            ``"measured_bytes_read"`` and ``"measured_bytes_written"`` (of rows, from the first read to the last, with
            those for the plan of the next window; neighbour lists and edge tensors are counted neither in them nor in
            the seconds), ``"early"`` (whether it was scanned while the window before was executed).
            ``"timeline"``: by activity (``"sampling"``, ``"planning"``, ``"scanning"``, ``"updating"``, ``"reading"``,
            ``"waiting"``) a list of the last spans, each ``[batch, begin, end]``: the first batch that it was for, and
            seconds since the loader was opened. ``"more_memory"``: what epochs are predicted to move with this
            ``memory=``, with a tenth more, and so on to twice as much, each ``"memory"`` and ``"epoch_bytes"`` (of rows
            that are not held whole, read and written). ``"history"``: with a history
            whose decisions are known ahead, what it leaves of the last epochs and of those that are sampled ahead, each
            ``"epoch"``, ``"batches"`` (sampled so far), ``"drawn_rows"`` of these, ``"planned_rows"`` that they will
            read, ``"read_rows"`` of the batches that were made, and ``"unforeseen_rows"``, 0 unless training did
            something else. ``"tables"``: with ``embeddings=``, ``"rows"`` of tables in batches, ``"rows_late"`` of
            these that were put in at the hand-over and their ``"late_share"``, ``"bytes_read"``, ``"bytes_written"``,
            ``"bytes_returned"`` of rows that went back into the files, and ``"write_amplification"``, the bytes
            written for each of these. Entries that do not apply to a loader are absent.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def windows(self) -> list[dict[str, Any]]:
        """The windows of batches that were planned so far, in order."""
        return list(self.data.get("windows") or ())

    @property
    def ratios(self) -> list[float]:
        """Measured by predicted seconds of every window that has run."""
        return [w["measured_seconds"] / w["predicted_seconds"] for w in self.windows if _ran(w)]

    def rows(self) -> list[tuple[str, str]]:
        """Return the plan as pairs of a name and a readable value."""
        return [*self._summary(), *(("window", _window(w)) for w in self.windows[:_SHOWN]), *self._rest()]

    def _summary(self) -> Iterator[tuple[str, str]]:
        data = self.data
        from freshgo._plots.table import by_size

        split = by_size(data.get("split"))
        if split:
            yield "memory", ", ".join(f"{name} {format_size(n)}" for name, n in split)
        cache = [str(data["cache"])] if data.get("cache") else []
        if data.get("capacity_rows") is not None:
            cache.append(f"{data['capacity_rows']:,} rows")
        if data.get("superbatch"):
            cache.append(f"superbatches of {data['superbatch']:,} batches")
        if data.get("reorder"):
            cache.append(f"reordered within {data['reorder']:,} batches")
        if cache:
            yield "cache", ", ".join(cache)
        if data.get("why"):
            yield "because", str(data["why"])
        more = _more_memory(data.get("more_memory") or [])
        if more:
            yield "more memory", more
        device = _device(data.get("device") or {})
        if device:
            yield "device", device

    def _rest(self) -> Iterator[tuple[str, str]]:
        if len(self.windows) > _SHOWN:
            yield "window", f"and {len(self.windows) - _SHOWN:,} more"
        tables = self.data.get("tables")
        if tables and tables["rows"]:
            yield "tables", _tables(tables)
        epochs = self.data.get("history") or []
        now = sum(of["read_rows"] > 0 for of in epochs)  # those before it have been
        for of in epochs[max(0, now - _SHOWN // 2) :][:_SHOWN]:
            yield "history", _forecast(of)
        if self.ratios:
            from statistics import median  # slow to import

            took = median(self.ratios)
            yield "prediction", f"the median window took {took:.2f} of what was predicted, of {len(self.ratios):,}"

    def __str__(self) -> str:
        return "\n".join(f"{name:11} {value}" for name, value in self.rows()) or "nothing is planned"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from freshgo._plots.table import html_table

        rows = self.rows()
        return html_table(rows) if rows else "nothing is planned"

    def plot(self) -> Any:
        """Return a matplotlib figure: memory; seconds, bytes and requests of every option; predicted and measured
        seconds."""
        from freshgo._plots.plan import figure

        return figure(self)

    def plot_timeline(self) -> Any:
        """Return a matplotlib figure of ``data["timeline"]``: when the loader sampled, planned, scanned, packed and
        read, and when the loop waited for a batch."""
        from freshgo._plots.timeline import timeline

        return timeline(self)


def _ran(window: dict[str, Any]) -> bool:
    return bool(window.get("predicted_seconds")) and window.get("measured_seconds") is not None


def _more_memory(offers: list[dict[str, Any]]) -> str:
    """Return the effect of a tenth more memory, and of the most memory for which it is known."""
    if len(offers) < 2:
        return ""
    now, tenth, most = (format_size(offers[i]["epoch_bytes"]) for i in (0, 1, -1))
    text = f"for rows, an epoch is predicted to move {now}, "
    if min(offer["epoch_bytes"] for offer in offers) >= offers[0]["epoch_bytes"]:
        return f"{text}and no less with up to {format_size(offers[-1]['memory'])}"
    text += f"with {format_size(offers[1]['memory'])} {tenth}"
    return text + (f", with {format_size(offers[-1]['memory'])} {most}" if len(offers) > 2 else "")


def _device(device: dict[str, Any]) -> str:
    parts = []
    if device.get("request_seconds") is not None:
        pages = device.get("page_seconds") or 0.0
        parts.append(f"a request {_seconds(device['request_seconds'])} and {_seconds(pages)} a page")
    for key, word in (("read_bytes_per_second", "reads"), ("write_bytes_per_second", "writes")):
        if device.get(key):
            parts.append(f"{word} {format_size(device[key])}/s in sequence")
    return ", ".join(parts)


def _window(window: dict[str, Any]) -> str:
    first, count = window.get("first", 0), window.get("batches", 0)
    text = f"batches {first:,} to {first + count - 1:,}" if count > 1 else f"batch {first:,}"
    if window.get("ahead"):
        text += f" (knowing {window['ahead']:,} more)"
    if window.get("cold_rows") is not None:
        text += f": {window['cold_rows']:,} rows to read"
    chosen = window.get("chosen")
    why = "forced" if window.get("forced") else window.get("why")
    if chosen:
        text += f", {chosen}" + (f" ({why})" if why else "")
    if window.get("early"):
        text += ", begun during the window before"
    if window.get("predicted_seconds") is not None:
        text += f", predicted {_seconds(window['predicted_seconds'])}"
    if window.get("measured_seconds") is not None:
        text += f", took {_seconds(window['measured_seconds'])}"
    if window.get("floor_bytes") is not None:
        text += f"; floor {format_size(window['floor_bytes'])}"
        if window.get("floor_seconds"):
            text += f" in {_seconds(window['floor_seconds'])}"
        read, written = window.get("measured_bytes_read"), window.get("measured_bytes_written")
        if read is not None and written is not None:
            text += f", moved {format_size(read)} read and {format_size(written)} written"
    prices = _prices(window.get("options") or (), chosen)
    return text + (f"; with what is ahead: {', '.join(prices)}" if prices else "")


def _tables(tables: dict[str, Any]) -> str:
    text = f"{format_size(tables['bytes_read'])} read, {format_size(tables['bytes_written'])} written"
    if tables["bytes_returned"]:
        text += f", {tables['write_amplification']:.2f} bytes for each of the rows that went back"
    return text + f"; {tables['late_share']:.0%} of {tables['rows']:,} rows put in at the hand-over"


def _forecast(epoch: dict[str, Any]) -> str:
    planned, drawn = epoch["planned_rows"], epoch["drawn_rows"]
    text = f"epoch {epoch['epoch']:,}: {epoch['batches']:,} batches foreseen, which read {planned:,} of {drawn:,} rows"
    unforeseen = epoch["unforeseen_rows"]
    return text + (f"; {unforeseen:,} were not foreseen" if unforeseen else "")


def _prices(options: Iterable[dict[str, Any]], chosen: object) -> list[str]:
    """Return what was compared: the chosen way, the next best, and random reads as the baseline."""
    priced = sorted((o for o in options if o.get("name") and o.get("seconds") is not None), key=_cost)
    others = [o for o in priced if o["name"] != chosen]
    shown = [o for o in priced if o["name"] == chosen] + [o for o in others if o.get("fits", True)][:1]
    shown += [o for o in others if o["name"] == "random" and o not in shown]
    return [f"{o['name']} {_seconds(_cost(o))}" for o in shown] if others else []


def _cost(option: dict[str, Any]) -> float:
    """Return what a way costs the loop, or, where that is not told, the device."""
    return float(option.get("cost_seconds", option["seconds"]))


def _seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"
