"""What can go wrong: Kafka's error table, and five families of exceptions because there are five reactions.

    ApiError        the code goes into the answer            (broker/router.py, or per item in a handler)
    WireError       this connection is closed                (broker/listener.py)
    StorageError    the log directory is taken offline       (the partition answers KAFKA_STORAGE_ERROR)
    RegistryError   decide again, resign, or register anew
    ConfigError     one line on standard error, exit 2       (cli)

Anything else is a bug and ends the task that met it.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """Every error of the protocol, by Kafka's own name and number."""

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
        """The same request may succeed later, unchanged."""
        return self in RETRIABLE

    @property
    def refresh_metadata(self) -> bool:
        """What the client believes about leaders or topics is out of date."""
        return self in REFRESH_METADATA

    @property
    def description(self) -> str:
        """What happened, in half a sentence."""
        return DESCRIPTIONS[self]


RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)

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


DESCRIPTIONS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker met an error that has no code of its own",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log has no such offset",
    ErrorCode.CORRUPT_MESSAGE: "a batch is damaged, malformed, or has no key where the topic wants one",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker knows no such topic or partition",
    ErrorCode.INVALID_FETCH_SIZE: "no bytes could be fetched with this size",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader yet",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker is not the leader, or holds no replica, of the partition",
    ErrorCode.REQUEST_TIMED_OUT: "it was not done in the time the request allowed",
    ErrorCode.BROKER_NOT_AVAILABLE: "there is no such broker, or it is down",
    ErrorCode.REPLICA_NOT_AVAILABLE: "a replica that was asked for is not there",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than the topic allows",
    ErrorCode.STALE_CONTROLLER_EPOCH: "a newer controller has spoken since",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text beside a committed offset is too long",
    ErrorCode.NETWORK_EXCEPTION: "the connection was lost before the answer",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its state",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator can be named at the moment",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates this group or transaction",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is not legal, or the topic may not be used this way",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment of the log",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than the topic demands; nothing was written",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but to fewer replicas than the topic demands",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or -1",
    ErrorCode.ILLEGAL_GENERATION: "the group has moved on to another generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member shares no protocol with the rest of its group",
    ErrorCode.INVALID_GROUP_ID: "the group's name is not legal",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of what the broker allows",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing: join again",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the offsets to commit take more room than one batch has",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed for this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed for this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed for the cluster",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is too far from the broker's clock",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this SASL mechanism",
    ErrorCode.ILLEGAL_SASL_STATE: "not the moment for this request in the SASL exchange",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not speak this version of the request",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of this name already",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not possible",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is below one or above the number of brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the replicas assigned to the partitions make no sense",
    ErrorCode.INVALID_CONFIG: "a setting is unknown or its value is not legal",
    ErrorCode.NOT_CONTROLLER: "this broker is not the controller",
    ErrorCode.INVALID_REQUEST: "the request contradicts itself or lacks something",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old for this",
    ErrorCode.POLICY_VIOLATION: "a policy of this cluster forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch of this producer is missing before this one",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "this batch of the producer was written before",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer instance of this producer has written since",
    ErrorCode.INVALID_TXN_STATE: "the transaction is in no state for this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to this transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout is longer than the broker allows",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is still being completed",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has spoken since",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed for this transactional id",
    ErrorCode.SECURITY_DISABLED: "the cluster has no authorizer to ask",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "not tried, because another part of the request failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk that holds the log failed",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the credentials were refused",
    ErrorCode.UNKNOWN_PRODUCER_ID: "nothing is left of this producer in the log",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being moved to other brokers",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens are switched off",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "the token belongs to somebody else",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens cannot be asked for over this connection",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not allowed for this token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token is past its time",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "this kind of principal cannot be used here",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "the broker has forgotten this fetch session",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "a request of the fetch session is missing before this one",
    ErrorCode.LISTENER_NOT_FOUND: "the leader has no endpoint on the listener that was asked",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker does not delete topics",
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the requester cannot handle the compression of this topic",
    ErrorCode.STALE_BROKER_EPOCH: "the broker has registered anew since",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the new leader does not know its high watermark yet",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id of this answer",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica cannot lead now",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.FENCED_INSTANCE_ID: "another member uses this instance id now",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that could lead is up",
    ErrorCode.ELECTION_NOT_NEEDED: "the right replica leads already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is reading this topic, so its offsets stay",
    ErrorCode.INVALID_RECORD: "the broker's checks refused a record",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction that commits offsets is not finished",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "over quota: wait and try again",
    ErrorCode.PRODUCER_FENCED: "a newer producer has taken over the transactional id",
    ErrorCode.RESOURCE_NOT_FOUND: "what the request names does not exist",
    ErrorCode.DUPLICATE_RESOURCE: "the request names the same thing twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "the credential is not good enough",
    ErrorCode.INCONSISTENT_VOTER_SET: "the voters do not agree on who they are",
    ErrorCode.INVALID_UPDATE_VERSION: "the feature cannot go to this version",
    ErrorCode.FEATURE_UPDATE_FAILED: "the feature could not be changed",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "the forwarded principal cannot be read",
    ErrorCode.SNAPSHOT_NOT_FOUND: "there is no such snapshot",
    ErrorCode.POSITION_OUT_OF_RANGE: "the snapshot is shorter than this position",
    ErrorCode.UNKNOWN_TOPIC_ID: "this broker knows no topic of this id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "the broker id is taken",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker of this id is registered",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic was deleted and created again under another id",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the request was meant for another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "topic ids came or went within the fetch session",
    ErrorCode.INELIGIBLE_REPLICA: "the replica may not join the ISR now",
    ErrorCode.NEW_LEADER_ELECTED: "the change was made and moved the leader elsewhere",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset is only in remote storage by now",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member was fenced: leave its partitions and join again",
    ErrorCode.UNRELEASED_INSTANCE_ID: "the instance id is still in use",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker has no such assignor",
    ErrorCode.STALE_MEMBER_EPOCH: "the member's epoch is old: learn the new one and try again",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "a broker was asked for what controllers do, or the reverse",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "no such kind of endpoint here",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "there is no such controller",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the client's telemetry subscription has changed",
    ErrorCode.TELEMETRY_TOO_LARGE: "more metrics than the broker takes at once",
    ErrorCode.INVALID_REGISTRATION: "the registration does not fit the cluster",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction must be aborted; the producer may go on",
    ErrorCode.INVALID_RECORD_STATE: "the record is in no state for this acknowledgement",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "the broker has forgotten this share session",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "a request of the share session is missing before this one",
    ErrorCode.FENCED_STATE_EPOCH: "the share group's state has a newer epoch",
    ErrorCode.INVALID_VOTER_KEY: "the voter's key is not the receiver's",
    ErrorCode.DUPLICATE_VOTER: "the voter is one already",
    ErrorCode.VOTER_NOT_FOUND: "there is no such voter",
}


