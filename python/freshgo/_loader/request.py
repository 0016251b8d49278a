"""What a loader was asked for, in its graph."""

from __future__ import annotations

import dataclasses
import itertools
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import torch

from freshgo import policies
from freshgo._args import checks, choices, host
from freshgo._args.aggregates import Aggregate
from freshgo._args.arrays import values_digest
from freshgo._args.frames import Frames, check_package
from freshgo._args.times import Trees
from freshgo._args.types import ByRelation, EdgeType, Inputs, Types
from freshgo._args.whole import Attributes
from freshgo._batch.first import FirstUse
from freshgo._data.narrow import check_names
from freshgo._data.source import Source
from freshgo._device import delivery
from freshgo._loader import walks
from freshgo._loader.asked import Asked
from freshgo._loader.learned import Tables
from freshgo._loader.sampling import Sampling
from freshgo._native.options import LoaderOptions, relations
from freshgo.errors import InvalidArgumentError
from freshgo.memory import MemoryBudget

if TYPE_CHECKING:
    from freshgo._loader.links import Links

_OF_ALL = (
    *("num_workers", "prefetch", "memory", "feature_cache", "neighbor_cache", "feature_dtype", "transpose", "pad"),
)
"""The options that no batch depends on, and that belong to whoever makes the batches; with those of cache and disk."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What a loader draws in its graph, and the options of the library that say so."""

    asked: Asked
    types: Types
    """Of the graph."""
    fanouts: ByRelation
    """Neighbours per hop of every edge type that batches have."""
    inputs: Inputs | None
    """None: batches are made for links."""
    links: Links | None
    trees: Trees
    policy: policies.Resolved
    options: LoaderOptions
    first: dict[str, Aggregate]
    """What stands for the first layer, by node type."""
    frames: Frames
    """The TensorFrames that node types of batches have."""
    attributes: Attributes
    """What every batch has as it is, by owner, on the device of the batches."""
    tables: Tables
    """Those that learn."""
    use: FirstUse = dataclasses.field(default_factory=FirstUse, compare=False)
    """Whether a layer has used what stands for the first one."""

    @property
    def drawn(self) -> Types:
        """The node types and edge types that batches have."""
        return Types(self.types.num_nodes, list(self.fanouts))

    def shown(self) -> list[int] | Mapping[EdgeType, list[int]]:
        """The neighbours per hop as a user gives them."""
        return self.types.bare(self.fanouts)

    @property
    def num_inputs(self) -> int:
        """How many input nodes there are."""
        return 0 if self.inputs is None else sum(self.inputs.counts.values())

    def input_nodes(self) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        """The input nodes as ids of their types; None: every node."""
        inputs = self.inputs
        if inputs is None:
            raise AttributeError("a LinkLoader has no input_nodes: its inputs are links")
        if self.types.homogeneous or inputs.seeds is None:
            return inputs.seeds
        counts = self.types.num_nodes.values()
        first = dict(zip(self.types.num_nodes, itertools.accumulate(counts, initial=0), strict=False))
        parts = torch.split(inputs.seeds, list(inputs.counts.values()))
        return {name: ids - first[name] for name, ids in zip(inputs.counts, parts, strict=True)}

    @property
    def hops(self) -> int:
        """How many hops are sampled."""
        return max((len(of) for of in self.fanouts.values()), default=0)

    def config(self) -> dict[str, Any]:
        """Everything in a batch that does not depend on the graph, as it comes back from JSON."""
        options, kind = self.options, self.options["subgraph_type"]
        return {
            "num_neighbors": self._config_of_fanouts(),
            "input_nodes": self._config_of_inputs(),
            **{name: options[name] for name in ("batch_size", "shuffle", "drop_last", "replace", "seed")},
            **self.asked.sampling.config(),
            "input_weight": None if options["input_weight"] is None else values_digest(options["input_weight"]),
            "subgraph_type": get_args(choices.Subgraph)[kind] if kind else None,
            **self.trees.config(),
            **({} if self.links is None else self.links.config()),
            **({"first_layer": next(iter(self.first.values())).name} if self.first else {}),
            **({"pad": True} if options["pad"] else {}),
        }

    def described(self, options: LoaderOptions) -> dict[str, Any]:
        """Everything that loaders with these options have in common where one of them stands for all, by the names of
        the keywords: but for what each process does with its batches."""
        policy = {f"{name} of cache": value for name, value in self.policy.options().items() if name != "cache"}
        scores, scratch = options["hotness"], options["scratch"]
        return {
            **self.config(),
            **{name: options[name] for name in _OF_ALL},
            "return_edge_id": not options["no_edge_ids"],
            "edge_weight": not options.get("no_edge_weight", False),
            "cache": self.policy.name,
            **policy,
            **{f"{name} of disk": value for name, value in self.asked.disk._options().items()},
            "scores of cache": None if scores is None else values_digest(scores),
            "scratch of cache": None if scratch is None else os.path.abspath(scratch),  # noqa: PTH100 (which resolves no links)
            **self.asked.left,
        }

    def _config_of_inputs(self) -> Any:
        if self.inputs is None:  # with links; what states of both kinds of graphs have always said
            return "all" if self.types.homogeneous else None
        return self.types.bare(self.inputs.config)

    def _config_of_fanouts(self) -> list[Any]:
        hops = self.shown()
        return [[list(name), of] for name, of in hops.items()] if isinstance(hops, Mapping) else hops


