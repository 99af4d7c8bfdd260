"""Validation of a ConsumerGroupHeartbeat request on its own, before its group is looked at."""

from __future__ import annotations

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.assignors import ASSIGNORS
from barnabas.groups.consumer_group import STATIC_LEAVE_EPOCH
from barnabas.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOIN_EPOCH = 0
NO_TIMEOUT = -1
TOPICS_MAX = 10_000
"""Maximum number of topic names that one member may subscribe to."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest) -> None:
    """Validate a request on its own. Raises ApiError with INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    problem = None
    if not request.group_id:
        problem = "the group id is empty"
    elif request.instance_id == "":
        problem = "the instance id is empty"
    elif request.rack_id == "":
        problem = "the rack id is empty"
    elif request.subscribed_topic_regex:
        problem = "a regular expression is not supported here, subscribe to topic names"
    elif len(request.subscribed_topic_names or ()) > TOPICS_MAX:
        problem = too_many_topics(len(request.subscribed_topic_names or ()))
    elif epoch < STATIC_LEAVE_EPOCH:
        problem = f"the member epoch is {epoch}, expected at least {STATIC_LEAVE_EPOCH}"
    elif epoch == JOIN_EPOCH:
        problem = join_problem(request)
    elif not request.member_id:
        problem = "the member id is empty"
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        problem = f"member epoch {epoch} requires an instance id"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {request.server_assignor!r} is unknown; use one of {', '.join(ASSIGNORS)}",
        )


def join_problem(request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Return what is wrong with the fields of a join, or None."""
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        return "a join requires a rebalance timeout"
    if request.topic_partitions is None or request.topic_partitions:
        return "a join requires an empty list of owned partitions"
    if not request.subscribed_topic_names:
        return "a join requires subscribed topics"
    return None


def too_many_topics(count: int) -> str:
    return f"the member subscribes to {count} topic names, expected at most {TOPICS_MAX}"
