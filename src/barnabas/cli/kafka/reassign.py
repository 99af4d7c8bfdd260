"""`barnabas kafka-reassign-partitions`: the actions, with the output of Kafka 3.9's command.

Errors go to standard output, as in Kafka. A TerseFailure is printed as it is; other errors start with `Error: `, and a
line with the name of Kafka's exception follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

import click

from barnabas.cli.kafka.command import (
    FAILED,
    OK,
    KafkaCommand,
    connect_client,
    print_hint,
    run_kafka_command,
)
from barnabas.cli.kafka.failures import (
    ADMIN_COMMAND_FAILED,
    ADMIN_OPERATION_FAILED,
    API_ERRORS,
    CommandFailed,
    RequestRejected,
    error_message,
    exception_name,
)
from barnabas.cli.kafka.log_dir_moves import find_moves, move_lines, start_moves
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.reassign_options import (
    ABOUT,
    NO_THROTTLE,
    OPTIONS,
    TIMEOUT_MS,
    check_action,
    long_option,
)
from barnabas.cli.reassign.throttling import Ongoing, all_moves
from barnabas.cli.terminal.output import print_lines, to_json, write_out
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.client.view import TopicView
from barnabas.controller.assignment import MissingRacks, assign_at_random
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import Broker, TopicPartition
from barnabas.reassignment.json_file import (
    InvalidReassignmentJson,
    ReassignmentFile,
    check_reassignment_file,
    duplicates,
    parse_reassignment_json,
    parse_topics_json,
    reassignment_document,
)
from barnabas.reassignment.layout import Assignment, ReplicaIds
from barnabas.reassignment.throttles import (
    BROKER_THROTTLES,
    LOG_DIRS_RATE,
    RATES,
    TOPIC_THROTTLES,
    throttled_brokers,
    topic_throttles,
)
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

EXECUTION_EXCEPTION = "java.util.concurrent.ExecutionException"
INVALID_FACTOR = f"{API_ERRORS}.InvalidReplicationFactorException"
NUMBER_FORMAT = "java.lang.NumberFormatException"
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
    "create a new partition assignment in addition to the existing one. The --additional flag can also be used to "
    "change the throttle by resubmitting the current reassignment."
)
VERIFY_WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure"
    " the throttle is removed."
)
ROLLBACK = "Save this to use as the --reassignment-json-file option during rollback"
COMPACT = (",", ":")


class TerseFailure(CommandFailed):
    """A failure of which Kafka's command prints only the message."""


@click.command("kafka-reassign-partitions", cls=KafkaCommand)
def kafka_reassign_partitions(arguments: Sequence[str]) -> None:
    code = run_kafka_command(
        arguments, known=OPTIONS, about=ABOUT, brief=ABOUT, run=run_action_and_report
    )
    raise click.exceptions.Exit(code)


def run_action_and_report(options: ParsedOptions) -> int:
    action = check_action(options)
    try:
        with connect_client(options) as cluster:
            run_tool_action(action, PartitionReassignments(cluster, options))
    except TerseFailure as error:
        print_lines(*error.message.split("\n"))
        return FAILED
    except BarnabasError as error:
        rejected = to_rejection(error)
        print_lines(f"Error: {error_message(rejected)}")
        print_lines(f"{exception_name(rejected)}: {error_message(rejected)}")
        print_hint(error)
        return FAILED
    return OK


def run_tool_action(action: str, tool: PartitionReassignments) -> None:
    match action:
        case "generate":
            tool.generate()
        case "execute":
            tool.execute()
        case "verify":
            tool.verify()
        case "cancel":
            tool.cancel()
        case _:
            tool.print_list()


