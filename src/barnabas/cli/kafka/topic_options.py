"""Options of kafka-topics, their checks, and the topic they request. Without I/O.

Values are parsed only when needed, in Kafka's order. Of several mistakes, the one that Kafka reports is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from warnings import catch_warnings

from barnabas.cli.kafka.failures import (
    ADMIN_COMMAND_FAILED,
    ADMIN_OPERATION_FAILED,
    InvalidCommandLine,
    RequestRejected,
    WrongUsage,
)
from barnabas.cli.kafka.options import (
    COMMON_OPTIONS,
    Option,
    ParsedOptions,
    forbid_together,
    is_int32,
    require_options,
)
from barnabas.cli.kafka.topic_settings import (
    FORMAT_VERSION,
    check_topic_settings,
    format_version_warning,
)

ABOUT = "This tool helps to create, delete, describe, or change a topic."
ABOUT_BRIEF = "Create, delete, describe, or change a topic."

OPTIONS = (
    *COMMON_OPTIONS,
    Option(
        "zookeeper",
        "ZooKeeper of the cluster, to use instead of a broker, as host:port/chroot. The command then "
        "validates the request and writes the znodes itself; the controller acts on them.",
        "host:port/chroot",
    ),
    Option("create", "Create a topic."),
    Option("list", "List the names of topics."),
    Option("describe", "Show the partitions, replicas and settings of topics."),
    Option("alter", "Add partitions to a topic; with --zookeeper also change its settings."),
    Option("delete", "Delete topics."),
    Option(
        "topic",
        "Topic name. Except with --create: one or more regular expressions, separated by commas; "
        r"write a literal dot as \.",
        "topic",
    ),
    Option("topic-id", "The id of the topic to describe.", "topic id"),
    Option(
        "partitions",
        "Number of partitions (with --alter: the new total); default with --create: the cluster's default. "
        "Required with --zookeeper and --create.",
        "number",
    ),
    Option(
        "replication-factor",
        "Replicas of each partition; default: the cluster's default. Required with --zookeeper and --create.",
        "number",
    ),
    Option(
        "replica-assignment",
        "Brokers of each partition, the preferred leader first, as 0:1:2,1:2:0. The list starts with "
        "partition 0, also with --alter.",
        "brokers",
    ),
    Option(
        "config",
        "A setting of the topic, such as retention.ms=1000; repeatable. For --create, or --alter with --zookeeper.",
        "name=value",
    ),
    Option("delete-config", "With --zookeeper and --alter, a setting to delete.", "name"),
    Option("if-exists", "Alter, delete or describe a topic only if it exists."),
    Option("if-not-exists", "Create a topic only if it does not exist."),
    Option("disable-rack-aware", "With --zookeeper, ignore racks when replicas are assigned."),
    Option("exclude-internal", "Exclude internal topics from --list and --describe."),
    Option("under-replicated-partitions", "Describe only under-replicated partitions."),
    Option("unavailable-partitions", "Describe only partitions without a live leader."),
    Option(
        "under-min-isr-partitions",
        "Describe only partitions without a leader, or whose ISR is smaller than min.insync.replicas.",
    ),
    Option(
        "at-min-isr-partitions",
        "Describe only partitions whose ISR has exactly min.insync.replicas brokers.",
    ),
    Option(
        "topics-with-overrides",
        "Describe only topics whose settings were changed from the default.",
    ),
    Option("partition-size-limit-per-response", "Accepted; has no effect.", "number"),
)

ACTIONS = ("create", "list", "alter", "describe", "delete")
MIN_ISR_REPORTS = ("under-min-isr-partitions", "at-min-isr-partitions")
REPORTS = ("under-replicated-partitions", *MIN_ISR_REPORTS, "unavailable-partitions")
ONLY_ID_WARNING = (
    "Only topic id will be used when both --topic and --topic-id are specified and topicId is not"
    " Uuid.ZERO_UUID"
)
SHORT_MAX = 32_767


def require_action(options: ParsedOptions) -> str:
    """Return one of the five actions. Raises WrongUsage or InvalidCommandLine if options are missing or conflict."""
    actions = [action for action in ACTIONS if options.has(action)]
    if len(actions) != 1:
        raise WrongUsage(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    check_required(options)
    check_exclusive(options)
    return actions[0]


def check_required(options: ParsedOptions) -> None:
    if options.has("bootstrap-server") and options.has("zookeeper"):
        raise InvalidCommandLine("Only one of --bootstrap-server or --zookeeper must be specified")
    if not options.has("bootstrap-server") and not options.has("zookeeper"):
        raise InvalidCommandLine("--bootstrap-server must be specified")
    is_named = options.has("topic") or options.has("topic-id")
    if options.has("describe") and options.has("if-exists") and not is_named:
        raise WrongUsage("--topic or --topic-id is required to describe a topic")
    if not options.has("list") and not options.has("describe"):
        require_options(options, "topic")
    if options.has("zookeeper"):
        if options.has("create") and not options.has("replica-assignment"):
            require_options(options, "partitions", "replication-factor")
    elif options.has("alter"):
        if options.has("config"):
            raise WrongUsage(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option'
                ' "[alter]" (the kafka-configs CLI supports altering topic configs with a'
                " --bootstrap-server option)"
            )
        require_options(options, "partitions")


def check_exclusive(options: ParsedOptions) -> None:
    forbid_together(options, "config", actions_except("alter", "create"))
    forbid_together(options, "delete-config", (*actions_except("alter"), "bootstrap-server"))
    forbid_together(options, "partitions", actions_except("alter", "create"))
    forbid_together(options, "replication-factor", actions_except("create"))
    forbid_together(options, "replica-assignment", actions_except("alter", "create"))
    if options.has("create"):
        forbid_together(options, "replica-assignment", ("partitions", "replication-factor"))
    for report in REPORTS:
        forbid_together(options, report, (*actions_except("describe"), "topics-with-overrides"))
    for report in MIN_ISR_REPORTS:
        forbid_together(options, report, ("zookeeper",))
    forbid_together(options, "topics-with-overrides", (*actions_except("describe"), *REPORTS))
    forbid_together(options, "if-exists", actions_except("alter", "delete", "describe"))
    forbid_together(options, "if-not-exists", actions_except("create"))
    forbid_together(options, "exclude-internal", actions_except("list", "describe"))
    forbid_together(options, "zookeeper", ("topic-id",))


def actions_except(*kept: str) -> tuple[str, ...]:
    return tuple(action for action in ACTIONS if action not in kept)


# ---- the requested topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTopic:
    """The topic of --create and --alter. `assignment` lists the brokers of all partitions, from partition 0."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignment: tuple[tuple[int, ...], ...]
    configs: dict[str, str]


