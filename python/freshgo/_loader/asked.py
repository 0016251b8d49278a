"""What a loader was asked for, by itself: its graph is not known yet."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import torch

from freshgo import policies
from freshgo._args import checks, choices, fields, host
from freshgo._args import progress as progresses
from freshgo._args.levels import Levels
from freshgo._args.times import Trees, trees
from freshgo._device import delivery
from freshgo._loader.ranks import Membership
from freshgo._loader.sampling import Sampling, sampling, subgraph_type
from freshgo._loader.seed_order import SeedOrder, seed_order
from freshgo._native.options import LoaderOptions, Settings
from freshgo._observe.log import LOG
from freshgo.errors import DTypeError, InvalidArgumentError, LibraryError
from freshgo.memory import MemoryBudget
from freshgo.options import Device, Disk, Ranks, cannot_combine

Given = TypeVar("Given", Disk, Ranks)

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "batch_size": lambda name, value: checks.count(name, value, 1),
    "drop_last": checks.flag,
    "replace": checks.flag,
    "seed": lambda name, value: checks.count(name, value, None),
    "num_workers": lambda name, value: checks.count(name, value, 0) or host.threads(),
    "prefetch": lambda name, value: None if value is None else checks.count(name, value, 0),
    "feature_cache": checks.size,
    "neighbor_cache": checks.size,
    "feature_dtype": lambda name, value: checks.choice(name, value, choices.FeatureDType),
    "transpose": checks.flag,
    "pad": checks.flag,
}
"""The keywords that the library takes as they are, under the same names, once they are checked."""

_CHOSEN = {"memory": None, "num_workers": 0, "scratch of cache": None}
"""What lets freshgo choose by what the process may take of its host."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """The arguments of a loader, checked as far as that goes without its graph."""

    options: LoaderOptions
    """Those that do not depend on the graph."""
    left: dict[str, Any]
    """Those of them that freshgo chooses by the process and its host, as they were given; another process may choose
    otherwise."""
    input_nodes: Any
    order: SeedOrder
    sampling: Sampling
    trees: Trees
    policy: policies.Resolved
    memory: int | str | MemoryBudget | None
    history: Any
    embeddings: dict[str | None, list[Any]]
    """The rows of tables that learn, by node type; None: of a graph with one."""
    device: torch.device | None
    draws: Literal["auto", "cpu", "device"]
    """Who draws the batches; ``"auto"``: the device, if it can."""
    lists_on: Literal["auto", "device", "host"]
    """Where the neighbour lists are that the device draws from."""
    device_cache: int | Literal["auto"] | None
    edge_index: str
    transform: Callable[[Any], Any] | None
    transform_workers: int
    pin_memory: bool
    first_layer: Any
    disk: Disk
    ranks: Ranks
    member: Membership
    """Where the loader is among them."""
    progress: bool | progresses.Progress

    @property
    def levels(self) -> Levels:
        """What the options say of tensors of a graph in memory."""
        return Levels(weights=self.sampling.weight_names)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Asked:
        """Check the keywords of a loader."""
        given = keywords.__getitem__
        place = given("device") if isinstance(given("device"), Device) else Device(given("device"))
        device = delivery.resolve(place.on)
        policy = policies.resolve("cache", given("cache"))
        disk, ranks = _given("disk", given("disk"), Disk), _given("ranks", given("ranks"), Ranks)
        options = {name: check(name, given(name)) for name, check in _CHECKS.items()}
        if ranks.share is not None and given("num_workers") == 0:
            options["num_workers"] = host.threads(1)  # of the process that serves all local ranks
        history = given("history")
        drawn = sampling(given("num_neighbors"), given("neighbor_sampler"), given("weight_attr"))
        order = seed_order(given("shuffle"), given("input_weight"), given("sampler"))
        workers = checks.count("transform_workers", given("transform_workers"), 0, 1024)
        may_be_left = {**keywords, "scratch of cache": policy.plan.scratch}
        member = Membership.of(ranks, drop_last=options["drop_last"])
        progress = progresses.checked(given("progress"))
        times = ("disjoint", "time_attr", "temporal_strategy", "time_window", "input_time")
        asked = cls(
            options={
                **options,
                "shuffle": order.shuffle,
                **drawn.options(),
                **policy.options(),
                "reorder_rows": None,  # of this loader's cache; orders.Order keeps those of a state
                **disk._options(),
                "history": _history_options(history),
                "no_edge_ids": not checks.flag("return_edge_id", given("return_edge_id")),
                "holds": workers + 1,  # those that are being transformed, beside the loop's
                "subgraph_type": subgraph_type(given("subgraph_type"), history),
            },
            left={name: value for name, value in _CHOSEN.items() if may_be_left[name] is value},
            input_nodes=given("input_nodes"),
            order=order,
            sampling=drawn,
            trees=trees(*map(given, times)),
            policy=policy,
            memory=given("memory"),
            history=history,
            embeddings=_embeddings(given("embeddings")),
            device=device,
            draws=place.sample_on,
            lists_on=place.lists_on,
            device_cache=device_cache_of(given("device_cache")),
            edge_index=checks.choice("edge_index", given("edge_index"), choices.EdgeIndexForm),
            transform=given("transform"),
            transform_workers=workers,
            pin_memory=checks.flag("pin_memory", given("pin_memory")),
            first_layer=given("first_layer"),
            disk=disk,
            ranks=ranks,
            member=member,
            progress=False if progress is True and member.now().rank > 0 else progress,
        )
        if asked.draws == "auto" and (why := asked._undrawn()):
            LOG.info("threads draw the batches: sample_on='device' %s", why)
            asked = dataclasses.replace(asked, draws="cpu")
        if asked.device_cache == "auto" and not asked._may_cache():
            asked = dataclasses.replace(asked, device_cache=None)
        asked._check_together(place.on)
        return asked

    def _may_cache(self) -> bool:
        """Whether a loader that nobody gave a cache on the device may have one. An order of batches that is made for
        the cache in memory stays as it was when the loader was opened."""
        drawn = self.draws == "device"
        others = drawn or self.options["pad"] or self.options["reorder"] != 0
        return self.device is not None and not others and self.ranks.share is None and self.ranks.features is None

    def _check_together(self, device: object) -> None:
        if self.edge_index == "EdgeIndex" and importlib.util.find_spec("torch_geometric") is None:
            raise LibraryError("edge_index='EdgeIndex' needs PyTorch Geometric: pip install torch_geometric")
        if self.transform is not None and not callable(self.transform):
            raise DTypeError(f"transform must be callable, got {type(self.transform).__name__}")
        if self.transform_workers:
            self._check_workers(device)
        if self.device_cache is not None and self.device is None:
            raise InvalidArgumentError(
                f"device_cache needs a CUDA device, such as device='cuda', got device={device!r}"
            )
        if self.options["no_edge_ids"] and self.history is not None:
            raise InvalidArgumentError(
                "history prunes edges by the e_id of batches: it cannot be used with return_edge_id=False"
            )
        self._check_ranks()
        if self.draws == "device" and (why := self._undrawn()):
            raise InvalidArgumentError(f"sample_on='device' {why}: use sample_on='cpu'")
        if self.options["pad"]:
            self._check_pad()
        if self.embeddings:
            self._check_embeddings(device)
        if self.first_layer is None:
            return
        if self.trees.time_attr is not None:
            raise InvalidArgumentError(
                "first_layer aggregates all neighbours, at any time: it cannot be used with time_attr"
            )
        if self.sampling.walks is not None:
            raise InvalidArgumentError(
                "first_layer stands for a layer over the graph's edges: it cannot be used with a RandomWalk, whose "
                "edges are not edges of the graph"
            )

    def _undrawn(self) -> str | None:
        """Return what keeps the device from making the batches of this process, of what the library does not know."""
        if self.device is None:
            return "needs a CUDA device, such as Device('cuda')"
        others = {"share": self.ranks.share, "features": self.ranks.features, "device_cache": self.device_cache}
        for option, value in others.items():
            if value is not None and not (value == "auto" and self.draws == "auto"):
                return f"cannot be used with {option}={value!r}"
        if self.draws == "auto" and isinstance(self.memory, MemoryBudget):
            return "needs the memory that the loader is opened with, and a MemoryBudget may lend it less the next time"
        return None

    def _check_pad(self) -> None:
        """Check that batches have hops to pad, and that nothing looks their nodes up by n_id."""
        kind = get_args(choices.Subgraph)[self.options["subgraph_type"]]
        others = {
            f"subgraph_type={kind!r}, whose edges are not in hops": kind != "directional",
            "disjoint trees (disjoint, time_attr)": self.trees.disjoint or self.trees.time_attr is not None,
            "history, which prunes batches to sizes of their own": self.history is not None,
            "embeddings": bool(self.embeddings),
            "device_cache": self.device_cache is not None,
            "features='sharded'": self.ranks.features is not None,
        }
        for other, here in others.items():
            if here:
                raise InvalidArgumentError(f"pad=True cannot be used with {other}: give the loader one of them")

    def _check_workers(self, device: object) -> None:
        if self.transform is None:
            raise InvalidArgumentError("transform_workers needs transform=, which its threads run")
        if self.options["prefetch"] == 0:
            raise InvalidArgumentError(
                "transform_workers needs batches made ahead, prefetch= of at least 1, got prefetch=0"
            )
        if self.device is not None:
            raise InvalidArgumentError(
                "transform_workers transform batches on the CPU, since what runs on a device is queued on the stream "
                f"of the loop: got device={str(device)!r}"
            )
        if self.history is not None:
            raise InvalidArgumentError(
                "transform_workers and history cannot be used together: with a history, a batch is made after the "
                "update() of the one before"
            )

    def _check_embeddings(self, device: object) -> None:
        """Check that a batch comes as the library made it, after the step of the one before, from the planned cache."""
        others = {
            f"device={str(device)!r}": self.device is not None,
            "pin_memory": self.pin_memory,
            "transform_workers": self.transform_workers > 0,
            "features='sharded'": self.ranks.features is not None,
        }
        for other, here in others.items():
            if here:
                raise InvalidArgumentError(
                    f"embeddings and {other} cannot be used together: the rows of a batch are trained in the memory "
                    "where the library made it, by one process, before the next batch is made"
                )
        several = self.member.now().world_size > 1
        shared = all(rows.file.shared for every in self.embeddings.values() for rows in every)
        if several and not (shared and self.ranks.share is not None):
            raise InvalidArgumentError(
                "embeddings are trained by one rank, or by the ranks of a host that have one table: open them with "
                "Embedding(share='host') and the loader with ranks=Ranks(share='host')"
            )
        if self.policy.name not in ("auto", "belady"):
            raise InvalidArgumentError(
                f"embeddings need the planned cache, cache='auto' or 'belady', got {self.policy.name!r}"
            )

    def _check_ranks(self) -> None:
        """Check that nothing is asked for that belongs to one rank where ranks make batches together."""
        alone = {
            "history": self.history is not None,
            "device_cache": self.device_cache is not None,
            "reorder": self.options["reorder"] != 0,
            "a MemoryBudget": isinstance(self.memory, MemoryBudget),
        }
        divided = {
            "first_layer": self.first_layer is not None,
            "options of planning": bool(fields.changed(self.policy.plan)),
        }
        for option, others in (("share", alone), ("features", {**alone, **divided})):
            for other, here in others.items():
                if here and getattr(self.ranks, option) is not None:
                    raise cannot_combine(option, other, self.ranks)
        if self.ranks.features is None:
            return
        ranks_rows = self.policy.scores is not None or self.policy.by_type is not None
        if not ranks_rows and self.policy.name not in ("auto", "none", *choices.METRICS):
            raise InvalidArgumentError(
                f"features='sharded' keeps the hottest rows in memory: cache must be 'auto', 'none', a hotness or "
                f"scores, got {self.policy.name!r}"
            )


def _given(name: str, value: object, kind: type[Given]) -> Given:
    """Return an object with options, or one with all their defaults in the place of None."""
    if value is not None and not isinstance(value, kind):
        raise DTypeError(f"{name} must be a freshgo.{kind.__name__} or None, got {checks.shown(value)}")
    return kind() if value is None else value


def device_cache_of(given: Any) -> int | Literal["auto"] | None:
    """Return the bytes of a cache on the device, None for no cache."""
    if isinstance(given, str) and given == "auto":
        return "auto"
    if isinstance(given, str) and not any(letter.isdigit() for letter in given):
        raise InvalidArgumentError(
            f"device_cache must be a number of bytes, a string such as '2GiB', 'auto' or None, got {given!r}"
        )
    return checks.size("device_cache", given) or None


def _history_options(history: object) -> LoaderOptions | None:
    """Return what the library is told of a history: nothing where it would keep nothing."""
    if history is None:
        return None
    entries = getattr(history, "_entries", None)
    if entries is None:
        raise DTypeError(f"history must be a freshgo.History or None, got {type(history).__name__}")
    settings: Settings = entries.settings
    return settings.members() if settings.p_grad > 0 and settings.t_stale.count > 0 else None


def _embeddings(given: object) -> dict[str | None, list[Any]]:
    """Return the rows of embeddings, by the node type that they were given for."""
    if given is None:
        return {}
    by_type = given if isinstance(given, Mapping) else {None: given}
    found: dict[str | None, list[Any]] = {}
    for node_type, of in by_type.items():
        rows = [getattr(one, "_rows", None) for one in (of if isinstance(of, list | tuple) else [of])]
        if not rows or not all(hasattr(one, "arrive") for one in rows):
            raise DTypeError(
                "embeddings must be a freshgo.nn.Embedding, a list of them, or a dict of these by node type, got "
                f"{checks.shown(given)}"
            )
        found[node_type] = rows
    every = [id(one) for rows in found.values() for one in rows]
    if len(set(every)) < len(every):
        raise InvalidArgumentError("embeddings has the same Embedding twice: give every place a table of its own")
    return found
