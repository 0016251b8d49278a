"""The maker of a loader's batches. Batches of other processes, and with rows of other ranks, have sub-classes of it."""

from __future__ import annotations

from typing import Any

from freshgo._args.progress import Progress
from freshgo._data.source import Source
from freshgo._loader.ranks import Share
from freshgo._native.loader import Batches, RawBatch
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions


class BatchMaker:
    """Makes whole batches by a native loader of this process."""

    def __init__(self, source: Source, progress: bool | Progress = False) -> None:
        self._source, self._progress = source, progress

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        """Return the options of the native loader."""
        return options

    def open(self, options: LoaderOptions) -> NativeLoader:
        """Open the native loader, or one with its methods.

        Raises:
            FreshgoError: the native loader cannot be opened
        """
        return NativeLoader(self._source.native, options, self._progress)

    def described(self) -> dict[str, Any]:
        """Return options that all ranks must share, although no batch depends on them."""
        return {"features": "whole"}

    def prepare(self, share: Share) -> None:
        """Prepare for the epochs of a share, before the ranks compare their options."""

    def join(self) -> None:
        """Continue with the other ranks once their options agree. All ranks call this together."""

    def begin(self, share: Share) -> None:
        """Begin an epoch of a share, in place of the running one.

        Raises:
            RankError: the loader was opened for other ranks
        """

    def batches(self, native: NativeLoader, count: int) -> Batches:
        """Return the remaining ``count`` batches of the epoch that the native loader has begun."""
        return native

    def one(self, raw: RawBatch, share: Share) -> RawBatch:
        """Return a batch on demand with all its rows."""
        return raw

    def stop(self) -> None:
        """Drop the batches of the running epoch."""

    def stats(self) -> dict[str, Any]:
        """Return its entries of ``Loader.stats()``."""
        return {}

    def close(self) -> None:
        """Release its threads and memory."""
