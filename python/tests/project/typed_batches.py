"""What type checkers, and so editors, know of batches. This is not run: mypy checks it in `make lint`."""

from typing import Any

import torch
from torch_geometric.data import HeteroData
from typing_extensions import assert_type

from freshgo import Batch, Block, HeteroBatch, LinkLoader, Loader, Store
from freshgo.pyg import Data


def rows(batch: Any) -> torch.Tensor:
    """A transform that says what it returns."""
    return torch.as_tensor(batch.x)


def batches(store: Store) -> None:
    """Every way to a batch."""
    assert_type(Loader(store, [2]), Loader[Data])
    assert_type(list(Loader(store, [2])), list[Data])
    assert_type(Loader(store, [2])(0), Data)
    assert_type(Loader[Batch](store, [2]).sample([1]), Batch)
    assert_type(next(iter(Loader(store, [2], transform=rows))), torch.Tensor)
    assert_type(next(iter(LinkLoader[Batch](store, [2]))), Batch)
    assert_type(next(iter(Loader[HeteroData](store, [2]))), HeteroData)
    for batch in Loader(store, [2]):
        assert_type(batch.x, torch.Tensor)
        assert_type(batch.num_sampled_nodes, list[int])
        assert_type(batch.blocks(), list[Block])
    assert_type(next(iter(Loader[HeteroBatch](store, [2]))).x_dict, dict[str, torch.Tensor])
    with Loader(store, [2]) as loader:
        assert_type(loader, Loader[Data])
