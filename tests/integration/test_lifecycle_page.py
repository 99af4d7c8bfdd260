"""The report page in a real browser, with desktop and phone widths and in light and dark mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.history.page import render_page
from tests import tools
from tests.browser import Browser, ShownPage
from tests.compatibility.optional import require
from tests.lifecycle_document import sample

PHONE, DESK = 390, 1280
TICKS = "[...document.querySelectorAll('.axis text')].map(e => e.textContent)"
CUT_OFF_TICKS = """(() => {
    const axis = document.querySelector(".axis svg").getBoundingClientRect();
    const boxes = [...document.querySelectorAll(".axis text")].map((label) => label.getBoundingClientRect());
    return boxes.filter((box) => box.left < axis.left || box.right > axis.right).map((box) => box.left);
})()"""
FIRST_CELLS = "[...document.querySelectorAll('#topics tbody tr:not([hidden]) td:first-child')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require(tools.have_chromium(), "chromium")
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(sample()), "utf-8")
    return path.as_uri()


@pytest.fixture
def desk(browser: Browser, address: str) -> Iterator[ShownPage]:
    """The page at desktop width. Fails if the page reports a problem during the test."""
    shown = browser.open(address, width=DESK)
    yield shown
    assert shown.problems == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_page_fits_width_without_errors_or_requests(
    browser: Browser, address: str, width: int, dark: bool
) -> None:
    shown = browser.open(address, width=width, dark=dark)
    assert shown.problems == []
    assert shown.requests == [address]
    assert shown.page.evaluate("document.documentElement.scrollWidth") == width
    assert shown.page.evaluate("document.querySelectorAll('.lane').length") > 12


@pytest.mark.parametrize("dark", [False, True])
def test_text_contrast_meets_guidelines(browser: Browser, address: str, dark: bool) -> None:
    """Accessibility guidelines require a contrast of 4.5 to 1 for small text."""
    shown = browser.open(address, width=DESK, dark=dark)
    for selector in ("body", ".dim", "tr.bad td", ".card.bad b", ".alert li", "th", ".zoom"):
        contrast = shown.page.evaluate(CONTRAST.replace("SELECTOR", selector))
        assert contrast >= 4.5, f"{selector}: {contrast:.1f}"
    is_dark = (
        shown.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 23)"
    )
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


def test_column_click_sorts_and_reverses(
    desk: ShownPage,
) -> None:
    head = "#topics th:nth-child(4) button"  # online after
    desk.page.click(head)
    falling = desk.page.evaluate(FIRST_CELLS)
    assert falling[-1] == "quiet-00"
    desk.page.click(head)
    assert desk.page.evaluate(FIRST_CELLS)[:2] == ["quiet-00", "quiet-01"]
    assert (
        desk.page.evaluate("document.querySelector('#topics th:nth-child(4)').ariaSort")
        == "ascending"
    )
    desk.page.click("#topics th:first-child button")
    names = desk.page.evaluate(FIRST_CELLS)
    assert names.index("doomed") < names.index("late") < names.index("orders")


def test_topic_filter_matches_substring(desk: ShownPage) -> None:
    desk.page.evaluate(
        "{const i = document.querySelector('input.filter'); i.value = 'REBORN';"
        " i.dispatchEvent(new Event('input'))}"
    )
    assert desk.page.evaluate(FIRST_CELLS) == ["reborn", "reborn (2nd)"]


def test_outage_zoom_and_reset(desk: ShownPage) -> None:
    mark = "document.querySelector('[aria-label=orders] .outage')"
    width = f"parseFloat({mark}.getAttribute('width'))"
    before = desk.page.evaluate(width)
    assert "broker 2 failed" in desk.page.evaluate(f"{mark}.textContent")
    # The table starts with the ongoing incident and ends with the one of 5 s.
    desk.page.evaluate("[...document.querySelectorAll('.zoom')].at(-1).click()")
    assert desk.page.evaluate(width) > before
    desk.page.click("#whole")
    assert desk.page.evaluate(width) == pytest.approx(before, abs=0.01)
    assert desk.page.evaluate("document.querySelector('#whole').hidden") is True


def test_dragging_zooms_timeline(desk: ShownPage) -> None:
    box = desk.page.evaluate(
        "(({x, y, width}) => [x, y, width])(document.querySelector('.chart svg').getBoundingClientRect())"
    )
    x, y, width = box
    mouse = desk.page.mouse
    mouse.move(x + 0.5 * width, y + 8)
    mouse.down()
    mouse.move(x + 0.6 * width, y + 8)
    mouse.move(x + 0.75 * width, y + 8)
    mouse.up()
    assert desk.page.evaluate("document.querySelector('#whole').hidden") is False
    # The middle of a range that starts before 0 and ends after 10 s.
    assert desk.page.evaluate(TICKS) == [
        *("08:00:05.000", "08:00:05.500", "08:00:06.000", "08:00:06.500", "08:00:07.000"),
        "08:00:07.500",
    ]


def test_ticks_are_round_and_fit_the_width(browser: Browser, address: str) -> None:
    desk = browser.open(address, width=DESK)
    assert desk.page.evaluate(TICKS) == [f"08:00:{second:02d}" for second in range(0, 11, 2)]
    assert desk.page.evaluate("document.querySelectorAll('.grid line').length") == 6
    assert desk.page.evaluate(CUT_OFF_TICKS) == []
    desk.page.set_viewport_size({"width": PHONE, "height": 900})
    desk.page.wait_for_function("document.querySelectorAll('.axis text').length === 3")
    assert desk.page.evaluate(TICKS) == ["08:00:00", "08:00:05", "08:00:10"]
    assert desk.page.evaluate(CUT_OFF_TICKS) == []
    assert desk.problems == []


def test_broker_lanes_show_failures_and_shutdowns(desk: ShownPage) -> None:
    lanes = desk.page.evaluate(
        "[...document.querySelectorAll('.lane.broker')].map(lane => "
        "[lane.querySelector('.name').textContent, "
        "[...lane.querySelectorAll('rect')].map(mark => mark.getAttribute('class'))])"
    )
    assert lanes == [
        ["broker 1", ["up", "failed"]],
        ["broker 2", ["up", "failed", "up"]],
        ["broker 3", ["up", "shut-down", "up"]],
    ]
    # Broker 2 failed at 1 s, when the first outage began.
    left = "document.querySelector('{}').getBoundingClientRect().left"
    failed = desk.page.evaluate(left.format('[aria-label="broker 2"] .failed'))
    outage = desk.page.evaluate(left.format("[aria-label=orders] .outage"))
    assert failed == pytest.approx(outage, abs=1)


def test_incident_opens_to_its_topics_and_marks_ongoing_ones(desk: ShownPage) -> None:
    rows = desk.page.locator("#incidents tbody tr")
    assert rows.count() == 2
    ongoing, ended = rows.nth(0), rows.nth(1)
    assert "2.0 s so far" in ongoing.inner_text()
    assert ongoing.locator(".badge").inner_text() == "ongoing"
    assert "5.0 s" in ended.inner_text()
    assert "up to +6 s until noticed" in ended.inner_text()
    assert not ended.locator("li").first.is_visible()
    ended.locator("summary").click()
    assert ended.locator("li").all_inner_texts() == ["orders: partitions 0, 1 1.0 s"]
    assert desk.page.evaluate("document.querySelectorAll('.outage.ongoing title').length") == 2


def test_page_errors_are_detected(browser: Browser, tmp_path: Path) -> None:
    """Checks the test itself: it must detect errors of the page."""
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<meta charset=utf-8><meta http-equiv=Content-Security-Policy content=\"img-src 'none'\">"
        "<img src=https://example.invalid/x.png><script>console.error('one')</script><script>two()</script>"
    )
    problems = "\n".join(browser.open(broken.as_uri(), width=DESK).problems)
    assert "one" in problems
    assert "two is not defined" in problems
    assert "Content Security Policy" in problems
