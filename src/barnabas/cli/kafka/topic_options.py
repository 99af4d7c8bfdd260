"""Options of kafka-topics, their rules, and the topic they request. Pure.

Values are read when they are needed, in Kafka's order, because a script sees which of two mistakes is named.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.cli.kafka.failures import Refused, Unread, WrongUsage
from barnabas.cli.kafka.options import Option, ParsedOptions, forbid, is_int32, require
from barnabas.cli.kafka.topic_settings import check_topic_settings

ABOUT = "This tool helps to create, delete, describe, or change a topic."
ABOUT_NOTHING = "Create, delete, describe, or change a topic."

OPTIONS = (
    Option("bootstrap-server", "Bootstrap brokers, as host:port,host:port.", "brokers"),
    Option(
        "zookeeper",
        "Instead of a broker, the ZooKeeper with the state of the cluster, as host:port/chroot. The "
        "command itself then checks, assigns and writes; the controller sees it and does the rest.",
        "host:port/chroot",
    ),
    Option("command-config", "A file with settings of the client, as client.id.", "file"),
    Option("create", "Create a topic."),
    Option("list", "List the names of topics."),
    Option("describe", "Show the partitions, replicas and settings of topics."),
    Option("alter", "Add partitions to a topic; with --zookeeper also change its settings."),
    Option("delete", "Delete topics."),
    Option(
        "topic",
        "The topic. But for --create also a regular expression, and several with commas between; "
        r"a dot that is meant is written \. then.",
        "topic",
    ),
    Option("topic-id", "The id of the topic to describe.", "topic id"),
    Option(
        "partitions",
        "New total number of partitions; the cluster's default if not given.",
        "number",
    ),
    Option(
        "replication-factor",
        "How many copies of each partition; the cluster's default if not given.",
        "number",
    ),
    Option(
        "replica-assignment",
        "The brokers of each partition, the preferred leader first, as 0:1:2,1:2:0. For --alter, too, "
        "partition 0 comes first.",
        "brokers",
    ),
    Option("config", "A setting of the new topic, as retention.ms=1000; repeatable.", "name=value"),
    Option("delete-config", "With --zookeeper and --alter, a setting to take away.", "name"),
    Option("if-exists", "Alter, delete or describe only what exists."),
    Option("if-not-exists", "Create only what does not exist."),
    Option("disable-rack-aware", "With --zookeeper, assign replicas without regard to racks."),
    Option("exclude-internal", "List and describe no topics of the cluster's own."),
    Option("under-replicated-partitions", "Describe only partitions that miss a copy."),
    Option("unavailable-partitions", "Describe only partitions without a living leader."),
    Option("under-min-isr-partitions", "Describe only partitions below min.insync.replicas."),
    Option("at-min-isr-partitions", "Describe only partitions just at min.insync.replicas."),
    Option("topics-with-overrides", "Describe only topics with settings of their own."),
    Option("partition-size-limit-per-response", "Accepted; has no effect.", "number"),
    Option("force", "Accepted; has no effect."),
    Option("help", "Show this."),
    Option("version", "Show the release of Kafka whose command this is, and ours."),
)

ACTIONS = ("create", "list", "alter", "describe", "delete")
MIN_ISR_REPORTS = ("under-min-isr-partitions", "at-min-isr-partitions")
REPORTS = ("under-replicated-partitions", *MIN_ISR_REPORTS, "unavailable-partitions")
CONFIGS_COMMAND = (
    " (the kafka-configs CLI supports altering topic configs with a --bootstrap-server option)"
)
ONLY_THE_ID = (
    "Only topic id will be used when both --topic and --topic-id are specified and topicId is not"
    " Uuid.ZERO_UUID"
)
COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_')"
    " could collide. To avoid issues it is best to use either, but not both."
)
SHORT_MAX = 32_767


def action_of(given: ParsedOptions) -> str:
    """Return one of the five actions. Raises WrongUsage or Unread if the options do not fit together."""
    actions = [action for action in ACTIONS if given.has(action)]
    if len(actions) != 1:
        raise WrongUsage(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    check_what_is_needed(given)
    check_what_excludes(given)
    return actions[0]


def check_what_is_needed(given: ParsedOptions) -> None:
    if given.has("bootstrap-server") and given.has("zookeeper"):
        raise Unread("Only one of --bootstrap-server or --zookeeper must be specified")
    if not given.has("bootstrap-server") and not given.has("zookeeper"):
        raise Unread("--bootstrap-server must be specified")
    is_named = given.has("topic") or given.has("topic-id")
    if given.has("describe") and given.has("if-exists") and not is_named:
        raise WrongUsage("--topic or --topic-id is required to describe a topic")
    if not given.has("list") and not given.has("describe"):
        require(given, "topic")
    if given.has("zookeeper"):
        if given.has("create") and not given.has("replica-assignment"):
            require(given, "partitions", "replication-factor")
    elif given.has("alter"):
        if given.has("config"):
            raise WrongUsage(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option'
                f' "[alter]"{CONFIGS_COMMAND}'
            )
        require(given, "partitions")


def check_what_excludes(given: ParsedOptions) -> None:
    forbid(given, "config", all_but("alter", "create"))
    forbid(given, "delete-config", (*all_but("alter"), "bootstrap-server"))
    forbid(given, "partitions", all_but("alter", "create"))
    forbid(given, "replication-factor", all_but("create"))
    forbid(given, "replica-assignment", all_but("alter", "create"))
    if given.has("create"):
        forbid(given, "replica-assignment", ("partitions", "replication-factor"))
    for report in REPORTS:
        forbid(given, report, (*all_but("describe"), "topics-with-overrides"))
    for report in MIN_ISR_REPORTS:
        forbid(given, report, ("zookeeper",))
    forbid(given, "topics-with-overrides", (*all_but("describe"), *REPORTS))
    forbid(given, "if-exists", all_but("alter", "delete", "describe"))
    forbid(given, "if-not-exists", all_but("create"))
    forbid(given, "exclude-internal", all_but("list", "describe"))
    forbid(given, "zookeeper", ("topic-id",))


def all_but(*kept: str) -> tuple[str, ...]:
    return tuple(action for action in ACTIONS if action not in kept)


# ---- the requested topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTopic:
    """The topic of --create and --alter. `assignment` is of all its partitions, from the first."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignment: tuple[tuple[int, ...], ...]
    configs: dict[str, str]