def in_graph(asked: Asked, source: Source, links: Links | None) -> Request:
    """Check what was asked for against the graph, and complete the options.

    Raises:
        InvalidArgumentError, DTypeError: what the graph does not have, or is not given as it needs.
    """
    types, options = source.types, asked.options
    if asked.ranks.share is not None and source.directory is None:
        raise InvalidArgumentError(
            "share='host' needs a store, which one process reads for all ranks: convert() the graph"
        )
    policy = asked.policy.of_types(types.num_nodes)
    policy.check_nodes(types.total)
    if options["feature_dtype"] == "stored":
        check_names(source.narrow, source.tensors)
    if links is not None:
        links = links.of_graph(source)
        if links.time is not None:
            asked = dataclasses.replace(asked, trees=dataclasses.replace(asked.trees, input_time=links.time))
    if links is not None and links.exclude and source.first:
        raise InvalidArgumentError(
            "first_layer aggregates all neighbours, including the links of the batch: it cannot be used with "
            "exclude_seed_edges"
        )
    fanouts, inputs, drawn = drawn_in_graph(asked.sampling, source, asked.input_nodes, links=links is not None)
    within = [edge_type for edge_type in fanouts if edge_type[0] == edge_type[2]]
    if asked.edge_index == "EdgeIndex" and not within:
        raise InvalidArgumentError(
            "edge_index='EdgeIndex' is for edge types within one node type, which this graph does not have: PyG cannot "
            "compute the derivative of an EdgeIndex between different nodes"
        )
    if options["subgraph_type"] == get_args(choices.Subgraph).index("bidirectional"):
        _warn_one_way(types)
    if inputs is not None:
        counts = inputs.counts
    else:
        assert links is not None  # which take the place of input nodes
        counts = {"": links.count(source)}
    of_inputs = asked.trees if inputs is None else asked.trees.of_inputs(inputs.counts)
    options = {
        **options,
        **drawn,
        **of_inputs.options(),
        "input_weight": asked.order.of_inputs(counts),
        "hotness": policy.scores,
        "memory": _memory(asked, source),
        "spare": asked.memory is None,
        "scratch": checks.scratch(asked.policy.plan.scratch, source.directory),
        "calibration": source.calibration(options["io"]),
        "links": None if links is None else links.options(),
        "aggregate": next((info.name for info in source.first.values()), None) if source.directory else None,
    }
    asked = dataclasses.replace(asked, input_nodes=None)  # the library has a copy, the user's may be large
    check_package(source.frames)
    attributes = delivery.delivered(source.attributes, asked.device, asked.pin_memory)
    return Request(
        asked,
        types,
        fanouts,
        inputs,
        links,
        of_inputs,
        policy,
        options,
        source.first,
        source.frames,
        attributes,
        Tables(asked, types, distinct=not of_inputs.config()["disjoint"] and not _repeat(asked, inputs)),
    )


def _repeat(asked: Asked, inputs: Inputs | None) -> bool:
    """Return whether an input node may be in a batch twice, for a loader with tables."""
    if inputs is None or not asked.embeddings:
        return False
    if asked.order.weight is not None or asked.order.by_type is not None:
        return True
    return inputs.seeds is not None and bool((inputs.seeds.sort().values.diff() == 0).any())


def _memory(asked: Asked, source: Source) -> int:
    """Return the bytes for the loader."""
    if isinstance(asked.memory, MemoryBudget):
        return asked.memory.size
    loaders = 1 if asked.ranks.share is None else host.local_ranks()  # whose parts one loader has
    return checks.budget(asked.memory, lambda: source.default_memory() * loaders)


def drawn_in_graph(
    drawn: Sampling, source: Source, input_nodes: object, *, links: bool = False
) -> tuple[ByRelation, Inputs | None, LoaderOptions]:
    """Return the neighbours along each edge type, the input nodes, and the options of the library for both."""
    types = source.types
    inputs = None if links else types.inputs(input_nodes, source.split, source.splits)
    if drawn.walks is None:
        fanouts = types.fanouts(drawn.fanouts, drawn.default)
    else:
        fanouts = walks.in_graph(drawn.walks, types, None if inputs is None else inputs.config)
    options = {
        **relations(list(fanouts.values())),
        **drawn.weights(types),
        **({} if drawn.walks is None else walks.options(drawn.walks, types)),
        "seeds": None if inputs is None else inputs.seeds,
    }
    return fanouts, inputs, options


def _warn_one_way(types: Types) -> None:
    """Say which edge types a bidirectional batch leaves as they are."""
    for edge_type in types.one_way():
        warnings.warn(
            f"subgraph_type='bidirectional' adds nothing to {edge_type}, which has no reverse edge type: it would "
            f"be {(edge_type[2], f'rev_{edge_type[1]}', edge_type[0])}, or the only one from {edge_type[2]!r} to "
            f"{edge_type[0]!r}",
            UserWarning,
            stacklevel=checks.caller(),
        )
