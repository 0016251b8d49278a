"""The engine of a loader: everything that its clients call.

:class:`freshgo.Loader` has the documentation and an engine. The clients are its public methods, the iterators of
``_loader/epoch.py``, a :class:`freshgo.MemoryBudget`, a :class:`freshgo.History`, evaluation, factored training and the
data module for Lightning.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from freshgo._args import checks
from freshgo._args.types import Layout
from freshgo._data.narrow import Delivered
from freshgo._data.source import Source
from freshgo._device import delivery
from freshgo._loader.arrange import Assembler
from freshgo._loader.batch_makers import BatchMaker
from freshgo._loader.openings import Openings
from freshgo._loader.orders import Order, position
from freshgo._loader.padding import Padding
from freshgo._loader.position import Mode, Position
from freshgo._loader.ranks import Agreement, Share, check_same
from freshgo._loader.request import Request
from freshgo._loader.transforming import Workers
from freshgo._native.history import begin_step, end_step
from freshgo._native.loader import Batches as NativeBatches
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions
from freshgo._observe.flat import flat
from freshgo._observe.log import LOG
from freshgo._observe.ranges import stage
from freshgo.errors import BudgetError, DTypeError, InvalidArgumentError, RankError
from freshgo.memory import Lending, MemoryBudget

if TYPE_CHECKING:
    from freshgo._loader import on_demand


class Batches(Protocol):
    """Where the batches of an epoch that runs come from."""

    def next(self) -> RawBatch | None:
        """Return the next batch, None after the last one."""


@dataclasses.dataclass(frozen=True)
class Started:
    """An epoch that the library has begun. Batches have the numbers ``first`` to ``count``, the loader's own."""

    batches: Batches
    first: int
    count: int


