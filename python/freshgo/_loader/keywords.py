"""Keywords that a loader has not: PyG's, those of the objects that options are grouped in, and misspelled ones."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from freshgo._args.checks import caller, shown
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.options import Disk, Ranks
from freshgo.policies import Auto

_GROUPS = {"cache": Auto, "disk": Disk, "ranks": Ranks}
"""The objects of options, by the keyword that takes them."""

_MEANINGLESS = {
    "pin_memory_device": "memory is pinned for every CUDA device",
    "persistent_workers": "its threads live as long as the loader",
    "worker_init_fn": "it uses threads, not worker processes",
    "multiprocessing_context": "it uses threads, not worker processes",
    "prefetch_factor": "prefetch= counts the batches made ahead",
    "timeout": "it waits until a batch is ready, and Ctrl-C always works",
    "generator": "seed= and the epoch decide everything random",
    "in_order": "batches always come in order",
    "filter_per_worker": "rows are gathered by its threads",
    "is_sorted": "it sorts the edges itself",
}
_ONLY = {
    "directed": True,
    "transform_sampler_output": None,
    "custom_cls": None,
    "batch_sampler": None,
    "collate_fn": None,
}
_warned: set[str] = set()


def check_pyg_options(options: Mapping[str, Any], loader: type) -> None:
    """Warn once of options that mean nothing here, and refuse those that would change the batches and those that this
    class of loaders does not have."""
    for name, value in options.items():
        if name in _MEANINGLESS:
            if name not in _warned:
                _warned.add(name)
                warnings.warn(f"freshgo ignores {name}: {_MEANINGLESS[name]}", UserWarning, stacklevel=caller())
        elif name not in _ONLY:
            raise DTypeError(f"{loader.__name__}() got an unexpected keyword argument {name!r}{_hint(name, loader)}")
        elif getattr(value, "value", value) != _ONLY[name]:  # PyG also passes enumerations
            raise InvalidArgumentError(f"{name} is only supported as {_ONLY[name]!r}, got {shown(value)}")


def _hint(name: str, loader: type) -> str:
    """Say which option is meant, and where it is."""
    grouped = {
        field.name: f"{keyword}={kind.__name__}({field.name}=...)"
        for keyword, kind in _GROUPS.items()
        for field in dataclasses.fields(kind)
    }
    if name in grouped:
        return f": give {grouped[name]}"
    near = difflib.get_close_matches(name.lower(), [*_names_of(loader), *grouped], 1)
    return f"; did you mean {grouped.get(near[0], repr(near[0]))}?" if near else ""


def _names_of(loader: type) -> list[str]:
    """The options of a class of loaders, and those of PyG that it takes."""
    made = [inspect.signature(vars(kind)["__init__"]) for kind in loader.__mro__[:-1] if "__init__" in vars(kind)]
    own = [
        option.name for by in made for option in list(by.parameters.values())[1:] if option.kind != option.VAR_KEYWORD
    ]
    return [*own, *_MEANINGLESS, *_ONLY]
