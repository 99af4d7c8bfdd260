"""Fixtures that the tests of secured clients and commands share."""

from __future__ import annotations

import pytest

from support.process import CLIENT_VARIABLES


@pytest.fixture(autouse=True)
def no_client_settings_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CLIENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
