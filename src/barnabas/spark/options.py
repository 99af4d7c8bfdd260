"""Every option of `format("barnabas")`: parsed, checked and turned into values before anything is connected. Pure.

Names, defaults and precedence are those of Spark's own Kafka source. Spark hands the names over in lower case;
messages say them as they are written in the documentation. Options a query does not know are refused: a misspelt
`failOnDataLoss` that is passed over would be noticed when data is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote, urlsplit

from barnabas.client.cluster import parse_addresses
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.client_settings import (
    BOOTSTRAP,
    KNOWN,
    PREFIX,
    READ_WITH,
    WRITTEN_WITH,
    acks_of,
    client_settings,
    compression_of,
    idempotence_of,
    is_known,
    number,
    without_effect,
)
from barnabas.spark.planning import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    Everywhere,
    have,
    offsets_of_json,
    shortened,
)
from barnabas.wire.compression import Compression

SOURCES = ("subscribe", "subscribePattern", "assign")
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
PER_TRIGGER = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
TOPIC_IDS = "topicIdsLocation"
READ_OPTIONS = (
    *SOURCES, *STARTING, *ENDING, *PER_TRIGGER, "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "includeHeaders", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "partition.metadata.cache.ttl.ms", TOPIC_IDS,
)  # fmt: skip
WRITE_OPTIONS = ("topic", "includeHeaders")
FOR_SPARK = ("checkpointLocation", "queryName", "path")
"""Spark puts its own options among those of a sink."""
MEANT = {
    "bootstrap.servers": "kafka.bootstrap.servers",
    "topics": "subscribe",
    "group.id": "kafka.group.id",
    "pattern": "subscribePattern",
}

LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
WRITTEN_NUMBERS = (
    "request.timeout.ms", "delivery.timeout.ms", "max.request.size", "buffer.memory", "batch.size",
    "socket.connection.setup.timeout.ms",
)  # fmt: skip
UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    bootstrap_servers: str
    client: Mapping[str, str]
    subscription: Subscription
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
    topic_ids: Path | None = None
    """A directory for the ids of the topics that are read."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    bootstrap_servers: str
    client: Mapping[str, str]
    topic: str | None
    acks: int
    compression: Compression
    idempotent: bool | None
    warnings: tuple[str, ...] = ()


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """ConfigError names the option and what to do about it."""
    given = given_by_user(options)
    check_names(given, READ_OPTIONS, reading=True)
    settings = client_settings(given)
    check_addresses(settings[BOOTSTRAP])
    subscription = subscription_of(given)
    if streaming:
        check_streaming(given)
    start_word = LATEST if streaming else EARLIEST
    starting = bound_of(given, STARTING, start_word)
    ending = bound_of(given, ENDING, LATEST)
    if not streaming:
        check_batch(starting, ending)
    rows_max, rows_min = (whole(given, name) for name in PER_TRIGGER[:2])
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        why = f"{rows_min} is more than maxOffsetsPerTrigger ({rows_max}); lower it"
        raise ConfigError("minOffsetsPerTrigger", why)
    return ReadOptions(
        bootstrap_servers=settings[BOOTSTRAP],
        client=settings,
        subscription=subscription,
        starting=starting,
        ending=ending,
        no_match_is_error=strategy_of(given) == "error",
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        include_headers=boolean(given, "includeHeaders", default=False),
        rows_max=rows_max,
        rows_min=rows_min,
        trigger_delay_ms_max=duration_ms(given, "maxTriggerDelay", "15m"),
        partitions_min=whole(given, "minPartitions"),
        records_max=whole(given, "maxRecordsPerPartition"),
        look_up_attempts=whole(given, "fetchOffset.numRetries") or 3,
        look_up_pause_ms=whole(given, "fetchOffset.retryIntervalMs", least=0, default=1000) or 0,
        metadata_age_ms_max=number(settings, "metadata.max.age.ms", 1000, least=0),
        topic_ids=topic_ids_of(given),
        warnings=read_warnings(given, settings, streaming),
    )


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    given = given_by_user(options)
    check_names(given, (*WRITE_OPTIONS, *FOR_SPARK), reading=False)
    settings = client_settings(given)
    check_addresses(settings[BOOTSTRAP])
    topic = given.get("topic")
    if topic is not None:
        topic = topic.strip()
        check_topic("topic", topic)
    acks = acks_of(settings)
    for name in WRITTEN_NUMBERS:
        number(settings, name, 1)
    return WriteOptions(
        bootstrap_servers=settings[BOOTSTRAP],
        client=settings,
        topic=topic,
        acks=acks,
        compression=compression_of(settings),
        idempotent=idempotence_of(settings, acks),
        warnings=tuple(settings_warnings(settings, WRITTEN_WITH)),
    )


