"""Trials of message-passing layers on a sample: whether they need the neighbours of one hop alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from freshgo._infer.hop import Convolution, Hop
from freshgo._traced.levels import level, tensors
from freshgo._traced.recording import refused
from freshgo._traced.sample import Sample
from freshgo._traced.trials import FIRST, equal


def check_hop(conv: Convolution, sample: Sample) -> None:
    """Check that a convolution gives its targets the same rows from their neighbours as from the whole graph.

    Raises:
        UntraceableError: it needs more.
    """
    hop, chosen = _hop(conv, sample)

    def picked(node: fx.Node, first: bool = False) -> Tensor:
        of = level(node)
        value: Tensor = node.meta["value"]
        return value[chosen[of.of][: hop.targets[of.of] if first else None]]

    kind = type(conv.module).__name__
    try:
        made = conv(hop, {node: picked(node) for node in conv.every}, lambda node: picked(node, True))
    except Exception as error:
        raise refused(
            f"{kind} fails over the neighbours of some nodes ({type(error).__name__}: {error})",
            conv.node.meta.get("line"),
        ) from error
    value = conv.node.meta["value"]
    pairs = (
        [(made[of], value[of], of) for of in value]
        if isinstance(value, dict)
        else [(next(tensors(made)), next(tensors(value)), level(conv.node).of)]
    )
    for found, want, of in pairs:
        if want is None:
            continue
        if not equal(found, want[chosen[of][: hop.targets[of]]]):
            within = [type(part).__name__ for part in conv.module.modules() if _is_norm(part)]
            norms = f" (it has a {within[0]})" if within else ""
            raise refused(
                f"{kind} returns other rows over the neighbours of a node than over the whole graph{norms}: it reads "
                "more than one hop, or what depends on all nodes",
                conv.node.meta.get("line"),
            )


def _is_norm(part: Any) -> bool:
    return type(part).__module__.startswith("torch_geometric.nn.norm.")


def _hop(conv: Convolution, sample: Sample) -> tuple[Hop, dict[str, Tensor]]:
    """The first nodes of each type and their neighbours, and the nodes of the batch by type."""
    targets = {of: FIRST - place % 3 for place, of in enumerate(sample.nodes)}
    kept = {key: ends[1] < targets[key[2]] for key, ends in sample.ends.items()}
    chosen: dict[str, Tensor] = {}
    places: dict[str, Tensor] = {}
    for of, count in sample.nodes.items():
        found = torch.zeros(count, dtype=torch.bool)
        for key, ends in sample.ends.items():
            if key[0] == of:
                found[ends[0, kept[key]].cpu()] = True
        found[: targets[of]] = False
        chosen[of] = torch.cat([torch.arange(targets[of]), found.nonzero().view(-1).flip(0)])
        places[of] = torch.full((count,), -1)
        places[of][chosen[of]] = torch.arange(chosen[of].numel())
    local = {}
    for key, ends in sample.ends.items():
        some = ends[:, kept[key]].cpu()
        local[key] = torch.stack([places[key[0]][some[0]], some[1]]).to(ends.device)
    degrees = {}
    if conv.norm is not None:
        key, weight = conv.norm.edge_type, conv.norm.edge_weight
        given = weight.meta["value"] if isinstance(weight, fx.Node) else None
        whole = conv.norm.degrees(sample.ends[key], given, sample.nodes[key[2]])
        degrees[conv.norm] = whole[chosen[key[0]]]
    chosen = {of: rows.to(next(iter(sample.ends.values())).device) for of, rows in chosen.items()}
    return Hop(targets, local, lambda node: node.meta["value"][kept[level(node).of]], degrees), chosen
