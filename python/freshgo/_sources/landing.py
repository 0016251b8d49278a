"""Streams on their way into the library: through pipes what it reads once, by files what it reads more often."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from freshgo._args.arrays import Array, Pipe, Stream
from freshgo._args.parts import GraphParts
from freshgo._sources.opening import Opening

_PIPE_BYTES = 1 << 20
"""What a pipe holds: a piece, so that one is decompressed while another is written. Linux's default bound."""

_PATIENCE = 5
"""Seconds until a stream that waits for a server is left to end by itself. It holds no file. Arbitrary."""


class _Feed(threading.Thread):
    """Writes a stream to a pipe until it ends or nobody reads any more."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(name=f"freshgo {stream.name}", daemon=True)
        self._stream, self._stopped = stream, False
        self.error: BaseException | None = None
        ends = os.pipe()
        # None of them is 0, which means no pipe to the library.
        self._read, self._write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
        for end in ends:
            os.close(end)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.pipe = Pipe(self._read, stream.dtype, stream.shape)

    def run(self) -> None:
        try:
            for piece in self._stream.pieces():
                rest = memoryview(piece).cast("B")
                while rest:
                    rest = rest[os.write(self._write, rest) :]
        except BrokenPipeError:  # the conversion has ended before
            pass
        except BaseException as error:  # the thread of the conversion raises it
            if not self._stopped:
                self.error = error
        finally:
            os.close(self._write)

    def stop(self) -> None:
        """Let the stream wait for nothing: what it says then is no error."""
        self._stopped = True
        self._stream.stop()

    def end(self) -> None:
        """Stop feeding."""
        os.close(self._read)
        self.stop()
        self.join(_PATIENCE)


@contextlib.contextmanager
def landed(
    parts: GraphParts, attachments: dict[str, Array], again: Mapping[Any, Collection[str]], opening: Opening | None
) -> Iterator[Callable[[], None]]:
    """Put all streams of a graph where the library can read them, for as long as the context lasts. ``again`` has the
    tensors of types that it reads more than once. An error in a stream comes in the place of what the library says of
    a pipe that ends early. Yields what stops the streams where the library is interrupted, which waits for them.
    """
    owners: list[tuple[object, dict[str, Array]]] = [(None, attachments)]
    for of_nodes in parts.nodes.items():
        owners += [(of_nodes[0], of_nodes[1].tensors), (None, of_nodes[1].splits)]
    owners += [(key, of_edges.tensors) for key, of_edges in parts.edges.items()]
    feeds: list[_Feed] = []
    with contextlib.ExitStack() as ends:
        for key, arrays in owners:
            for name, array in arrays.items():
                if not isinstance(array, Stream):
                    continue
                assert opening is not None, f"{name} is a stream, which a source alone makes"
                if name in again.get(key, ()):
                    arrays[name] = opening.keep(array)
                    continue
                feeds.append(_Feed(array))
                ends.callback(feeds[-1].end)
                feeds[-1].start()
                arrays[name] = feeds[-1].pipe

        def stop() -> None:
            for feed in feeds:
                feed.stop()

        try:
            yield stop
        except Exception:
            ends.close()
            for feed in feeds:
                if feed.error is not None:
                    raise feed.error from None
            raise
