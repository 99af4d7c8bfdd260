"""Create and alter policies: the interface for your own rules about new topics and changed settings.

    create.topic.policy.class.name=my_package.rules:TopicRules      module:Class
    alter.config.policy.class.name=retention                        entry point in the group barnabas.policies

    class TopicRules:
        def validate(self, creation: TopicCreation) -> None:
            if not creation.topic.startswith("team-"):
                raise PolicyViolation(f"'{creation.topic}' must start with 'team-'")

A policy is created once, without arguments, when the broker starts. `configure(settings)` is called next, and `close()`
when the broker stops, if the class has them. docs/policies.md describes when a policy is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class PolicyViolation(Exception):
    """Raised by a policy to reject a request. The client gets POLICY_VIOLATION with this text."""


class TopicCreation(NamedTuple):
    """A topic to be created, like RequestMetadata of Kafka's CreateTopicPolicy.

    With `replica_assignments`, the partition count and the replication factor are None.
    """

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replica_assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]
    """The settings in the request, without defaults."""


class ConfigChange(NamedTuple):
    """Settings to be changed, like RequestMetadata of Kafka's AlterConfigPolicy."""

    resource_type: str
    """`topic` or `broker`."""
    resource_name: str
    """Name of the topic, or id of the broker; empty for the default of all brokers."""
    configs: Mapping[str, str | None]
    """The settings in the request. None removes a setting."""


class CreateTopicPolicy(Protocol):
    """A class for create.topic.policy.class.name."""

    def validate(self, creation: TopicCreation) -> None:
        """Raise PolicyViolation to reject the topic."""


class AlterConfigPolicy(Protocol):
    """A class for alter.config.policy.class.name."""

    def validate(self, change: ConfigChange) -> None:
        """Raise PolicyViolation to reject the change."""
