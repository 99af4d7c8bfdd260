from __future__ import annotations

from pathlib import Path

from barnabas.config.page import configuration_page

COMMITTED = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_configuration_page_is_up_to_date() -> None:
    """If this fails: python -m barnabas.config > docs/configuration.md"""
    assert COMMITTED.read_text(encoding="utf-8") == configuration_page()
