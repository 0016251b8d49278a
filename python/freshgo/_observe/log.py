"""The logger ``freshgo``: what was chosen at INFO; at WARNING what was asked for, or is usual, and could not be had."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from freshgo._args.size import format_size

LOG = logging.getLogger("freshgo")
LOG.addHandler(logging.NullHandler())  # without it Python would print warnings of programs that configure no logging


def opened(stats: Mapping[str, Any]) -> None:
    """Say how a loader reads and caches, and why it does not read as it would elsewhere."""
    if LOG.isEnabledFor(logging.INFO):
        LOG.info(
            "loader opened: engine %s, %s, %d threads, prefetch %d, memory %s, neighbour lists %s",
            stats["engine"],
            _cache(stats),
            stats["num_workers"],
            stats["prefetch"],
            format_size(stats["memory_limit"]) if stats["memory_limit"] else "without a limit",
            "on disk" if stats["topology_on_disk"] else "in memory",
        )
    if stats.get("engine_why"):
        LOG.warning("rows are read with %s: %s", stats["engine"], stats["engine_why"])


def _cache(stats: Mapping[str, Any]) -> str:
    """Return which rows are cached, and why."""
    why = stats.get("cache_why")
    if stats["cache"] == "none":
        return f"no cache: {why}" if why else "no cache"
    return f"cache {stats['cache']}{f' ({why})' if why else ''}"


def epoch_ended(epoch: int, stats: Mapping[str, Any]) -> None:
    """Say that an epoch was consumed, and what it lost."""
    LOG.info("epoch %d: %d batches so far, waited %.3f s", epoch, stats["batches"], stats["seconds_waiting"])
    if stats.get("scratch_why"):
        LOG.warning("the scratch file is out of use or shorter than planned: %s", stats["scratch_why"])