class Engine:
    """The native loader of a loader, its place in the epochs, and its part of a memory budget."""

    def __init__(self, source: Source, request: Request, make: Callable[[LoaderOptions], BatchMaker]) -> None:
        """``make`` returns the maker of batches with these options."""
        asked = request.asked
        self.source, self.request, self.ranks = source, request, asked.member
        self.at = Position()
        self._agreement = Agreement()
        self._history = None if asked.history is None else asked.history._steps
        self.on_demand = 0  # calls that wait for a batch on demand; changed under the lock of the position
        if self._history is not None:
            self._history.bind(self, request.hops)
        self._tables = request.tables
        if asked.draws == "auto":
            try:
                self._open(make, on_device=True)
            except (InvalidArgumentError, BudgetError) as error:
                LOG.info("threads draw the batches: %s", error)
                self._open(make, on_device=False)
        else:
            self._open(make, on_device=asked.draws == "device")
        self.order = Order(self.openings, self.options, self.at)
        self._padding = Padding(self.openings, self.options, self.at, self.assembler)
        workers, transform = asked.transform_workers, asked.transform
        self._workers = Workers(transform, workers) if transform and workers else None

    def _open(self, make: Callable[[LoaderOptions], BatchMaker], *, on_device: bool) -> None:
        """Open the native loader, whose batches the device draws if ``on_device``."""
        request, source = self.request, self.source
        asked = request.asked
        self.delivery = delivery.open_delivery(
            asked.device,
            source,
            request.drawn,
            request.policy,
            request.options,
            asked.device_cache,
            asked.pin_memory,
            lists_on=asked.lists_on if on_device else None,
        )
        options = self.delivery.adapt(request.options)
        self._batch_maker = make(options)
        self._tables.bind()
        self.options = {**self._batch_maker.adapt(options), **self._tables.options()}
        asked_dtype, delivered_dtype = request.options["feature_dtype"], self.options["feature_dtype"]
        self.assembler = Assembler(request, Delivered(source.narrow, asked_dtype, delivered_dtype))
        budget = asked.memory if isinstance(asked.memory, MemoryBudget) else None
        with self.at.lock, self._tables.unbound_after_errors():  # so that it lends nothing before it is whole
            opens, beside = self._batch_maker.open, source.attribute_bytes
            self.openings = Openings(opens, self.options, budget, self, self.delivery, beside)
            self._tables.opened(self.openings, self.at, self.options)

    @property
    def native(self) -> NativeLoader:
        """The native loader of the last opening; closed while another loader has its memory."""
        return self.openings.native

    # For iterators.

    def settle(self, share: Share) -> None:
        """Let the next epoch have this share, once all ranks agree on the epoch."""
        self._tables.check_ranks(share.world_size)
        self._batch_maker.prepare(share)
        if self._agreement.pending(self.ranks):
            self._agree(share)
        self._batch_maker.join()
        self.openings.ready()
        self.order.check()

    def _agree(self, share: Share) -> None:
        """Compare the epochs of all ranks, and raise on all of them where they differ. The order of the batches, which
        may depend on the memory of each rank, becomes that of rank 0."""
        gathered = self._agreement.gather(
            {
                "the version of freshgo": importlib.metadata.version("freshgo"),
                **self.config(),
                **self._batch_maker.described(),
                "reorder": self.options["reorder"],
                "order": self.order.value,
                "uneven": share.uneven,
                "history": None if self._history is None else self._history.entries.described(),
                "the epoch": self.at.epoch,
                "the number of batches before": self.at.done,
            }
        )
        orders = [one.pop("order") for one in gathered]
        everything = [order is None for order in orders]  # is in memory, so that there is no order
        try:
            check_same(
                [one | {"everything is in memory": whole} for one, whole in zip(gathered, everything, strict=True)]
            )
        except RankError:
            self._agreement = Agreement()  # they are asked again when an epoch begins again
            raise
        self.order.adopt(orders[0])

    def mode(self) -> Mode:
        """Return how an epoch that begins now runs: plain where there is a history and it is not used."""
        return "plain" if self._history is not None and not self._history.begin_epoch(self.at.done) else "train"

    def start(self, epoch: int, done: int, share: Share, mode: Mode) -> Started:
        """Let the library begin ``epoch``, in place of the epoch that runs. All ranks together have made ``done`` of
        its batches."""
        self.delivery.stop()
        self._batch_maker.begin(share)
        if mode == "train" and not self.on_demand and self.delivery.due(within=False):
            carry = None if self._history is None else self._history.entries.carry
            _refit(self.openings, self.delivery, carry, share)
        native = self.openings.ready()
        self.order.check()
        native.take(share.members())
        native.start(epoch, done, mode)
        batches: Batches = native
        left = share.count(native.num_batches, done)
        if mode != "trace":
            batches = self._tables.batches(self.delivery.batches(self._batch_maker.batches(native, left), left))
            if self._history is not None:
                batches = Stepped(batches, native)
            if self._workers is not None:  # not on a device, the only place where next() always waits
                batches = self._workers.batches(cast(NativeBatches, batches), self.assembler.arranged)
        count = share.count(native.num_batches)
        return Started(batches, count - left, count)

    def stop(self, *, transform: bool = True) -> None:
        """End the work of the library, and of the transform's threads if ``transform``."""
        if transform and self._workers is not None:
            self._workers.stop()
        self.delivery.stop()
        self._tables.leave()
        self._batch_maker.stop()
        self.openings.stop()

    def forget(self) -> None:
        """Forget a batch that was handed over and is not used: the epoch is begun again at another."""
        if self._history is not None:
            self._history.drop_unseen()

    # For the memory budget.

    def lending(self) -> Lending:
        """Return what the loader would lose if it lent its memory now."""
        at = self.at
        return Lending(self._history is not None, at.busy, at.continued, at.hurried)

    def give_back(self) -> bool:
        """Free everything until the next batch is requested. Return False, and free nothing, while another thread is
        beginning an epoch or waits for a batch on demand."""
        at = self.at
        if not at.lock.acquire(blocking=False):
            return False
        try:
            if self.on_demand:
                return False
            at.interrupted()
            self.delivery.stop()
            self._tables.leave()
            self._batch_maker.stop()
            self.openings.give_back()
            return True
        finally:
            at.lock.release()

    # For the history.

    def layout(self) -> Layout:
        """Return the types and the tensors of the batches."""
        return self.source.layout()

    def rank(self, *, take: bool) -> list[int] | None:
        """Return the rank, and the number of ranks, of the epochs that begin now; None where there is one. With
        ``take`` spans in epochs go by their length from now on."""
        share = self.ranks.now()
        if take:
            self.native.take(share.members())
        return None if share.world_size == 1 else [share.rank, share.world_size]

    def upcoming(self) -> tuple[int, int]:
        """Return the epoch that the next ``iter`` begins, and how many of its batches have been made."""
        at = self.at
        with at.lock:
            share = self.ranks.now()
            self.settle(share)
            self.openings.ready().take(share.members())
            return (at.epoch + 1, 0) if at.begun else (at.epoch, at.done)

    def rewind(self) -> None:
        """End the running epoch; the next ``iter`` continues it after the last batch yielded."""
        self.seek(self.at.epoch, self.at.done)

    # For trainers.

    def hand_out(self) -> tuple[int, int, int]:
        """Return the epoch that the next ``iter`` begins, how many of its batches have been made, and how many it has.
        Others make them: this frees the loader's memory until it makes batches again."""
        at = self.at
        with at.lock:
            self.openings.check()
            at.end()
            if at.begun:
                at.move(at.epoch + 1, 0)
            self.delivery.stop()
            self.openings.give_back()
            return at.epoch, at.done, self.openings.num_batches

    @property
    def within(self) -> bool:
        """Whether the loader stands between the first batch and the last one of an epoch."""
        return 0 < self.at.done < self.openings.num_batches

    def seek(self, epoch: int, batch: int) -> None:
        """Make the next ``iter`` begin ``epoch`` at a batch, and end the running one."""
        with self.at.lock:
            self.at.end()
            self.stop(transform=False)
            self.at.move(epoch, batch)

    # For the loader.

    def one(self, ask: on_demand.Ask, request: Request) -> Any:
        """Return a batch on demand, which is no part of an epoch."""
        with self.at.lock:  # so that a budget does not close what makes it
            native = self.openings.ready()
            self.on_demand += 1
        try:
            with stage("freshgo.sample"):
                raw = self.delivery.one(self._batch_maker.one(native.sample(ask), self.ranks.now()))
        finally:
            with self.at.lock:
                self.on_demand -= 1
        return self.assembler.transformed(self.assembler.arranged(raw, request))

    def config(self) -> dict[str, Any]:
        """Return everything that a batch depends on."""
        own = {"reorder": self.order.value, **self._padding.config()}
        return {"graph": self.source.fingerprint(), **self.request.config(), **own}

    def state(self) -> dict[str, Any]:
        """Return what :meth:`resume` takes."""
        return {"version": 1, "epoch": self.at.epoch, "batches": self.at.done, "config": self.config()}

    def resume(self, state: dict[str, Any]) -> None:
        """Make the next ``iter`` continue where ``state`` was saved."""
        epoch, batches = position(state, self.config(), self.openings.num_batches)
        self.order.adopt(state["config"].get("reorder"))
        self._padding.adopt(state["config"].get("envelope"))
        self.seek(epoch, batches)

    def stats(self, prefix: str | None) -> dict[str, Any]:
        """Return the figures since the loader was opened; with a prefix in one dict of numbers."""
        figures = {**self.openings.stats(), **self.delivery.stats(), **self._batch_maker.stats()}
        epochs = self.at.whole
        if prefix is None:
            return {**figures, "epochs": list(epochs)}
        if not isinstance(prefix, str):
            raise DTypeError(f"prefix must be a string such as 'loader/' or None, got {checks.shown(prefix)}")
        return flat({**figures, "last_epoch": epochs[-1] if epochs else {}}, prefix)

    def close(self) -> None:
        """End the running epoch and free everything but the batches."""
        self.at.end()
        self.delivery.stop()
        if self._history is not None:
            self._history.entries.closing(self)
        self._batch_maker.close()
        self._tables.leave()
        self.openings.close()
        self._tables.unbind()
        if self._workers is not None:
            self._workers.close()
        self.delivery.close()
        self.source.close()

    def __reduce__(self) -> NoReturn:
        raise DTypeError(
            "a Loader cannot be pickled or sent to another process: open one there, and carry over state_dict()"
        )


def _refit(
    openings: Openings, device: delivery.Delivery, carry: Callable[[], Callable[[], bool]] | None, share: Share
) -> None:
    """Let the device choose the rows that it holds. A history goes on as it was, by ``carry``: where it could not with
    these rows, the device holds none."""
    go_on = None if carry is None else carry()
    openings.refit()
    if go_on is None:
        return
    openings.ready().take(share.members())
    if not go_on():
        openings.change(**device.unfit()).take(share.members())
        go_on()


class Stepped:
    """The batches of an epoch whose training steps a history follows. A batch may be taken before its step begins."""

    def __init__(self, batches: Batches, native: NativeLoader) -> None:
        self._batches = batches
        self._native = native

    def next(self) -> RawBatch | None:
        end_step(self._native)
        raw = self._batches.next()
        if raw is not None:
            begin_step(self._native)
        return raw


class Driven(Protocol):
    """A :class:`freshgo.Loader`, as the modules of the package see it."""

    _engine: Engine


def engine_of(loader: Driven) -> Engine:
    """Return the engine of a loader."""
    return loader._engine
