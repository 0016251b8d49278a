"""Checks of what a user gives a LinkLoader."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import as_tensor
from freshgo._args.choices import NegativeMode
from freshgo._args.hints import did_you_mean, listed
from freshgo._args.times import time_name, times_of
from freshgo._loader import link_types
from freshgo.errors import DTypeError, InvalidArgumentError

MODES: tuple[NegativeMode, ...] = get_args(NegativeMode)
MAX_AMOUNT = 1 << 20
"""The most negatives for a link."""


def edge_label_index(value: object) -> Tensor | None:
    """Return a private copy of links as int64 ``[2, num_links]``, None for every edge. The library checks the ids."""
    if value is None:
        return None
    index = _tensor("edge_label_index", value)
    if index.dim() != 2 or index.size(0) != 2:
        hint = "; transpose it" if index.dim() == 2 and index.size(1) == 2 else ""
        raise InvalidArgumentError(f"edge_label_index must have shape [2, num_links], got {list(index.shape)}{hint}")
    if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        raise DTypeError(f"edge_label_index must hold integers, got {index.dtype}")
    if index.size(1) == 0:
        raise InvalidArgumentError("edge_label_index is empty, expected at least one link")
    return index.detach().to("cpu", torch.int64, copy=True, memory_format=torch.contiguous_format)


def edge_label(value: object, index: Tensor | None) -> Tensor:
    """Return a private copy of labels with a row for each link."""
    label = _tensor("edge_label", value)
    if label.dim() == 0:
        raise InvalidArgumentError("edge_label must have a row for each link, got a single number")
    if index is not None and label.size(0) != index.size(1):
        raise InvalidArgumentError(
            f"edge_label must have a row for each of {index.size(1)} links, got shape {list(label.shape)}"
        )
    return label.detach().to("cpu", copy=True)


def edge_label_time(value: object, index: Tensor | None, time_attr: object) -> Tensor | None:
    """Return times of links as int64; None for those of the edges, where every edge is a link. The library checks what
    depends on the graph."""
    time_attr = time_name(time_attr)
    if time_attr is None:
        if value is not None:
            raise InvalidArgumentError("edge_label_time needs time_attr, the name of the graph's tensor of times")
        return None
    if value is None:
        if index is not None:
            raise InvalidArgumentError(
                f"time_attr {time_attr!r} needs edge_label_time, a time for each of {index.size(1)} links"
            )
        return None
    times = times_of("edge_label_time", value, "link")
    if index is not None and times.numel() != index.size(1):
        raise InvalidArgumentError(
            f"edge_label_time must have a time for each of {index.size(1)} links, got {times.numel()}"
        )
    return times


def above_negatives(label: Tensor) -> Tensor:
    """Return labels one higher where the smallest is 0, which is for negatives."""
    if label.is_complex():
        raise DTypeError(f"edge_label must be real if there are 'binary' negatives, got {label.dtype}")
    if label.is_floating_point():
        wide = label.to(torch.float64)  # PyTorch has no order of those of 8 bits
        return (wide + 1).to(label.dtype) if wide.min() == 0 else label
    values = label.numpy()  # nor of unsigned integers
    if values.min() != 0:
        return label
    if label.dtype == torch.bool:
        return label.to(torch.int64) + 1
    largest = np.iinfo(values.dtype).max
    if values.max() == largest:
        raise InvalidArgumentError(
            f"edge_label is raised by one, so that 0 is for negatives, and {largest} is the largest {label.dtype}: "
            "give a wider type"
        )
    return torch.from_numpy(values + values.dtype.type(1))


def negatives(value: Any) -> tuple[str | None, float, object, object]:
    """Return mode, amount and weights of PyG's NegativeSampling, or of a mode, a dict or a tuple that it takes.

    The mode is None where there are no negatives.
    """
    names = ("mode", "amount", "src_weight", "dst_weight")
    if value is None:
        return None, 0.0, None, None
    if isinstance(value, str | enum.Enum):
        given: dict[Any, Any] = {"mode": value}
    elif isinstance(value, Mapping):
        given = dict(value)
    elif isinstance(value, tuple | list) and 1 <= len(value) <= len(names):
        given = dict(zip(names, value, strict=False))
    elif hasattr(value, "mode") and hasattr(value, "amount"):
        given = {name: getattr(value, name, None) for name in names}
    else:
        raise DTypeError(
            "neg_sampling must be 'binary', 'triplet', a dict such as {'mode': 'binary', 'amount': 2} or PyG's "
            f"NegativeSampling, got {value!r}"
        )
    unknown = [name for name in given if name not in names]
    if unknown or "mode" not in given:
        hint = did_you_mean(unknown[0], names) if unknown else ""
        raise InvalidArgumentError(
            f"neg_sampling takes {', '.join(names)} and always needs mode, got {listed(given)}{hint}"
        )
    mode = checks.choice("the mode of neg_sampling", getattr(given["mode"], "value", given["mode"]), MODES)
    amount = given.get("amount", 1)
    if isinstance(amount, bool) or not isinstance(amount, int | float | np.integer | np.floating):
        raise DTypeError(f"the amount of neg_sampling must be a number, got {amount!r}")
    if not 0 < amount <= MAX_AMOUNT:
        raise InvalidArgumentError(
            f"the amount of neg_sampling must be above 0 and at most {MAX_AMOUNT}, got {amount!r}"
        )
    if mode == "triplet" and amount != math.floor(amount):
        raise InvalidArgumentError(f"the amount of neg_sampling must be a whole number for triplets, got {amount!r}")
    return mode, float(amount), given.get("src_weight"), given.get("dst_weight")


def exclusion(value: object) -> int:
    """Return which of a batch's links are not among its edges."""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if value == "reverse" or link_types.is_type(value):
        return 2
    raise InvalidArgumentError(
        "exclude_seed_edges must be True, False, 'reverse' or, in a heterogeneous graph, the edge type that leads "
        f"back, such as ('item', 'rev_rates', 'user'), got {value!r}"
    )


def weight(name: str, value: object) -> Tensor | None:
    """Return a private copy of weights as float64. The library checks values and length."""
    if value is None:
        return None
    weight = _tensor(name, value)
    if weight.dtype == torch.bool or weight.is_complex():
        raise DTypeError(f"{name} must hold numbers, got {weight.dtype}")
    if weight.dim() != 1 or weight.numel() == 0:
        raise InvalidArgumentError(
            f"{name} must be one-dimensional with a number for each node, got shape {list(weight.shape)}"
        )
    return weight.detach().to("cpu", torch.float64, copy=True, memory_format=torch.contiguous_format)


def _tensor(name: str, value: object) -> Tensor:
    try:
        return as_tensor(value).as_subclass(Tensor)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name} must be a tensor or an array, got {type(value).__name__}: {error}") from None
