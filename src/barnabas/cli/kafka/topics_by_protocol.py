"""kafka-topics with --bootstrap-server: the brokers are asked, and Kafka's lines are said."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters, digits
from uuid import UUID

from barnabas.cli.kafka.command import complain, say
from barnabas.cli.kafka.describing import (
    SEPARATOR,
    Move,
    PartitionDescription,
    TopicDescription,
    report_of,
)
from barnabas.cli.kafka.failures import Refused
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import (
    COLLISION_WARNING,
    TopicFilter,
    check_counts,
    has_collision_characters,
    requested_topic,
)
from barnabas.cli.kafka.topic_settings import format_version_warning
from barnabas.client.admin import Admin, ConfigEntry, NewPartitions, NewTopic, TopicOutcome
from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import decode_uuid
from barnabas.model import NO_LEADER, ZERO_ID, TopicPartition
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
)

NOBODY_CAN_TELL = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
STRING_BYTES_MAX = 32_767
ID_LENGTH_MAX = 24
ID_BYTES = 16
ID_CHARACTERS = {*ascii_letters, *digits, *"-_="}
MIN_ISR = "min.insync.replicas"


class TopicsOfBrokers:
    def __init__(self, cluster: Cluster, given: ParsedOptions) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.given = given

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
        wish = requested_topic(self.given)
        if warning := format_version_warning(wish.configs):
            say(warning)
        if has_collision_characters(wish.name):
            say(COLLISION_WARNING)
        if self.given.has("disable-rack-aware"):
            complain("note: --disable-rack-aware has no effect here: the brokers assign replicas")
        check_counts(wish)
        if not is_representable(wish.name):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"The given topic name '{wish.name}' cannot be represented in a request.",
            )
        topic = NewTopic(
            name=wish.name,
            partitions=wish.partitions or -1,
            replication_factor=wish.replication_factor or -1,
            configs=wish.configs,
            assignment=wish.assignment,
        )
        (outcome,) = self.admin.create_topics([topic])
        if outcome.error is None:
            say(f"Created topic {wish.name}.")
        elif not (self.given.has("if-not-exists") and existed(outcome)):
            raise outcome.error

    def alter(self) -> None:
        wish = requested_topic(self.given)
        names = self.existing_names()
        if not names:
            return
        assert wish.partitions is not None, "action_of() requires it"
        sizes = {view.name: len(view.partitions) for view in self.admin.describe_topics(names)}
        raise_first(
            self.admin.create_partitions(
                [
                    NewPartitions(
                        name=name,
                        count=wish.partitions,
                        # The list begins with the partitions that are there.
                        assignment=wish.assignment[sizes[name] :] if wish.assignment else None,
                    )
                    for name in names
                ]
            )
        )

    def delete(self) -> None:
        names = self.existing_names()
        if names:
            raise_first(self.admin.delete_topics(names))

    # ---- which

    def list_names(self) -> None:
        say(*(self.names() or [""]))

    def names(self) -> list[str]:
        chosen = TopicFilter(self.given.value("topic"), self.given.has("exclude-internal"))
        return chosen.of((view.name, view.is_internal) for view in self.admin.list_topics())

    def existing_names(self) -> list[str]:
        names = self.names()
        text = self.given.value("topic")
        if text and not names and not self.given.has("if-exists"):
            # So 3.9 writes it, and so it is looked for.
            raise Refused(f"Topic 'Optional[{text}]' does not exist as expected")
        return names

    def views(self) -> list[TopicView]:
        text = self.given.value("topic-id")
        wanted = ZERO_ID if text is None else parse_topic_id(text)
        if wanted == ZERO_ID:
            names = self.existing_names()
            return self.admin.describe_topics(names) if names else []
        found = [view for view in self.admin.list_topics() if view.id == wanted]
        if not found and not self.given.has("if-exists"):
            raise Refused(f"TopicId '{text}' does not exist as expected")
        return found

    # ---- describe

    def describe(self) -> None:
        views = self.views()
        if not views:
            return
        configs = self.admin.describe_topic_configs([view.name for view in views])
        moves = self.moves(views)
        report = report_of(self.given, self.cluster.view.brokers)
        for view in views:
            entries = configs[view.name]
            shown = topic_description(view, entries, moves)
            for line in report.lines(shown, min_isr=min_isr(entries)):
                say(line, keep=SEPARATOR)

    def moves(self, views: Sequence[TopicView]) -> dict[TopicPartition, Move]:
        """Return the partitions that are being reassigned; none if the brokers cannot list them."""
        asked = tuple(
            ListPartitionReassignmentsTopic(
                name=view.name,
                partition_indexes=tuple(each.partition for each in view.partitions),
            )
            for view in views
        )
        try:
            answer = self.cluster.ask_controller(
                ListPartitionReassignmentsRequest(topics=asked),
                ListPartitionReassignmentsResponse,
                codes=lambda found: [found.error_code],
            )
            raise_if(answer.error_code, answer.error_message)
        except ApiError as error:
            if error.code not in NOBODY_CAN_TELL:
                raise
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): Move(
                replicas=each.replicas,
                adding=each.adding_replicas,
                removing=each.removing_replicas,
            )
            for topic in answer.topics
            for each in topic.partitions
        }


def is_representable(name: str) -> bool:
    """Return whether the protocol can carry the name. Arguments that are not UTF-8 contain lone surrogates."""
    try:
        return 0 < len(name.encode()) <= STRING_BYTES_MAX
    except UnicodeEncodeError:
        return False


def existed(outcome: TopicOutcome) -> bool:
    return outcome.error is not None and outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS


def raise_first(outcomes: Sequence[TopicOutcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def topic_description(
    view: TopicView, entries: Sequence[ConfigEntry], moves: dict[TopicPartition, Move]
) -> TopicDescription:
    return TopicDescription(
        name=view.name,
        id=view.id,
        partitions=[
            PartitionDescription(
                topic=view.name,
                partition=each.partition,
                leader=None if each.leader == NO_LEADER else each.leader,
                replicas=each.replicas,
                isr=each.isr,
                move=moves.get(TopicPartition(view.name, each.partition)),
            )
            for each in view.partitions
        ],
        configs=[(entry.name, entry.value) for entry in entries if not entry.is_default],
    )


def min_isr(entries: Sequence[ConfigEntry]) -> int | None:
    values = [entry.value for entry in entries if entry.name == MIN_ISR and entry.value]
    return int(values[0]) if values else None


def parse_topic_id(text: str) -> UUID:
    """Parse 22 characters of base64url."""
    if len(text) > ID_LENGTH_MAX:
        raise Refused(
            f"Input string with prefix `{text[:ID_LENGTH_MAX]}` is too long to be decoded as a"
            " base64 UUID"
        )
    for character in text:
        if character not in ID_CHARACTERS:
            raise Refused(f"Illegal base64 character {ord(character):x}")
    length = len(text.rstrip("=")) * 6 // 8
    if length != ID_BYTES:
        raise Refused(
            f"Input string `{text}` decoded as {length} bytes, which is not equal to the expected"
            f" {ID_BYTES} bytes of a base64-encoded UUID"
        )
    return decode_uuid("", text.rstrip("="))
