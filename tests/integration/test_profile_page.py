"""The page of a profile in a real browser, with desktop and phone widths and in light and dark mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.jobs.profile_page import render_profile
from tests import tools
from tests.browser import Browser
from tests.compatibility.optional import require
from tests.sample_profile import START_MS, sample_profile


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require(tools.have_chromium(), "chromium")
    with Browser() as running:
        yield running


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_width_without_errors_or_requests(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    path = tmp_path / "profile.html"
    path.write_text(render_profile(sample_profile(), "localhost:9092", START_MS), "utf-8")
    shown = browser.open(path.as_uri(), width=width, dark=dark)
    assert shown.problems == []
    assert shown.requests == [path.as_uri()]
    assert shown.page.evaluate("document.documentElement.scrollWidth") == width
    heights = shown.page.evaluate(
        "[...document.querySelectorAll('.plot rect')].map(e => e.getBoundingClientRect().height)"
    )
    assert max(heights) > 100
