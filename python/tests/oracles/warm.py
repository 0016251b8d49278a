"""Processes that begin with PyTorch imported: forks of one that has imported it, and nothing of freshgo.

What a test does to a process, such as a fork, a signal, a limit or its end, needs one of its own, and importing PyTorch
and PyG costs it seconds of a processor. The fork ends as any interpreter does. What an import brings is tested without.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from typing import IO


class Process:
    """One that runs: what it prints is read from ``stdout``."""

    def __init__(self, link: socket.socket, pid: int, stdout: IO[str], stderr: IO[str]) -> None:
        self._link, self.pid, self.stdout, self._stderr = link, pid, stdout, stderr
        self.returncode: int | None = None
        """As that of ``subprocess.Popen``."""

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """Wait for its end, and return what it has printed from here on, and everything that it said of errors."""
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        try:
            printed = self.stdout.read()
            self.wait()
        finally:
            timer.cancel()
        self._stderr.seek(0)
        said = self._stderr.read()
        self.stdout.close()
        self._stderr.close()
        return printed, said

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._link.recv(100))
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Parent:
    """The process that forks. It waits for a child before it makes the next."""

    link: socket.socket | None = None
    last: Process | None = None

    def start(self, code: str, arguments: list[str]) -> Process:
        if self.link is None:
            self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-X", "faulthandler", __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
            theirs.close()
        if self.last is not None and self.last.returncode is None:  # a test has failed
            self.last.kill()
            self.last.wait()
        reading, writing = os.pipe()
        said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        message = json.dumps([code, arguments, dict(os.environ)]).encode()
        socket.send_fds(self.link, [message], [writing, said.fileno()])
        os.close(writing)
        pid = int(self.link.recv(100))
        self.last = Process(self.link, pid, os.fdopen(reading), said)
        return self.last


_parent = _Parent()


def start(code: str, *arguments: object) -> Process:
    """Run Python code in a process, as ``python -c`` does."""
    return _parent.start(textwrap.dedent(code), [str(argument) for argument in arguments])


def run(code: str, *arguments: object, timeout: float = 120) -> str:
    """Run Python code in a process, which must end well and say nothing of errors, and return what it printed."""
    process = start(code, *arguments)
    printed, said = process.communicate(timeout)
    assert (process.returncode, said) == (0, ""), said
    return printed


def killed(code: str, *arguments: object) -> None:
    """Run Python code in a process, which must end by ``SIGKILL``."""
    process = start(code, *arguments)
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said


def _serve(link: socket.socket) -> list[str]:
    """Fork for everyone who asks, and say how the child has ended. In the child: return what it is asked for."""
    sys.modules["triton"] = None  # type: ignore[assignment]  # says at the end what was frozen, and nobody needs it
    import torch  # noqa: F401

    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, at an import
        import torch_geometric.nn  # noqa: F401
    gc.freeze()  # what is imported here costs a fork nothing when it ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # is for the children, and for who asks
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, 1 << 20, 2)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            link.close()
            for place, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, place)
                os.close(descriptor)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code, arguments, environment = json.loads(message)
            os.environ.clear()
            os.environ.update(environment)
            return [code, *arguments]
        for descriptor in descriptors:
            os.close(descriptor)
        link.send(str(pid).encode())
        link.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


if __name__ == "__main__":
    del sys.path[0]  # the directory of this file
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    asked, sys.argv[0] = sys.argv[0], "-c"
    exec(compile(asked, "<string>", "exec"))  # as names of the module __main__, until the interpreter ends
