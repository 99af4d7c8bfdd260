"""Reasons why Apache Kafka is not available. Each is one line and says what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping


class Unavailable(Exception):
    """Kafka cannot be run here. In CI, a missing tool is an error."""

    def may_skip(self, environment: Mapping[str, str] = os.environ) -> bool:
        return not environment.get("CI")


class RegistryUnreachable(Unavailable):
    """Maven got no response. This is a skip, also in CI."""

    def may_skip(self, environment: Mapping[str, str] = os.environ) -> bool:
        return True


class FetchFailed(Exception):
    """Maven got an error response: the lists in `artifacts` are wrong."""