def to_rejection(error: BarnabasError) -> BarnabasError:
    """Return the error as Kafka's command reports it: errors of the cluster are wrapped."""
    if isinstance(error, InvalidReassignmentJson):
        is_json_problem = "JSON" in error.message or "version" in error.message
        exception = ADMIN_OPERATION_FAILED if is_json_problem else ADMIN_COMMAND_FAILED
        return RequestRejected(error.message, exception)
    if isinstance(error, ApiError):
        return RequestRejected(
            f"{exception_name(error)}: {error_message(error)}", EXECUTION_EXCEPTION
        )
    return error


def propose_assignment(
    topics: Iterable[TopicView], brokers: Sequence[Broker]
) -> dict[TopicPartition, ReplicaIds]:
    """Return random replicas on these brokers, as many as each topic has now. Raises RequestRejected."""
    proposed: dict[TopicPartition, ReplicaIds] = {}
    for topic in topics:
        factor = len(topic.partitions[0].replicas)
        if factor > len(brokers):
            raise RequestRejected(
                f"Replication factor: {factor} larger than available brokers: {len(brokers)}.",
                INVALID_FACTOR,
            )
        try:
            rows = assign_at_random(
                brokers,
                partitions=len(topic.partitions),
                replication_factor=factor,
                random=Random(),
            )
        except MissingRacks:
            raise RequestRejected(
                "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica"
                " assignment without rack information.",
                ADMIN_OPERATION_FAILED,
            ) from None
        proposed |= {
            TopicPartition(topic.name, number): tuple(map(int, row))
            for number, row in enumerate(rows)
        }
    return proposed


