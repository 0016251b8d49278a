"""Where the batches of a loader are made: in this process here, by others in the rooms that know how."""

from __future__ import annotations

from typing import Any

from freshgo._data.source import Source
from freshgo._device.mover import Batches
from freshgo._loader.ranks import Share
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions


class InProcess:
    """A native loader of this process makes whole batches. The other ways are sub-classes."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        """The options of the native loader."""
        return options

    def open(self, options: LoaderOptions) -> NativeLoader:
        """Open the native loader, or what has its face.

        Raises:
            what a native loader raises
        """
        return NativeLoader(self._source.native, options)

    def described(self) -> dict[str, Any]:
        """What must be the same on all ranks, beside what a batch depends on."""
        return {"features": "whole"}

    def prepare(self, share: Share) -> None:
        """Get ready for epochs of a share, before the ranks compare what they make."""

    def join(self) -> None:
        """Go on with the other ranks, once they agree. All call this together."""

    def begin(self, share: Share) -> None:
        """Let an epoch of a share begin, in place of what there was.

        Raises:
            RankError: it is not for ranks like these
        """

    def batches(self, native: NativeLoader, count: int) -> Batches:
        """The ``count`` batches that are left of the epoch that the native loader has begun."""
        return native

    def one(self, raw: RawBatch, share: Share) -> RawBatch:
        """A batch of no epoch, whole."""
        return raw

    def stop(self) -> None:
        """Let the batches of the running epoch go."""

    def stats(self) -> dict[str, Any]:
        """What belongs into ``Loader.stats()``."""
        return {}

    def close(self) -> None:
        """Let go of what this holds."""
