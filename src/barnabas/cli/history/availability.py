"""Checks that the cluster has a history, and that a topic exists."""

from __future__ import annotations

from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import print_note
from barnabas.cli.topics.lookup import find_topic, unknown_topic_error
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Start
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import STATE_CHANGES

SETTING = "barnabas.history.topic.enable"
NOT_FOUND_HINT = "see `barnabas topics list`; the history keeps events for seven days"


def require_history(
    cluster: Cluster,
    name: str | None = None,
    if_disabled: str = "until then events are only in their log directories",
) -> None:
    """Raise an ApiError with the reason if there is no history. If topic `name` does not exist either, report that."""
    view = cluster.refresh(None)
    if STATE_CHANGES in view.topics:
        return
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if name is not None and name not in view.topics:
        raise unknown_topic_error(cluster, name, missing, else_hint=NOT_FOUND_HINT)
    setting = history_setting(cluster)
    if setting is None:
        why = f"this cluster has no history: there is no topic {STATE_CHANGES}"
        hint = "only brokers of Barnabas publish it; Apache Kafka writes state-change.log files"
        raise ErrorWithHint(missing, why, hint)
    if setting != "true":
        hint = f"set {SETTING}=true on the brokers; {if_disabled}"
        raise ErrorWithHint(missing, f"the history is disabled ({SETTING}={setting})", hint)
    hint = "try again in a moment" if view.topics else "it starts when the first topic is created"
    raise ErrorWithHint(missing, "the history is not published yet", hint)


def history_setting(cluster: Cluster) -> str | None:
    """Return the value of SETTING on one broker, or None if the broker does not have it, as in Apache Kafka."""
    broker = min(cluster.view.brokers)
    for entry in Admin(cluster).describe_broker_configs(broker):
        if entry.name == SETTING:
            return entry.value
    return None


def report_no_events(cluster: Cluster, name: str, start: Start) -> None:
    """Print that a topic has no events. Raises ApiError if the topic does not exist."""
    find_topic(cluster, name, else_hint=NOT_FOUND_HINT)
    print_no_events(name, start)


def print_no_events(name: str, start: Start) -> None:
    period = "in the last seven days" if isinstance(start, Beginning) else "since that time"
    print_note(f"no events of {name} {period}")
