"""Parsing and validation of the options of `format("barnabas")`, before any connection is made. Pure.

Names, defaults and precedence are those of Spark's Kafka source. Spark passes the names in lower case; messages use the
documented spelling. Unknown options are rejected: a misspelt `failOnDataLoss` would be noticed only after data loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from barnabas.batch.compression import Compression
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.client_settings import (
    CONSUMER_SETTINGS,
    KNOWN_SETTINGS,
    PREFIX,
    PRODUCER_SETTINGS,
    ignored_settings,
    integer_setting,
    is_known,
    parse_acks,
    parse_client_settings,
    parse_compression,
    parse_idempotence,
)
from barnabas.spark.planning import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    EarliestOrLatest,
    abbreviate,
    has_or_have,
    parse_offsets_json,
)

SELECTIONS = ("subscribe", "subscribePattern", "assign")
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
PER_TRIGGER = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
STRATEGY = "startingOffsetsByTimestampStrategy"
TOPIC_IDS_LOCATION = "topicIdsLocation"
PUBLISH_GROUP = "publishOffsetsToGroup"
READ_OPTIONS = (
    *SELECTIONS, *STARTING, *ENDING, *PER_TRIGGER, STRATEGY, "failOnDataLoss",
    "minPartitions", "maxRecordsPerPartition", "includeHeaders", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "partition.metadata.cache.ttl.ms",
    TOPIC_IDS_LOCATION, PUBLISH_GROUP,
)  # fmt: skip
EXACTLY_ONCE = "exactlyOnce"
TRANSACTIONAL_ID = "transactionalId"
BATCH_ID = "batchId"
ON_LOST = "onLostTransactions"
ON_LOST_CHOICES = ("fail", "repeat", "skip")
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
WRITE_OPTIONS = ("topic", "includeHeaders", EXACTLY_ONCE, TRANSACTIONAL_ID, BATCH_ID, ON_LOST)
SPARK_SINK_OPTIONS = ("checkpointLocation", "queryName", "path")
"""Options for Spark itself, which a sink gets too. They are ignored."""
COMMON_MISTAKES = {
    "bootstrap.servers": "kafka.bootstrap.servers",
    "topics": "subscribe",
    "group.id": "kafka.group.id",
    "pattern": "subscribePattern",
}

LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
SIZE_SETTINGS = ("max.request.size", "buffer.memory", "batch.size")
Default = TypeVar("Default", int, None)
UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The topics to read. Exactly one of the fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a source. `client` holds the Kafka settings without prefix; `rows_*` apply to one micro-batch."""

    client: Mapping[str, str] = field(repr=False)
    selection: TopicSelection
    starting: Bound
    ending: Bound
    no_match_is_error: bool = True
    fail_on_data_loss: bool = True
    include_headers: bool = False
    rows_max: int | None = None
    rows_min: int | None = None
    trigger_delay_ms_max: int = 900_000
    partitions_min: int | None = None
    records_max: int | None = None
    look_up_attempts: int = 3
    look_up_pause_ms: int = 1000
    metadata_age_ms_max: int = 1000
    topic_ids_location: Path | None = None
    publish_group: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    client: Mapping[str, str] = field(repr=False)
    topic: str | None
    acks: int
    compression: Compression
    idempotent: bool | None
    exactly_once: bool = False
    transactional_id: str | None = None
    """Name of a batch job, which is written once. A stream has the id of its query instead."""
    batch_id: int = 0
    on_lost: str = "fail"
    """Reaction if transactions of a decided batch timed out: one of ON_LOST_CHOICES."""
    transaction_timeout_ms: int = 900_000
    warnings: tuple[str, ...] = ()


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a source. Raises ConfigError."""
    given = normalize_options(options)
    check_option_names(given, READ_OPTIONS, reading=True)
    settings = parse_client_settings(given)
    selection = parse_selection(given)
    if streaming:
        check_streaming(given)
    starting = parse_bound(given, STARTING, LATEST if streaming else EARLIEST)
    ending = parse_bound(given, ENDING, LATEST)
    if not streaming:
        check_batch(starting, ending)
    rows_max, rows_min = (parse_integer(given, name, None) for name in PER_TRIGGER[:2])
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        why = f"{rows_min} is more than maxOffsetsPerTrigger ({rows_max}); lower it"
        raise ConfigError("minOffsetsPerTrigger", why)
    return ReadOptions(
        client=settings,
        selection=selection,
        starting=starting,
        ending=ending,
        no_match_is_error=parse_choice(given, STRATEGY, ("error", "latest"), "error") == "error",
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", "true"),
        include_headers=parse_boolean(given, "includeHeaders", "false"),
        rows_max=rows_max,
        rows_min=rows_min,
        trigger_delay_ms_max=parse_duration_ms(given, "maxTriggerDelay", "15m"),
        partitions_min=parse_integer(given, "minPartitions", None),
        records_max=parse_integer(given, "maxRecordsPerPartition", None),
        look_up_attempts=parse_integer(given, "fetchOffset.numRetries", 3),
        look_up_pause_ms=parse_integer(given, "fetchOffset.retryIntervalMs", 1000, least=0),
        metadata_age_ms_max=integer_setting(settings, "metadata.max.age.ms", 1000, least=0),
        topic_ids_location=parse_topic_ids_location(given),
        publish_group=parse_publish_group(given),
        warnings=read_warnings(given, settings, streaming),
    )


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a sink. Raises ConfigError."""
    given = normalize_options(options)
    check_option_names(given, (*WRITE_OPTIONS, *SPARK_SINK_OPTIONS), reading=False)
    settings = parse_client_settings(given)
    topic = given.get("topic")
    if topic is not None:
        topic = topic.strip()
        check_topic("topic", topic)
    acks = parse_acks(settings)
    for name in SIZE_SETTINGS:
        integer_setting(settings, name, 1)
    idempotent = parse_idempotence(settings, acks)
    exactly_once = parse_exactly_once(given, acks, idempotent)
    supported = PRODUCER_SETTINGS | ({TRANSACTION_TIMEOUT} if exactly_once else set())
    return WriteOptions(
        client=settings,
        topic=topic,
        acks=acks,
        compression=parse_compression(settings),
        idempotent=idempotent,
        exactly_once=exactly_once,
        transactional_id=parse_transactional_id(given),
        batch_id=parse_integer(given, BATCH_ID, 0, least=0),
        on_lost=parse_choice(given, ON_LOST, ON_LOST_CHOICES, "fail"),
        transaction_timeout_ms=integer_setting(settings, TRANSACTION_TIMEOUT, 900_000, least=1000),
        warnings=tuple(settings_warnings(settings, supported)),
    )


