"""Recommendation on a graph of users and items as in PinSAGE: neighbours by random walks, embeddings by a ranking loss.

    OMP_NUM_THREADS=1 python examples/recommend.py DIRECTORY [--epochs 4] [--memory 64MiB]

DIRECTORY holds train_edges.npy and test_edges.npy, int64 [2, E]: row 0 users, row 1 items, numbered apart. Users and
items become the nodes of one graph, items after users, with edges both ways: two steps of a walk then lead from user
to user, or from item to item. A node is its own embedding and those of the nodes that its walks visit, by visits; a
user's ranking of items is by angle. Recall@20 as in LightGCN: items of the training are not recommended, and
the share of a user's test items that is among the first 20 is averaged over users.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from freshgo import Loader, RandomWalk, ops


class Interactions:
    """The training and test edges, and the graph of users and items."""

    def __init__(self, train: np.ndarray, test: np.ndarray) -> None:
        self.train, self.test = torch.from_numpy(train), torch.from_numpy(test)
        both = torch.cat([self.train, self.test], 1)
        self.num_users, self.num_items = (int(ids.max()) + 1 for ids in both)
        users, items = self.train[0], self.train[1] + self.num_users
        self.graph = {
            "num_nodes": self.num_users + self.num_items,
            "edge_index": torch.stack([torch.cat([users, items]), torch.cat([items, users])]),
        }

    def recall(self, scores_of, k: int = 20, users_at_a_time: int = 1024) -> float:
        """Recall@k, where scores_of(first, end) gives the scores of all items for the users first to end."""
        known = torch.sparse_coo_tensor(self.train, torch.ones(self.train.size(1)), (self.num_users, self.num_items))
        wanted = torch.sparse_coo_tensor(self.test, torch.ones(self.test.size(1)), (self.num_users, self.num_items))
        known, wanted = known.coalesce().to_sparse_csr(), wanted.coalesce().to_sparse_csr()
        total, count = 0.0, 0
        for first in range(0, self.num_users, users_at_a_time):
            end = min(first + users_at_a_time, self.num_users)
            scores = scores_of(first, end)
            row, col = _part(known, first, end)
            scores[row, col] = -torch.inf
            top = scores.topk(k, 1).indices
            row, col = _part(wanted, first, end)
            relevant = torch.zeros(end - first, self.num_items, dtype=torch.bool)
            relevant[row, col] = True
            size = relevant.sum(1)
            total += float((relevant.gather(1, top).sum(1)[size > 0] / size[size > 0]).sum())
            count += int((size > 0).sum())
        return total / count


def _part(matrix: Tensor, first: int, end: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the entries of some rows of a CSR matrix."""
    ptr = matrix.crow_indices()
    row = torch.arange(end - first).repeat_interleave(ptr[first + 1 : end + 1] - ptr[first:end])
    return row, matrix.col_indices()[ptr[first] : ptr[end]]


class Recommender(nn.Module):
    """Embeddings, and what walks make of them."""

    def __init__(self, num_nodes: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_nodes, width)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, batch) -> Tensor:
        (block,) = batch.blocks()
        h = self.embedding(batch.n_id)
        visits = block.edge_weight
        total = torch.zeros(block.num_dst).index_add_(0, block.edge_index[1], visits).clamp_(min=1)
        around = ops.aggregate(h, block.index, block.ptr, visits, transposed=block.transposed) / total[:, None]
        return F.normalize(h[: block.num_dst] + around)


def loss_of(users: Tensor, items: Tensor, others: Tensor, temperature: float = 0.1) -> Tensor:
    """BPR against many items at a time, each weighted by how wrong its place is: a softmax over the user's item and the
    others. With one other it is BPR."""
    right, wrong = (users * items).sum(1, keepdim=True), users @ others.T
    return -F.log_softmax(torch.cat([right, wrong], 1) / temperature, 1)[:, 0].mean()


def train_epoch(model, optimizer, data: Interactions, walk: RandomWalk, epoch: int, args) -> float:
    """One pass over the training edges. A batch is users, an item of each, and other items to compare these with."""
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(data.train.size(1), generator=generator)
    order = order[: len(order) // args.batch_size * args.batch_size].view(-1, args.batch_size)
    if args.batches:
        order = order[: args.batches]
    others = torch.randint(data.num_items, (len(order), args.negatives), generator=generator)
    users, items = data.train[:, order]
    seeds = torch.cat([users, items + data.num_users, others + data.num_users], 1)
    model.train()
    total = 0.0
    with Loader(
        data.graph, [walk], seeds.view(-1), batch_size=seeds.size(1), seed=epoch, memory=args.memory, transpose=True
    ) as loader:
        for batch in loader:
            parts = model(batch).split([args.batch_size, args.batch_size, args.negatives])
            loss = loss_of(*parts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
    return total / len(order)


@torch.no_grad()
def embed(model, data: Interactions, walk: RandomWalk, memory=None) -> Tensor:
    """The embeddings of all nodes."""
    model.eval()
    with Loader(data.graph, [walk], batch_size=4096, seed=1, memory=memory) as loader:
        return torch.cat([model(batch) for batch in loader])


def recall_of(model, data: Interactions, walk: RandomWalk, memory=None) -> float:
    h = embed(model, data, walk, memory)
    users, items = h.split([data.num_users, data.num_items])
    return data.recall(lambda first, end: users[first:end] @ items.T)


def recall_of_visits(data: Interactions, walk: RandomWalk) -> float:
    """Without any training: the items that a user's walks visit most often."""
    users = torch.arange(data.num_users)
    with Loader(data.graph, [walk], users, batch_size=1024, seed=1) as loader:
        batches = iter(loader)

        def scores(first: int, end: int) -> Tensor:
            batch = next(batches)
            node, user = batch.n_id[batch.edge_index[0]], batch.edge_index[1]
            item = node >= data.num_users
            out = torch.zeros(end - first, data.num_items)
            out[user[item], node[item] - data.num_users] = batch.edge_weight[item]
            return out

        return data.recall(scores)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--memory", default=None)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batches", type=int, default=0, help="of an epoch, for a short run; 0: all")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--walks", type=int, default=300, help="of a user, for the ranking by visits alone")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args(arguments)

    data = Interactions(*(np.load(args.directory / f"{part}_edges.npy") for part in ("train", "test")))
    walk = RandomWalk(walks=10, length=2, top=10, restart=0.0)
    wide = RandomWalk(walks=50, length=2, top=50, restart=0.0)  # where nothing is trained there is time for more
    visits = RandomWalk(walks=args.walks, length=3, top=-1, restart=0.0)
    figures = {"visits": recall_of_visits(data, visits)}
    print(f"visits alone: Recall@20 {figures['visits']:.4f}", flush=True)

    torch.manual_seed(0)
    model = Recommender(data.graph["num_nodes"])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    seconds = 0.0
    for epoch in range(args.epochs):
        start = time.monotonic()
        loss = train_epoch(model, optimizer, data, walk, epoch, args)
        seconds += time.monotonic() - start
        figures["recall"] = recall_of(model, data, wide, args.memory)
        print(f"epoch {epoch}: loss {loss:.4f}, Recall@20 {figures['recall']:.4f}, {seconds:.0f} s so far", flush=True)
    return figures


if __name__ == "__main__":
    main()
