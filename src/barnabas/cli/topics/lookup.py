"""Lookup of topics by name, name completion, and errors for unknown and rejected names."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cli.cluster_command import complete_names
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import check_topic_name
from barnabas.model import TopicPartition

COLLISION_HINT = "choose another name: topic names must not differ only in '.' and '_'"

complete_topics = complete_names(
    lambda cluster: sorted(
        topic.name for topic in cluster.refresh(None).topics.values() if not topic.is_internal
    )
)
"""Internal topics are not completed: hardly a command is about them."""


def find_topic(cluster: Cluster, name: str, *, else_hint: str | None = None) -> TopicView:
    """Return the topic. The error for an unknown topic suggests similar names, or else `else_hint`."""
    try:
        return cluster.topic(name)
    except ApiError as error:
        raise unknown_topic_error(cluster, name, error, else_hint=else_hint) from None


def find_partitions(cluster: Cluster, topic: str, numbers: Sequence[int]) -> list[TopicPartition]:
    """Return these partitions of a topic, or all if `numbers` is empty. Raises ApiError if one does not exist."""
    view = find_topic(cluster, topic)
    chosen = numbers or [found.partition for found in view.partitions]
    partitions = [TopicPartition(topic, number) for number in dict.fromkeys(chosen)]
    for partition in partitions:
        cluster.view.partition(partition)
    return partitions


def unknown_topic_error(
    cluster: Cluster, name: str, error: ApiError, *, else_hint: str | None = None
) -> ApiError:
    """Return the error with a hint: similar names if there are any, else `else_hint`, else how to create the topic."""
    if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error
    if else_hint is None:
        else_hint = f"create it with `barnabas topics create {name}`, or see `barnabas topics list`"
    hint = suggest_names(name, cluster.refresh(None).topics, else_hint)
    return ErrorWithHint(error, f"there is no topic {name!r}", hint)


def explain_rejected_name(error: ApiError, name: str) -> ApiError:
    """Return the error of a failed creation, with a hint if the name collides with that of another topic.

    Kafka has one error code for malformed names and for collisions. A well-formed name can only collide.
    """
    if error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
        return error
    try:
        check_topic_name(name)
    except ApiError:
        return error
    return ErrorWithHint(error, error.message, COLLISION_HINT)