def given_by_user(options: Mapping[str, str]) -> dict[str, str]:
    """A table of the catalog is refused when it is made: Spark drops its options when it is read."""
    given = {name.lower(): value for name, value in options.items()}
    if "provider" in given and any(name.startswith("option.") for name in given):
        why = "Spark does not hand a table's options to a Python source"
        hint = "use create temporary view … using barnabas options (…)"
        raise ConfigError("create table", f"{why}; {hint}")
    return given


# ---- names ------------------------------------------------------------------------------------------------------


def check_names(given: Iterable[str], known: Iterable[str], *, reading: bool) -> None:
    names = {name.lower(): name for name in known}
    for option in sorted(given):
        if option in names:
            continue
        if option.startswith(PREFIX):
            if is_known(option.removeprefix(PREFIX)):
                continue
            near = close(option, {PREFIX + name: PREFIX + name for name in KNOWN})
            raise ConfigError(option, f"Kafka's clients have no such setting; {meant(near)}")
        if reading and option == "topic":
            raise ConfigError(option, "is an option of the sink; a source takes subscribe")
        if reading and option == "path":
            raise ConfigError(option, "a topic is not a path; use load() and option subscribe")
        near = MEANT.get(option) or close(option, names)
        raise ConfigError(option, f"there is no such option; {meant(near)}")


def close(option: str, names: Mapping[str, str]) -> str | None:
    found = get_close_matches(option, names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def meant(near: str | None) -> str:
    return f"did you mean {near}?" if near else "leave it out"


# ---- what is read -----------------------------------------------------------------------------------------------


def subscription_of(given: Mapping[str, str]) -> Subscription:
    named = [name for name in SOURCES if name.lower() in given]
    if not named:
        raise ConfigError("subscribe", f"is missing; say what to read with {' or '.join(SOURCES)}")
    if len(named) > 1:
        raise ConfigError(
            named[1], f"cannot stand beside {named[0]}; keep one of {', '.join(named)}"
        )
    name = named[0]
    text = given[name.lower()].strip()
    match name:
        case "subscribe":
            topics = tuple(
                dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip())
            )
            if not topics:
                raise ConfigError(name, "names no topic; write them with commas between")
            for topic in topics:
                check_topic(name, topic)
            return Subscription(topics=topics)
        case "subscribePattern":
            check_pattern(text)
            return Subscription(pattern=text)
        case _:
            return Subscription(partitions=assigned(text))


def check_topic(option: str, topic: str) -> None:
    if LEGAL_TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        why = "cannot be a topic; up to 249 letters, digits, '.', '_' and '-' can"
        raise ConfigError(option, f"{shortened(topic)!r} {why}")


def check_pattern(text: str) -> None:
    if not text:
        raise ConfigError(
            "subscribePattern", "is empty; write a regular expression, .* for all topics"
        )
    try:
        re.compile(text)
    except re.error as error:
        why = f"{shortened(text)!r} is not a regular expression: {error}"
        raise ConfigError("subscribePattern", why) from None


def assigned(text: str) -> tuple[TopicPartition, ...]:
    expected = 'write it like {"orders":[0,1]}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            "assign", f"{shortened(text)} is not JSON ({error}); {expected}"
        ) from None
    if not isinstance(found, dict) or not all(isinstance(part, list) for part in found.values()):
        raise ConfigError("assign", f"{shortened(text)} is not an object of lists; {expected}")
    partitions = []
    for topic, numbers in found.items():
        check_topic("assign", topic)
        for partition in numbers:
            if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                why = f"{json.dumps(partition)} is not the number of a partition; {expected}"
                raise ConfigError("assign", why)
            partitions.append(TopicPartition(topic, partition))
    if not partitions:
        raise ConfigError("assign", f"names no partition; {expected}")
    return tuple(sorted(set(partitions)))


def bound_of(given: Mapping[str, str], names: tuple[str, str, str], default: int) -> Bound:
    """A time for all goes before times per partition, and these before offsets; so it is in Spark's own source."""
    for_all, by_partition, by_offset = names
    if for_all.lower() in given:
        timestamp = whole(given, for_all, least=0, unit="milliseconds since 1970")
        assert timestamp is not None
        return AtTime(option=for_all, timestamp=timestamp)
    if by_partition.lower() in given:
        text = given[by_partition.lower()].strip()
        return AtTimes(option=by_partition, timestamps=offsets_of_json(by_partition, text, least=0))
    text = given.get(by_offset.lower(), "").strip()
    if by_offset.lower() not in given:
        return Everywhere(option=by_offset, offset=default)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if word is not None:
        return Everywhere(option=by_offset, offset=word)
    if not text.startswith("{"):
        why = f'{shortened(text)!r} is neither earliest nor latest, nor JSON like {{"orders":{{"0":23}}}}'
        raise ConfigError(by_offset, why)
    return AtOffsets(option=by_offset, offsets=offsets_of_json(by_offset, text))


