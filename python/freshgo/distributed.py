"""What the ranks of a distributed job do together, beside training: evaluation in which every seed counts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._host.ranks import gathered
from freshgo._loader.engine import engine_of
from freshgo._loader.epoch import Epoch
from freshgo.errors import DTypeError
from freshgo.loader import Loader

__all__ = ["evaluate"]


@entry
@torch.no_grad()
def evaluate(step: Callable[[Any], Mapping[str, Any]], loader: Loader[Any]) -> dict[str, torch.Tensor]:
    """Run ``step`` on every batch of the loader's next epoch and return the sums of what it returns, over all ranks.

    Every batch is evaluated by exactly one rank, whatever the loader's ``uneven`` is; only ``drop_last`` leaves one
    out. Some ranks may have one step more than others, so call the ``module`` of a model in
    ``DistributedDataParallel``, which waits for no other rank.

        def step(batch):
            out = model.module(batch.x, batch.edge_index)[: batch.batch_size]
            return {"correct": (out.argmax(-1) == batch.y[: batch.batch_size]).sum(), "seeds": batch.batch_size}

        sums = freshgo.distributed.evaluate(step, loader)
        accuracy = sums["correct"] / sums["seeds"]

    If ranks come from ``torch.distributed``, all of them must call it together. Gradients are off; ``model.eval()`` is
    up to the caller.

    Args:
        step: called with each batch; returns tensors or numbers by name, sums over the seeds of the batch. Names,
            shapes and dtypes must be the same for all batches.
        loader: its next epoch is consumed. If the loader was given its ``rank``, the sums are over its own batches.

    Returns:
        The sums by name, on the CPU and the same on every rank; empty if there are no batches.

    Raises:
        DTypeError: ``step`` returns something else.
        RankError: as for :class:`Loader`.
    """
    if not isinstance(loader, Loader):
        raise DTypeError(f"loader must be a freshgo.Loader, got {type(loader).__name__}")
    own: dict[str, torch.Tensor] = {}
    engine = engine_of(loader)
    for batch in Epoch(engine, uneven="join"):  # in which every batch is made by one rank
        _add(own, step(batch))
    together = [own]
    if engine.ranks.shared():
        together = gathered("the end of evaluate()", {name: value.cpu() for name, value in own.items()})
    sums: dict[str, torch.Tensor] = {}
    for of_rank in together:
        _add(sums, of_rank)
    return {name: value.cpu() for name, value in sums.items()}


def _add(sums: dict[str, torch.Tensor], returned: Mapping[str, Any]) -> None:
    if not isinstance(returned, Mapping):
        raise DTypeError(f"step must return a dict of tensors or numbers, got {checks.shown(returned)}")
    for name, value in returned.items():
        if not isinstance(value, torch.Tensor | int | float):
            raise DTypeError(f"step must return tensors or numbers, got {name!r}: {checks.shown(value)}")
        one = torch.as_tensor(value)
        sums[name] = sums[name] + one if name in sums else one
