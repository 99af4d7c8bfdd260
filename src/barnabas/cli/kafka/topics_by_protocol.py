"""kafka-topics with --bootstrap-server: sends requests to the brokers and prints Kafka's output."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters, digits
from uuid import UUID

from barnabas.cli.kafka.describing import (
    EMPTY_ELR,
    SEPARATOR,
    UNKNOWN_ELR,
    DescribeReport,
    PartitionDescription,
    TopicDescription,
)
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import (
    check_requested_counts,
    creation_warnings,
    matching_topics,
    parse_requested_topic,
)
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.client.admin import Admin, ConfigEntry, NewPartitions, NewTopic, TopicOutcome
from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import decode_uuid
from barnabas.model import NO_LEADER, ZERO_ID, TopicPartition
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
    OngoingPartitionReassignment,
)

Reassignments = dict[TopicPartition, OngoingPartitionReassignment]

CANNOT_LIST_REASSIGNMENTS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
STRING_BYTES_MAX = 32_767
ID_LENGTH_MAX = 24
ID_BYTES = 16
ID_CHARACTERS = {*ascii_letters, *digits, *"-_="}
MIN_ISR = "min.insync.replicas"


class BrokerTopics:
    def __init__(self, cluster: Cluster, options: ParsedOptions) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.options = options

    def run(self, action: str) -> None:
        actions = {
            "create": self.create,
            "alter": self.alter,
            "list": self.list_names,
            "describe": self.describe,
            "delete": self.delete,
        }
        actions[action]()

    def create(self) -> None:
        requested = parse_requested_topic(self.options)
        print_lines(*creation_warnings(requested))
        if self.options.has("disable-rack-aware"):
            print_note(
                "note: --disable-rack-aware has no effect with --bootstrap-server: brokers assign the replicas"
            )
        check_requested_counts(requested)
        if not is_representable(requested.name):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"The given topic name '{requested.name}' cannot be represented in a request.",
            )
        topic = NewTopic(
            name=requested.name,
            partitions=requested.partitions or -1,
            replication_factor=requested.replication_factor or -1,
            configs=requested.configs,
            assignment=requested.assignment,
        )
        (outcome,) = self.admin.create_topics([topic])
        if outcome.error is None:
            print_lines(f"Created topic {requested.name}.")
        elif not (
            self.options.has("if-not-exists")
            and outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        ):
            raise outcome.error

    def alter(self) -> None:
        requested = parse_requested_topic(self.options)
        names = self.existing_names()
        if not names:
            return
        assert requested.partitions is not None, "require_action() checks it"
        increases = [
            NewPartitions(
                name=view.name,
                count=requested.partitions,
                # The list starts with the existing partitions.
                assignment=requested.assignment[len(view.partitions) :]
                if requested.assignment
                else None,
            )
            for view in self.admin.describe_topics(names)
        ]
        raise_first(self.admin.create_partitions(increases))

    def delete(self) -> None:
        names = self.existing_names()
        if names:
            raise_first(self.admin.delete_topics(names))

    # ---- lookup

    def list_names(self) -> None:
        print_lines(*(self.names() or [""]))

    def names(self) -> list[str]:
        topics = self.admin.list_topics()
        return matching_topics(self.options, ((view.name, view.is_internal) for view in topics))

    def existing_names(self) -> list[str]:
        """Return the matching names. Raises RequestRejected if no topic matches, unless --if-exists is given."""
        names = self.names()
        text = self.options.value("topic")
        if text and not names and not self.options.has("if-exists"):
            # The message of Kafka 3.9, which scripts look for.
            raise RequestRejected(f"Topic 'Optional[{text}]' does not exist as expected")
        return names

    def views(self) -> list[TopicView]:
        text = self.options.value("topic-id")
        wanted = ZERO_ID if text is None else parse_topic_id(text)
        if wanted == ZERO_ID:
            names = self.existing_names()
            return self.admin.describe_topics(names) if names else []
        found = [view for view in self.admin.list_topics() if view.id == wanted]
        if not found and not self.options.has("if-exists"):
            raise RequestRejected(f"TopicId '{text}' does not exist as expected")
        return found

    # ---- describe

    def describe(self) -> None:
        views = self.views()
        if not views:
            return
        configs = self.admin.describe_topic_configs([view.name for view in views])
        reassignments = self.list_reassignments(views)
        report = DescribeReport(self.options, self.cluster.view.brokers)
        knows_elr = self.cluster.any_connection().supports(DescribeTopicPartitionsRequest)
        elr = EMPTY_ELR if knows_elr else UNKNOWN_ELR
        for view in views:
            entries = configs[view.name]
            shown = topic_description(view, entries, reassignments)
            lines = report.lines(shown, elr=elr, min_isr=min_isr(entries))
            print_lines(*lines, keep=SEPARATOR)

    def list_reassignments(self, views: Sequence[TopicView]) -> Reassignments:
        """Return the ongoing reassignments. Empty if the brokers cannot list them."""
        topics = tuple(
            ListPartitionReassignmentsTopic(
                name=view.name, partition_indexes=tuple(each.partition for each in view.partitions)
            )
            for view in views
        )
        try:
            response = self.cluster.ask_controller(
                ListPartitionReassignmentsRequest(topics=topics),
                ListPartitionReassignmentsResponse,
                codes=lambda found: [found.error_code],
            )
            raise_if(response.error_code, response.error_message)
        except ApiError as error:
            if error.code not in CANNOT_LIST_REASSIGNMENTS:
                raise
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }


def is_representable(name: str) -> bool:
    """Return whether the protocol can carry the name. Arguments that are not UTF-8 contain lone surrogates."""
    try:
        return 0 < len(name.encode()) <= STRING_BYTES_MAX
    except UnicodeEncodeError:
        return False


def raise_first(outcomes: Sequence[TopicOutcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def topic_description(
    view: TopicView, entries: Sequence[ConfigEntry], reassignments: Reassignments
) -> TopicDescription:
    return TopicDescription(
        name=view.name,
        id=view.id,
        partitions=[
            PartitionDescription(
                partition=each.partition,
                leader=None if each.leader == NO_LEADER else each.leader,
                replicas=each.replicas,
                isr=each.isr,
                reassignment=reassignments.get(TopicPartition(view.name, each.partition)),
            )
            for each in view.partitions
        ],
        configs=[(entry.name, entry.value) for entry in entries if not entry.is_default],
    )


def min_isr(entries: Sequence[ConfigEntry]) -> int | None:
    values = [entry.value for entry in entries if entry.name == MIN_ISR and entry.value]
    return int(values[0]) if values else None


def parse_topic_id(text: str) -> UUID:
    """Parse a topic id: 22 characters of base64url."""
    if len(text) > ID_LENGTH_MAX:
        raise RequestRejected(
            f"Input string with prefix `{text[:ID_LENGTH_MAX]}` is too long to be decoded as a"
            " base64 UUID"
        )
    for character in text:
        if character not in ID_CHARACTERS:
            raise RequestRejected(f"Illegal base64 character {ord(character):x}")
    length = len(text.rstrip("=")) * 6 // 8
    if length != ID_BYTES:
        raise RequestRejected(
            f"Input string `{text}` decoded as {length} bytes, which is not equal to the expected"
            f" {ID_BYTES} bytes of a base64-encoded UUID"
        )
    return decode_uuid("", text.rstrip("="))
