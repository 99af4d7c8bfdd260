"""The page of a profile as text. tests/integration/test_profile_page.py opens it in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from markupsafe import escape
from msgspec.structs import replace

from barnabas.jobs.profile_page import render_profile
from barnabas.jobs.profile_text import findings
from barnabas.jobs.topic_profile import KeyProfile
from tests.sample_profile import HOSTILE, START_MS, sample_profile

VOID = {"meta", "link"}


class OpenElements(HTMLParser):
    """Checks that elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page() -> str:
    return render_profile(sample_profile(), "localhost:9092", START_MS)


def test_page_is_well_formed_and_has_the_figures() -> None:
    shown = page()
    parser = OpenElements()
    parser.feed(shown)
    assert parser.open == []
    for text in ("1,000", "126 KB", "user-7", "38.0 %", "102", "1,779", "3.12 times the mean"):
        assert text in shown
    for finding in findings(sample_profile()):
        assert str(escape(finding)) in shown
    assert shown.count("<rect") == 2 * 40 + len(sample_profile().sizes.histogram)  # type: ignore[union-attr]


def test_page_loads_nothing() -> None:
    shown = page()
    assert re.findall(r"https?:|//[a-z]|@import|url\(", shown) == []
    assert re.findall(r'(?:src|href)="([^"]*)"', shown) == ["data:,"]
    assert "<script" not in shown


def test_keys_are_escaped() -> None:
    shown = page()
    assert HOSTILE not in shown
    assert str(escape(HOSTILE)) in shown
    assert "a\\n\\x1b[31m" in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_page_without_keys_times_and_values() -> None:
    keys = KeyProfile(without_key=1000, distinct=0, top=[], keys_for_half=0)
    bare = replace(sample_profile(), keys=keys, rates=[], sizes=None, first_ms=None, last_ms=None)
    shown = render_profile(bare, "localhost:9092", START_MS)
    assert "no record has a key" in shown
    for heading in ("Rate over time", "Value sizes", "Most frequent keys"):
        assert f"<h2>{heading}" not in shown
