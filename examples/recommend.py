"""Recommendation on a graph of users and items as in PinSAGE: neighbours by random walks, embeddings by a ranking loss.

    OMP_NUM_THREADS=1 python examples/recommend.py [DIRECTORY] [--epochs 4] [--store PATH] [--memory 64MiB]

DIRECTORY holds train_edges.npy and test_edges.npy, int64 [2, E]: row 0 users, row 1 items, each numbered from 0.
Without it users are generated, who mostly take items of their own community. They become a graph with two node types
and edges in both directions, in memory or, with --store, on disk. The neighbours of an item are the items that walks
item - user - item visit most often; those of a user are items of that user. The representation of a node is its own
embedding and the embeddings of its neighbours, weighted by visits; items are ranked for a user by angle. Recall@20 is
computed as in LightGCN: training items are not recommended, and the share of a user's test items among the first 20 is
averaged over users.

Before anything is trained, the walks themselves rank: from each item of a user, the items that they visit.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from freshgo import Loader, RandomWalk, convert, ops

TAKES, TAKEN = ("user", "takes", "item"), ("item", "taken by", "user")
TOGETHER = [TAKEN, TAKES]
"""From item to item by a user of both."""


def generated(users: int = 2_000, items: int = 3_000, communities: int = 50) -> list[np.ndarray]:
    """Return training and test edges; the latter are a fifth of all."""
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(users), 20)
    own = user % communities + communities * rng.integers(items // communities, size=user.size)
    item = np.where(rng.random(user.size) < 0.9, own, rng.integers(items, size=user.size))
    taken = rng.permutation(np.unique(np.stack([user, item]), axis=1).T).T
    return [part.copy() for part in np.split(taken, [taken.shape[1] * 4 // 5], axis=1)]


class Interactions:
    """The training and test edges, and the graph of users and items."""

    def __init__(self, train: np.ndarray, test: np.ndarray) -> None:
        self.train, self.test = torch.from_numpy(train), torch.from_numpy(test)
        both = torch.cat([self.train, self.test], 1)
        self.num_users, self.num_items = (int(ids.max()) + 1 for ids in both)
        self.graph = {
            "user": {"num_nodes": self.num_users},
            "item": {"num_nodes": self.num_items},
            TAKES: self.train,
            TAKEN: self.train.flip(0),
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
    """Embeddings, and how walks combine them."""

    def __init__(self, data: Interactions, width: int = 64) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(data.num_users, width), nn.Embedding(data.num_items, width)
        for embedding in (self.users, self.items):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, batch, node_type: str, wanted: Tensor | None = None) -> Tensor:
        """The nodes that a batch was drawn for. Of those for which an item is wanted it is not among the neighbours:
        that it was taken is what is to be learned."""
        own, edges = batch[node_type], batch["item", "metapath_0", node_type]
        items = self.items(batch["item"].n_id)
        source, target = edges.edge_index
        visits = edges.edge_weight
        if wanted is not None:
            visits = visits * (batch["item"].n_id[source] != wanted[target])
        ptr = F.pad(target.bincount(minlength=own.batch_size).cumsum(0), (1, 0))
        total = torch.zeros(own.batch_size).index_add_(0, target, visits).clamp_(min=1)
        around = ops.aggregate(items, source, ptr, visits) / total[:, None]
        h = items[: own.batch_size] if node_type == "item" else self.users(own.n_id[: own.batch_size])
        return F.normalize(h + around)


def loss_of(users: Tensor, items: Tensor, others: Tensor, temperature: float = 0.1) -> Tensor:
    """BPR against many items at a time, each weighted by how wrong its place is: a softmax over the user's item and the
    others. With one other it is BPR."""
    right, wrong = (users * items).sum(1, keepdim=True), users @ others.T
    return -F.log_softmax(torch.cat([right, wrong], 1) / temperature, 1)[:, 0].mean()


def walks(count: int) -> dict[str, RandomWalk]:
    """How the neighbours of a node of each type are found: always items."""
    return {
        "user": RandomWalk(walks=count, length=1, top=count, metapath=[TAKEN]),
        "item": RandomWalk(walks=count, length=1, top=count, metapath=TOGETHER),
    }


def train_epoch(model, optimizer, data: Interactions, source, epoch: int, args) -> float:
    """Train on the training edges once. A batch is users, one item of each, and other items to compare these with."""
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(data.train.size(1), generator=generator)
    order = order[: len(order) // args.batch_size * args.batch_size].view(-1, args.batch_size)
    if args.batches:
        order = order[: args.batches]
    others = torch.randint(data.num_items, (len(order), args.negatives), generator=generator)
    users, items = data.train[:, order]
    compared = torch.cat([items, others], 1)

    def loader(node_type: str, nodes: Tensor) -> Loader:
        walk, size = walks(10)[node_type], nodes.size(1)
        return Loader(source, [walk], (node_type, nodes.view(-1)), batch_size=size, seed=epoch, memory=args.memory)

    model.train()
    total = 0.0
    with loader("user", users) as of_users, loader("item", compared) as of_items:
        for wanted, user_batch, item_batch in zip(items, of_users, of_items, strict=True):
            right, wrong = model(item_batch, "item").split([args.batch_size, args.negatives])
            loss = loss_of(model(user_batch, "user", wanted), right, wrong)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
    return total / len(order)


@torch.no_grad()
def recall_of(model, data: Interactions, source, memory=None) -> float:
    """Return Recall@20 of the embeddings of all nodes. Nothing is trained here, so there is time for more walks."""
    model.eval()
    h = {}
    for node_type, walk in walks(50).items():
        with Loader(source, [walk], node_type, batch_size=4096, seed=1, memory=memory) as loader:
            h[node_type] = torch.cat([model(batch, node_type) for batch in loader])
    return data.recall(lambda first, end: h["user"][first:end] @ h["item"].T)


def recall_of_visits(data: Interactions, source, count: int, top: int = -1, memory=None) -> float:
    """Without any training: the items that walks from all of a user's items visit most often, as many from each."""
    walk = RandomWalk(walks=count, length=1, top=top, metapath=TOGETHER)
    ends, visits = [], []
    with Loader(source, [walk], "item", batch_size=1024, seed=1, memory=memory) as loader:
        for batch in loader:
            edges = batch["item", "metapath_0", "item"]
            ends.append(batch["item"].n_id[edges.edge_index])
            visits.append(edges.edge_weight)
    visited, start = torch.cat(ends, 1)
    near = torch.sparse_coo_tensor(torch.stack([start, visited]), torch.cat(visits), (data.num_items,) * 2).coalesce()
    users, items = data.train

    def scores(first: int, end: int) -> Tensor:
        some = (users >= first) & (users < end)
        at = torch.stack([users[some] - first, items[some]])
        taken = torch.sparse_coo_tensor(at, torch.ones(at.size(1)), (end - first, data.num_items))
        return torch.sparse.mm(taken, near).to_dense()

    return data.recall(scores)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--store", type=Path, help="convert the graph to a store at this path, and use that")
    parser.add_argument("--memory", default=None, help="of a loader")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batches", type=int, default=0, help="of an epoch, for a short run; 0: all")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--walks", type=int, default=1200, help="of an item, for the ranking by visits alone")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args(arguments)

    if args.directory is None:
        data = Interactions(*generated())
    else:
        data = Interactions(*(np.load(args.directory / f"{part}_edges.npy") for part in ("train", "test")))
    source = data.graph
    if args.store is not None:
        convert(data.graph, args.store, overwrite=True).close()
        source = args.store
    start = time.monotonic()
    figures = {"visits": recall_of_visits(data, source, args.walks, memory=args.memory)}
    print(f"visits alone: Recall@20 {figures['visits']:.4f} in {time.monotonic() - start:.0f} s", flush=True)

    torch.manual_seed(0)
    model = Recommender(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    seconds = 0.0
    for epoch in range(args.epochs):
        start = time.monotonic()
        loss = train_epoch(model, optimizer, data, source, epoch, args)
        seconds += time.monotonic() - start
        figures["recall"] = recall_of(model, data, source, args.memory)
        print(f"epoch {epoch}: loss {loss:.4f}, Recall@20 {figures['recall']:.4f}, {seconds:.0f} s so far", flush=True)
    return figures


if __name__ == "__main__":
    main()