def parse_exactly_once(given: Mapping[str, str], acks: int, idempotent: bool | None) -> bool:
    """Parse exactlyOnce. Raises ConfigError for settings that it excludes, and for those that need it."""
    is_enabled = parse_boolean(given, EXACTLY_ONCE, "false")
    if is_enabled:
        if acks != -1:
            raise ConfigError(EXACTLY_ONCE, "needs kafka.acks=all; change one of the two")
        if idempotent is False:
            why = "needs kafka.enable.idempotence=true; change one of the two"
            raise ConfigError(EXACTLY_ONCE, why)
        if BATCH_ID.lower() in given and TRANSACTIONAL_ID.lower() not in given:
            raise ConfigError(BATCH_ID, f"needs {TRANSACTIONAL_ID}, whose batches it numbers")
        return True
    for name in (TRANSACTIONAL_ID, BATCH_ID, ON_LOST):
        if name.lower() in given:
            raise ConfigError(name, f"needs {EXACTLY_ONCE}=true; set it, or remove {name}")
    return False


def parse_transactional_id(given: Mapping[str, str]) -> str | None:
    text = given.get(TRANSACTIONAL_ID.lower())
    if text is not None and LEGAL_TOPIC.fullmatch(text.strip()) is None:
        why = f"{abbreviate(text)!r} is not a valid id; use up to 249 letters, digits, '.', '_' and '-'"
        raise ConfigError(TRANSACTIONAL_ID, why)
    return text and text.strip()


