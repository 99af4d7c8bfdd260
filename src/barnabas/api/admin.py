"""Admin: topics, partitions, configs, groups and offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from barnabas.api.connection import ConnectionUser, existing_topic
from barnabas.client import admin as client_admin
from barnabas.client.admin import NewPartitions, NewTopic, TopicOutcome
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigEntry, ConfigResource
from barnabas.client.group_admin import GroupAdmin, GroupView
from barnabas.client.view import ClusterView, TopicView
from barnabas.errors import ApiError, ConfigError
from barnabas.model import TopicPartition
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation
from barnabas.wire.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

SPECIAL_TIMESTAMPS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}

OffsetSpec = Literal["earliest", "latest"] | int
"""A position in a partition. A number is a time in milliseconds."""


class Admin(ConnectionUser):
    """Manages a cluster. Every method raises ApiError with Kafka's error if the cluster rejects the request."""

    # ---- topics and partitions --------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | float | bool] | None = None,
        assignment: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> None:
        """Create a topic. -1 means the default of the cluster.

        `assignment` lists the replicas of each partition, instead of the two numbers. `validate_only` only checks the
        request. Raises ApiError TOPIC_ALREADY_EXISTS if the topic exists.
        """
        topic = NewTopic(
            name=name,
            partitions=num_partitions,
            replication_factor=replication_factor,
            configs={key: config_text(value) for key, value in (configs or {}).items()},
            assignment=assignment,
        )
        raise_outcome(self._admin().create_topics([topic], validate_only=validate_only))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        raise_outcome(self._admin().delete_topics([name]))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics. `internal` includes those of Kafka itself, such as __consumer_offsets."""
        return [
            each.name for each in self._admin().list_topics() if internal or not each.is_internal
        ]

    def describe_topic(self, name: str) -> TopicView:
        """Return the partitions of a topic, with their leaders, replicas and in-sync replicas."""
        existing_topic(self._open_cluster(), name)
        return self._admin().describe_topics([name])[0]

    def create_partitions(
        self, topic: str, total_count: int, *, assignment: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Add partitions to a topic, up to `total_count`. `assignment` lists the replicas of each new partition.

        Keys map to other partitions from then on.
        """
        partitions = NewPartitions(name=topic, count=total_count, assignment=assignment)
        raise_outcome(self._admin().create_partitions([partitions]))

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; -1 means all. Returns the first offset of each partition."""
        return self._admin().delete_records(before_offsets)

    def list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        """Return an offset of each partition: its first ("earliest"), its end ("latest"), or the first at or after a
        time in milliseconds, which is -1 if there is none."""
        timestamps = {each: timestamp_of(spec) for each, spec in specs.items()}
        found = self._admin().list_offsets(timestamps)
        return {partition: each.offset for partition, each in found.items()}

    # ---- configs ----------------------------------------------------------------------------------------------------

    def describe_configs(
        self, *, topic: str | None = None, broker: int | None = None
    ) -> dict[str, ConfigEntry]:
        """Return the settings of a topic, or of a broker by its id."""
        resource = config_resource(topic, broker)
        cluster = self._open_cluster()

        def ask() -> dict[str, ConfigEntry]:
            found = ConfigAdmin(cluster).describe_configs([resource])[resource]
            if isinstance(found, ApiError):
                raise found
            return {entry.name: entry for entry in found}

        # With retries, here and below: a broker may learn late of a new topic.
        return cluster.retry(ask)

    def alter_configs(
        self,
        configs: Mapping[str, str | int | float | bool | None],
        *,
        topic: str | None = None,
        broker: int | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change settings of a topic or a broker, and keep its other settings. None restores the default."""
        resource = config_resource(topic, broker)
        changes = [
            ConfigChange(name, None, ConfigOperation.DELETE)
            if value is None
            else ConfigChange(name, config_text(value))
            for name, value in configs.items()
        ]
        cluster = self._open_cluster()

        def ask() -> None:
            error = ConfigAdmin(cluster).incremental_alter_configs(
                {resource: changes}, validate_only=validate_only
            )[resource]
            if error is not None:
                raise error

        cluster.retry(ask)

    # ---- groups and the cluster -------------------------------------------------------------------------------------

    def list_groups(self) -> list[str]:
        """Return the ids of all consumer groups."""
        return [group.group_id for group in self._groups().list_groups()]

    def describe_group(self, group_id: str) -> GroupView:
        """Return the state and the members of a group. A group that does not exist has the state Dead."""
        return self._groups().describe_group(group_id)

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        error = self._groups().delete_groups([group_id])[group_id]
        if error is not None:
            raise error

    def list_group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        found = self._groups().committed_offsets(group_id)
        return {partition: each.offset for partition, each in found.items()}

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets of a group without members. This creates the group if it does not exist."""
        groups = self._groups()
        groups.cluster.retry(lambda: groups.set_offsets(group_id, offsets))

    def describe_cluster(self) -> ClusterView:
        """Return the id of the cluster (`cluster_id`), its `brokers` by id, and the id of the `controller`."""
        return self._open_cluster().refresh([])

    def _admin(self) -> client_admin.Admin:
        return client_admin.Admin(self._open_cluster())

    def _groups(self) -> GroupAdmin:
        return GroupAdmin(self._open_cluster())

    def _finish_work(self, *, is_failed: bool) -> None:
        pass


def raise_outcome(outcomes: Sequence[TopicOutcome]) -> None:
    """Raise the first error of the topics."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def config_text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_resource(topic: str | None, broker: int | None) -> ConfigResource:
    """Return the resource. Raises ConfigError unless exactly one argument is set."""
    if (topic is None) == (broker is None):
        raise ConfigError("topic, broker", "pass one of them")
    if topic is not None:
        return ConfigResource(ResourceType.TOPIC, topic)
    return ConfigResource(ResourceType.BROKER, str(broker))


def timestamp_of(spec: OffsetSpec) -> int:
    if isinstance(spec, int):
        return spec
    if spec not in SPECIAL_TIMESTAMPS:
        raise ConfigError(
            "specs", f"{spec!r} is not 'earliest', 'latest' or a time in milliseconds"
        )
    return SPECIAL_TIMESTAMPS[spec]
