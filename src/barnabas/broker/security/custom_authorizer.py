"""The operator's own authorizer (barnabas/authorizers.py): loads its class, and denies what it fails to decide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.authorizers import AuthorizationRequest
from barnabas.broker.plugins import create_plugin
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.security.acl.decision import Action
from barnabas.security.acl.model import Operation, ResourceType

logger = logging.getLogger("barnabas.security")

ENTRY_POINT_GROUP = "barnabas.authorizers"
SETTING = "authorizer.class.name"
SLOW_S = 0.005
LOG_INTERVAL_S = 10.0


class CustomAuthorizer:
    """Calls an authorizer on the event loop. Implements `Decider`."""

    def __init__(
        self, authorizer: Any, super_users: frozenset[str], now_s: Callable[[], float]
    ) -> None:
        self.authorizer = authorizer
        self.super_users = super_users
        self.now_s = now_s
        self.failure_log_limiter = LogRateLimiter(LOG_INTERVAL_S)
        self.slow_log_limiter = LogRateLimiter(LOG_INTERVAL_S)

    def allows(self, action: Action) -> bool:
        request = AuthorizationRequest(
            action.principal,
            action.host,
            action.operation.label,
            action.type.label,
            action.name,
        )
        return action.principal in self.super_users or self.call(self.authorizer.authorize, request)

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        if principal in self.super_users:
            return True
        method = getattr(self.authorizer, "authorize_any", None)
        return method is not None and self.call(
            method, principal, host, operation.label, resource_type.label
        )

    def call(self, method: Callable[..., object], *arguments: Any) -> bool:
        """Return True only if the authorizer returns True. Anything else, also an exception, denies the request."""
        began = self.now_s()
        try:
            return method(*arguments) is True
        except Exception:
            if self.failure_log_limiter.is_due(began):
                logger.exception("authorizer failed, request denied setting=%s", SETTING)
            return False
        finally:
            taken_s = self.now_s() - began
            if taken_s > SLOW_S and self.slow_log_limiter.is_due(began):
                logger.warning(
                    "authorizer is slow taken_ms=%.0f; it must answer from memory", taken_s * 1000
                )

    def close(self) -> None:
        close = getattr(self.authorizer, "close", None)
        if close is not None:
            try:
                close()
            except Exception:
                logger.exception("cannot close the authorizer")


def create_authorizer(name: str, properties: Mapping[str, str]) -> Any:
    """Create the object of a Python class. Raises ConfigError."""
    return create_plugin(
        SETTING, "authorizer", properties, name=name, group=ENTRY_POINT_GROUP, method="authorize"
    )