def normalize_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with lower-case names. Raises ConfigError for the options of `create table`."""
    given = {name.lower(): value for name, value in options.items()}
    if "provider" in given and any(name.startswith("option.") for name in given):
        why = "Spark does not pass the options of a table to a Python source"
        hint = "use create temporary view … using barnabas options (…)"
        raise ConfigError("create table", f"{why}; {hint}")
    return given


# ---- names ------------------------------------------------------------------------------------------------------


def check_option_names(given: Iterable[str], known: Iterable[str], *, reading: bool) -> None:
    names = {name.lower(): name for name in known}
    for option in sorted(given):
        if option in names:
            continue
        if option.startswith(PREFIX):
            if is_known(option.removeprefix(PREFIX)):
                continue
            similar = closest_name(
                option, {PREFIX + name: PREFIX + name for name in KNOWN_SETTINGS}
            )
            why = f"Kafka's clients have no such setting; {suggestion(similar)}"
            raise ConfigError(option, why)
        if reading and option == "topic":
            raise ConfigError(option, "is an option of the sink; use subscribe to read")
        if reading and option == "path":
            raise ConfigError(option, "a topic is not a path; use load() and option subscribe")
        similar = COMMON_MISTAKES.get(option) or closest_name(option, names)
        raise ConfigError(option, f"there is no such option; {suggestion(similar)}")


def closest_name(option: str, names: Mapping[str, str]) -> str | None:
    found = get_close_matches(option, names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def suggestion(similar: str | None) -> str:
    return f"did you mean {similar}?" if similar else "remove it"


# ---- topics and bounds ------------------------------------------------------------------------------------------


def parse_selection(given: Mapping[str, str]) -> TopicSelection:
    named = [name for name in SELECTIONS if name.lower() in given]
    if not named:
        raise ConfigError("subscribe", f"is missing; set {' or '.join(SELECTIONS)}")
    if len(named) > 1:
        why = f"cannot be combined with {named[0]}; keep one of {', '.join(named)}"
        raise ConfigError(named[1], why)
    name = named[0]
    text = given[name.lower()].strip()
    match name:
        case "subscribe":
            topics = tuple(
                dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip())
            )
            if not topics:
                raise ConfigError(name, "names no topic; write a comma-separated list")
            for topic in topics:
                check_topic(name, topic)
            return TopicSelection(topics=topics)
        case "subscribePattern":
            check_pattern(text)
            return TopicSelection(pattern=text)
        case _:
            return TopicSelection(partitions=parse_assign(text))


def check_topic(option: str, topic: str) -> None:
    if LEGAL_TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        why = "is not a valid topic name; use up to 249 letters, digits, '.', '_' and '-'"
        raise ConfigError(option, f"{abbreviate(topic)!r} {why}")


def check_pattern(text: str) -> None:
    if not text:
        why = "is empty; set a regular expression, .* for all topics"
        raise ConfigError("subscribePattern", why)
    try:
        re.compile(text)
    except re.error as error:
        why = f"{abbreviate(text)!r} is not a regular expression: {error}"
        raise ConfigError("subscribePattern", why) from None


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    expected = 'write it like {"orders":[0,1]}'
    try:
        found = json.loads(text)
    except ValueError as error:
        why = f"{abbreviate(text)} is not JSON ({error}); {expected}"
        raise ConfigError("assign", why) from None
    if not isinstance(found, dict) or not all(isinstance(part, list) for part in found.values()):
        raise ConfigError("assign", f"{abbreviate(text)} is not an object of lists; {expected}")
    partitions = []
    for topic, numbers in found.items():
        check_topic("assign", topic)
        for partition in numbers:
            if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                why = f"{json.dumps(partition)} is not a partition number; {expected}"
                raise ConfigError("assign", why)
            partitions.append(TopicPartition(topic, partition))
    if not partitions:
        raise ConfigError("assign", f"names no partition; {expected}")
    return tuple(sorted(set(partitions)))


def parse_bound(given: Mapping[str, str], names: tuple[str, str, str], default: int) -> Bound:
    """Parse the start or the end. `names` are the options by precedence, as in Spark's Kafka source."""
    for_all, by_partition, by_offset = names
    if for_all.lower() in given:
        timestamp = parse_integer(given, for_all, 0, least=0, unit=" (milliseconds since 1970)")
        return AtTime(option=for_all, timestamp=timestamp)
    if by_partition.lower() in given:
        text = given[by_partition.lower()].strip()
        return AtTimes(
            option=by_partition, timestamps=parse_offsets_json(by_partition, text, least=0)
        )
    text = given.get(by_offset.lower(), "").strip()
    if by_offset.lower() not in given:
        return EarliestOrLatest(option=by_offset, offset=default)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if word is not None:
        return EarliestOrLatest(option=by_offset, offset=word)
    if not text.startswith("{"):
        why = f'{abbreviate(text)!r} is neither earliest nor latest, nor JSON like {{"orders":{{"0":23}}}}'
        raise ConfigError(by_offset, why)
    return AtOffsets(option=by_offset, offsets=parse_offsets_json(by_offset, text))


def check_streaming(given: Mapping[str, str]) -> None:
    for name in ENDING:
        if name.lower() in given:
            why = "a stream has no end; remove it, or use trigger(availableNow=True)"
            raise ConfigError(name, why)


def check_batch(starting: Bound, ending: Bound) -> None:
    check_bound(starting, LATEST, "a batch that starts at latest", "earliest")
    check_bound(ending, EARLIEST, "a batch that ends at earliest", "latest")
    match starting, ending:
        case AtOffsets(offsets=first), AtOffsets(offsets=last):
            pass
        case AtTimes(timestamps=first), AtTimes(timestamps=last):
            pass
        case AtTime(timestamp=begin), AtTime(timestamp=end) if begin > end:
            raise ConfigError(ending.option, f"{end} is before {starting.option} ({begin})")
        case _:
            return
    if first.keys() != last.keys():
        only = min(first.keys() ^ last.keys())
        why = f"must name the same partitions as {starting.option}; only one option has {only}"
        raise ConfigError(ending.option, why)
    for partition, begin in first.items():
        if 0 <= last[partition] < begin:
            why = f"ends at {last[partition]} in {partition}, before {starting.option} ({begin})"
            raise ConfigError(ending.option, why)


