"""Where the files of a result go when that is a URL."""

from __future__ import annotations

import contextlib
from pathlib import Path

from freshgo._args.progress import Progress
from freshgo.errors import FreshgoError, StoreExistsError, StoreNotFoundError


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
        if there and not overwrite:
            raise StoreExistsError(17, "already exists; pass overwrite=True", self._place.url)

    def send(self, made: Path, report: Progress | None) -> None:
        """Write a file, or each file of a directory, to the URL. Where one fails, the ones before are removed."""
        from freshgo._urls.writing import remove, upload

        files = {made: self._place.path}
        if made.is_dir():
            files = {file: self._place.join(file.name) for file in sorted(made.iterdir())}
        sent: list[str] = []
        try:
            for file, path in files.items():
                size = file.stat().st_size

                def went(done: int, size: int = size) -> None:
                    if report is not None:
                        report(f"writing {self._place.url}", done, size)

                upload(self._place, file, path, went)
                sent.append(path)
                self.sent += size
        except BaseException:
            for path in sent:
                with contextlib.suppress(FreshgoError):
                    remove(self._place, path)
            raise
