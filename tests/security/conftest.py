"""Fixtures that the tests of secured clients and commands share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from support.process import CLIENT_VARIABLES


@pytest.fixture(autouse=True)
def no_client_settings_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CLIENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def collect_leaked_sockets() -> Iterator[None]:
    """Collect the sockets that client libraries leave open after a refused login. Otherwise a later test would get the
    warning."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
