"""The error of a job whose topic was deleted while it was read, instead of the many errors that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from barnabas.cli.options import servers_text
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import ZERO_ID

CHECK_TIMEOUT_S = 5.0
"""If the brokers do not respond, the error of the job is reported."""


@contextmanager
def report_deletion(cluster: Cluster, topic: str, topic_id: UUID) -> Iterator[None]:
    """Replace an error of the block if the topic does not exist any more, or has another id."""
    try:
        yield
    except BarnabasError:
        if (deleted := find_deletion(cluster, topic, topic_id)) is not None:
            raise deleted from None
        raise


def find_deletion(cluster: Cluster, topic: str, topic_id: UUID) -> ApiError | None:
    """Return the error if the topic was deleted, or deleted and created again. Returns None if that is unknown."""
    try:
        # The client of the job may wait longer for brokers that do not respond.
        with cluster.with_new_connections(timeout_s=CHECK_TIMEOUT_S) as other:
            view = other.refresh([topic])
    except ApiError:
        return None
    found = view.topics.get(topic)
    if found is None:
        error = view.errors.get(topic)
        if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        what = "was deleted"
    elif ZERO_ID not in (found.id, topic_id) and found.id != topic_id:
        what = "was deleted and created again"
    else:
        return None
    return ErrorWithHint(
        ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        f"topic {topic!r} {what} while it was read",
        f"`barnabas topics history {topic}{servers_text(cluster.servers)}` shows when and by whom",
    )
