"""What a native loader is asked for, and the C structs that say so."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from freshgo._native import header
from freshgo.errors import InvalidArgumentError


@dataclass(frozen=True)
class Span:
    """A number of iterations, or of epochs; ``math.inf`` for ever."""

    count: float
    epochs: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A history's options as the loader that it is bound to takes them: ``history._settings``."""

    policy: str
    """"performance", "gradient" or "all": every computed row, for ever, in a slot of its own."""
    p_grad: float
    t_stale: Span
    start: Span
    memory: int | None
    """Bytes of the buffer; None lets the loader choose."""
    device: torch.device | None
    """Where the buffer is; None is the CPU, where the loader allocates it."""
    features: bool
    """Whether features lie at the other end of the buffer."""
    lag: int
    probe_every: int
    """Every so manyth iteration is not pruned but brings probes; 0 never."""


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Links that batches are drawn for.

    ``index`` is int64 ``[2, num_links]``, contiguous, or None for every edge. ``negatives`` counts them for each link;
    weights are float64, contiguous, one per node. ``exclude`` is 0, 1 for the links and 2 for them and their reverse.
    With types ``relation`` is the place of the edge type that the links are of, and ``reverse`` of the one back.
    The caller does not change the tensors.
    """

    index: torch.Tensor | None
    negatives: float = 0.0
    triplets: bool = False
    src_weight: torch.Tensor | None = None
    dst_weight: torch.Tensor | None = None
    strict: bool = False
    exclude: int = 0
    relation: int = 0
    reverse: int = 0


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """Options of :class:`freshgo._native.loader.Loader`; ``None`` leaves the choice to the library.

    ``fanouts`` are neighbours per hop, nearest the seeds first, -1 for all. ``seeds`` is an int64 tensor of node
    ids, ``None`` for every node. ``workers`` and ``prefetch`` count threads and batches, 0 workers are chosen.
    ``memory``, ``feature_cache``, ``neighbor_cache``, ``trace_memory``, ``buffer_memory``, ``scratch_bytes`` are bytes.
    ``cache`` and ``transfer`` are names of the header; ``superbatch``, ``carry_over``, ``lookahead`` are of "belady",
    ``presc_epochs`` of "presc", ``hotness_seed`` of "random", ``hotness`` (float32, one per node) of "vector".
    ``weight_attr`` names an edge tensor, ``labor`` is its dependencies on layers and batches and whether
    it gives weights, ``walks`` are walks, length and restart of each hop, ``subgraph_type`` is that of the header.
    ``time_attr`` names an edge or node tensor, ``input_time`` (int64, one per seed) are the times of seeds,
    ``time_window`` and ``temporal_last`` what is drawn of the past; with it or ``disjoint`` each seed has its own tree.
    ``reorder`` counts batches, 0 is none. ``scratch`` is a directory and ``calibration`` a file, both may be absent.
    ``history`` makes the loader prune its batches.
    ``held`` (int32, one per node) says which rows the caller has, and ``holds`` how many batches he keeps at a time.
    Without fanouts a batch is its seeds and their rows.
    ``relation_fanouts`` are the ``fanouts`` of each relation of a graph with types, as many for all, 0 for none; seeds
    are then numbered over all types, one type after the other. ``metapaths`` are places of relations in the order of
    walking, with the walks of each hop; ``relation_fanouts`` is then of each of them.
    """

    fanouts: Sequence[int]
    replace: bool = False
    seeds: torch.Tensor | None = None
    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    workers: int = 0
    prefetch: int = 4
    memory: int | None = None
    feature_cache: int | None = None
    neighbor_cache: int | None = None
    cache: str = "auto"
    superbatch: int | None = None
    carry_over: bool = True
    lookahead: bool = True
    presc_epochs: int = 1
    hotness: torch.Tensor | None = None
    hotness_seed: int = 0
    reorder: int | None = 0
    reorder_rows: int | None = None
    transfer: str = "auto"
    trace_memory: int | None = None
    buffer_memory: int | None = None
    scratch: str | os.PathLike[str] | None = None
    scratch_bytes: int | None = None
    calibration: str | os.PathLike[str] | None = None
    io: str = "auto"
    checksums: bool = False
    transpose: bool = False
    history: Settings | None = None
    held: torch.Tensor | None = None
    holds: int = 1
    weight_attr: str | None = None
    labor: tuple[bool, int, bool] | None = None
    walks: Sequence[tuple[int, int, float]] | None = None
    subgraph_type: int = 0
    links: LinkOptions | None = None
    relation_fanouts: Sequence[Sequence[int]] | None = None
    time_attr: str | None = None
    input_time: torch.Tensor | None = None
    time_window: int | None = None
    temporal_last: bool = False
    disjoint: bool = False
    metapaths: Sequence[tuple[Sequence[int], Sequence[tuple[int, int, float]]]] | None = None


def pointer_to(tensor: torch.Tensor, kind: Any) -> Any:
    """A pointer to the first element of a tensor, which the caller keeps alive."""
    return ctypes.cast(tensor.data_ptr(), ctypes.POINTER(kind))


def own_seeds(seeds: torch.Tensor | None) -> torch.Tensor | None:
    """A private copy: the library reads the seeds in every epoch, and the caller may change his tensor."""
    if seeds is None:
        return None
    if seeds.dtype != torch.int64 or seeds.dim() != 1:
        raise InvalidArgumentError(
            f"seeds must be a one-dimensional int64 tensor, got {seeds.dtype} of shape {tuple(seeds.shape)}"
        )
    return seeds.detach().to("cpu", copy=True).contiguous()


def loader_options(options: LoaderOptions, seeds: torch.Tensor | None) -> header.LoaderOptions:
    fanouts = (ctypes.c_int64 * len(options.fanouts))(*options.fanouts)
    raw = header.LoaderOptions(
        struct_size=ctypes.sizeof(header.LoaderOptions),
        num_hops=len(fanouts),
        fanouts=fanouts,
        all_nodes=int(seeds is None),
        batch_size=options.batch_size,
        seed=options.seed & 0xFFFF_FFFF_FFFF_FFFF,
        replace=int(options.replace),
        shuffle=int(options.shuffle),
        drop_last=int(options.drop_last),
        checksums=int(options.checksums),
        workers=options.workers,
        prefetch=options.prefetch,
        transpose=int(options.transpose),
        memory=options.memory or 0,
        feature_cache=header.AUTO if options.feature_cache is None else options.feature_cache,
        neighbor_cache=header.AUTO if options.neighbor_cache is None else options.neighbor_cache,
        cache=options.cache.encode(),
        io=options.io.encode(),
        superbatch=header.AUTO if options.superbatch is None else options.superbatch,
        carry_over=int(options.carry_over),
        lookahead=int(options.lookahead),
        hotness_seed=options.hotness_seed & 0xFFFF_FFFF_FFFF_FFFF,
        presc_epochs=options.presc_epochs,
        reorder=header.AUTO if options.reorder is None else options.reorder,
        reorder_rows=header.AUTO if options.reorder_rows is None else options.reorder_rows,
        transfer=options.transfer.encode(),
        trace_memory=header.AUTO if options.trace_memory is None else options.trace_memory,
        buffer_memory=header.AUTO if options.buffer_memory is None else options.buffer_memory,
        scratch=None if options.scratch is None else os.fsencode(options.scratch),
        scratch_bytes=header.AUTO if options.scratch_bytes is None else options.scratch_bytes,
        calibration=None if options.calibration is None else os.fsencode(options.calibration),
        holds=options.holds,
    )
    if options.history is not None:
        raw.history = ctypes.pointer(_history_options(options.history))
    raw.weight_attr = None if options.weight_attr is None else options.weight_attr.encode()
    if options.labor is not None:
        layers, batches, edge_weight = options.labor
        raw.labor, raw.layer_dependency, raw.batch_dependency = 1 if edge_weight else 2, int(layers), batches
    if options.relation_fanouts is not None:
        relations = options.relation_fanouts
        flat = [fanout for hops in relations for fanout in hops]
        raw.relation_fanouts, raw.num_relations = (ctypes.c_int64 * len(flat))(*flat), len(relations)
        raw.num_hops, raw.fanouts = len(relations[0]) if relations else 0, None
    if options.metapaths is not None:
        paths = [header.Metapath((ctypes.c_int64 * len(path))(*path), len(path)) for path, _ in options.metapaths]
        walks = [header.Walk(*walk) for _, hops in options.metapaths for walk in hops]
        raw.metapaths, raw.num_metapaths = (header.Metapath * len(paths))(*paths), len(paths)
        raw.walks = (header.Walk * len(walks))(*walks)
    if options.walks is not None:
        raw.walks = (header.Walk * len(options.walks))(*(header.Walk(*walk) for walk in options.walks))
    raw.subgraph_type = options.subgraph_type
    if seeds is not None:
        raw.seeds, raw.num_seeds = pointer_to(seeds, ctypes.c_int64), seeds.numel()
    if options.hotness is not None:
        raw.hotness, raw.num_hotness = pointer_to(options.hotness, ctypes.c_float), options.hotness.numel()
    raw.time_attr = None if options.time_attr is None else options.time_attr.encode()
    raw.time_window, raw.temporal_last = options.time_window or 0, int(options.temporal_last)
    raw.disjoint = int(options.disjoint)
    if options.input_time is not None:
        raw.input_time, raw.num_input_time = pointer_to(options.input_time, ctypes.c_int64), options.input_time.numel()
    if options.held is not None:
        raw.held, raw.num_held = pointer_to(options.held, ctypes.c_int32), options.held.numel()
    if options.links is not None:
        raw.links = ctypes.pointer(_link_options(options.links))
        raw.link_relation, raw.link_reverse = options.links.relation, options.links.reverse
    return raw


def _history_options(settings: Settings) -> header.HistoryOptions:
    """Describe a history to the library."""
    return header.HistoryOptions(
        struct_size=ctypes.sizeof(header.HistoryOptions),
        lag=settings.lag,
        p_grad=settings.p_grad,
        t_stale=settings.t_stale.count,
        start=settings.start.count,
        t_stale_epochs=int(settings.t_stale.epochs),
        start_epochs=int(settings.start.epochs),
        policy=settings.policy.encode(),
        memory=header.AUTO if settings.memory is None else settings.memory,
        outside=int(settings.device is not None and settings.device.type != "cpu"),
        features=int(settings.features),
        probe_every=settings.probe_every,
    )


def _link_options(links: LinkOptions) -> header.Links:
    raw = header.Links(
        negatives=links.negatives, triplets=int(links.triplets), strict=int(links.strict), exclude=links.exclude
    )
    if links.index is not None:
        raw.num_links = links.index.size(1)
        raw.sources, raw.targets = (pointer_to(nodes, ctypes.c_int64) for nodes in links.index)
    for name in ("src_weight", "dst_weight"):
        weight = getattr(links, name)
        if weight is not None:
            setattr(raw, name, pointer_to(weight, ctypes.c_double))
            setattr(raw, f"num_{name}", weight.numel())
    return raw
