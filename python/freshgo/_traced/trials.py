"""Trials of a recorded model on its sample: whether what it computes between message-passing layers is made row by
row, and whether it computes the same when it is called."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._traced.levels import COUNT, EDGES, ROWS, STACKED, level, mapped, nodes_in, tensors
from freshgo._traced.recording import Traced, compute, refused
from freshgo._traced.rowwise import name_of
from freshgo._traced.sample import Sample

FIRST = 7
"""Rows of a trial on the first rows. Arbitrary; another has one row, and a third all of them in another order."""


def check_rows(traced: Traced, nodes: list[fx.Node], sample: Sample, convs: Collection[fx.Node]) -> None:
    """Check that permuted rows give permuted rows, and the first rows the first rows.

    Raises:
        UntraceableError: an operation mixes rows.
    """
    generator = torch.Generator().manual_seed(1)
    sizes: dict[Any, int] = {**sample.nodes, **{key: ends.size(1) for key, ends in sample.ends.items()}}
    orders = [
        {key: torch.randperm(size, generator=generator) for key, size in sizes.items()},
        {key: torch.arange(min(FIRST, size)) for key, size in sizes.items()},
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
            if of.kind != COUNT and isinstance(values[node], Tensor) and not equal(values[node], _picked(node, order)):
                raise _mixes(traced, node, "mixes rows: a row depends on the others")


def _of_convolution(node: fx.Node, convs: Collection[fx.Node]) -> bool:
    """Whether a node is an entry of what a convolution returns."""
    return any(read in convs and not isinstance(read.meta["value"], Tensor) for read in node.all_input_nodes)


def _picked(node: fx.Node, order: Mapping[Any, Tensor]) -> Any:
    """Some rows of the value that a node has in the sample."""
    value, of = node.meta["value"], level(node)
    if of.dim is None or not isinstance(value, Tensor):
        return value
    return value.index_select(of.dim, order[of.of].to(value.device))


def equal(found: Tensor, want: Tensor) -> bool:
    """Whether two tensors are equal within rounding."""
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


def check_same(traced: Traced, returned: Any, found: Any) -> None:
    """Check that a model returns what was traced.

    Raises:
        UntraceableError: it does not.
    """
    want = tensors([node.meta["value"] for node in nodes_in(found)])
    if any(not equal(a, b) for a, b in zip(tensors(returned), want, strict=True)):
        raise refused(
            "the model returns other rows when it is called than when it is traced: it is random, it "
            "changes a tensor in place that it reads later, or it has hooks",
            None,
        )
