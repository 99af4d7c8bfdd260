"""A headless browser for tests: the installed chromium, driven by Playwright, which downloads nothing.

with Browser() as browser:
    shown = browser.open(path.as_uri(), width=390, dark=True)
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 390
    assert shown.problems == []
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from playwright.sync_api import sync_playwright

from tests import tools

PHONE_WIDTH_MAX = 600
NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))"


class Browser:
    """One browser process, which ends with the context."""

    def __enter__(self) -> Self:
        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(
            executable_path=tools.chromium(), args=["--no-sandbox"]
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.chromium.close()
        self.playwright.stop()

    def open(self, address: str, *, width: int, height: int = 900, dark: bool = False) -> ShownPage:
        """Open a page; returns when the page and its resources are loaded."""
        context = self.chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            is_mobile=width < PHONE_WIDTH_MAX,
        )
        shown = ShownPage(context.new_page())
        shown.page.goto(address)
        return shown


class ShownPage:
    """A Playwright page that collects its requests and its problems."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        """All requested URLs; the page's own URL comes first."""
        self.reported: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.reported.append(str(error)))
        page.on("console", self.on_console)

    def on_console(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.reported.append(message.text)

    @property
    def problems(self) -> list[str]:
        """Uncaught exceptions, console errors and warnings, and failed resources so far."""
        self.page.evaluate(NEXT_FRAME)
        return self.reported
