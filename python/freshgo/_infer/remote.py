"""Where the files of a result go when that is a URL."""

from __future__ import annotations

import contextlib
from pathlib import Path

from freshgo._args.progress import Progress
from freshgo.errors import OVERWRITE, FreshgoError, StoreExistsError, StoreNotFoundError


class Remote:
    """Objects at a URL that become the files of a result."""

    def __init__(self, url: str, *, overwrite: bool) -> None:
        """Refuse a URL where something is, unless it may be replaced."""
        from freshgo._urls.place import Place  # which few need

        self._place, self.sent = Place(url), 0
        try:
            there = bool(self._place.matches()[0])
        except StoreNotFoundError as error:
            if "bucket" in str(error.strerror):
                raise
            there = False
        self._replaces = there
        if there and not overwrite:
            raise StoreExistsError(17, OVERWRITE, self._place.url)

    def send(self, made: Path, report: Progress | None) -> None:
        """Write a file, or each file of a directory, to the URL: nothing appears before everything was sent. If one of
        the objects cannot appear then, the ones before are removed, unless they have replaced others."""
        from freshgo._urls.writing import Sending, remove

        files = {made: self._place.path}
        if made.is_dir():
            files = {file: self._place.join(file.name) for file in sorted(made.iterdir())}
        total = sum(file.stat().st_size for file in files)
        waiting: list[Sending] = []
        appeared: list[str] = []
        before = 0
        try:
            for file, path in files.items():

                def went(done: int, before: int = before) -> None:
                    if report is not None:
                        report(f"writing {self._place.url}", before + done, total)

                waiting.append(Sending(self._place, file, path, went))
                before += file.stat().st_size
            for sending, path in zip(waiting, files.values(), strict=True):
                appeared.append(path)
                sending.appear()
        except BaseException:
            for sending in waiting:
                sending.discard()
            for path in [] if self._replaces else appeared:
                with contextlib.suppress(FreshgoError):
                    remove(self._place, path)
            raise
        self.sent = total
