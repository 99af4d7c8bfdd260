"""Output of Kafka's commands when they fail. Without I/O.

    InvalidCommandLine   the command line cannot be parsed         one line on standard error
    WrongUsage           options exclude or require each other     one line and all options on standard error
    RequestRejected      the command itself rejects the request    kafka-topics: a line on standard output, a log line
    ApiError             the cluster rejects the request           kafka-configs: one or two lines on standard error

The log line contains the name of Kafka's exception, because scripts look for it. A hint may follow.
"""

from __future__ import annotations

from datetime import datetime

from barnabas.cli.terminal.failure import HINTS, ErrorWithHint
from barnabas.client.cluster import Unreachable
from barnabas.errors import ApiError, BarnabasError, ErrorCode, RegistryUnreachable, TlsFailed
from barnabas.printable import printable

ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
API_ERRORS = "org.apache.kafka.common.errors"
ADMIN_COMMAND_FAILED = "org.apache.kafka.server.common.AdminCommandFailedException"
ADMIN_OPERATION_FAILED = "org.apache.kafka.server.common.AdminOperationException"

# Exceptions whose names differ from their error codes.
EXCEPTION_NAMES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.NETWORK_EXCEPTION: "TimeoutException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
}
# Messages of Kafka's client for codes without a message.
DEFAULT_MESSAGES = {
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
}


class CommandFailed(BarnabasError):
    """Failure that the command itself detects, without a response of the cluster."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidCommandLine(CommandFailed):
    """The command line cannot be parsed."""


class WrongUsage(CommandFailed):
    """Options exclude or require each other. The usage is shown."""


class RequestRejected(CommandFailed):
    """The command rejects the request. `exception` is the name of Kafka's exception."""

    def __init__(self, message: str, exception: str = ILLEGAL_ARGUMENT) -> None:
        super().__init__(message)
        self.exception = exception


def error_message(error: BarnabasError) -> str:
    """
    >>> error_message(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    'The request timed out.'
    """
    if isinstance(error, Unreachable):
        tried = "; ".join(f"{address} ({reason})" for address, reason in error.tried)
        return f"no broker answers: {tried}"
    if isinstance(error, ApiError):
        return error.message or DEFAULT_MESSAGES.get(error.code) or error.code.name
    if isinstance(error, CommandFailed):
        return error.message
    return str(error).removeprefix(f"{type(error).__name__}: ")


def exception_name(error: BarnabasError) -> str:
    """Return the name of Kafka's exception, such as `org.apache.kafka.common.errors.TopicExistsException`."""
    if isinstance(error, TlsFailed):
        return f"{API_ERRORS}.SslAuthenticationException"
    if isinstance(error, ApiError):
        derived = error.code.name.title().replace("_", "") + "Exception"
        return f"{API_ERRORS}.{EXCEPTION_NAMES.get(error.code, derived)}"
    return (
        error.exception
        if isinstance(error, RequestRejected)
        else f"barnabas.{type(error).__name__}"
    )


def log_line(error: BarnabasError, logger: str, at: datetime) -> str:
    """Return two lines in the format of Kafka's tools: `[2026-11-15 11:36:47,887] ERROR <exception>: <message>`, and
    the logger in parentheses."""
    moment = at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03}"
    message = printable(error_message(error))
    return f"[{moment}] ERROR {exception_name(error)}: {message}\n ({logger})"


def find_hint(error: BarnabasError) -> str | None:
    if isinstance(error, ErrorWithHint):
        return error.hint
    if isinstance(error, Unreachable):
        return "start a cluster with `barnabas up`, or correct --bootstrap-server"
    if isinstance(error, RegistryUnreachable):
        return "use --bootstrap-server for brokers of `barnabas up` that have no ZooKeeper"
    return HINTS.get(error.code) if isinstance(error, ApiError) else None