class PartitionReassignments:
    """The actions of the command on one cluster."""

    def __init__(self, cluster: Cluster, options: ParsedOptions) -> None:
        self.cluster = cluster
        self.options = options
        self.admin = ReassignmentAdmin(cluster)

    def read_file(self, option: str) -> str:
        path = self.options.value(option) or ""
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise RequestRejected(f"Unable to read file {path}", "java.io.IOException") from None

    def read_targets(self) -> ReassignmentFile:
        return parse_reassignment_json(self.read_file("reassignment-json-file"))

    # ---- generate -------------------------------------------------------------------------------------------------

    def generate(self) -> None:
        brokers = parse_broker_list(self.options.value("broker-list") or "")
        topics = parse_topics_json(self.read_file("topics-to-move-json-file"))
        reject_duplicates("List of topics to reassign", topics)
        found = self.describe_topics(topics)
        current = {
            TopicPartition(topic.name, each.partition): each.replicas
            for topic in found
            for each in topic.partitions
        }
        proposed = propose_assignment(found, self.find_brokers(brokers))
        print_lines("Current partition replica assignment", assignment_json(current), "")
        print_lines("Proposed partition reassignment configuration", assignment_json(proposed))

    def find_brokers(self, ids: Sequence[int]) -> list[Broker]:
        """Return the live brokers among these, without racks if the command ignores them."""
        is_rack_aware = not self.options.has("disable-rack-aware")
        return [
            Broker(id=broker, endpoints=(), rack=view.rack if is_rack_aware else None)
            for broker, view in sorted(self.cluster.refresh([]).brokers.items())
            if broker in ids
        ]

    def describe_topics(self, names: Iterable[str]) -> list[TopicView]:
        wanted = sorted(set(names))
        view = self.cluster.refresh(wanted)
        for name in wanted:
            if name not in view.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
        return [view.topics[name] for name in wanted]

    def current_replicas(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ReplicaIds]:
        wanted = set(partitions)
        found = {
            partition: each.replicas
            for topic in self.describe_topics(each.topic for each in wanted)
            for each in topic.partitions
            if (partition := TopicPartition(topic.name, each.partition)) in wanted
        }
        missing = sorted(wanted - found.keys())
        if missing:
            names = ", ".join(map(str, missing))
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {names}"
            )
        return found

    # ---- execute --------------------------------------------------------------------------------------------------

    def execute(self) -> None:
        throttle = long_option(self.options, "throttle", NO_THROTTLE)
        log_dirs_throttle = long_option(
            self.options, "replica-alter-log-dirs-throttle", NO_THROTTLE
        )
        timeout_ms = long_option(self.options, "timeout", TIMEOUT_MS)
        file = self.read_targets()
        targets = check_reassignment_file(file)
        ongoing = self.admin.list_partition_reassignments()
        if ongoing and not self.options.has("additional"):
            raise TerseFailure(EXISTING)
        self.check_brokers(targets)
        current = self.current_replicas(targets)
        print_lines(
            "Current partition replica assignment", "", assignment_json(current), "", ROLLBACK
        )
        if throttle >= 0 or log_dirs_throttle >= 0:
            print_lines(VERIFY_WARNING)
        if throttle >= 0:
            self.set_throttle(ongoing, targets, current, throttle)
        if log_dirs_throttle >= 0:
            self.set_log_dirs_throttle({broker for _, broker in file.log_dirs}, log_dirs_throttle)
        self.submit(targets, "Error reassigning partition(s):")
        plural = "" if len(targets) == 1 else "s"
        print_lines(f"Successfully started partition reassignment{plural} for {join(targets)}")
        if file.log_dirs:
            self.start_moves(file.log_dirs, timeout_ms)

    def check_brokers(self, targets: Assignment) -> None:
        known = self.cluster.refresh([]).brokers
        unknown = sorted({broker for each in targets.values() for broker in each} - known.keys())
        if unknown:
            raise RequestRejected(f"Unknown broker id {unknown[0]}", ADMIN_COMMAND_FAILED)

    def set_throttle(
        self,
        ongoing: Ongoing,
        targets: Assignment,
        current: Assignment,
        rate: int,
    ) -> None:
        moves = all_moves(ongoing, targets, current)
        self.alter_configs(
            {
                ConfigResource(ResourceType.TOPIC, topic): [
                    ConfigChange(*item) for item in lists.items()
                ]
                for topic, lists in topic_throttles(moves).items()
            }
        )
        self.set_rates(throttled_brokers(moves.values()), RATES, rate)
        print_lines(f"The inter-broker throttle limit was set to {rate} B/s")

    def set_log_dirs_throttle(self, brokers: Iterable[int], rate: int) -> None:
        self.set_rates(sorted(brokers), [LOG_DIRS_RATE], rate)
        print_lines(f"The replica-alter-dir throttle limit was set to {rate} B/s")

    def set_rates(self, brokers: Iterable[int], names: Sequence[str], rate: int) -> None:
        self.alter_configs(
            {
                ConfigResource(ResourceType.BROKER, str(broker)): [
                    ConfigChange(name, str(rate)) for name in names
                ]
                for broker in brokers
            }
        )

    def alter_configs(self, changes: Mapping[ConfigResource, Sequence[ConfigChange]]) -> None:
        for error in ConfigAdmin(self.cluster).incremental_alter_configs(changes).values():
            if error is not None:
                raise error

    def submit(self, targets: Mapping[TopicPartition, ReplicaIds | None], title: str) -> None:
        errors = {
            partition: error
            for partition, error in sorted(
                self.admin.alter_partition_reassignments(targets).items()
            )
            if error is not None
        }
        if errors:
            lines = [f"{partition}: {error_message(error)}" for partition, error in errors.items()]
            raise TerseFailure("\n".join([title, *lines]))

    def start_moves(
        self, log_dirs: Mapping[tuple[TopicPartition, int], str], timeout_ms: int
    ) -> None:
        try:
            for line in start_moves(self.cluster, log_dirs, timeout_ms / 1000):
                print_lines(line)
        except TimeoutError as error:
            raise TerseFailure(str(error)) from None

    # ---- verify ---------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        file = self.read_targets()
        ongoing = self.admin.list_partition_reassignments()
        print_lines("Status of partition reassignment:")
        for partition, target in sorted(dict(file.targets).items()):
            print_lines(self.state_line(partition, target, ongoing))
        moves = find_moves(self.cluster, file.log_dirs)
        print_lines(*(move_lines(moves) or [""]))
        is_moving = bool(ongoing) or any(not move.is_done for move in moves)
        if not is_moving and not self.options.has("preserve-throttles"):
            self.clear_throttles(file)

    def state_line(
        self,
        partition: TopicPartition,
        target: ReplicaIds,
        ongoing: Ongoing,
    ) -> str:
        if partition in ongoing:
            return f"Reassignment of partition {partition} is still in progress."
        try:
            replicas = self.cluster.refresh([partition.topic]).partition(partition).replicas
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            replicas = ()
        if replicas == target:
            return f"Reassignment of partition {partition} is completed."
        return (
            f"There is no active reassignment of partition {partition}, but replica set is {join(replicas)}"
            f" rather than {join(target)}."
        )

    def clear_throttles(self, file: ReassignmentFile) -> None:
        """Remove the throttles of all brokers and of the topics in the file.

        A broker that is down cannot change its settings. Kafka's command fails then; here the others are changed.
        """
        alive = set(map(int, self.cluster.refresh([]).brokers))
        brokers = sorted(alive | {broker for _, target in file.targets for broker in target})
        print_lines(
            f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {join(brokers)}"
        )
        self.alter_configs(
            {
                ConfigResource(ResourceType.BROKER, str(broker)): deletions(BROKER_THROTTLES)
                for broker in brokers
                if broker in alive
            }
        )
        topics = sorted({partition.topic for partition, _ in file.targets})
        print_lines(
            f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} {join(topics)}"
        )
        self.alter_configs(
            {
                ConfigResource(ResourceType.TOPIC, topic): deletions(TOPIC_THROTTLES)
                for topic in topics
            }
        )

    # ---- cancel and list ------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        timeout_ms = long_option(self.options, "timeout", TIMEOUT_MS)
        file = self.read_targets()
        active = self.admin.list_partition_reassignments([each for each, _ in file.targets])
        plural = "" if len(active) == 1 else "s"
        if active:
            self.submit(
                dict.fromkeys(active), f"Error cancelling partition reassignment{plural} for:"
            )
            print_lines(
                f"Successfully cancelled partition reassignment{plural} for: {join(active)}"
            )
        else:
            print_lines("None of the specified partition reassignments are active.")
        moves = [
            move for move in find_moves(self.cluster, file.log_dirs) if move.future is not None
        ]
        if moves:
            current = {move.replica: move.current or "" for move in moves}
            self.start_moves(current, timeout_ms)
        else:
            # Kafka's command ends this line without a newline.
            write_out(b"None of the specified partition moves are active.")
        if not self.options.has("preserve-throttles"):
            self.clear_throttles(file)

    def print_list(self) -> None:
        ongoing = self.admin.list_partition_reassignments()
        if not ongoing:
            print_lines("No partition reassignments found.")
            return
        print_lines("Current partition reassignments:")
        for partition, moving in ongoing.items():
            adding = f" adding: {join(moving.adding)}." if moving.adding else ""
            removing = f" removing: {join(moving.removing)}." if moving.removing else ""
            print_lines(f"{partition}: replicas: {join(moving.replicas)}.{adding}{removing}")


def deletions(names: Sequence[str]) -> list[ConfigChange]:
    return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]


def join(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def assignment_json(assignment: Assignment) -> str:
    return to_json(reassignment_document(assignment), separators=COMPACT)


def parse_broker_list(text: str) -> list[int]:
    words = text.split(",")
    for word in words:
        if not word.isascii() or not word.isdigit():
            raise RequestRejected(f'For input string: "{word}"', NUMBER_FORMAT)
    ids = [int(word) for word in words]
    reject_duplicates("Broker list", ids)
    return ids


def reject_duplicates(what: str, values: Sequence[object]) -> None:
    if repeated := duplicates(values):
        names = ", ".join(map(str, repeated))
        raise RequestRejected(f"{what} contains duplicate entries: [{names}]", ADMIN_COMMAND_FAILED)
