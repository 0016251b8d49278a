"""Link prediction: the batches of PyG's LinkNeighborLoader, with strict negatives and without the batch's own links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.signatures import passes_on
from freshgo._args.types import EdgeType
from freshgo._loader import link_inputs, links, on_demand
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.loader import BatchType, Loader
from freshgo.samplers import RandomWalk

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from freshgo._data.like import GraphLike
    from freshgo.options import CommonOptions, Negatives, NumNeighbors


@entry
class LinkLoader(Loader[BatchType]):
    """Samples neighbours around batches of links and negatives for them, as PyG's ``LinkNeighborLoader`` does.

    It is a :class:`Loader` whose batches are drawn for links. Caches, plans, ``state_dict``, ``trace``, ``stats`` and
    all options are the same. A batch, negatives included, depends only on ``seed``, the epoch and its position.

        loader = LinkLoader(store, [15, 10], edge_label_index=train_edges, neg_sampling="binary", batch_size=1024,
                            shuffle=True, strict_negatives=True, exclude_seed_edges="reverse")
        for batch in loader:
            h = model(batch.x, batch.edge_index)
            score = (h[batch.edge_label_index[0]] * h[batch.edge_label_index[1]]).sum(-1)
            loss = F.binary_cross_entropy_with_logits(score, batch.edge_label)

    A batch is that of a :class:`Loader` whose seeds are the nodes at the ends of the batch's links and negatives, each
    node once, in ascending order. ``input_id`` (int64 ``[links]``) holds positions in ``edge_label_index``, and
    ``batch_size`` is their number. These tensors describe the links by positions in ``n_id``:

    - without negatives and with ``"binary"`` ones, ``edge_label_index`` (int64 ``[2, links + negatives]``, links first)
      and ``edge_label`` (a row for each: the given labels, then zeros). With negatives the labels of links are ones if
      none were given, and are raised by one if the smallest is 0, so that 0 means a negative. Without negatives and
      given labels there is no ``edge_label``;
    - with ``"triplet"``, ``src_index`` and ``dst_pos_index`` (int64 ``[links]``) and ``dst_neg_index`` (``[links]``, or
      ``[links, amount]`` if there are several for each link).

    A batch of n links has ``ceil(n * amount)`` negatives.

    With ``disjoint=True``, and with times, every end of a link and of a negative is a seed with a tree of its own. For
    pairs the seeds are all sources, links before negatives, then all targets; for triplets the sources of the links,
    their targets, then the targets of negatives. Negative j goes with link ``j % n`` and has its time; in a triplet it
    also has its source. ``batch.batch`` (int64) gives, for each node, the position of the link that its tree goes with.
    Pairs have ``edge_label_time`` (int64 ``[links + negatives]``), triplets ``seed_time`` (int64 ``[links]``). If nodes
    have times, the ends of negatives are drawn among those that are not later than their link.

    In a heterogeneous graph the links are of one edge type, and a batch is a ``HeteroData``, as PyG's. The seeds are
    nodes of both types of the ends, ascending in each. ``batch[edge_type]`` has ``input_id``, ``batch_size``,
    ``edge_label_index`` (positions in the ``n_id`` of the types of the ends) and ``edge_label``; the source type has
    ``src_index``, and the target type has ``dst_pos_index`` and ``dst_neg_index``. With trees, the sources are the
    seeds of their type and the targets those of theirs; every node type has ``batch``, ``batch[edge_type]`` has
    ``edge_label_time``, and the types of both ends have ``seed_time``. An end of a negative is not later than its link
    if its type has times, and is any node otherwise.

    Args:
        data: as for :class:`Loader`.
        num_neighbors: as for :class:`Loader`.
        edge_label_index: integers ``[2, num_links]``; or the name of a split of links (:attr:`Store.link_splits`),
            which brings its labels, and its times with ``time_attr`` (of triples of OGB the relations; negatives of
            each link, as OGB's validation has them, are refused by name: see :meth:`sample`). The labelled links that
            PyG's ``RandomLinkSplit`` adds to a graph in memory are the split ``"train"``. None makes every edge of the
            graph a link, in the user's order, which takes 4 bytes of memory for each (8 from 2^32 edges on), or none if
            the edges came sorted by target. In a heterogeneous graph ``(edge type, integers or name)``, or an edge type
            for all of its edges: ``("user", "rates", "item")``, or only the types of its ends if a single edge type
            connects them; a name alone if the split is of one edge type.
        edge_label: a row for each link, of any dtype, or None.
        edge_label_time: integers, a time for each link, with ``time_attr``: both ends of a link, and the negatives that
            go with it, see nothing later. They do see what happens at that very time, including the link itself if it
            is an edge of the graph: pass ``edge_label_time - 1`` to draw only what came before, or use
            ``exclude_seed_edges``. With times of edges and without ``edge_label_index`` it may be None and is then the
            times of the edges; in a heterogeneous graph, if the links' edge type has times.
        neg_sampling: ``"binary"``, ``"triplet"``, PyG's ``NegativeSampling``, or a dict or tuple of its ``mode``,
            ``amount`` (for each link), ``src_weight`` and ``dst_weight`` (by node: in what proportion the ends of
            negatives are drawn). None draws no negatives.
        neg_sampling_ratio: the same as ``("binary", neg_sampling_ratio)``.
        strict_negatives: a negative is never an edge of the graph, whatever its time, never one of
            ``edge_label_index``, and never a node with itself. All other pairs are drawn with exactly the probabilities
            that the weights give them.
        exclude_seed_edges: True excludes the links of a batch, with all copies, from the edges drawn for it;
            ``"reverse"`` also excludes the edges from target to source, for undirected graphs. A model can then not
            look the answer up in the graph. Copies at other times are excluded too. In a heterogeneous graph, True
            concerns only the links' edge type. The reverse is in the edge type that PyG's ``ToUndirected`` names,
            ``("item", "rev_rates", "user")``, or in the one given here as a tuple; if there is neither and both ends
            have the same type, it is in the links' own edge type. Not available with LABOR and random walks.
        batch_size: links per batch. All other options are those of :class:`Loader`, except ``input_nodes``,
            ``input_time`` and ``history``.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid; with ``strict_negatives`` also if a node, or the
            graph, is already linked with every candidate.
        BudgetError, StoreNotFoundError, FormatError, CorruptError, ReadError: as for :class:`Loader`.
    """

    @passes_on(Loader.__init__, without=("input_nodes", "input_time", "history"))
    def __init__(
        self,
        data: GraphLike,
        num_neighbors: Sequence[int] | Sequence[RandomWalk] | Mapping[EdgeType, Sequence[int]] | NumNeighbors,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        *,
        neg_sampling: Negatives = None,
        neg_sampling_ratio: float | None = None,
        strict_negatives: bool = False,
        exclude_seed_edges: bool | Literal["reverse"] | EdgeType = False,
        **options: Unpack[CommonOptions],
    ) -> None:
        given: Mapping[str, object] = options
        if given.get("history") is not None:
            raise InvalidArgumentError("history works with input nodes only: a LinkLoader cannot use it")
        for name, instead in (("input_nodes", "edge_label_index"), ("input_time", "edge_label_time")):
            if name in given:
                raise DTypeError(f"LinkLoader() takes links in place of nodes: give {instead}, got {name}")
        strict = checks.flag("strict_negatives", strict_negatives)
        self._links = links.given(
            edge_label_index, edge_label, neg_sampling, neg_sampling_ratio, strict, exclude_seed_edges
        )
        times = link_inputs.edge_label_time(edge_label_time, self._links.index, options.get("time_attr"))
        if self._links.split is not None and times is None and options.get("time_attr") is not None:
            self._links = dataclasses.replace(self._links, timed=True)
        graph = _with_type(data, self._links.edge_type)
        super().__init__(graph, num_neighbors, input_time=times, **options)

    def __call__(self, index: Any) -> BatchType:
        """Return one batch now, of the links at these places, with ``input_id = index``: see :meth:`Loader.__call__`.

        Args:
            index: integers in ``[0, number of links)``, a list or tensor; they may repeat. Integers ``[2, num_links]``
                are the ends of links, as :meth:`sample` takes them.
        """
        return self.sample(index) if on_demand.are_ends(index) else super().__call__(index)

    def sample(self, ids: Any, time: Any = None) -> BatchType:
        """Return one batch now, for any links: see :meth:`Loader.sample`.

        Its negatives are drawn as those of this loader: with ``strict_negatives`` they are none of its
        ``edge_label_index``. ``edge_label`` says which are links, by ones and zeros.

        Args:
            ids: integers ``[2, num_links]``, as ``edge_label_index``; in a heterogeneous graph of the loader's edge
                type.
            time: with ``time_attr``, an integer, or one for each link.
        """
        batch: BatchType = self._engine.one(*on_demand.links(self._engine.request, ids, time))
        return batch

    def __repr__(self) -> str:
        return f"Link{super().__repr__()}"


def _with_type(data: Any, of: Any) -> Any:
    """Return PyG's HeteroData without any edges with an empty edge type, that of its links; others as they are."""
    to_dict = getattr(data, "to_dict", None)  # which stores do not have
    if of is None or isinstance(data, Mapping) or not callable(to_dict) or getattr(data, "edge_types", None) != []:
        return data
    edge_type = of if len(of) == 3 else (of[0], "to", of[1])  # as PyG calls it
    return {**to_dict(), edge_type: {"edge_index": torch.empty((2, 0), dtype=torch.long)}}
