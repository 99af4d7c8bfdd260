"""The log that the pytest plugin keeps: other handlers get the records that they get without it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas.cluster.pytest_plugin import BrokerLog

LOGGER = logging.getLogger("barnabas.test.broker-log")


@pytest.fixture
def log() -> Iterator[BrokerLog]:
    log = BrokerLog()
    log.install()
    yield log
    log.uninstall()


def test_info_is_kept_and_not_passed_on(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        LOGGER.info("kept")
        LOGGER.warning("passed on")
    assert log.lines[0].endswith(" INFO kept")
    assert len(log.lines) == 2
    assert caplog.messages == ["passed on"]


@pytest.mark.parametrize("name", [None, "barnabas", "barnabas.test", LOGGER.name])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_level_that_a_test_sets_applies(
    log: BrokerLog, caplog: pytest.LogCaptureFixture, name: str | None, level: int
) -> None:
    with caplog.at_level(logging.WARNING), caplog.at_level(level, name):
        LOGGER.info("wanted")
    assert caplog.messages == ["wanted"]


def test_higher_level_that_a_test_sets_applies(
    log: BrokerLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "barnabas"):
        LOGGER.warning("not wanted")
    assert caplog.messages == []
