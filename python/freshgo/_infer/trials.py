"""Trials of a traced model on its sample: whether what it computes between message-passing layers is made row by row,
and whether these layers need the neighbours of one hop alone."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._infer.hop import Convolution, Hop
from freshgo._infer.levels import COUNT, EDGES, ROWS, STACKED, level, mapped, tensors
from freshgo._infer.rowwise import name_of
from freshgo._infer.sample import Sample
from freshgo._infer.traced import Traced, compute, refused

_FIRST = 7
"""Rows of a trial on the first rows. Arbitrary; another has one row, and a third all of them in another order."""


def check_rows(traced: Traced, nodes: list[fx.Node], sample: Sample, convs: Mapping[fx.Node, Convolution]) -> None:
    """Check that permuted rows give permuted rows, and the first rows the first rows.

    Raises:
        UntraceableError: an operation mixes rows.
    """
    generator = torch.Generator().manual_seed(1)
    sizes: dict[Any, int] = {**sample.nodes, **{key: ends.size(1) for key, ends in sample.ends.items()}}
    orders = [
        {key: torch.randperm(size, generator=generator) for key, size in sizes.items()},
        {key: torch.arange(min(_FIRST, size)) for key, size in sizes.items()},
        {key: torch.arange(min(1, size)) for key, size in sizes.items()},
    ]
    for order in orders:
        values: dict[fx.Node, Any] = {}
        for node in nodes:
            of = level(node)
            given = node.op in ("placeholder", "get_attr") or node in convs or _of_convolution(node, convs)
            if of.kind not in (ROWS, STACKED, EDGES, COUNT) or given:
                values[node] = _picked(node, order)
                continue
            args, kwargs = (mapped(read, values.__getitem__) for read in (node.args, node.kwargs))
            try:
                values[node] = compute(node, traced.module(node), args, kwargs)
            except Exception as error:
                raise _mixes(traced, node, f"fails on some of the rows ({error})") from error
            if of.kind != COUNT and isinstance(values[node], Tensor) and not _equal(values[node], _picked(node, order)):
                raise _mixes(traced, node, "mixes rows: a row depends on the others")


def _of_convolution(node: fx.Node, convs: Mapping[fx.Node, Convolution]) -> bool:
    """Whether a node is an entry of what a convolution returns."""
    return any(read in convs and not isinstance(read.meta["value"], Tensor) for read in node.all_input_nodes)


def _picked(node: fx.Node, order: Mapping[Any, Tensor]) -> Any:
    """Some rows of the value that a node has in the sample."""
    value, of = node.meta["value"], level(node)
    if of.dim is None or not isinstance(value, Tensor):
        return value
    return value.index_select(of.dim, order[of.of].to(value.device))


def _equal(found: Tensor, want: Tensor) -> bool:
    if found.shape != want.shape or found.dtype != want.dtype:
        return False
    if not want.is_floating_point():
        return torch.equal(found, want)
    if want.numel() == 0:
        return True
    largest = want[want.isfinite()].abs().max().item() if bool(want.isfinite().any()) else 0.0
    near = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(want.dtype, 1e-4)
    return torch.allclose(found, want, rtol=near, atol=near * largest, equal_nan=True)


def _mixes(traced: Traced, node: fx.Node, why: str) -> Exception:
    while node.target is operator.getitem and not isinstance(node.all_input_nodes[0].meta["value"], Tensor):
        node = node.all_input_nodes[0]  # whose entry this is
    module = traced.module(node)
    name = type(module).__name__ if module is not None else name_of(node)
    return refused(f"{name} {why}", node.meta.get("line"))


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
        if not _equal(found, want[chosen[of][: hop.targets[of]]]):
            within = [type(part).__name__ for part in conv.module.modules() if _is_norm(part)]
            norms = f" (it has a {within[0]})" if within else ""
            raise refused(
                f"{kind} gives other rows from the neighbours of a node than from the whole graph{norms}: it reads "
                "more than one hop, or what depends on all nodes",
                conv.node.meta.get("line"),
            )


def _is_norm(part: Any) -> bool:
    return type(part).__module__.startswith("torch_geometric.nn.norm.")


def _hop(conv: Convolution, sample: Sample) -> tuple[Hop, dict[str, Tensor]]:
    """The first nodes of each type and their neighbours, and the nodes of the batch by type."""
    targets = {of: _FIRST - place % 3 for place, of in enumerate(sample.nodes)}
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


def check_same(traced: Traced, returned: Any, found: Any) -> None:
    """Check that a model returns what was traced.

    Raises:
        UntraceableError: it does not.
    """
    want = [node.meta["value"] for node in _nodes(found)]
    if any(not _equal(a, b) for a, b in zip(tensors(returned), want, strict=True)):
        raise refused(
            "the model returns other rows when it is called than when it is traced: it is random, it "
            "changes a tensor in place that it reads later, or it has hooks",
            None,
        )


def _nodes(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    mapped(value, found.append)
    return found