def check_streaming(given: Mapping[str, str]) -> None:
    for name in ENDING:
        if name.lower() in given:
            why = "a stream has no end; leave it out, or use trigger(availableNow=True)"
            raise ConfigError(name, why)


def check_batch(starting: Bound, ending: Bound) -> None:
    check_not(starting, LATEST, "latest leaves a batch nothing to read; use earliest or offsets")
    check_not(ending, EARLIEST, "earliest leaves a batch nothing to read; use latest or offsets")
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
        why = f"must name the same partitions as {starting.option}; only one of them has {only}"
        raise ConfigError(ending.option, why)
    for partition, begin in first.items():
        if 0 <= last[partition] < begin:
            why = f"ends at {last[partition]} in {partition}, before {starting.option} ({begin})"
            raise ConfigError(ending.option, why)


def check_not(bound: Bound, word: int, why: str) -> None:
    match bound:
        case Everywhere(offset=offset) if offset == word:
            raise ConfigError(bound.option, why)
        case AtOffsets(offsets=offsets):
            for partition, offset in offsets.items():
                if offset == word:
                    raise ConfigError(bound.option, f"{partition} has {word}: {why}")
        case _:
            pass


def strategy_of(given: Mapping[str, str]) -> str:
    name = "startingOffsetsByTimestampStrategy"
    text = given.get(name.lower(), "error").strip().lower()
    if text not in ("error", "latest"):
        raise ConfigError(name, f"must be error or latest, not {text!r}")
    return text


# ---- values -----------------------------------------------------------------------------------------------------


def whole(
    given: Mapping[str, str],
    name: str,
    *,
    least: int = 1,
    default: int | None = None,
    unit: str = "",
) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    what = f"a whole number{f' of {unit}' if unit else ''} from {least} on"
    try:
        value = int(text.strip())
    except ValueError:
        raise ConfigError(name, f"must be {what}, not {shortened(text)!r}") from None
    if not least <= value < 1 << 63:
        raise ConfigError(name, f"must be {what}, not {value}")
    return value


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(name, f"must be true or false, not {shortened(text)!r}")
    return text.strip().lower() == "true"


def duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """15m, 30s, 500ms; a bare number is milliseconds."""
    text = given.get(name.lower(), default).strip().lower()
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text)
    unit = match and (match[2] or "ms")
    if match is None or unit not in UNITS_MS:
        units = ", ".join(UNITS_MS)
        why = f"must be a number and a unit ({units}), as in 15m; not {shortened(text)!r}"
        raise ConfigError(name, why)
    return int(int(match[1]) * UNITS_MS[unit])


def topic_ids_of(given: Mapping[str, str]) -> Path | None:
    """A path, or a URL of scheme file: where Spark's own files may lie on S3 or HDFS, these are written by Python."""
    text = given.get(TOPIC_IDS.lower(), "").strip()
    if TOPIC_IDS.lower() not in given:
        return None
    address = urlsplit(text)
    if address.scheme not in ("", "file") or not address.path:
        why = f"{shortened(text)!r} is not a directory on a disk of the driver; mount one there"
        raise ConfigError(TOPIC_IDS, why)
    return Path(unquote(address.path) if address.scheme else text).absolute()


def check_addresses(text: str) -> None:
    try:
        parse_addresses(text)
    except ConfigError as error:
        raise ConfigError(PREFIX + BOOTSTRAP, error.why) from None


# ---- warnings ---------------------------------------------------------------------------------------------------


def read_warnings(
    given: Mapping[str, str], settings: Mapping[str, str], streaming: bool
) -> tuple[str, ...]:
    found = settings_warnings(settings, READ_WITH)
    groups = [name for name in ("groupIdPrefix", "kafka.group.id") if name.lower() in given]
    if groups:
        found.append(f"{' and '.join(groups)} {have(groups)} no effect: no consumer group is used")
    if "kafkaconsumer.polltimeoutms" in given:
        found.append("kafkaConsumer.pollTimeoutMs has no effect; use kafka.default.api.timeout.ms")
    if "partition.metadata.cache.ttl.ms" in given:
        found.append("partition.metadata.cache.ttl.ms has no effect; use kafka.metadata.max.age.ms")
    if not streaming:
        idle = [name for name in (*PER_TRIGGER, TOPIC_IDS) if name.lower() in given]
        if idle:
            found.append(f"{', '.join(idle)} {have(idle)} no effect in a batch query")
    return tuple(found)


def settings_warnings(settings: Mapping[str, str], honoured: frozenset[str]) -> list[str]:
    names = [PREFIX + name for name in without_effect(settings, honoured)]
    return [f"{', '.join(names)} {have(names)} no effect here"] if names else []
