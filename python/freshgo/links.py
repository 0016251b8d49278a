"""Batches of links: what PyG's LinkNeighborLoader gives, with strict negatives and without the answer in the graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from freshgo._args import checks
from freshgo._args.types import EdgeType
from freshgo._loader import link_inputs
from freshgo._native.loader import RawBatch
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.loader import Loader
from freshgo.samplers import RandomWalk
from freshgo.store import Store

_OF_LINKS = ("edge_label_index", "edge_label", "edge_label_time")


class LinkLoader(Loader):
    """Samples neighbours around batches of links and negatives for them, as PyG's ``LinkNeighborLoader`` does.

    It is a :class:`Loader` whose batches are drawn for links: caches, plans, ``state_dict``, ``trace``, ``stats`` and
    all of its options are the same, and a batch, negatives included, depends on ``seed``, the epoch and its position
    alone.

        loader = LinkLoader(store, [15, 10], edge_label_index=train_edges, neg_sampling="binary", batch_size=1024,
                            shuffle=True, strict_negatives=True, exclude_seed_edges="reverse")
        for batch in loader:
            h = model(batch.x, batch.edge_index)
            score = (h[batch.edge_label_index[0]] * h[batch.edge_label_index[1]]).sum(-1)
            loss = F.binary_cross_entropy_with_logits(score, batch.edge_label)

    A batch is that of a :class:`Loader` whose seeds are the nodes at the ends of its links and negatives, each once
    and ascending. ``input_id`` (int64 ``[links]``) are places in ``edge_label_index`` and ``batch_size`` is their
    number. Positions in ``n_id`` say what the links are:

    - without negatives and with ``"binary"`` ones, ``edge_label_index`` (int64 ``[2, links + negatives]``, links
      first) and ``edge_label`` (a row for each: those given, ones where there are none, then zeros). Where the
      smallest label given is 0, all are one higher, so that 0 means a negative;
    - with ``"triplet"``, ``src_index``, ``dst_pos_index`` (int64 ``[links]``) and ``dst_neg_index`` (``[links]``, or
      ``[links, amount]`` where there are more).

    A batch of n links has ``ceil(n * amount)`` negatives.

    With ``disjoint=True``, and with times, every end of a link and of a negative is a seed with a tree of its own, none
    left out: of pairs all sources, links before negatives, then all targets; of triplets the sources of the links,
    their targets, then the targets of negatives. Negative j goes with link ``j % n``, has its time, and of triplets its
    source. ``batch.batch`` (int64) says of each node with which link of the batch its tree goes; pairs bring
    ``edge_label_time`` (int64 ``[links + negatives]``), triplets ``seed_time`` (int64 ``[links]``). Where nodes have
    times the ends of negatives are drawn among those that are not later than their link.

    Of a graph with types the links are of one type of edges, their ends nodes of its two types, and a batch is a
    ``HeteroData``, as PyG's: seeds of both types, ascending in each; ``input_id``, ``batch_size``, ``edge_label_index``
    (positions in ``n_id`` of the types of the ends) and ``edge_label`` are of ``batch[edge_type]``, ``src_index`` of
    the source's type, ``dst_pos_index`` and ``dst_neg_index`` of the target's. In trees the sources are the seeds of
    their type and the targets those of theirs; every type of nodes has ``batch``, ``edge_label_time`` is of
    ``batch[edge_type]`` and ``seed_time`` of the types of both ends. An end of a negative is not later than its link
    where its type has times, and any node else.

    Args:
        data: as of :class:`Loader`. Labels that PyG's ``RandomLinkSplit`` has put there (``edge_label`` and so on)
            are no part of the graph and left out.
        num_neighbors: as of :class:`Loader`.
        edge_label_index: integers ``[2, num_links]``; None for every edge of the graph, in the user's order, which
            takes 16 bytes of memory for each. With types ``(edge type, integers)``, or an edge type for all of its
            edges: ``("user", "rates", "item")``, or the types of its ends where only one leads from the one to the
            other.
        edge_label: a row for each link, of any dtype; None.
        edge_label_time: integers, a time for each link, with ``time_attr``: both ends of a link, and the negatives that
            go with it, see nothing later. What happens at the very time is seen, the link itself where it is an edge
            of the graph: give ``edge_label_time - 1`` to draw what was before, or ``exclude_seed_edges``. With times
            of edges and without ``edge_label_index`` it may be None, for the times of the edges; with types, where the
            links' edge type has times.
        neg_sampling: ``"binary"``, ``"triplet"``, PyG's ``NegativeSampling``, or a dict or tuple of its ``mode``,
            ``amount`` (for each link), ``src_weight`` and ``dst_weight`` (by node: what the ends of negatives are
            drawn in proportion to). None draws none.
        neg_sampling_ratio: the same as ``("binary", neg_sampling_ratio)``.
        strict_negatives: a negative is no edge of the graph, whatever its time, none of ``edge_label_index`` and no
            node with itself; what is left is drawn with exactly the probabilities that it would have alone.
        exclude_seed_edges: True keeps the links of a batch, all copies of each, out of the edges drawn for it;
            ``"reverse"`` those from target to source too, for undirected graphs. So a model cannot read the answer
            off the graph. Copies of other times are left out too. With types True is of the links' edge type alone; the
            reverse is in the one that PyG's ``ToUndirected`` names, ``("item", "rev_rates", "user")``, or that is given
            here as a tuple; without either, of nodes of one type, in the links' own. Not with LABOR and random walks.
        batch_size: links per batch. All other options are those of :class:`Loader`, but ``input_nodes``,
            ``input_time`` and ``history``.

    Raises:
        InvalidArgumentError, DTypeError: an argument that cannot work; with ``strict_negatives`` also that a node, or
            the graph, is linked with all there is.
        BudgetError, StoreNotFoundError, FormatError, CorruptError, ReadError: as :class:`Loader`.
    """

    def __init__(
        self,
        data: object,
        num_neighbors: Sequence[int] | Sequence[RandomWalk] | Mapping[EdgeType, Sequence[int]],
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        *,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        strict_negatives: bool = False,
        exclude_seed_edges: bool | str | EdgeType = False,
        **options: Any,
    ) -> None:
        if options.get("history") is not None:
            raise InvalidArgumentError("history keeps embeddings of seed nodes: a LinkLoader goes without it")
        for name, instead in (("input_nodes", "edge_label_index"), ("input_time", "edge_label_time")):
            if name in options:
                raise DTypeError(f"LinkLoader() takes links in place of nodes: give {instead}, got {name}")
        strict = checks.flag("strict_negatives", strict_negatives)
        self._links = link_inputs.links(
            edge_label_index, edge_label, neg_sampling, neg_sampling_ratio, strict, exclude_seed_edges
        )
        times = link_inputs.edge_label_time(edge_label_time, self._links.options.index, options.get("time_attr"))
        super().__init__(_without_labels(data), num_neighbors, input_time=times, **options)

    def _take(self, raw: RawBatch) -> Any:
        links = self._links
        labels = None if links is None else links.labels(raw.tensors)
        if links is not None and labels is not None:
            raw.tensors[links.prefix + "edge_label"] = labels
        return super()._take(raw)

    def __repr__(self) -> str:
        return f"Link{super().__repr__()}"


def _without_labels(data: object) -> object:
    """Return a graph in memory without the labels of links, which PyG keeps beside its tensors."""
    if isinstance(data, Store | str | os.PathLike):
        return data
    to_dict = getattr(data, "to_dict", None)
    items = data if isinstance(data, Mapping) else to_dict() if callable(to_dict) else None
    if not isinstance(items, Mapping):
        return data
    if any(isinstance(name, tuple) for name in items):
        parts = {name: _without(part) if isinstance(name, tuple) else part for name, part in items.items()}
        return parts if any(parts[name] is not part for name, part in items.items()) else data
    rest = _without(items)
    return data if rest is items else rest


def _without(part: Any) -> Any:
    """Return the tensors of a graph, or of a type of edges, without labels: the same where there are none."""
    if not isinstance(part, Mapping) or not any(name in part for name in _OF_LINKS):
        return part
    return {name: value for name, value in part.items() if name not in _OF_LINKS}
