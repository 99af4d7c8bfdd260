"""A real browser for tests: Debian's chromium without a window, spoken to over a pipe in its DevTools protocol.

    with Browser() as browser:
        page = browser.open(path.as_uri(), width=390, dark=True)
        assert page.value("document.documentElement.scrollWidth") == 390
        assert page.complaints == []

It needs no library: with --remote-debugging-pipe the messages are JSON with a zero byte behind each, on descriptors 3
and 4. Whatever a page complains about, an uncaught exception, console.error, a resource it may not load, is collected,
and so is every request it makes.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
)
# The pipes to and from the child are its standard input and output; the browser wants them elsewhere.
ON_DESCRIPTORS_3_AND_4 = 'exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null'


def executable() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One process, ended with the context."""

    def __init__(self) -> None:
        found = executable()
        assert found is not None, "there is no chromium"
        self.profile = tempfile.TemporaryDirectory(
            prefix="barnabas-browser-", ignore_cleanup_errors=True
        )
        command = [found, *OPTIONS, f"--user-data-dir={self.profile.name}"]
        self.process = subprocess.Popen(
            ["sh", "-c", ON_DESCRIPTORS_3_AND_4, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self.read = b""
        self.count = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.profile.cleanup()

    def open(self, address: str, *, width: int, height: int = 900, dark: bool = False) -> Page:
        """Returns when the page is loaded, with what it loads."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        # By its number: the empty page before it is loaded, too, and may tell so as late as now.
        self.wait_until_loaded(page.call("Page.navigate", url=address)["loaderId"], session)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while (answer := self.receive(deadline)).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def wait_until_loaded(self, loader: str, session: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not any(
            is_event(event, "Page.lifecycleEvent", session)
            and (event["params"]["loaderId"], event["params"]["name"]) == (loader, "load")
            for event in self.events
        ):
            self.events.append(self.receive(deadline))

    def receive(self, deadline: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\0" not in self.read:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            assert ready, f"the browser does not answer within {SECONDS} s"
            piece = self.process.stdout.read(1 << 16)
            assert piece, "the browser has ended"
            self.read += piece
        message, _, self.read = self.read.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    def call(self, method: str, **parameters: Any) -> Any:
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression: str) -> Any:
        """Of JavaScript, awaited if it is a promise."""
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """Of everything up to now: the page was asked something after it, so all has arrived."""
        self.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            told = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(str(told["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                    found.append(str(told["args"]))
                case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                    found.append(told["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """Every address it asked for, the page's own first."""
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if is_event(event, "Network.requestWillBeSent", self.session)
        ]

    def press(self, selector: str) -> None:
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path: Path) -> None:
        """All of the page, as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(b64decode(shot["data"]))


def is_event(message: dict[str, Any], method: str, session: str) -> bool:
    return message.get("method") == method and message.get("sessionId") == session
