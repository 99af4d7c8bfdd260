"""What keeps the real Kafka from being had. Each is one line, and says what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping


class Unavailable(Exception):
    """Kafka cannot be run here. A tool that is missing is a fault in CI, where nothing is left out."""

    def may_skip(self, environment: Mapping[str, str] = os.environ) -> bool:
        return not environment.get("CI")


class RegistryUnreachable(Unavailable):
    """Maven got no answer. That is nobody's fault, in CI as elsewhere."""

    def may_skip(self, environment: Mapping[str, str] = os.environ) -> bool:
        return True


class FetchFailed(Exception):
    """Maven was answered, and the answer was no: a fault of the lists in `artifacts`."""
