"""The audit log: denied requests and failed logins, in the logger `barnabas.audit`.

At most LINES_PER_SECOND lines are written per second, so that hostile clients cannot fill the disk. At most
LINES_PER_SOURCE of them are of the same host and user, so that one client cannot hide the others. The next line has
the number of dropped ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.broker.request_metrics import FOLLOWER_FETCH
from barnabas.printable import NAME_MAX, printable
from barnabas.security.acl.decision import Action
from barnabas.wire.apis import ApiKey, api_name

logger = logging.getLogger("barnabas.audit")

LINES_PER_SECOND = 100
LINES_PER_SOURCE = 20


class Audit:
    """The audit log of one broker. `now_s` returns a monotonic time in seconds."""

    def __init__(self, now_s: Callable[[], float], *, is_enabled: bool = True) -> None:
        self.now_s = now_s
        self.is_enabled = is_enabled
        self.second = -1
        self.written: dict[str, int] = {}
        """Lines of the current second by source."""
        self.dropped = 0

    def log_denied(self, action: Action, api_key: int) -> None:
        """Log that a principal may not do what it requested."""
        if self.is_due(f"{action.host} {action.principal}"):
            logger.info(
                "denied principal=%s host=%s operation=%s resource=%s:%s api=%s%s",
                printable(action.principal, NAME_MAX),
                action.host,
                action.operation.label,
                action.type.label,
                printable(action.name, NAME_MAX),
                api_name(ApiKey.FETCH if api_key == FOLLOWER_FETCH else api_key),
                self.take_dropped(),
            )

    def log_failed_login(self, host: str, mechanism: str, user: str, reason: str) -> None:
        """Log a failed login. `reason` must not contain a secret; `user` is empty if it is unknown."""
        if self.is_due(host):
            logger.info(
                "failed login peer=%s mechanism=%s user=%s reason=%s%s",
                host,
                printable(mechanism, NAME_MAX),
                printable(user, NAME_MAX) or "-",
                printable(reason, NAME_MAX),
                self.take_dropped(),
            )

    def is_due(self, source: str) -> bool:
        """Whether a line of this source may be written now."""
        if not self.is_enabled:
            return False
        second = int(self.now_s())
        if second != self.second:
            self.second = second
            self.written.clear()
        lines = self.written.get(source, 0)
        if lines >= LINES_PER_SOURCE or sum(self.written.values()) >= LINES_PER_SECOND:
            self.dropped += 1
            return False
        self.written[source] = lines + 1
        return True

    def take_dropped(self) -> str:
        dropped, self.dropped = self.dropped, 0
        return f" dropped={dropped}" if dropped else ""
