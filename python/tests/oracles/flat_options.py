"""Options of loaders that are written flat, so that a test can draw and combine them one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

from freshgo import Auto, Belady, Disk, Online, Ranks
from freshgo.policies import ONLINE

_NAMED: dict[Any, Any] = {"auto": Auto(), "belady": Belady(), **{name: Online(name) for name in ONLINE}}


def grouped(**options: Any) -> dict[str, Any]:
    """Options as a loader takes them: those of the plan, the disk and the ranks in their objects."""
    cache = options.get("cache", "auto")
    objects = {"cache": _NAMED.get(cache) if isinstance(cache, str) else cache, "disk": Disk(), "ranks": Ranks()}
    for keyword, known in objects.items():
        if isinstance(known, Auto | Belady | Disk | Online | Ranks):
            names = {field.name for field in dataclasses.fields(known)}
            given = {name: options.pop(name) for name in names & options.keys()}
            if given:
                options[keyword] = dataclasses.replace(known, **given)
    return options
