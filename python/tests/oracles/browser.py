"""A headless Chromium, driven over its DevTools protocol through a pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


def installed() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class RefusedError(Exception):
    """Chromium did not carry out a command."""


class Browser:
    """One page of a Chromium. ``errors`` are what the console and the network reported since the last ``open``."""

    def __init__(self, program: str, folder: Path) -> None:
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        options += [f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(  # Chromium reads commands from descriptor 3 and answers on 4
            ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', program, *options],
            pass_fds=[to_browser, from_browser],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._commands, self._answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self._number, self._rest, self._loaded = 0, b"", False
        self.errors: list[str] = []
        self._session: str | None = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._next()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        """The next message; events are noted."""
        while b"\0" not in self._rest:
            piece = os.read(self._answers.fileno(), 1 << 16)
            assert piece, "Chromium ended"
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        event = json.loads(message)
        method, given = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(given["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and given["type"] == "error":
            self.errors.append(str(given["args"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(str(given["entry"]))
        return dict(event)

    def width(self, pixels: int) -> None:
        """Make the window this wide; a phone where that is less than 600."""
        size = {"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": pixels < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, url: str) -> None:
        """Load a page."""
        self.errors.clear()
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """The value of JavaScript in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> Any:
        """The value of JavaScript once it is true, or what it is after so long."""
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.value(expression)
            except RefusedError:  # the page is being left for another
                if time.monotonic() >= end:
                    raise
                value = None
            if value or time.monotonic() >= end:
                return value
            time.sleep(0.05)

    def close(self) -> None:
        """End the browser."""
        self._commands.close()
        self._process.terminate()
        self._process.wait()
        self._answers.close()