def requested_topic(given: ParsedOptions) -> RequestedTopic:
    name = given.value("topic")
    assert name is not None, "action_of() requires it"
    return RequestedTopic(
        name=name,
        partitions=given.number("partitions"),
        replication_factor=given.number("replication-factor"),
        assignment=parse_assignment(given.value("replica-assignment") or ""),
        configs=parse_configs(given.values("config")),
    )


def check_counts(wish: RequestedTopic) -> None:
    if wish.replication_factor is not None and not 1 <= wish.replication_factor <= SHORT_MAX:
        raise Refused(f"The replication factor must be between 1 and {SHORT_MAX} inclusive")
    if wish.partitions is not None and wish.partitions < 1:
        raise Refused("The partitions must be greater than 0")


def parse_assignment(text: str) -> tuple[tuple[int, ...], ...]:
    """`0:1:2,1:2:0` → partition 0 on brokers 0, 1 and 2, partition 1 on 1, 2 and 0."""
    if not text:
        return ()
    placed: list[tuple[int, ...]] = []
    for number, part in enumerate(text.rstrip(",").split(",")):
        brokers = tuple(parse_broker(broker.strip()) for broker in part.rstrip(":").split(":"))
        twice = [str(broker) for broker, count in Counter(brokers).items() if count > 1]
        if twice:
            raise Refused(
                f"Partition replica lists may not contain duplicate entries: {','.join(twice)}",
                "org.apache.kafka.server.common.AdminCommandFailedException",
            )
        placed.append(brokers)
        if len(brokers) != len(placed[0]):
            raise Refused(
                f"Partition {number} has different replication factor: {list(brokers)}",
                "org.apache.kafka.server.common.AdminOperationException",
            )
    return tuple(placed)


def parse_broker(text: str) -> int:
    if not is_int32(text):
        raise Refused(f'For input string: "{text}"', "java.lang.NumberFormatException")
    return int(text)


def parse_configs(pairs: Iterable[str]) -> dict[str, str]:
    """Parse settings, and check what can be checked here. The last value of a name wins."""
    configs = {}
    for pair in pairs:
        parts = re.split(r"\s*=\s*", pair)
        while parts and not parts[-1]:
            parts.pop()
        if len(parts) != 2:
            raise Refused(
                "requirement failed: Invalid topic config: all configs to be added must be in the"
                ' format "key=val".'
            )
        configs[parts[0].strip()] = parts[1].strip()
    check_topic_settings(configs)
    return configs


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


# ---- which topics


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """`orders`, `orders,payments` or `test\\..*`; None is for all."""

    text: str | None
    exclude_internal: bool

    def of(self, topics: Iterable[tuple[str, bool]]) -> list[str]:
        """Return the names that match, of (name, is internal)."""
        pattern = None if self.text is None else self.pattern(self.text)
        return sorted(
            name
            for name, is_internal in topics
            if (pattern is None or pattern.fullmatch(name))
            and not (is_internal and self.exclude_internal)
        )

    def pattern(self, text: str) -> re.Pattern[str]:
        cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            with warnings.catch_warnings(action="ignore"):  # of what it will mean in a later Python
                return re.compile(cleaned)
        except (re.error, OverflowError, RecursionError):
            raise Refused(f"{cleaned} is an invalid regex.", "java.lang.RuntimeException") from None
