"""In what order an epoch has its seeds: ``shuffle``, ``input_weight``, or a sampler of ``torch.utils.data``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from freshgo._args import checks
from freshgo._args.arrays import as_tensor
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.samplers import NAMED

_KNOWN = "WeightedRandomSampler (PyG's ImbalancedSampler is one), RandomSampler or SequentialSampler"


@dataclasses.dataclass(frozen=True)
class SeedOrder:
    """What a loader was told of the order of its seeds."""

    shuffle: bool
    weight: Tensor | None
    """float64, of each input; they are drawn in proportion to it, with replacement."""
    by_type: Mapping[str, Tensor] | None = None
    """Where weights were given by node type."""
    count: int | None = None
    """How many inputs the sampler is for; None: any number."""

    def of_inputs(self, counts: Mapping[str, int]) -> Tensor | None:
        """Return the weights of the inputs, by node type in the order of the graph."""
        total = sum(counts.values())
        if self.count is not None and self.count != total:
            raise InvalidArgumentError(f"sampler was made for {self.count} inputs, the loader has {total}")
        weight = self.weight
        if self.by_type is not None:
            if set(self.by_type) != set(counts):
                raise InvalidArgumentError(
                    f"input_weight has weights of {', '.join(map(repr, self.by_type))}, expected weights for each "
                    f"type of input_nodes: {', '.join(map(repr, counts))}"
                )
            for node_type, count in counts.items():
                _check_count(f"input_weight[{node_type!r}]", self.by_type[node_type], count)
            weight = torch.cat([self.by_type[node_type] for node_type in counts])
        if weight is not None:
            _check_count("input_weight", weight, total)
        return weight


def seed_order(shuffle: object, input_weight: object, sampler: object) -> SeedOrder:
    """Check what a loader was told of the order of its seeds, without knowing them."""
    shuffled = checks.flag("shuffle", shuffle)
    if sampler is None:
        return _weighted(shuffled, input_weight)
    if not isinstance(sampler, data.Sampler):
        draws = isinstance(sampler, (str, *NAMED.values()))
        hint = ": how neighbours are drawn is neighbor_sampler=" if draws else ""
        raise DTypeError(
            f"sampler must be one of torch.utils.data, such as {_KNOWN}, got {checks.shown(sampler)}{hint}"
        )
    if shuffled or input_weight is not None:
        other = "shuffle=True" if shuffled else "input_weight"
        raise InvalidArgumentError(f"sampler and {other} both say in what order the inputs come: give one of them")
    return _of_sampler(sampler)


def _of_sampler(sampler: Any) -> SeedOrder:
    """What a sampler asks for, with random numbers that follow from the loader's seed."""
    if isinstance(sampler, data.WeightedRandomSampler):
        drawn = _weights("the weights of sampler", sampler.weights)
        _check_draws(sampler, drawn.numel())
        if not sampler.replacement:
            raise InvalidArgumentError("a WeightedRandomSampler must draw with replacement here, got replacement=False")
        return SeedOrder(False, drawn)
    if type(sampler) is data.SequentialSampler:
        return SeedOrder(False, None, count=len(sampler))
    if type(sampler) is data.RandomSampler:
        count = len(sampler.data_source)
        _check_draws(sampler, count)
        weight = torch.ones(count, dtype=torch.float64) if sampler.replacement else None
        return SeedOrder(weight is None, weight, count=count)
    if isinstance(sampler, data.DistributedSampler):
        raise InvalidArgumentError("a loader takes the batches of its rank by itself: leave the DistributedSampler out")
    hint = ": give input_nodes=ids[indices], shuffle=True" if isinstance(sampler, data.SubsetRandomSampler) else ""
    raise InvalidArgumentError(
        f"a loader knows its epochs ahead, so sampler must be a {_KNOWN}, got {type(sampler).__name__}{hint}"
    )


def _check_draws(sampler: Any, count: int) -> None:
    if sampler.num_samples != count:
        raise InvalidArgumentError(
            f"an epoch draws as many inputs as there are, {count}, but sampler draws {sampler.num_samples}: leave out "
            "num_samples"
        )


def _weighted(shuffle: bool, value: object) -> SeedOrder:
    if value is None:
        return SeedOrder(shuffle, None)
    if isinstance(value, Mapping):
        by_type = {key: _weights(f"input_weight[{key!r}]", of) for key, of in value.items()}
        return SeedOrder(False, None, by_type)
    return SeedOrder(False, _weights("input_weight", value))


def _weights(name: str, value: object) -> Tensor:
    """Return a private copy of weights as float64. The library checks the values."""
    try:
        weight = as_tensor(value) if isinstance(value, Tensor | np.ndarray) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise DTypeError(
            f"{name} must be numbers, one for each input node or link, got {checks.shown(value)}"
        ) from None
    if weight.dtype == torch.bool or weight.is_complex():
        raise DTypeError(f"{name} must be numbers, got {weight.dtype}")
    if weight.dim() != 1:
        raise InvalidArgumentError(f"{name} must be one-dimensional, got shape {list(weight.shape)}")
    return weight.detach().to("cpu", torch.float64, copy=True).contiguous()


def _check_count(name: str, weight: Tensor, count: int) -> None:
    if weight.numel() != count:
        raise InvalidArgumentError(f"{name} must have a number for each of {count} inputs, got {weight.numel()}")
