"""Links with labels, which are no edges that messages pass along: as PyG's ``RandomLinkSplit`` adds them to a graph,
and as OGB and GraphBolt have them in files.

``edge_label_index [2, links]`` comes with ``edge_label [links, ...]`` and ``edge_label_time [links]``; with
``split_labels=True`` there are two of each, ``pos_...`` and ``neg_...``. ``key=`` gives another name than
``edge_label``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from freshgo._args.arrays import Array
from freshgo._args.hints import listed
from freshgo._args.levels import is_index
from freshgo._args.types import UNNAMED, EdgeType
from freshgo.errors import InvalidArgumentError

PREFIX = "links/"
"""What the names of their attachments in a store begin with."""

OWN = "train"
"""What the labelled links of a graph are called unless the caller says otherwise."""

_INDEX, _TIME = "_index", "_time"
_SIDES = ("pos_", "neg_")
_ENDS = (("source_node", "target_node"), ("head", "tail"))
"""What OGB calls the ends of links, one array each: of citations, and of the triples of knowledge graphs."""
_KEY = "edge_label"


def take(items: dict[str, Any], label: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is given of a graph, or of an edge type, without its labelled links, and these.

    Integers ``[2, links]`` whose name ends in ``_index`` are labelled links if there is a tensor of the name without
    this ending, with a row for each link; ``edge_label_index`` needs none.

    Raises:
        InvalidArgumentError: ``edge_label`` or its index does not fit the other.
    """
    links: dict[str, Any] = {}
    for name, value in items.items():
        base = name.removesuffix(_INDEX) if isinstance(name, str) else ""
        if base in ("", name, "edge") or not hasattr(value, "shape"):
            continue
        known = base in (_KEY, *(side + _KEY for side in _SIDES))
        if not is_index(value):
            if known:
                raise InvalidArgumentError(
                    f"{label}{name} must be integers [2, links], got {value.dtype} of shape {list(value.shape)}"
                )
            continue
        count = int(value.shape[1])
        fits = _rows(items.get(base)) == count
        if known and items.get(base) is not None and not fits:
            raise InvalidArgumentError(
                f"{label}{base} must have a row for each of {count} links of {name}, got {_shown(items[base])}"
            )
        if not known and not fits:
            continue
        links[name] = value
        links.update({base: items[base]} if fits else {})
        if _rows(items.get(base + _TIME)) == count:
            links[base + _TIME] = items[base + _TIME]
    return ({name: value for name, value in items.items() if name not in links}, links) if links else (items, links)


def _rows(value: Any) -> int:
    return int(value.shape[0]) if hasattr(value, "shape") and len(value.shape) else -1


def _shown(value: Any) -> str:
    return f"shape {list(value.shape)}" if hasattr(value, "shape") else repr(value)


def attached(split: str, links: Mapping[EdgeType, Mapping[str, Array]]) -> dict[str, Array]:
    """Return the labelled links of edge types as attachments of a store: an index with a row for each link."""
    from freshgo._args.named import transposed

    made: dict[str, Array] = {}
    for edge_type, arrays in links.items():
        for name, array in arrays.items():
            turned = transposed(array) if name.endswith(_INDEX) else array
            made[f"{PREFIX}{split}/{'' if edge_type == UNNAMED else ':'.join(edge_type) + '/'}{name}"] = turned
    return made


def loaded(name: str, tensor: Tensor) -> Tensor:
    """Return an array of a split as the caller knows it."""
    return tensor.t().contiguous() if name.endswith(_INDEX) and tensor.dim() == 2 else tensor


def of_type(arrays: Mapping[str, Any], edge_type: EdgeType) -> dict[str, Any]:
    """Return the arrays of a split that are of one edge type, without it in their names."""
    if edge_type == UNNAMED:
        return dict(arrays)
    prefix = ":".join(edge_type) + "/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def assembled(arrays: Mapping[str, Tensor], split: str) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the links of a split as one index ``[2, links]``, with labels and times where it has them; negatives are
    labelled with zeros and come last.

    Raises:
        InvalidArgumentError: there are no links, or of several kinds.
    """
    if "edge" in arrays:  # OGB
        index = arrays["edge"].t()
        negatives = arrays.get("edge_neg")
        if negatives is None:
            return index, None, None
        label = torch.cat([torch.ones(index.size(1)), torch.zeros(negatives.size(0))])
        return torch.cat([index, negatives.t()], 1), label, None
    if "seeds" in arrays and arrays["seeds"].dim() == 2:  # GraphBolt
        return arrays["seeds"].t(), arrays.get("labels"), None
    ends = next((pair for pair in _ENDS if set(pair) <= arrays.keys()), None)
    if ends is not None and "head_type" not in arrays:
        _check_no_negatives(arrays, split, ends)
        return torch.stack([arrays[name] for name in ends]), arrays.get("relation"), None
    bases = [name.removesuffix(_INDEX) for name in arrays if name.endswith(_INDEX)]
    keys = {base.removeprefix("pos_").removeprefix("neg_") for base in bases}
    both = any(base in keys for base in bases) and len(bases) > 1
    if len(keys) != 1 or both:
        raise InvalidArgumentError(
            f"the split of links {split!r} has the arrays {listed(arrays)}, and none is named edge_label_index: give "
            "edge_label_index=links, integers [2, num_links]"
        )
    bases.sort(key=lambda base: base.startswith("neg_"))
    index = torch.cat([arrays[base + _INDEX] for base in bases], 1)
    return index, _joined(arrays, bases, ""), _joined(arrays, bases, _TIME)


def _check_no_negatives(arrays: Mapping[str, Tensor], split: str, ends: tuple[str, str]) -> None:
    """Refuse negatives of each link, which together may be a thousand times as many as the links."""
    name = next((name for name in arrays if name.endswith("_neg")), None)
    if name is not None:
        links = f"store.links({split!r})"
        raise InvalidArgumentError(
            f"the split of links {split!r} has {name} {list(arrays[name].shape)}, negatives of each link, which no "
            f"loader takes by name: make it with edge_label_index=torch.stack([{links}[{ends[0]!r}], "
            f"{links}[{ends[1]!r}]]), and score links with their negatives some at a time, by loader.sample(pairs)"
        )


def _joined(arrays: Mapping[str, Tensor], bases: list[str], ending: str) -> Tensor | None:
    parts = [arrays[base + ending] for base in bases if base + ending in arrays]
    return torch.cat(parts) if len(parts) == len(bases) else None