class BarnabasError(Exception):
    """The root of all that Barnabas raises on purpose."""


MESSAGE_MAX = 1000


class ApiError(BarnabasError):
    """The answer to a request, or to one item of it, is this error."""

    def __init__(
        self, code: ErrorCode, message: str = "", *, record_indexes: tuple[int, ...] = ()
    ) -> None:
        if len(message) > MESSAGE_MAX:
            # A message may quote a name of 32 KB, and a response has no room for a longer string.
            message = f"{message[:MESSAGE_MAX]}…(+{len(message) - MESSAGE_MAX})"
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message
        self.record_indexes = record_indexes
        """Which records of a produced batch are to blame, where it is single ones."""


class WireError(BarnabasError):
    """Bytes that do not follow the protocol."""


class RemoteWireError(WireError):
    """Their bytes are wrong: close the connection, one log line."""


class LocalWireError(WireError):
    """Our bytes would be wrong: a bug of ours, also logged as an error."""


class StorageError(BarnabasError):
    """The disk refused, or what stands on it cannot be right."""

    def __init__(self, path: str, why: str, position: int | None = None) -> None:
        super().__init__(f"{path}{'' if position is None else f' at {position}'}: {why}")
        self.path = path
        self.why = why
        self.position = position


class CorruptBatch(StorageError):
    """Bytes in a segment that are not a valid batch."""


class OutOfSpace(StorageError):
    """No room left on the volume."""


class DirectoryLocked(StorageError):
    """Another process holds the lock of this directory."""


class RegistryError(BarnabasError):
    """The registry said no."""

    def __init__(self, path: str = "", why: str = "") -> None:
        name = type(self).__name__
        super().__init__(": ".join(part for part in (name, path, why) if part))
        self.path = path


class NoNode(RegistryError):
    """There is no such znode (or no parent to create it under)."""


class NodeExists(RegistryError):
    """The znode is there already."""


class BadVersion(RegistryError):
    """Somebody else wrote first: read, and decide again."""


class NotEmpty(RegistryError):
    """A znode with children cannot be deleted."""


class NoChildrenForEphemerals(RegistryError):
    """An ephemeral znode cannot have children."""


class BadPath(RegistryError):
    """Not a path ZooKeeper would accept."""


class RegistrySessionExpired(RegistryError):
    """The session is over: its ephemeral nodes and watches are gone."""


class ControllerMoved(RegistryError):
    """Another broker is in charge by now: whatever was about to be done must not be."""


class RegistryUnreachable(RegistryError):
    """No server of the registry answered in time."""


class MultiFailed(RegistryError):
    """A transaction was refused as a whole because of one operation."""

    def __init__(self, index: int, error: RegistryError) -> None:
        super().__init__(error.path, f"operation {index}: {error}")
        self.index = index
        self.error = error


class ConfigError(BarnabasError):
    """A setting that cannot be used."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class AddressInUse(BarnabasError):
    """Somebody listens there already."""


def reason(error: BaseException) -> str:
    """The error's message, or the name of its type if it has none: str(TimeoutError()) is empty."""
    return str(error) or type(error).__name__
