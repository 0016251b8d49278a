"""States of a model while it is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def uncached(model: torch.nn.Module | None) -> Iterator[None]:
    """Take away what layers have kept of a graph (``cached=True``), so that they neither use it here nor keep more."""
    kept = []
    for module in () if model is None else model.modules():
        if getattr(module, "cached", False) is True:
            names = [name for name in vars(module) if name.startswith("_cached_")]
            kept.append((module, {"cached": True, **{name: getattr(module, name) for name in names}}))
            for name in names:
                setattr(module, name, None)
            module.cached = False  # type: ignore[assignment]  # a flag of PyG's layers
    try:
        yield
    finally:
        for module, values in kept:
            for name, value in values.items():
                setattr(module, name, value)


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into the mode ``eval()``, and each of its modules back into the mode that it had."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
