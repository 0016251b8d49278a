"""Which rows stay in memory: the objects that ``Loader(cache=…)`` and ``simulate(policy=…)`` accept besides names.

A name is enough if a policy has no parameters of its own, or if its defaults suit:

========================================  =========================================================================
``"belady"``                              planned: what is needed again soonest stays (Ginex, 3.3), :class:`Belady`
``"degree"``, ``"in-degree"``,            filled once with the hottest rows (FGNN, 6.1), :class:`Hotness`
``"random"``, ``"presc"``,
``"expected"``, ``"oracle"``
``"lru"``, ``"clock"``, ``"sieve"``,      decides batch by batch, without looking ahead, :class:`Online`
``"s3fifo"``, ``"match"``
``"none"``                                nothing stays
``"auto"``                                ``"belady"``, unless there is nothing to plan, :class:`Auto`
========================================  =========================================================================
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks, fields
from freshgo._args.arrays import as_tensor
from freshgo._args.choices import Metric, OnlineName, PolicyName, Transfer
from freshgo._args.entry import entry
from freshgo._args.hints import among, listed
from freshgo.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    Vector = Tensor | np.ndarray[Any, Any]
    Scores = Vector | Mapping[str, Vector]

METRICS: tuple[Metric, ...] = get_args(Metric)
ONLINE: tuple[OnlineName, ...] = get_args(OnlineName)
NAMES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, repr=False)
class Planned:
    """The fields of :class:`Belady` and :class:`Auto`: how a loader that samples ahead plans, and reads by its plan."""

    superbatch: int | None = None
    carry_over: bool = True
    lookahead: bool = True
    _: KW_ONLY
    transfer: Transfer = "auto"
    reorder: bool | int = False
    trace_memory: int | str | None = None
    buffer_memory: int | str | None = None
    scratch: str | os.PathLike[str] | None = None
    scratch_size: int | str | None = None

    def __post_init__(self) -> None:
        if self.superbatch is not None:
            checks.count("superbatch", self.superbatch, 1)
        checks.scratch_path(self.scratch)
        self._options()

    def _options(self) -> dict[str, Any]:
        """Return the options of the library but ``scratch``, whose default depends on the graph."""
        return {
            "superbatch": self.superbatch,
            "carry_over": checks.flag("carry_over", self.carry_over),
            "lookahead": checks.flag("lookahead", self.lookahead),
            "transfer": checks.choice("transfer", self.transfer, Transfer),
            "reorder": checks.reorder(self.reorder),
            "trace_memory": checks.size("trace_memory", self.trace_memory),
            "buffer_memory": checks.size("buffer_memory", self.buffer_memory),
            "scratch_size": checks.size("scratch_size", self.scratch_size),
        }

    def __repr__(self) -> str:
        return fields.shown(self)


@entry
@dataclass(frozen=True, repr=False)
class Belady(Planned):
    """Belady's MIN at the granularity of batches, planned for a superbatch of sampled batches (Ginex, 3.3).

    No policy that knows the same batches reads fewer rows. Among rows that are needed equally soon, cached ones stay. A
    row that is needed later than everything in the cache is not admitted.

    Args:
        superbatch: batches that are sampled and planned together, also across the end of an epoch. Memory for all of
            them is set aside. None lets the loader choose by its memory, and :func:`freshgo.simulate` use the whole
            trace.
        carry_over: begin a superbatch with the rows that the previous one left. Without it the cache is refilled each
            time, as in Ginex.
        lookahead: plan a superbatch with knowledge of the next one, which is sampled meanwhile.
        transfer: how a loader reads rows that are not cached. ``"random"``: each batch reads its own. ``"page-once"``:
            a batch also reads rows on the same pages that a later batch needs. ``"scan"``: all rows of a window are
            read in the order of the file. ``"pack"``: the same, through a scratch file. ``"forward"``: rows that leave
            the cache are kept for their next batch, alone or as ``"scan+forward"``. ``"pack+forward+ahead"``: one scan
            reads the rows of two windows, where the first has enough of them. ``"auto"`` chooses for every window what
            is cheapest on this device.
        reorder: let this many batches change places if that makes them share more rows (FastGL, 4.1); False keeps
            their order. Plans of reordered batches stay in memory, which shortens them where there is little of it.
            True lets the loader choose how many, and none where the scratch file makes longer plans. The order is part
            of :meth:`Loader.state_dict`.
        trace_memory: bytes of the loader's ``memory`` for batches sampled ahead and for plans; None lets the loader
            choose.
        buffer_memory: bytes of the loader's ``memory`` for rows read before their batch; None lets the loader choose.
        scratch: the directory of a temporary file for what does not fit into ``trace_memory`` and ``buffer_memory``.
            None is the directory of the store if it is writable, else the system's directory for temporary files,
            unless that is in memory.
        scratch_size: the maximum size of this file in bytes; 0 makes no file. A loader raises ``WriteError`` if the
            file system has no room for it. None is the size of the features on disk. If plans are in the file,
            which makes their windows long, it is four times that size and some 80 bytes for each row of the batches of
            a window. An eighth of what is free is left to others.

    :func:`freshgo.simulate` uses the first three.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid.
    """


@entry
@dataclass(frozen=True, repr=False)
class Auto(Planned):
    """:class:`Belady`, with the same arguments, where planning is worth its memory.

    Nothing is planned if everything fits in memory or nothing is on disk. If ``memory`` is too small for plans, a cache
    that is filled once takes their place, or none. Its rows are those that most batches of the first epochs need: up to
    two epochs are sampled for this when the loader opens, half of one if neighbour lists are on disk. ``cache="auto"``
    is ``Auto()``.
    """


@entry
class Hotness:
    """A cache that is filled once with the hottest rows (the general caching scheme of FGNN, 6.1).

    Among equally hot nodes the one with the lower id comes first. What it reads does not depend on the order of the
    batches, so that there is no ``reorder``.

    Args:
        scores: a metric by name, or a score for every node: a vector ``[num_nodes]`` of any real dtype, finite and not
            negative. A float32 vector is not copied. In a heterogeneous graph a mapping from every node type to its
            vector, on one scale, as :func:`freshgo.hotness` returns it.

            - ``"degree"``: out-degree, the number of nodes it can be drawn for; ``"in-degree"``.
            - ``"presc"``: in how many batches of ``k`` sampled epochs the node occurs (PreSC#K; FGNN, 6.3). For this a
              loader samples other epochs than those it trains on.
            - ``"expected"``: how often it is expected to occur, computed from degrees and weights without sampling.
            - ``"oracle"``: the counts of the first epoch of the training itself, or of the trace that is simulated: the
              best that a cache filled once can be.
            - ``"random"``: drawn from ``seed``.
        k: epochs that ``"presc"`` samples; 1 by default.
        seed: the seed of ``"random"``; 0 by default.

    Raises:
        InvalidArgumentError: an unknown metric (the message lists the known ones), a parameter of another metric, or
            scores that cannot be ranked; the message names the node.
        DTypeError: neither a name nor a vector of real numbers.
    """

    def __init__(self, scores: Metric | Scores, *, k: int | None = None, seed: int | None = None) -> None:
        self.metric = checks.choice("hotness", scores, Metric) if isinstance(scores, str) else None
        self.scores: Tensor | dict[str, Tensor] | None = None
        if isinstance(scores, Mapping):
            self.scores = _scores_by_type(scores)
        elif not isinstance(scores, str):
            self.scores = _scores(scores)
        for name, value, metric in (("k", k, "presc"), ("seed", seed, "random")):
            if value is not None and self.metric != metric:
                raise InvalidArgumentError(f"{name} is a parameter of Hotness({metric!r}), got it with {self._what()}")
        self.k = 1 if k is None else checks.count("k", k, 1, 1 << 20)
        self.seed = 0 if seed is None else checks.count("seed", seed, None)

    def _what(self) -> str:
        if isinstance(self.scores, dict):
            return f"scores of {', '.join(f'{scores.numel()} {name!r}' for name, scores in self.scores.items())}"
        return repr(self.metric) if self.scores is None else f"a vector of {self.scores.numel()} scores"

    def __repr__(self) -> str:
        more = {"presc": f", k={self.k}", "random": f", seed={self.seed}"}.get(self.metric or "", "")
        return f"Hotness({self._what()}{more})"


@entry
@dataclass(frozen=True)
class Online:
    """A cache that decides batch by batch and knows only the past: the fair baseline, and the choice for endless
    streams.

    Args:
        name: ``"lru"``, ``"clock"``, ``"sieve"``, ``"s3fifo"``, or ``"match"``: the rows of the previous batch (FastGL,
            4.1).
        reorder: let this many batches change places if this cache then reads fewer rows, as for :class:`Belady`.
            ``Online("match", reorder=True)`` is FastGL's Match-Reorder. A batch of a block is drawn twice: for the
            order, and then for itself. :func:`freshgo.simulate` keeps the order of its trace.

    Raises:
        InvalidArgumentError, DTypeError: an unknown policy, where the message lists the known ones, or another argument
            that is invalid.
    """

    name: OnlineName
    _: KW_ONLY
    reorder: bool | int = False

    def __post_init__(self) -> None:
        checks.choice("policy", self.name, OnlineName)
        checks.reorder(self.reorder)

    def __repr__(self) -> str:
        return fields.shown(self)


Policy = PolicyName | Auto | Belady | Hotness | Online


@dataclass(frozen=True, eq=False)
class Resolved:
    """A policy in the terms of the library: its name, and every parameter that any policy has."""

    name: str
    plan: Planned = Planned()
    k: int = 1
    seed: int = 0
    scores: Tensor | None = None
    by_type: dict[str, Tensor] | None = None
    """The scores of a heterogeneous graph; :meth:`of_types` concatenates them."""

    def options(self) -> dict[str, Any]:
        """Return the options of the library but the scores and the scratch directory, which depend on the graph."""
        return {
            "cache": self.name,
            **self.plan._options(),
            "presc_epochs": self.k,
            "hotness_seed": self.seed,
        }

    def of_types(self, num_nodes: Mapping[str, int]) -> Resolved:
        """Return the policy with the scores of all node types in one vector, in the order of the graph's types.

        ``num_nodes`` gives the number of nodes of each type; the node type of a homogeneous graph has no name.

        Raises:
            InvalidArgumentError: scores of types that the graph does not have, or not of every one.
        """
        if self.by_type is None:
            return self
        if "" in num_nodes:
            raise InvalidArgumentError(
                f"a hotness for node types ({', '.join(map(repr, self.by_type))}) needs a heterogeneous graph"
            )
        known = listed(num_nodes)
        for name in [*self.by_type, *num_nodes]:
            if name not in num_nodes:
                raise InvalidArgumentError(
                    f"hotness names the node type {name!r}, the graph has {among(name, num_nodes)}"
                )
            if name not in self.by_type:
                raise InvalidArgumentError(
                    f"hotness needs scores for each of the node types {known}, those of {name!r} are missing"
                )
            if (got := self.by_type[name].numel()) != num_nodes[name]:
                raise InvalidArgumentError(
                    f"a hotness needs one score for each of the {num_nodes[name]} nodes of type {name!r}, got {got}"
                )
        scores = torch.cat([self.by_type[name] for name in num_nodes])
        return dataclasses.replace(self, scores=scores, by_type=None)

    def check_nodes(self, num_nodes: int) -> None:
        """Raise InvalidArgumentError unless the vector has a score for every node."""
        if self.scores is not None and self.scores.numel() != num_nodes:
            raise InvalidArgumentError(
                f"a hotness needs one score for each of the {num_nodes} nodes, got {self.scores.numel()}"
            )


def resolve(option: str, value: object) -> Resolved:
    """Return the policy that a user gave as ``option``: a name, an object of this module, a vector of scores, or
    None."""
    if value is None:
        return Resolved("none")
    if isinstance(value, str):
        return Resolved(checks.choice(option, value, PolicyName))
    if isinstance(value, Planned):
        return Resolved("belady" if isinstance(value, Belady) else "auto", value)
    if isinstance(value, Online):
        return Resolved(value.name, Planned(reorder=value.reorder))
    if isinstance(value, Tensor | np.ndarray | Mapping):
        value = Hotness(value)
    if isinstance(value, Hotness):
        by_type = value.scores if isinstance(value.scores, dict) else None
        flat = None if isinstance(value.scores, dict) else value.scores
        return Resolved(value.metric or "vector", k=value.k, seed=value.seed, scores=flat, by_type=by_type)
    raise DTypeError(
        f"{option} must be a name ({', '.join(map(repr, NAMES))}), an Auto, Belady, Hotness or Online object, or a "
        f"vector of scores, got {type(value).__name__}"
    )


def _scores_by_type(value: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Return the scores of a heterogeneous graph."""
    result = {}
    for name, scores in value.items():
        if not isinstance(name, str):
            raise DTypeError(f"the keys of a hotness must be node types, got {name!r}")
        try:
            result[name] = _scores(scores)
        except (DTypeError, InvalidArgumentError) as error:
            raise type(error)(f"node type {name!r}: {error}") from None
    if not result:
        raise InvalidArgumentError("a hotness needs scores for every node type, got an empty mapping")
    return result


def _scores(value: object) -> Tensor:
    """Return a vector of scores as float32, checked except for its length."""
    if not isinstance(value, Tensor | np.ndarray):
        raise DTypeError(f"hotness must be the name of a metric or a vector of scores, got {type(value).__name__}")
    try:
        vector = as_tensor(value).detach()
    except (TypeError, ValueError) as error:
        raise DTypeError(f"hotness must be a vector of real numbers: {error}") from None
    if vector.is_complex():
        raise DTypeError(f"hotness must be a vector of real numbers, got {vector.dtype}")
    if vector.dim() != 1:
        raise InvalidArgumentError(f"hotness must be one-dimensional, a score per node, got shape {list(vector.shape)}")
    vector = vector.to(device="cpu", dtype=torch.float32).contiguous()
    bad = ~(vector.isfinite() & (vector >= 0))
    if bad.any():
        node = int(bad.nonzero()[0])
        raise InvalidArgumentError(
            f"hotness of node {node} is {vector[node].item()}, expected a finite score that is not negative"
        )
    return vector
