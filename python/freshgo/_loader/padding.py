"""The sizes that batches are padded to: learned when the loader is opened, or those of a state."""

from __future__ import annotations

from typing import Any

from freshgo._args import checks
from freshgo._loader.arrange import Assembler
from freshgo._loader.openings import Openings
from freshgo._loader.position import Position
from freshgo._native.options import LoaderOptions
from freshgo.errors import InvalidArgumentError


class Padding:
    """The envelope of a loader with ``pad=True``: the nodes of each node type, by hop, and the edges of each edge type,
    by hop. The options and the assembler of the loader have it too."""

    def __init__(self, openings: Openings, options: LoaderOptions, at: Position, assembler: Assembler) -> None:
        self._openings, self._options, self._at, self._assembler = openings, options, at, assembler
        if options["pad"]:
            self._set(openings.stats()["envelope"])
            openings.keep(envelope=self.value)

    def _set(self, sizes: list[int]) -> None:
        self._assembler.envelope = self._options["envelope"] = sizes

    @property
    def value(self) -> list[int] | None:
        """The envelope; None: nothing is padded."""
        return self._assembler.envelope

    def config(self) -> dict[str, Any]:
        """Return what a state says of it."""
        return {} if self.value is None else {"envelope": self.value}

    def adopt(self, saved: Any) -> None:
        """Make the envelope that of a state, whatever this version learns.

        Raises:
            InvalidArgumentError: it is none of this loader's batches
        """
        if self.value is None or saved == self.value:
            return
        if not isinstance(saved, list) or len(saved) != len(self.value):
            raise InvalidArgumentError(
                f"the state has envelope={checks.shown(saved)}, expected {len(self.value)} sizes, as {self.value}"
            )
        envelope = [checks.count("envelope", size, 0) for size in saved]
        with self._at.lock:
            self._at.end()
            self._openings.change(envelope=envelope)
        self._set(envelope)
