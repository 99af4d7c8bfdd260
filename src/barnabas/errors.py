"""Kafka's error codes, and the exceptions of Barnabas. The type of an exception determines the reaction to it.

    ApiError        the error code goes into the response, for the request or for one item of it
    WireError       the connection is closed                          (broker/connection.py)
    StorageError    the log directory goes offline, and its partitions return KAFKA_STORAGE_ERROR. A corrupt batch is
                    repaired instead, and a full disk may be tolerated (ReplicaManager.fail)
    RegistryError   the broker retries, resigns as controller, or registers again
    BarnabasError   in a command: a few lines on standard error, exit code 1, or 2 for ConfigError

In a broker, any other exception is a bug: it ends its task or closes a connection. Periodic tasks log it and continue.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """Error codes of the Kafka protocol, with Kafka's names and numbers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in RETRIABLE

    @property
    def refresh_metadata(self) -> bool:
        """Whether the client's metadata about leaders or topics is stale."""
        return self in REFRESH_METADATA


REFRESH_METADATA: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

RETRIABLE: frozenset[ErrorCode] = REFRESH_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
}


class BarnabasError(Exception):
    """Base class of the exceptions that Barnabas defines."""


MESSAGE_MAX = 1000
"""Maximum characters of an error message in a response. A longer message is cut."""


class ApiError(BarnabasError):
    """The error in the response to a request, or to one item of it."""

    def __init__(
        self, code: ErrorCode, message: str = "", *, record_indexes: tuple[int, ...] = ()
    ) -> None:
        if len(message) > MESSAGE_MAX:
            # A message may quote a name of 32 KB, but a string in a response cannot be longer than that.
            message = f"{message[:MESSAGE_MAX]}…(+{len(message) - MESSAGE_MAX})"
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message
        self.record_indexes = record_indexes
        """Indexes of the invalid records in a produced batch, if the error concerns single records."""


class TlsFailed(ApiError):
    """The TLS handshake with a broker failed, and would fail again. Kafka has no error code for it.

    Its text starts with the name of Kafka's exception.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.args = (message,)

    def __str__(self) -> str:
        return f"SslAuthenticationException: {self.message}"


class WireError(BarnabasError):
    """Bytes that do not follow the protocol."""


class RemoteWireError(WireError):
    """The peer sent invalid bytes. The connection is closed with one log line."""


class LocalWireError(WireError):
    """This process cannot encode a message: a bug, or a value that does not fit its field."""


class StorageError(BarnabasError):
    """An I/O operation failed, or data on the disk is invalid."""

    def __init__(self, path: str, why: str, position: int | None = None) -> None:
        super().__init__(f"{path}{'' if position is None else f' at {position}'}: {why}")
        self.path = path
        self.why = why
        self.position = position


class CorruptBatch(StorageError):
    """Bytes in a segment that are not a valid batch."""


class OutOfSpace(StorageError):
    """The volume is full."""


class DirectoryLocked(StorageError):
    """Another process holds the lock of this directory."""


class RegistryError(BarnabasError):
    """An operation of the registry failed."""

    def __init__(self, path: str = "", why: str = "") -> None:
        name = type(self).__name__
        super().__init__(": ".join(part for part in (name, path, why) if part))
        self.path = path


class NoNode(RegistryError):
    """The znode does not exist, or, for a creation, its parent does not."""


class NodeExists(RegistryError):
    """The znode already exists."""


class BadVersion(RegistryError):
    """The znode has another version: another client wrote first. Read it and decide again."""


class NotEmpty(RegistryError):
    """A znode with children cannot be deleted."""


class NoChildrenForEphemerals(RegistryError):
    """An ephemeral znode cannot have children."""


class BadPath(RegistryError):
    """The path is not valid in ZooKeeper."""


class RegistrySessionExpired(RegistryError):
    """The session has expired, and with it its ephemeral znodes and watches."""


class ControllerMoved(RegistryError):
    """Another broker is the controller now. The pending change must not be made."""


class RegistryUnreachable(RegistryError):
    """No server of the registry responded in time."""


class NoAuth(RegistryError):
    """The ACL of the znode does not permit the operation."""


class AuthFailed(RegistryError):
    """The registry refused the login."""


class MultiFailed(RegistryError):
    """A transaction was rejected as a whole because operation `index` failed with `error`."""

    def __init__(self, index: int, error: RegistryError) -> None:
        super().__init__(error.path, f"operation {index}: {error}")
        self.index = index
        self.error = error


class ConfigError(BarnabasError):
    """A setting is unknown, or its value is invalid."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class ClientClosed(BarnabasError):
    """A client, producer, consumer or admin was used after `close`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"this {kind} is closed; create a new one")


class AddressInUse(BarnabasError):
    """The process cannot listen on an address, usually because another socket does."""


def reason(error: BaseException) -> str:
    """Return the error's message, or the name of its type if it has none: str(TimeoutError()) is empty."""
    return str(error) or type(error).__name__
