"""Text of an error: Kafka's name for it, the broker's message, and a hint on what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from barnabas.client.cluster import Unreachable
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.printable import LINE_MAX, NAME_MAX, printable

CONTINUATION = "\n       "
"""Starts the second and later lines of an error: indented like the text after `error: `."""

HINTS = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "to accept an existing topic, add --if-not-exists",
    ErrorCode.INVALID_REPLICATION_FACTOR: "each replica needs its own broker: use a smaller replication factor, "
    "or start more brokers",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic name has 1 to 249 characters of a-z A-Z 0-9 . _ -",
    ErrorCode.TOPIC_DELETION_DISABLED: "the brokers run with delete.topic.enable=false",
    ErrorCode.OFFSET_OUT_OF_RANGE: "use `--offset beginning`, `--offset end` or an offset in that range",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch must not exceed the topic's max.message.bytes; try compression (-z zstd)",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas requires; "
    "`barnabas topics describe` shows which are missing",
    ErrorCode.LEADER_NOT_AVAILABLE: "no in-sync replica of the partition is alive; `barnabas topics describe` "
    "shows which brokers hold it",
    ErrorCode.REQUEST_TIMED_OUT: "the operation may still complete; check with `barnabas topics describe`",
    ErrorCode.INVALID_GROUP_ID: "a group name needs at least one character",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "groups are kept in __consumer_offsets; `barnabas topics describe "
    "__consumer_offsets` shows which of its partitions have no leader; if it does not exist, start more brokers, "
    "or set offsets.topic.replication.factor to at most the number of brokers",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members use an assignor other than range or "
    "cooperative-sticky, or are not consumers; `barnabas groups describe` shows them",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the brokers' group.max.size allows no more members",
    ErrorCode.INVALID_SESSION_TIMEOUT: "this command requests 45 s; see group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the brokers",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key in server.properties of every broker",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in with a password, an OAuth token or a client certificate, "
    "not with a delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the owner and the renewers of a token can renew and expire it",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "your user needs CreateTokens on the owner: "
    "`barnabas acls add … --operation create-tokens --user-principal OWNER`",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "create a new token with `barnabas tokens create`",
    ErrorCode.UNSUPPORTED_VERSION: "the broker's release does not support this command",
}


class ErrorWithHint(ApiError):
    """An error with its own message and hint, instead of the hint for its code."""

    def __init__(self, error: ApiError, message: str, hint: str) -> None:
        super().__init__(error.code, message)
        self.hint = hint


class CommandError(BarnabasError):
    """An error of the command itself: a message and a hint, without a Kafka code."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def explain(error: BarnabasError) -> str:
    """Return the lines for standard error.

    error: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'ordres'
    hint:  did you mean 'orders'?
    """
    if isinstance(error, Unreachable):
        tried = [f"{CONTINUATION}{printable(f'{address}: {why}')}" for address, why in error.tried]
        hint = unreachable_hint(error.tried)
        return "".join(["error: no broker answers; tried", *tried, f"\nhint:  {hint}"])
    # Newlines are escaped, except in CONTINUATION: a name with a newline cannot forge a line.
    parts = str(error).split(CONTINUATION)
    lines = [f"error: {CONTINUATION.join(printable(part, LINE_MAX) for part in parts)}"]
    if isinstance(error, ErrorWithHint | CommandError):
        lines.append(f"hint:  {printable(error.hint, LINE_MAX)}")
    elif isinstance(error, ApiError) and error.code in HINTS:
        lines.append(f"hint:  {HINTS[error.code]}")
    return "\n".join(lines)


def unreachable_hint(tried: Sequence[tuple[str, str]]) -> str:
    """Return the next step if no broker answers. It names the profile if that has one of these addresses."""
    from barnabas.cli.setup.profiles import profile_in_use

    hint = "start a cluster with `barnabas up`, or name one with -b HOST:PORT"
    try:
        profile = profile_in_use()
    except BarnabasError:
        return hint
    if profile is None or not {address for address, _ in tried} & set(profile.servers.split(",")):
        return hint
    name = printable(profile.name, NAME_MAX)
    return f"{hint}; profile {name} is in use, `barnabas profile list` shows the others"


def suggest_names(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the hint `did you mean 'orders'?`, or `otherwise` if no name is similar."""
    near = similar_names(name, names)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three similar names, ignoring case."""
    by_lower = {known.lower(): known for known in sorted(names)}
    return [by_lower[near] for near in get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
