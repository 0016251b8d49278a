"""Checks of what a user gives a LinkLoader, and the labels of its batches."""

from __future__ import annotations

import dataclasses
import enum
import math
import warnings
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import as_tensor, values_digest
from freshgo._args.choices import NegativeMode
from freshgo._args.hints import did_you_mean, only
from freshgo._args.labelled import OWN, assembled
from freshgo._args.times import times_of
from freshgo._args.types import UNNAMED, Types
from freshgo._data.source import Source
from freshgo._loader import link_types
from freshgo.errors import DTypeError, InvalidArgumentError

MODES: tuple[NegativeMode, ...] = get_args(NegativeMode)
MAX_AMOUNT = 1 << 20
"""The most negatives for a link."""


@dataclasses.dataclass(frozen=True)
class Links:
    """The links of a loader."""

    index: Tensor | None
    """int64 ``[2, num_links]``, contiguous; None: every edge."""
    label: Tensor | None
    negatives: float = 0.0
    """For each link."""
    triplets: bool = False
    src_weight: Tensor | None = None
    """float64, contiguous, one for each node, as ``dst_weight``."""
    dst_weight: Tensor | None = None
    strict: bool = False
    exclude: int = 0
    """1: the links themselves; 2: and their reverse."""
    edge_type: tuple[str, ...] | None = None
    """The edge type of the links: as a user named it, then that of the graph."""
    reverse: object = None
    """What a user excludes: True, False, ``"reverse"`` or an edge type; then the edge type that leads back, or None."""
    types: Types | None = None
    """Those of the graph, once it is known."""
    split: str | None = None
    """The split of links of the graph that they are, until that is known."""
    timed: bool = False
    """Whether links need times, and none were given."""
    time: Tensor | None = None
    """The times of a split."""

    def of_graph(self, source: Source) -> Links:
        """Return the links of a graph, which may be its edges."""
        if self.split is not None:
            return self._of_split(source, self.split).of_graph(source)
        types = source.types
        edge_type = link_types.of_links(self.edge_type, types)
        reverse = link_types.reverse(self.reverse, edge_type, types) if self.exclude == 2 else None
        self._check_rows(source.num_edges(edge_type))
        return dataclasses.replace(self, edge_type=edge_type, reverse=reverse, types=types)

    def _of_split(self, source: Source, split: str) -> Links:
        """Return the links of a split of the graph, with its labels and times unless others were given."""
        if split not in source.link_splits:
            hint = f"; labelled links of a graph in memory are {OWN!r}" if source.directory is None else ""
            raise InvalidArgumentError(
                f"the graph has no split of links {split!r}{only(split, source.link_splits)}{hint}"
            )
        edge_type = self._type_of_split(source, split)
        index, label, time = assembled(source.links(split, edge_type), split)
        ids = edge_label_index(index)
        if self.label is not None:
            label = edge_label(self.label, ids)
        elif label is not None and self.triplets:
            if bool((label != 1).any()):
                raise InvalidArgumentError(
                    f"the split of links {split!r} has labels other than 1, and 'triplet' negatives are for links "
                    "without labels: give edge_label_index=links, integers [2, num_links]"
                )
            label = None
        if self.timed and time is None:
            raise InvalidArgumentError(
                f"the split of links {split!r} has no times, which time_attr needs: give edge_label_time, a time for "
                f"each of {index.size(1)} links"
            )
        if label is not None:
            label = edge_label(label, ids)
            if self.negatives > 0 and label.numel():
                label = _above_negatives(label)
        times = times_of("edge_label_time", time, "link") if self.timed else None
        named = None if source.types.homogeneous else edge_type
        return dataclasses.replace(self, index=ids, label=label, edge_type=named, split=None, time=times)

    def _type_of_split(self, source: Source, split: str) -> Any:
        """Return the edge type of a split: the one that was named, or the only one that has such links."""
        types = source.types
        if self.edge_type is not None:
            edge_type = link_types.of_links(self.edge_type, types)
            if edge_type not in source.link_types(split):
                known = only(edge_type, source.link_types(split))
                raise InvalidArgumentError(f"the split of links {split!r} has none of {edge_type}{known}")
            return edge_type
        found = list(source.link_types(split))
        if len(found) != 1:
            listed = ", ".join(map(repr, found)) or "no edge type"
            raise InvalidArgumentError(
                f"the split of links {split!r} has links of {listed}: name the edge type, as "
                f"edge_label_index=({found[0] if found else types.edge_types[0]}, {split!r})"
            )
        return found[0]

    def options(self) -> dict[str, Any]:
        """Return the members of ``fg_links``."""
        edge_types: list[Any] = [] if self.types is None else self.types.edge_types
        return {
            "sources": None if self.index is None else self.index[0],
            "targets": None if self.index is None else self.index[1],
            "num_links": 0 if self.index is None else self.index.size(1),
            "negatives": self.negatives,
            "triplets": self.triplets,
            "src_weight": self.src_weight,
            "dst_weight": self.dst_weight,
            "strict": self.strict,
            "exclude": self.exclude,
            "relation": edge_types.index(self.edge_type),
            "reverse": 0 if self.reverse is None else edge_types.index(self.reverse),
        }

    def count(self, source: Source) -> int:
        """Return how many there are."""
        assert self.types is not None and self.edge_type is not None  # of_graph has been called
        return source.num_edges(self.edge_type) if self.index is None else self.index.size(1)  # type: ignore[arg-type]

    def tensor_name(self, name: str) -> str:
        """What a batch of the library calls a tensor of the links."""
        assert self.types is not None  # of_graph has been called
        return self.types.edge_name(self.types.edge_types.index(self.edge_type), name)  # type: ignore[arg-type]

    def _check_rows(self, num_edges: int) -> None:
        if self.index is None and self.label is not None and self.label.size(0) != num_edges:
            raise InvalidArgumentError(
                f"edge_label must have a row for each of {num_edges} edges, got shape {list(self.label.shape)}"
            )

    def config(self) -> dict[str, object]:
        """Return what a batch depends on."""
        weights = _digest(self.src_weight), _digest(self.dst_weight)
        config: dict[str, object] = {
            "edge_label_index": _digest(self.index) or "all",
            "edge_label": _digest(self.label),
            "negatives": [self.negatives, MODES[self.triplets], *weights, self.strict],
            "exclude_seed_edges": self.exclude,
        }
        if self.edge_type != UNNAMED:
            config |= {"edge_type": _as_list(self.edge_type), "reverse": _as_list(self.reverse)}
        return config

    def labels(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Return ``edge_label`` of a batch: those of its links, then zeros for negatives. None where there are none."""
        if self.triplets:
            return None
        links = tensors[self.tensor_name("input_id")]
        if self.label is not None:
            label = self.label.to(links.device)[links]
        elif self.negatives > 0:
            label = torch.ones(links.numel(), device=links.device)
        else:
            return None
        negatives = tensors[self.tensor_name("edge_label_index")].size(1) - links.numel()
        return torch.cat([label, label.new_zeros((negatives, *label.shape[1:]))]) if negatives else label


def links(
    index: object, label: object, neg_sampling: object, neg_sampling_ratio: object, strict: bool, exclude: object
) -> Links:
    """Check what a LinkLoader was given, and how it goes together."""
    edge_type, index = link_types.split(index)
    split = index if isinstance(index, str) else None
    ids = None if split else edge_label_index(index)
    if neg_sampling_ratio is not None and neg_sampling_ratio != 0:
        if neg_sampling is not None:
            raise InvalidArgumentError("neg_sampling and neg_sampling_ratio mean the same: give one of them")
        neg_sampling = ("binary", neg_sampling_ratio)
    mode, amount, src_weight, dst_weight = negatives(neg_sampling)
    if strict and mode is None:
        raise InvalidArgumentError("strict_negatives=True needs neg_sampling: no negatives are drawn without it")
    checked = None if label is None else edge_label(label, ids)
    if mode == "triplet" and checked is not None:
        raise InvalidArgumentError(
            "edge_label must be None with 'triplet' negatives: src_index, dst_pos_index and dst_neg_index of a batch "
            "tell links from negatives"
        )
    if mode == "triplet" and src_weight is not None:  # as PyG takes it
        warnings.warn(
            "freshgo ignores src_weight: the negatives of a triplet have the source of its link",
            UserWarning,
            stacklevel=checks.caller(),
        )
        src_weight = None
    if mode == "binary" and checked is not None and checked.numel() and not split:
        checked = _above_negatives(checked)
    return Links(
        index=ids,
        label=checked,
        negatives=amount,
        triplets=mode == "triplet",
        src_weight=_weight("src_weight", src_weight),
        dst_weight=_weight("dst_weight", dst_weight),
        strict=strict,
        exclude=exclusion(exclude),
        edge_type=edge_type,
        reverse=exclude,
        split=split,
    )


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


def _above_negatives(label: Tensor) -> Tensor:
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
            f"neg_sampling takes {', '.join(names)} and always needs mode, got {', '.join(map(str, given))}{hint}"
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


def _weight(name: str, value: object) -> Tensor | None:
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


def _as_list(edge_type: Any) -> list[str] | None:
    """Return an edge type as it comes back from JSON."""
    return None if edge_type is None else list(edge_type)


def _digest(tensor: Tensor | None) -> str | None:
    """Return a short name of a tensor's values, None where there is none."""
    return None if tensor is None else values_digest(tensor)
