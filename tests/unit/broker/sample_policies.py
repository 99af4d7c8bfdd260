"""Policies for tests: one that accepts names with a prefix, and others that fail in every way."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from barnabas.policies import ConfigChange, PolicyViolation, TopicCreation

RELEASE = threading.Event()
"""Ends the call of a blocked policy."""


class Prefixed:
    """Rejects new topics without the configured prefix."""

    def __init__(self) -> None:
        self.prefix = "team-"
        self.seen: list[TopicCreation] = []
        self.is_closed = False

    def configure(self, settings: Mapping[str, str]) -> None:
        self.prefix = settings.get("barnabas.policy.prefix", self.prefix)

    def validate(self, creation: TopicCreation) -> None:
        self.seen.append(creation)
        if not creation.topic.startswith(self.prefix):
            raise PolicyViolation(f"'{creation.topic}' must start with '{self.prefix}'")

    def close(self) -> None:
        self.is_closed = True


class ShortRetention:
    """Rejects a retention.ms of more than an hour."""

    def validate(self, change: ConfigChange) -> None:
        if int(change.configs.get("retention.ms") or 0) > 3_600_000:
            raise PolicyViolation(f"{change.resource_type} {change.resource_name}: keep less")


class Unreliable:
    """Fails as the name of the topic says."""

    def validate(self, creation: TopicCreation) -> None:
        match creation.topic:
            case "bug":
                raise KeyError("secret")
            case "exit":
                raise SystemExit(3)
            case "stop-iteration":
                raise StopIteration
            case "block":
                RELEASE.wait(60)
            case _:
                pass


class NoMethod:
    """Not a policy."""


class BrokenConstructor:
    def __init__(self) -> None:
        raise RuntimeError("no database")

    def validate(self, _: TopicCreation) -> None: ...


NOT_A_CLASS = Prefixed()
