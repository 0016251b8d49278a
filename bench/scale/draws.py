"""What loaders do at this size beside plain epochs: each on a store that is kept, checked by values, beside its floor.

A floor is what is opened, read in sequence, and a random page for each row that is not in memory.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jobs import one_propagation
from papers import Papers
from stages import Stages

from freshgo import Belady, LinkLoader, Loader, Store, update

FANOUTS, BATCH_SIZE, BATCHES = Papers.fanouts, 1024, 16


def seeds(shape: Papers) -> torch.Tensor:
    return shape.input_nodes(BATCHES * BATCH_SIZE)


def opened(stages: Stages, name: str, make: Callable[[], Any]) -> Any:
    """Open a loader."""
    stages.begin()
    loader = make()
    stats = loader.stats()
    kept = sum(stats["memory"].get(purpose, 0) for purpose in ("topology", "neighbor_cache"))
    stages.end(f"{name}: open", {"read": kept}, requests=stats["requests"])
    return loader


def ended(stages: Stages, name: str, loader: Any, before: dict[str, Any]) -> None:
    """End a stage whose batches a loader has made."""
    after = loader.stats()
    grew = {key: after[key] - before[key] for key in ("packed", "misses", "filled", "requests", "batches", "rows")}
    stages.end(name, {"random": grew["packed"] + grew["misses"] + grew["filled"]}, **grew)


def state(shape: Papers, path: Path, memory: str) -> None:
    """An epoch that ends in its middle, and goes on in another loader with the same batches."""
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "memory": memory}
    stages = Stages()
    loader = opened(stages, "state", lambda: Loader(path, FANOUTS, seeds(shape), **options))
    stages.begin()
    half = list(itertools.islice(loader, BATCHES // 2))
    saved = loader.state_dict()
    want = list(itertools.islice(loader.trace(0), BATCHES))
    loader.close()
    stages.end("state: half an epoch", {"random": sum(batch.n_id.numel() for batch in half)})
    for batch, n_id in zip(half, want, strict=False):
        shape.check(batch)
        assert torch.equal(batch.n_id, n_id)
    loader = opened(stages, "state, again", lambda: Loader(path, FANOUTS, seeds(shape), **options))
    stages.begin()
    before = loader.stats()
    loader.load_state_dict(saved)
    for batch, n_id in zip(loader, want[BATCHES // 2 :], strict=True):
        shape.check(batch)
        assert torch.equal(batch.n_id, n_id)
    ended(stages, "state: the other half", loader, before)
    loader.close()


def sample(shape: Papers, path: Path, memory: str) -> None:
    """Batches on demand, of 10 nodes each."""
    stages = Stages()
    loader = opened(stages, "sample", lambda: Loader(path, FANOUTS, seeds(shape), batch_size=BATCH_SIZE, memory=memory))
    before = loader.stats()
    stages.begin()
    for ids in seeds(shape)[:500].view(-1, 10):
        batch = loader.sample(ids)
        shape.check(batch)
        assert torch.equal(batch.n_id[:10], ids)
    ended(stages, "sample: 50 batches", loader, before)
    loader.close()


NEGATIVES: dict[str, Any] = {
    "neg_sampling": "binary",
    "strict_negatives": True,
    "exclude_seed_edges": True,
    "batch_size": BATCH_SIZE,
    "shuffle": True,
}


def links(shape: Papers, path: Path, memory: str) -> None:
    """An epoch of some edges as links, with negatives that are no edges."""
    stages = Stages()
    chosen = np.random.default_rng(3).choice(shape.edges, BATCHES * BATCH_SIZE, replace=False)
    index = torch.from_numpy(np.stack(shape.edge(chosen)))
    loader = opened(stages, "links", lambda: LinkLoader(path, FANOUTS[:2], index, memory=memory, **NEGATIVES))
    stages.begin()
    before = loader.stats()
    for batch in loader:
        shape.check(batch)
        label = batch.edge_label.numpy()
        ends = batch.n_id[batch.edge_label_index].numpy()
        assert np.array_equal(ends[:, label == 1], index[:, batch.input_id].numpy())
        assert not shape.list.has(*ends[:, label == 0][:, :100]).any(), "a negative is an edge"
    ended(stages, "links: an epoch", loader, before)
    loader.close()


def every_edge(shape: Papers, path: Path, memory: str) -> None:
    """The first batches of an epoch of every edge as a link, planned for these alone."""
    stages = Stages()
    options: dict[str, Any] = {"cache": Belady(superbatch=BATCHES // 2), "memory": memory}
    loader = opened(stages, "every edge", lambda: LinkLoader(path, FANOUTS[:2], **options, **NEGATIVES))
    stages.begin()
    before = loader.stats()
    for batch in itertools.islice(loader, BATCHES):
        shape.check(batch)
        label = batch.edge_label.numpy()
        ends = batch.n_id[batch.edge_label_index].numpy()
        assert np.array_equal(ends[:, label == 1], np.stack(shape.edge(batch.input_id.numpy())))
        assert not shape.list.has(*ends[:, label == 0][:, :100]).any(), "a negative is an edge"
    ended(stages, f"every edge: {BATCHES} batches", loader, before)
    loader.close()


def temporal(shape: Papers, path: Path, memory: str) -> None:
    """Nodes have times; nothing later than an input node is drawn into its tree."""
    new, stages = path.with_name("timed"), Stages()
    shutil.rmtree(new, ignore_errors=True)
    update(path, new, tensors={"time": torch.arange(shape.nodes, dtype=torch.int32) % 1000}, progress=False).close()
    loader = opened(
        stages,
        "temporal",
        lambda: Loader(new, FANOUTS, seeds(shape), batch_size=BATCH_SIZE, time_attr="time", memory=memory),
    )
    stages.begin()
    before = loader.stats()
    for batch in loader:
        shape.check(batch)
        assert torch.equal(batch.time, batch.n_id.int() % 1000)
        assert bool((batch.time <= batch.seed_time[batch.batch]).all())
    ended(stages, "temporal: an epoch", loader, before)
    loader.close()
    shutil.rmtree(new)


def first_layer(shape: Papers, path: Path, memory: str) -> None:
    """Two hops with the aggregates of the third, beside three hops."""
    one_propagation(shape, path, memory, "mean")
    stages = Stages()
    for name, fanouts, first in (("first_layer", FANOUTS[:2], "mean"), ("plain", FANOUTS, None)):
        options: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "memory": memory, "first_layer": first}
        loader = opened(
            stages, name, lambda fanouts=fanouts, options=options: Loader(path, fanouts, seeds(shape), **options)
        )
        stages.begin()
        before = loader.stats()
        for batch in loader:
            shape.check(batch)
        ended(stages, f"{name}: an epoch", loader, before)
        loader.close()
    with Store.open(path) as store:
        update(store, path, drop=["x_mean"], overwrite=True, progress=False).close()


DRAWS: dict[str, Callable[[Papers, Path, str], None]] = {
    "state": state,
    "sample": sample,
    "links": links,
    "every_edge": every_edge,
    "temporal": temporal,
    "first_layer": first_layer,
}
