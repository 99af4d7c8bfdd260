"""The page of the report in a real browser, on a desk and on a phone, in the light and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.history.page import page
from tests import tools
from tests.browser import Browser, Page
from tests.compatibility.optional import require
from tests.lifecycle_document import sample

PHONE, DESK = 390, 1280
FIRST_CELLS = "[...document.querySelectorAll('#topics tbody tr:not([hidden]) td:first-child')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require(tools.have_chromium(), "chromium")
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(sample()), "utf-8")
    return path.as_uri()


@pytest.fixture
def desk(browser: Browser, address: str) -> Iterator[Page]:
    """Whatever a test does there, nothing may complain of it."""
    shown = browser.open(address, width=DESK)
    yield shown
    assert shown.complaints == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_fits_and_neither_complains_nor_asks_for_anything(
    browser: Browser, address: str, width: int, dark: bool
) -> None:
    shown = browser.open(address, width=width, dark=dark)
    assert shown.complaints == []
    assert shown.requests == [address]
    assert shown.value("document.documentElement.scrollWidth") == width
    assert shown.value("document.querySelectorAll('.lane').length") > 12


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(browser: Browser, address: str, dark: bool) -> None:
    """4.5 to 1 is what the guidelines for accessibility ask of small text."""
    shown = browser.open(address, width=DESK, dark=dark)
    for selector in ("body", ".dim", "tr.bad td", ".card.bad b", ".alert li", "th", ".zoom"):
        contrast = shown.value(CONTRAST.replace("SELECTOR", selector))
        assert contrast >= 4.5, f"{selector}: {contrast:.1f}"
    is_dark = shown.value("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 23)"
    assert is_dark == dark


CONTRAST = """(() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map((n) => n / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const element = document.querySelector("SELECTOR");
    let ground = element;
    while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
    const [one, other] = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor].map(light);
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
})()"""


def test_a_table_is_sorted_by_the_column_that_is_pressed_and_the_other_way_again(
    desk: Page,
) -> None:
    head = "#topics th:nth-child(4) button"  # online after
    desk.press(head)
    falling = desk.value(FIRST_CELLS)
    assert falling[-1] == "quiet-00"
    desk.press(head)
    assert desk.value(FIRST_CELLS)[:2] == ["quiet-00", "quiet-01"]
    assert desk.value("document.querySelector('#topics th:nth-child(4)').ariaSort") == "ascending"
    desk.press("#topics th:first-child button")
    names = desk.value(FIRST_CELLS)
    assert names.index("doomed") < names.index("late") < names.index("orders")


def test_topics_are_found_by_a_part_of_their_name(desk: Page) -> None:
    desk.value(
        "{const i = document.querySelector('input.filter'); i.value = 'REBORN';"
        " i.dispatchEvent(new Event('input'))}"
    )
    assert desk.value(FIRST_CELLS) == ["reborn", "reborn (2nd)"]


def test_an_outage_is_shown_larger_and_the_whole_again(desk: Page) -> None:
    mark = "document.querySelector('.lane:nth-child(2) .outage:last-of-type')"
    width = f"parseFloat({mark}.getAttribute('width'))"
    before = desk.value(width)
    assert "broker 2 failed" in desk.value(f"{mark}.textContent")
    # Both tables and the lane begin with what lasts, and end with the 40 ms.
    desk.value("[...document.querySelectorAll('.zoom')].at(-1).click()")
    assert desk.value(width) > 10 * before
    desk.press("#whole")
    assert desk.value(width) == pytest.approx(before, abs=0.01)
    assert desk.value("document.querySelector('#whole').hidden") is True


def test_dragging_over_the_timeline_shows_that_part(desk: Page) -> None:
    box = desk.value(
        "(({x, y, width}) => [x, y, width])(document.querySelector('.chart svg').getBoundingClientRect())"
    )
    x, y, width = box
    for kind, where in (("mousePressed", 0.5), ("mouseMoved", 0.6), ("mouseReleased", 0.75)):
        at = {"x": x + where * width, "y": y + 8, "button": "left", "clickCount": 1}
        desk.call("Input.dispatchMouseEvent", type=kind, **at)
    assert desk.value("document.querySelector('#whole').hidden") is False
    ticks = desk.value("[...document.querySelectorAll('[data-tick]')].map(e => e.textContent)")
    assert ticks[0].startswith("08:00:05.0")  # half of what begins before 0 and ends after 10 s
    assert ticks[-1].startswith("08:00:07.5")


def test_a_page_that_fails_is_noticed(browser: Browser, tmp_path: Path) -> None:
    """Of the test itself: what it would not hear it could not hold against the page."""
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<meta charset=utf-8><meta http-equiv=Content-Security-Policy content=\"img-src 'none'\">"
        "<img src=https://example.invalid/x.png><script>console.error('one')</script><script>two()</script>"
    )
    complaints = "\n".join(browser.open(broken.as_uri(), width=DESK).complaints)
    assert "one" in complaints
    assert "two is not defined" in complaints
    assert "Content Security Policy" in complaints