def check_bound(bound: Bound, rejected: int, batch: str, better: str) -> None:
    """Raise ConfigError if a partition has the offset `rejected`: EARLIEST or LATEST."""
    why = f"{batch} reads nothing; use {better} or offsets"
    match bound:
        case EarliestOrLatest(offset=offset) if offset == rejected:
            raise ConfigError(bound.option, why)
        case AtOffsets(offsets=offsets):
            for partition, offset in offsets.items():
                if offset == rejected:
                    raise ConfigError(bound.option, f"{partition} has {rejected}: {why}")
        case _:
            pass


# ---- values -----------------------------------------------------------------------------------------------------


def parse_integer(
    given: Mapping[str, str], name: str, default: Default, *, least: int = 1, unit: str = ""
) -> int | Default:
    text = given.get(name.lower())
    if text is None:
        return default
    what = f"an integer of at least {least}{unit}"
    try:
        value = int(text.strip())
    except ValueError:
        raise ConfigError(name, f"must be {what}, not {abbreviate(text)!r}") from None
    if not least <= value < 1 << 63:
        raise ConfigError(name, f"must be {what}, not {value}")
    return value


def parse_boolean(given: Mapping[str, str], name: str, default: str) -> bool:
    return parse_choice(given, name, ("true", "false"), default) == "true"


def parse_choice(
    given: Mapping[str, str], name: str, choices: tuple[str, ...], default: str
) -> str:
    text = given.get(name.lower(), default)
    choice = text.strip().lower()
    if choice not in choices:
        raise ConfigError(name, f"must be {' or '.join(choices)}, not {abbreviate(text)!r}")
    return choice


def parse_duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """Parse a duration such as 15m, 30s or 500ms. The default unit is milliseconds."""
    text = given.get(name.lower(), default)
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = match and (match[2] or "ms")
    if match is None or unit not in UNITS_MS:
        units = ", ".join(UNITS_MS)
        why = f"must be a number and a unit ({units}), as in 15m; not {abbreviate(text)!r}"
        raise ConfigError(name, why)
    return int(int(match[1]) * UNITS_MS[unit])


def parse_publish_group(given: Mapping[str, str]) -> str | None:
    group = given.get(PUBLISH_GROUP.lower())
    if group is not None and not group.strip():
        raise ConfigError(PUBLISH_GROUP, "is empty; set the name of a consumer group")
    return group and group.strip()


def parse_topic_ids_location(given: Mapping[str, str]) -> Path | None:
    """Parse a path or a file: URL. S3 and HDFS are not supported, because Python writes the files (topic_ids.py)."""
    text = given.get(TOPIC_IDS_LOCATION.lower(), "").strip()
    if TOPIC_IDS_LOCATION.lower() not in given:
        return None
    address = urlsplit(text)
    if address.scheme not in ("", "file") or not address.path:
        why = f"{abbreviate(text)!r} is not a local directory of the driver; use a path or a file: URL"
        raise ConfigError(TOPIC_IDS_LOCATION, why)
    return Path(unquote(address.path) if address.scheme else text).absolute()


# ---- warnings ---------------------------------------------------------------------------------------------------


def read_warnings(
    given: Mapping[str, str], settings: Mapping[str, str], streaming: bool
) -> tuple[str, ...]:
    found = settings_warnings(settings, CONSUMER_SETTINGS)
    groups = [name for name in ("groupIdPrefix", "kafka.group.id") if name.lower() in given]
    if groups:
        found.append(
            f"{' and '.join(groups)} {has_or_have(groups)} no effect: no consumer group is used"
        )
    if "kafkaconsumer.polltimeoutms" in given:
        found.append("kafkaConsumer.pollTimeoutMs has no effect; use kafka.default.api.timeout.ms")
    if "partition.metadata.cache.ttl.ms" in given:
        found.append("partition.metadata.cache.ttl.ms has no effect; use kafka.metadata.max.age.ms")
    if not streaming:
        stream_only = (*PER_TRIGGER, TOPIC_IDS_LOCATION, PUBLISH_GROUP)
        unused = [name for name in stream_only if name.lower() in given]
        if unused:
            found.append(f"{', '.join(unused)} {has_or_have(unused)} no effect in a batch query")
    return tuple(found)


def settings_warnings(settings: Mapping[str, str], supported: frozenset[str]) -> list[str]:
    names = [PREFIX + name for name in ignored_settings(settings, supported)]
    return [f"{', '.join(names)} {has_or_have(names)} no effect here"] if names else []
