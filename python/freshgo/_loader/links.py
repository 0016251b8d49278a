"""The links of a loader, as given, of a split or of the edges of a graph, and the labels of its batches."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import values_digest
from freshgo._args.hints import only
from freshgo._args.labelled import OWN, assembled
from freshgo._args.times import times_of
from freshgo._args.types import UNNAMED, Types
from freshgo._data.source import Source
from freshgo._loader import link_types
from freshgo._loader.link_inputs import (
    MODES,
    above_negatives,
    edge_label,
    edge_label_index,
    exclusion,
    negatives,
    weight,
)
from freshgo.errors import InvalidArgumentError


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
                label = above_negatives(label)
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


def given(
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
        checked = above_negatives(checked)
    return Links(
        index=ids,
        label=checked,
        negatives=amount,
        triplets=mode == "triplet",
        src_weight=weight("src_weight", src_weight),
        dst_weight=weight("dst_weight", dst_weight),
        strict=strict,
        exclude=exclusion(exclude),
        edge_type=edge_type,
        reverse=exclude,
        split=split,
    )


def _as_list(edge_type: Any) -> list[str] | None:
    """Return an edge type as it comes back from JSON."""
    return None if edge_type is None else list(edge_type)


def _digest(tensor: Tensor | None) -> str | None:
    """Return a short name of a tensor's values, None where there is none."""
    return None if tensor is None else values_digest(tensor)
