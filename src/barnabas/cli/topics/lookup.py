"""Topics by name: completion, lookup, and errors for unknown and rejected names."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from barnabas.cli.options import COMPLETION_TIMEOUT_S, DEFAULT_SERVERS, completions
from barnabas.cli.terminal.failure import ErrorWithHint, similar_names
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.metadata.topic_names import check_topic_name

COLLISION_HINT = "metric names have '_' instead of '.'; choose a name with another difference"


def complete_topics(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return topic names for the shell, or none if no broker can be reached."""
    servers = context.params.get("bootstrap_servers") or DEFAULT_SERVERS
    with suppress(BarnabasError):
        with Cluster(
            servers, timeout_s=COMPLETION_TIMEOUT_S, connect_timeout_s=COMPLETION_TIMEOUT_S
        ) as cluster:
            names = sorted(cluster.refresh(None).topics)
        return completions(names, incomplete)
    return []


def find_topic(cluster: Cluster, name: str, *, else_hint: str | None = None) -> TopicView:
    """Return the topic. The error for an unknown topic suggests similar names, or else `else_hint`."""
    try:
        return cluster.topic(name)
    except ApiError as error:
        raise unknown_topic_error(cluster, name, error, else_hint=else_hint) from None


def unknown_topic_error(
    cluster: Cluster, name: str, error: ApiError, *, else_hint: str | None = None
) -> ApiError:
    """Return the error with a hint: similar names if there are any, else `else_hint`, else how to create the topic."""
    if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error
    near = similar_names(name, cluster.refresh(None).topics)
    if near:
        hint = "did you mean " + " or ".join(repr(found) for found in near) + "?"
    elif else_hint is not None:
        hint = else_hint
    else:
        hint = f"create it with `barnabas topics create {name}`, or see `barnabas topics list`"
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