def parse_requested_topic(options: ParsedOptions) -> RequestedTopic:
    name = options.value("topic")
    assert name is not None, "require_action() checks it"
    return RequestedTopic(
        name=name,
        partitions=options.number("partitions"),
        replication_factor=options.number("replication-factor"),
        assignment=parse_replica_assignment(options.value("replica-assignment") or ""),
        configs=parse_config_options(options.values("config")),
    )


def check_requested_counts(requested: RequestedTopic) -> None:
    if (
        requested.replication_factor is not None
        and not 1 <= requested.replication_factor <= SHORT_MAX
    ):
        raise RequestRejected(f"The replication factor must be between 1 and {SHORT_MAX} inclusive")
    if requested.partitions is not None and requested.partitions < 1:
        raise RequestRejected("The partitions must be greater than 0")


def parse_replica_assignment(text: str) -> tuple[tuple[int, ...], ...]:
    """Parse `0:1:2,1:2:0`: partition 0 on brokers 0, 1 and 2, partition 1 on brokers 1, 2 and 0."""
    if not text:
        return ()
    assignment: list[tuple[int, ...]] = []
    for number, part in enumerate(text.rstrip(",").split(",")):
        brokers = tuple(parse_broker(broker.strip()) for broker in part.rstrip(":").split(":"))
        duplicates = [str(broker) for broker, count in Counter(brokers).items() if count > 1]
        if duplicates:
            raise RequestRejected(
                f"Partition replica lists may not contain duplicate entries: {','.join(duplicates)}",
                ADMIN_COMMAND_FAILED,
            )
        assignment.append(brokers)
        if len(brokers) != len(assignment[0]):
            raise RequestRejected(
                f"Partition {number} has different replication factor: {list(brokers)}",
                ADMIN_OPERATION_FAILED,
            )
    return tuple(assignment)


def parse_broker(text: str) -> int:
    if not is_int32(text):
        raise RequestRejected(f'For input string: "{text}"', "java.lang.NumberFormatException")
    return int(text)


def parse_config_options(pairs: Iterable[str]) -> dict[str, str]:
    """Parse and validate `name=value` settings. If a name is repeated, its last value is used."""
    configs = {}
    for pair in pairs:
        parts = re.split(r"\s*=\s*", pair)
        while parts and not parts[-1]:
            parts.pop()
        if len(parts) != 2:
            raise RequestRejected(
                "requirement failed: Invalid topic config: all configs to be added must be in the"
                ' format "key=val".'
            )
        configs[parts[0].strip()] = parts[1].strip()
    check_topic_settings(configs)
    return configs


def creation_warnings(requested: RequestedTopic) -> list[str]:
    warnings = []
    if FORMAT_VERSION in requested.configs:
        warnings.append(format_version_warning(requested.configs[FORMAT_VERSION]))
    if "." in requested.name or "_" in requested.name:
        warnings.append(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore"
            " ('_') could collide. To avoid issues it is best to use either, but not both."
        )
    return warnings


# ---- topic filter


def matching_topics(options: ParsedOptions, topics: Iterable[tuple[str, bool]]) -> list[str]:
    """Return the names that --topic and --exclude-internal select, sorted. `topics` are pairs of (name, is internal).

    --topic is `orders`, `orders,payments` or `test\\..*`. Without it all topics match.
    """
    text = options.value("topic")
    pattern = None if text is None else compile_names(text)
    return sorted(
        name
        for name, is_internal in topics
        if (pattern is None or pattern.fullmatch(name))
        and not (is_internal and options.has("exclude-internal"))
    )


def compile_names(text: str) -> re.Pattern[str]:
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        # Python warns about syntax that later versions change.
        with catch_warnings(action="ignore"):
            return re.compile(cleaned)
    except (re.error, OverflowError, RecursionError):
        raise RequestRejected(
            f"{cleaned} is an invalid regex.", "java.lang.RuntimeException"
        ) from None
