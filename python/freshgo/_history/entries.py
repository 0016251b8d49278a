"""The entries of a history: the library of a loader decides over them, and their rows lie in a buffer."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from freshgo._args import checks
from freshgo._args.size import format_size
from freshgo._history import saved_state
from freshgo._history.checks import levels_of_model, spoken
from freshgo._history.estimation import Estimation, Trail
from freshgo._history.interfaces import Decisions, Feeder
from freshgo._history.training_step import Admitted, Buffer, Keeps, Step, Unwritten
from freshgo._native.options import Settings
from freshgo.errors import ClosedError, InvalidArgumentError

_FOREVER = 1 << 62


class Entries:
    """The entries of a history, over the loaders that it belongs to one after the other."""

    def __init__(self, settings: Settings, keeps: Keeps) -> None:
        self.settings, self.keeps = settings, keeps
        self.trail, self.estimation = Trail(), Estimation()
        self._loader: weakref.ref[Feeder] | None = None
        self._hops = 0  # of the loader
        self._exported: tuple[object, Buffer] | None = None  # the buffer, and the native loader that it belongs to
        self._unwritten: Unwritten | None = None
        self._pending: dict[str, Any] | None = None  # a state that waits for the loader
        self._last: dict[str, Any] = {}  # the figures of a loader that is closed
        self.left: str | None = None
        """Why nothing is kept of the model; None: something is, or the model is not known."""
        self._told = False  # that it keeps nothing
        self._bound: int | None = None  # the age in iterations that errors allow
        self._bounded: tuple[object, int | None] | None = None  # the native loader that knows it
        self._held: tuple[object, bool] | None = None  # the native loader, and whether it has a history

    def bind(self, loader: Feeder, hops: int) -> None:
        """Belong to a loader, which samples ``hops`` hops."""
        open_loader = self.loader
        if open_loader is not None and open_loader is not loader:
            raise InvalidArgumentError(
                "this history is used by another loader, whose nodes and iterations it counts: make a History for each"
            )
        levels_of_model(self.keeps.levels, hops, f"the loader samples {hops} hops (num_neighbors)")
        if self._loader is not None and self._pending is None:  # what was counted was another loader's
            self.trail, self.estimation = Trail(), Estimation()
        self._loader, self._exported, self._last = weakref.ref(loader), None, {}
        self._hops = hops
        self._unwritten = None

    def closing(self, loader: Feeder) -> None:
        """Keep the figures of a loader that is about to close."""
        if self.loader is loader and self.active:
            self._last = self.native.history_stats()

    @property
    def bound(self) -> bool:
        """Whether there has been a loader."""
        return self._loader is not None

    @property
    def loader(self) -> Feeder | None:
        """The loader, if there is one that is open."""
        loader = None if self._loader is None else self._loader()
        native = getattr(loader, "native", None)
        return None if native is None or native.closed else loader

    @property
    def native(self) -> Decisions:
        """The library of the open loader.

        Raises:
            ClosedError: there is none.
        """
        loader = self.loader
        if loader is None:
            raise ClosedError("this history has no open loader: give it to one, as Loader(..., history=history)")
        return loader.native

    @property
    def active(self) -> bool:
        """Whether the loader keeps anything: not before there is one, nor where it never would."""
        return self._wanted and self._has_memory

    @property
    def _wanted(self) -> bool:
        """Whether there is a loader, and options with which something is kept."""
        return self.loader is not None and self.settings.p_grad > 0 and self.settings.t_stale.count > 0

    @property
    def _has_memory(self) -> bool:
        native = self.native
        if self._held is None or self._held[0] is not native:
            self._held = native, bool(native.stats()["memory"]["history"])
        return self._held[1]

    @property
    def idle(self) -> str | None:
        """Why nothing is kept though the options would keep something."""
        if self.left is None and self._wanted and not self._has_memory:
            return (
                "its memory holds rows of features, which save more reads: give the loader memory for all features and "
                "a tenth more, or the history a memory= of its own"
            )
        return self.left

    def leave(self, why: str) -> None:
        """Keep nothing of this model."""
        self.left = why
        if self._exported is not None and self._exported[1].dtype is None:
            self._exported = None  # its memory is free for others
        self._warn_idle()

    def _warn_idle(self) -> None:
        if self.idle is not None and not self._told:
            self._told = True
            warnings.warn(f"this history keeps nothing: {self.idle}", UserWarning, stacklevel=checks.caller())

    def begin_epoch(self, done: int) -> bool:
        """Return whether the epoch that begins now, or goes on after ``done`` batches, uses history. Where the error of
        entries grows with their age, they are used for less time from the next epoch on."""
        self._warn_idle()
        if not self.active or self.left is not None:
            return not self._wanted
        stable = None if done else self.estimation.stable()
        if stable is not None and (self._bound is None or stable[0] < self._bound):
            self._bound = stable[0]
            warnings.warn(
                f"entries of the history older than {stable[0]} iterations have {stable[1]:.2f} times the error of the "
                f"youngest: entries are used for {stable[0]} iterations from now on",
                UserWarning,
                stacklevel=checks.caller(),
            )
        self._bind_age()
        if self.settings.outside:
            self.buffer()  # before a cache of rows takes what is left
        return True

    def carry(self) -> Callable[[], bool]:
        """Return what goes on from here in the next native loader of the loader. It returns False, and does nothing,
        where the memory of that one is divided so that the history prunes other batches."""
        lag = _lag(self)
        if lag is None:
            return lambda: _lag(self) is None
        self.write()
        decisions, before = self.native.history_save(), self.buffer()

        def go_on() -> bool:
            if _lag(self) != lag:
                return False
            self._bind_age()
            self.native.history_restore(decisions)
            self.buffer().take(before)
            return True

        return go_on

    def _bind_age(self) -> None:
        """Let the library know the age that errors allow."""
        native, known = self.native, None
        if self._bounded is not None and self._bounded[0] is native:
            known = self._bounded[1]
        if known != self._bound:
            native.history_bound(_FOREVER if self._bound is None else self._bound)
        self._bounded = native, self._bound

    def buffer(self) -> Buffer:
        """Return the buffer of the open loader."""
        native = self.native
        if self._exported is None or self._exported[0] is not native:
            raw = native.history_buffer()
            if raw is None and self._exported is not None:
                raw = self._exported[1].raw  # on another device it is the loader's, whatever native loader it has
            elif raw is None:
                raw = _allocated(int(native.history_stats()["bytes"]), self.settings)
            self._exported = (native, Buffer(raw))
        return self._exported[1]

    def keep(self, step: Step) -> None:
        """Keep the stable rows of a batch after its backward pass.

        Raises:
            InvalidArgumentError, DTypeError: there is nothing to judge by, or the rows do not fit the buffer.
        """
        native, index = self.native, step.levels.index
        if not step.kept:
            native.history_skip(index)
            return
        try:
            dtype, width, norms = step.observed()
            buffer = self.buffer()
            for level in step.kept:
                buffer.check(step.seen[level].rows, level)
        except BaseException:
            native.history_skip(index)
            raise
        row_bytes = buffer.row_bytes or width * dtype.itemsize
        if row_bytes > buffer.raw.numel():
            native.history_skip(index)
            raise InvalidArgumentError(
                f"the history's buffer of {format_size(buffer.raw.numel())} has no room for one row of "
                f"{format_size(row_bytes)}: use a larger History(memory=...); a useful buffer holds "
                "some thousand rows at least"
            )
        self._unwritten = Unwritten(norms, buffer, dtype, width, step.rows())
        self.write(native.history_update(index, row_bytes, norms))
        self.trail.bytes_saved += step.bytes_saved

    def write(self, admitted: Admitted | None = None) -> None:
        """Put the rows that the library has admitted to where it has their entries, before anybody reads them.

        Without an argument those of an update that Ctrl-C has left; doing so again does no harm."""
        unwritten = self._unwritten
        if unwritten is None:
            return
        if admitted is not None:
            unwritten.write(admitted)
        elif self.native.history_stats()["row_bytes"]:
            unwritten.write(self.native.history_admitted(unwritten.norms))
        self._unwritten = None

    def stats(self) -> dict[str, Any]:
        """Return the figures of the library, of a closed loader the last ones, and what was saved over time."""
        described = self.described()
        return {
            "keep": described["keep"],
            "policy": described["policy"],
            "idle": self.idle,
            **(self.native.history_stats() if self.active else self._last),
            "rows_saved": self.trail.total("plain_rows") - self.trail.total("loaded"),
            "edges_saved": self.trail.total("plain_edges") - self.trail.total("edges"),
            "bytes_saved": self.trail.bytes_saved,
            "saving": self.trail.rows(),
            "error": self.estimation.rows(),
        }

    def forecast(self, native: Decisions) -> dict[str, Any]:
        """Return the counts of the epoch that the next ``iter`` of the loader begins."""
        if not self.active or self.left is not None:
            why = self.idle or "with p_grad=0 or t_stale=0"
            raise InvalidArgumentError(f"there is nothing to forecast, as nothing is kept: {why}")
        counts = native.history_forecast(*_opened(self).upcoming(), self._hops - 1)
        found = dict(zip(("rows", "plain_rows", "edges", "plain_edges"), counts, strict=False))
        layers = zip(counts[4::2], counts[5::2], strict=True)
        return {**found, "layers": [{"hits": hits, "misses": misses} for hits, misses in layers]}

    def save(self) -> dict[str, Any]:
        """Return the state: settings, figures, entries with their rows, and a checksum.

        Raises:
            ClosedError: the loader was closed.
        """
        if self._pending is not None:
            return self._pending
        if self._last:
            raise ClosedError(
                "the loader of this history is closed, and its entries are gone: save the state before it closes"
            )
        state: dict[str, Any] = {"version": saved_state.VERSION, "settings": self.described()}
        state |= {"saving": self.trail.save(), "error": self.estimation.save()}
        if self.active:
            self.write()
            state |= saved_state.entries(self.native, self.buffer())
            state["rank"], state["bound"] = _opened(self).rank(take=False), self._bound
        state["checksum"] = saved_state.checksum(state)
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a saved state: now, or once there is a loader."""
        trail, estimation = saved_state.check(state, self.described())
        if "entries" not in state:
            pass  # it was saved before there was a loader
        elif self.active:
            self._restore(state)
            _opened(self).rewind()  # the epoch that ran has ended: iter() goes on with it
        else:
            self._pending = state
        self.trail, self.estimation = trail, estimation

    def restore_pending(self) -> None:
        """Take over the state that has waited for the loader, if there is one."""
        if self._pending is not None:
            self._restore(self._pending)
            self._pending = None  # and no sooner: what is refused or interrupted is not forgotten

    def _restore(self, state: dict[str, Any]) -> None:
        if not self.active:
            raise InvalidArgumentError(f"the state has entries, and this history keeps nothing: {self.idle}")
        rank = _opened(self).rank(take=True)
        if repr(state.get("rank")) != repr(rank):
            raise InvalidArgumentError(
                f"the state is that of rank {state.get('rank')} (number, of how many), this is rank {rank}: every rank "
                "keeps the rows of its own batches, and another number of ranks begins with empty histories"
            )
        self.write()  # before what is restored, if that fails and nothing is
        self._bound = state.get("bound")
        self._bind_age()
        saved_state.restore(state, self.native, self.buffer())

    def described(self) -> dict[str, Any]:
        """Return the options, as a saved state has them."""
        s = self.settings
        return {
            "keep": "aggregates" if self.keeps.aggregates else "rows",
            "levels": self.keeps.levels,
            "policy": "gas" if s.policy == "all" else s.policy,
            "p_grad": s.p_grad,
            "t_stale": spoken(s.t_stale),
            "start": spoken(s.start),
            "memory": s.memory,
            "lag": s.lag,
            "probe_every": s.probe_every,
        }


def _opened(entries: Entries) -> Feeder:
    loader = entries.loader
    assert loader is not None  # as something is kept
    return loader


def _lag(entries: Entries) -> int | None:
    """Return the lag of the native loader; None where it keeps nothing."""
    return int(entries.native.history_stats()["lag"]) if entries.active else None


def _allocated(n_bytes: int, settings: Settings) -> torch.Tensor:
    """Return the memory of a buffer on another device."""
    try:
        return torch.empty(n_bytes, dtype=torch.uint8, device=settings.device)
    except torch.cuda.OutOfMemoryError as error:
        raise InvalidArgumentError(
            f"the history's buffer of {format_size(n_bytes)} does not fit into the free memory of {settings.device}: "
            f"give History(memory=) less, or the device_cache of the loader ({error})"
        ) from error
