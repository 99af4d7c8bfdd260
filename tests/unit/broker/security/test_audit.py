from __future__ import annotations

import pytest

from barnabas.broker.security.audit import LINES_PER_SECOND, LINES_PER_SOURCE, Audit
from barnabas.security.acl.decision import Action
from barnabas.security.acl.model import Operation, ResourceType

DENIED = Action("User:a\nlice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, "or\x1bders")


def test_denied_request_is_one_printable_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.audit")
    Audit(lambda: 1.0).log_denied(DENIED, 0)
    assert caplog.messages == [
        r"denied principal=User:a\nlice host=10.0.0.1 operation=Write "
        r"resource=Topic:or\x1bders api=Produce"
    ]


def test_lines_are_rate_limited_and_dropped_ones_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "barnabas.audit")
    now = 5.0
    audit = Audit(lambda: now)
    for _ in range(LINES_PER_SOURCE + 7):
        audit.log_failed_login("10.0.0.1", "PLAIN", "bob", "invalid credentials")
    assert len(caplog.messages) == LINES_PER_SOURCE
    now = 6.2
    audit.log_denied(DENIED, 0)
    audit.log_denied(DENIED, 0)
    assert caplog.messages[-2].endswith(" dropped=7")
    assert "dropped" not in caplog.messages[-1]


def test_disabled_audit_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.audit")
    Audit(lambda: 1.0, is_enabled=False).log_denied(DENIED, 0)
    assert not caplog.messages


def test_failed_logins_of_one_host_do_not_hide_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.audit")
    audit = Audit(lambda: 1.0)
    for host in ("10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2"):
        for _ in range(LINES_PER_SOURCE + 1):
            audit.log_failed_login(host, "PLAIN", "bob", "invalid credentials")
        assert f"peer={host} " in caplog.messages[-1]


def test_one_source_does_not_hide_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.audit")
    audit = Audit(lambda: 1.0)
    for _ in range(1000):
        audit.log_denied(DENIED, 0)
    audit.log_denied(DENIED._replace(principal="User:other"), 0)
    assert "principal=User:other" in caplog.messages[-1]
    for number in range(1000):
        audit.log_denied(DENIED._replace(host=f"10.0.1.{number}"), 0)
    assert len(caplog.messages) == LINES_PER_SECOND
    assert len(audit.written) <= LINES_PER_SECOND
