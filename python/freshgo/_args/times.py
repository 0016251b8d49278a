"""Disjoint trees and times: what ``Loader(disjoint=, time_attr=, ...)`` take, as the library wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import as_tensor, tensor_digest
from freshgo._args.choices import Temporal
from freshgo.errors import DTypeError, InvalidArgumentError


@dataclass(frozen=True)
class Trees:
    """Whether input nodes have trees of their own, and of what time these are."""

    disjoint: bool
    time_attr: str | None
    strategy: str
    window: int | None
    input_time: Tensor | None
    by_type: dict[str, Tensor] | None = None
    """Where ``input_time`` was given by node type."""

    def of_inputs(self, inputs: dict[str, int]) -> Trees:
        """Return these trees for the number of input nodes of each type, in the order of the graph.

        Raises:
            InvalidArgumentError: times of other types, or not as many as input nodes.
            DTypeError: times by node type, and the graph is homogeneous.
        """
        given = self.by_type
        if given is not None and "" in inputs:
            raise DTypeError("input_time must be a vector of times in a homogeneous graph, got a dict")
        if given is None:
            if self.input_time is None or len(inputs) == 1:
                return self
            raise InvalidArgumentError(
                f"input_time must be a mapping from each of the types of input_nodes, {', '.join(map(repr, inputs))}, "
                f"to their times, got {self.input_time.numel()} times"
            )
        if set(given) != set(inputs):
            raise InvalidArgumentError(
                f"input_time has times of {', '.join(map(repr, given))}, expected times for each type of input_nodes: "
                f"{', '.join(map(repr, inputs))}"
            )
        for node_type, count in inputs.items():
            if given[node_type].numel() != count:
                raise InvalidArgumentError(
                    f"input_time[{node_type!r}] has {given[node_type].numel()} times, expected one for each of {count} "
                    "input nodes"
                )
        times = torch.cat([given[node_type] for node_type in inputs])
        return replace(self, input_time=times, by_type=None)

    def options(self) -> dict[str, Any]:
        """Return the options of the library."""
        return {
            "disjoint": self.disjoint,
            "time_attr": self.time_attr,
            "temporal_last": self.strategy == "last",
            "time_window": self.window or 0,
            "input_time": self.input_time,
        }

    def config(self) -> dict[str, object]:
        """Return what a batch depends on; None throughout without trees."""
        return {
            "disjoint": True if self.disjoint or self.time_attr is not None else None,
            "time_attr": self.time_attr,
            "temporal_strategy": None if self.time_attr is None else self.strategy,
            "time_window": self.window,
            "input_time": None if self.input_time is None else tensor_digest(self.input_time),
        }


def trees(disjoint: object, time_attr: object, strategy: object, window: object, input_time: object) -> Trees:
    """Check what a loader was given; what the graph has to do with it is checked by the library."""
    time_attr, by_type = time_name(time_attr), None
    if time_attr is not None and isinstance(input_time, Mapping):
        by_type = {key: times_of(f"input_time[{key!r}]", value, "input node") for key, value in input_time.items()}
        input_time = None
    if time_attr is None:
        given = {"temporal_strategy": strategy != "uniform", "time_window": window, "input_time": input_time}
        for name, value in given.items():
            if value is not None and value is not False:
                raise InvalidArgumentError(f"{name} needs time_attr, the name of a tensor of times")
    return Trees(
        disjoint=checks.flag("disjoint", disjoint),
        time_attr=time_attr,
        strategy=checks.choice("temporal_strategy", strategy, Temporal),
        window=None if window is None else checks.count("time_window", window, 1),
        input_time=None if input_time is None else times_of("input_time", input_time, "input node"),
        by_type=by_type,
    )


def time_name(value: object) -> str | None:
    """Check ``time_attr``, which is None or the name of a tensor."""
    if value is not None and not isinstance(value, str):
        came = checks.shown(value)
        raise DTypeError(f"time_attr must be the name of an edge-level or node-level tensor, got {came}")
    if value == "":
        raise InvalidArgumentError("time_attr must be the name of an edge-level or node-level tensor, got ''")
    return value


def times_of(name: str, value: object, each: str) -> Tensor:
    """Return an argument that gives times as int64, a copy: the library reads them in every epoch."""
    try:
        given = as_tensor(value)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name} must be integers, one for each {each}: {error}") from None
    if given.dim() != 1:
        raise InvalidArgumentError(f"{name} must be one-dimensional, got shape {list(given.shape)}")
    if given.dtype.is_floating_point or given.dtype.is_complex or given.dtype in (torch.bool, torch.uint64):
        raise DTypeError(f"{name} must be integers, as the times of the graph are, got {given.dtype}")
    return given.detach().to(device="cpu", dtype=torch.int64, copy=True).contiguous()
