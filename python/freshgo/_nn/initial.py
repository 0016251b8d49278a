"""The first rows of a table, drawn in blocks: the memory stays small, and the rows do not depend on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from freshgo._args import checks

BLOCK = 4096
"""Rows that are drawn, copied or exported at a time: 128 KiB of 32-byte rows, 12 MiB of 3-KB rows. 10^8 rows are 24,414
blocks, each with a generator of its own."""

_Fill = Callable[[Tensor, torch.Generator], Tensor]


def _uniform(low: float, high: float) -> _Fill:
    return lambda rows, generator: rows.uniform_(low, high, generator=generator)


def _normal(std: float) -> _Fill:
    return lambda rows, generator: rows.normal_(0, std, generator=generator)


def _constant(value: float) -> _Fill:
    return lambda rows, generator: rows.fill_(value)


_FILLS: dict[str, Callable[[int, int], _Fill]] = {
    "normal": lambda n, dim: _normal(1.0),
    "uniform": lambda n, dim: _uniform(0.0, 1.0),
    "xavier_uniform": lambda n, dim: _uniform(-math.sqrt(6 / (n + dim)), math.sqrt(6 / (n + dim))),
    "xavier_normal": lambda n, dim: _normal(math.sqrt(2 / (n + dim))),
    "kaiming_uniform": lambda n, dim: _uniform(-math.sqrt(6 / dim), math.sqrt(6 / dim)),
    "kaiming_normal": lambda n, dim: _normal(math.sqrt(2 / dim)),
    "zeros": lambda n, dim: _constant(0.0),
    "ones": lambda n, dim: _constant(1.0),
}
"""The functions of :mod:`torch.nn.init` with their defaults, for ``[n, dim]``; the fan in is ``dim``."""


def filler(init: str, num_rows: int, dim: int) -> _Fill:
    """Return the function that fills rows of a table.

    Raises:
        InvalidArgumentError, DTypeError: no such function
    """
    return _FILLS[checks.choice("init", init, tuple(_FILLS))](num_rows, dim)


def blocks(num_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and the number of rows of each block."""
    for first in range(0, num_rows, BLOCK):
        yield first, min(BLOCK, num_rows - first)


def initial_rows(fill: _Fill, seed: int, num_rows: int, dim: int) -> Iterator[Tensor]:
    """Yield the rows (float32) block by block. Block ``b`` is drawn whole by a generator with the seed ``mixed(seed) +
    b``, modulo 2^32: PyTorch's generator of the CPU takes 32 bits, and so no two blocks of a table share a seed."""
    rows, generator, mixed = torch.empty(BLOCK, dim), torch.Generator(), _mixed(seed)
    for first, count in blocks(num_rows):
        generator.manual_seed((mixed + first // BLOCK) % 2**32)
        yield fill(rows, generator)[:count]


def _mixed(seed: int) -> int:
    """Return a seed as SplitMix64 mixes it, so that tables with seeds 0 and 1 share no rows."""
    z = (seed + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31
