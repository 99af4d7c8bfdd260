"""Output of Kafka's commands when they fail. Pure.

    Unread       the command line cannot be parsed             one line on standard error
    WrongUsage   options exclude or require each other         that line, and all options
    Refused      the tool rejects the request itself           a line of the tool, and one of its log
    ApiError     the cluster rejects the request               the same

Scripts look for the names of Kafka's exceptions in the log of a tool, so the log line uses them. Our hint follows.
"""

from __future__ import annotations

from datetime import datetime

from barnabas.cli.terminal.failure import HINTS, ErrorWithHint
from barnabas.client.cluster import Unreachable
from barnabas.errors import ApiError, BarnabasError, ErrorCode, RegistryUnreachable
from barnabas.printable import printable

ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
API_ERRORS = "org.apache.kafka.common.errors"

# Exceptions whose names differ from their error codes.
EXCEPTIONS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.NETWORK_EXCEPTION: "TimeoutException",
}
# Messages of Kafka's client for codes without a message.
WITHOUT_A_MESSAGE = {
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
}


class CommandFailed(BarnabasError):
    """A command fails without a response of the cluster."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unread(CommandFailed):
    """The command line cannot be parsed."""


class WrongUsage(CommandFailed):
    """Options exclude or require each other. The usage is shown."""


class Refused(CommandFailed):
    """The tool rejects the request; `exception` is the name of Kafka's exception."""

    def __init__(self, message: str, exception: str = ILLEGAL_ARGUMENT) -> None:
        super().__init__(message)
        self.exception = exception


def message_of(error: BarnabasError) -> str:
    """
    >>> message_of(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    'The request timed out.'
    """
    if isinstance(error, Unreachable):
        tried = "; ".join(f"{address} ({reason})" for address, reason in error.tried)
        return f"no broker answers: {tried}"
    if isinstance(error, ApiError):
        return error.message or WITHOUT_A_MESSAGE.get(error.code) or error.code.name
    if isinstance(error, CommandFailed):
        return error.message
    return str(error).removeprefix(f"{type(error).__name__}: ")


def exception_of(error: BarnabasError) -> str:
    """`org.apache.kafka.common.errors.TopicExistsException`"""
    if isinstance(error, ApiError):
        made = error.code.name.title().replace("_", "") + "Exception"
        return f"{API_ERRORS}.{EXCEPTIONS.get(error.code, made)}"
    return error.exception if isinstance(error, Refused) else f"barnabas.{type(error).__name__}"


def logged(error: BarnabasError, logger: str, at: datetime) -> str:
    """As the tools' log has it: `[2026-11-15 11:36:47,887] ERROR <exception>: <message>` and who logged it."""
    moment = at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03}"
    message = printable(message_of(error))
    return f"[{moment}] ERROR {exception_of(error)}: {message}\n ({logger})"


def hint_of(error: BarnabasError) -> str | None:
    """Return a hint on what to do next, if there is one."""
    if isinstance(error, ErrorWithHint):
        return error.hint
    if isinstance(error, Unreachable):
        return "start a cluster with `barnabas up`, or correct --bootstrap-server"
    if isinstance(error, RegistryUnreachable):
        return "brokers of `barnabas up` without a ZooKeeper are asked with --bootstrap-server"
    return HINTS.get(error.code) if isinstance(error, ApiError) else None
