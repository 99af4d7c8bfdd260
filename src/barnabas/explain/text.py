"""Text of findings: one or two sentences for the cause, and the next step with its command.

    orders-0: no leader. Its in-sync replica is on broker 2, which is down.
    next: start broker 2 again

The templates are in sentences.py. Names in commands are quoted for the shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Any

from barnabas.explain.finding import Cause, Finding
from barnabas.explain.sentences import SENTENCES
from barnabas.explain.wording import join_with_and, name_brokers, plain_ranges
from barnabas.history.words import format_duration, format_time

PARTITIONS_NAMED_MAX = 12
TOPICS_NAMED_MAX = 4
RANGES_LENGTH_MAX = 60
"""Longer lists of topics and partitions are replaced by their numbers; JSON has all."""


# ---- sentences ------------------------------------------------------------------------------------------------


def cause_text(finding: Finding) -> str:
    return SENTENCES[finding.cause].cause.format_map(text_fields(finding, "")).rstrip(".")


def next_text(
    finding: Finding, servers: str = "", start_commands: Mapping[int, str] | None = None
) -> str:
    """Return the next step.

    `servers` is empty, or the option ` -b HOST:PORT` for the commands. `start_commands` start brokers on this machine.
    """
    fields = text_fields(finding, servers)
    fields |= start_fields(finding.brokers, start_commands or {}, servers)
    # The next step of a consequence is that of its cause.
    cause = Cause(str(finding.values.get("because", finding.cause)))
    return SENTENCES[cause].next_step.format_map(fields)


def start_fields(
    brokers: Sequence[int], commands: Mapping[int, str], servers: str
) -> dict[str, str]:
    """Return `start broker 2 again`, with the command if it is known for all brokers, else with another one."""
    start = f"start {name_brokers(brokers) if brokers else 'the brokers'} again"
    known = [f"`{commands[broker]}`" for broker in brokers if broker in commands]
    if known and len(known) == len(brokers):
        return {"start_again": f"{start}: {join_with_and(known)}", "see_what_waits": ""}
    broker = brokers[0] if brokers else ""
    see = f"; `barnabas brokers explain {broker}{servers}` shows what waits for it"
    return {"start_again": start, "see_what_waits": see}


class TextFields(dict[str, Any]):
    """Fields of the templates. Fields that a finding does not have are empty."""

    def __missing__(self, name: str) -> str:
        return ""


def text_fields(finding: Finding, servers: str) -> TextFields:
    values = finding.values
    brokers = finding.brokers
    first = finding.partitions[0] if finding.partitions else None
    dirs = f" ({values['dirs']})" if values.get("dirs") else ""
    return TextFields(
        {
            **values,
            "servers": servers,
            "topic": quote(finding.topic or (first.topic if first else "")),
            "topic_value": values.get("topic", ""),
            "group": quote(finding.group or ""),
            "partition": quote(str(first or "")),
            "moves": moves_text(finding),
            "selection": selection_text(finding),
            "selection_or_all": selection_or_all(finding),
            "unthrottle_commands": unthrottle_commands(finding, servers),
            "brokers": name_brokers(brokers) if brokers else "the brokers",
            "broker": brokers[0] if brokers else "",
            **number_fields(brokers),
            "lag": f"{finding.lag or 0:,}",
            "lag_text": f" ({count_records(finding.lag)} behind)" if finding.lag else "",
            "in_dirs": dirs,
            "in_dirs_or_shutdown": dirs or ", or its broker is shutting down",
            "by_text": f" requested by {values['by']}" if "by" in values else "",
            "replica_text": replica_text(values.get("replicas")),
            "replicas_are": f"{'is' if values.get('replicas') == 1 else 'are'} only {count_replicas_text(values)}",
            "all_replicas": all_replicas_text(finding),
            "in_sync_replicas": in_sync_text(finding),
            "failover_text": failover_text(values),
            "unclean_text": unclean_text(finding),
            "unclean_step": unclean_step(finding, servers),
            "interval": format_duration(int(values.get("interval_s", 0)) * 1000),
            "transaction_timeout": format_duration(int(values.get("timeout_ms", 0))),
            "transactional_id_argument": quote(str(values.get("transactional_id", ""))),
            "registry_clients": "the brokers" if values.get("is_lost") else "this command",
            "registered_text": f"; registered: {name_brokers(brokers)}" if brokers else "",
            "registered_brokers": registered_text(values),
            "waiting_records": f": {count_records(finding.lag)} wait" if finding.lag else "",
            "missing_members": missing_members_text(values),
            "timeout_text": timeout_text(values),
            "waits_text": f"; it waits for {name_brokers(brokers)}" if brokers else "",
            "coordinator_text": coordinator_text(finding),
            "coordinator_step": coordinator_step(finding, servers),
        }
    )


def number_fields(brokers: Sequence[int]) -> dict[str, str]:
    """Return the phrases that depend on the number of brokers."""
    if len(brokers) == 1:
        on = f"the replica on broker {brokers[0]} is"
        words = (on, f"{on} missing", "the broker is", "the broker was", "does not")
    else:
        on = f"the replicas on {name_brokers(brokers)} are" if brokers else ""
        words = (on, f"{on} missing", "the brokers are", "the brokers were", "do not")
    names = (
        "replicas_are_on",
        "replicas_are_missing",
        "the_brokers_are",
        "the_brokers_were",
        "do_not",
    )
    return dict(zip(names, words, strict=True))


def count_records(count: int | None) -> str:
    return f"{count or 0:,} record{'' if count == 1 else 's'}"


def count_replicas_text(values: Mapping[str, str | int]) -> str:
    count = values.get("replicas", 0)
    return f"{count} replica{'' if count == 1 else 's'}"


def replica_text(count: object) -> str:
    if not isinstance(count, int) or not count:
        return ""
    return f", and {count:,} {'partition waits' if count == 1 else 'partitions wait'} for it"


def all_replicas_text(finding: Finding) -> str:
    brokers = finding.brokers
    count = finding.values.get("replicas", len(brokers))
    if count == 1:
        return f"its only replica is on {name_brokers(brokers)}, which is" if brokers else ""
    if not brokers:
        return ""
    if len(brokers) == 1:
        return f"all replicas are down. {name_brokers(brokers).capitalize()} is in sync and must start first; it is"
    return f"all in-sync replicas, on {name_brokers(brokers)}, are"


def in_sync_text(finding: Finding) -> str:
    brokers = finding.brokers
    if not brokers:
        return ""
    if len(brokers) == 1:
        return f"its only in-sync replica is on {name_brokers(brokers)}, which is"
    return f"the in-sync replicas, on {name_brokers(brokers)}, are"


def unclean_text(finding: Finding) -> str:
    """Return what an unclean election would do and lose, if a replica is left."""
    values = finding.values
    if "unclean" not in values:
        return ""
    since, end = values.get("unclean_since_ms"), values.get("unclean_end")
    lost = "all records that it does not have"
    if end is not None:
        lost = f"the records from offset {end} on"
    if since is not None:
        lost += f", written since {short_time(int(since))}"
    return f" An unclean election would choose broker {values['unclean']} and lose {lost}"


def unclean_step(finding: Finding, servers: str) -> str:
    if "unclean" not in finding.values or not finding.partitions:
        return ""
    command = f"`barnabas elect-leaders --unclean {selection_or_all(finding)}{servers}`"
    return f"; if its data is lost for good, accept the loss: {command}"


def failover_text(values: Mapping[str, str | int]) -> str:
    if values.get("can_fail_over"):
        return "Another replica is elected when its registry session expires"
    return "No other replica is in sync, so none can be elected"


def selection_text(finding: Finding) -> str:
    """Return the partitions as options of a command: `--topic orders:0,2 --topic clicks:1`."""
    return " ".join(
        "--topic " + quote(f"{topic}:{','.join(map(str, numbers))}")
        for topic, numbers in numbers_by_topic(finding).items()
    )


def selection_or_all(finding: Finding) -> str:
    """Return the partitions as options of `elect-leaders`: `--all` for many, which skips healthy partitions."""
    return "--all" if is_long(finding) else selection_text(finding)


def is_long(finding: Finding) -> bool:
    return len(finding.partitions) > PARTITIONS_NAMED_MAX


def moves_text(finding: Finding) -> str:
    """Return the partitions as arguments of a command: `orders:0 orders:2`, or `--all` for many."""
    if is_long(finding):
        return "--all"
    return " ".join(quote(f"{each.topic}:{each.partition}") for each in finding.partitions)


def unthrottle_commands(finding: Finding, servers: str) -> str:
    """Return the commands that remove the limits of a follower's broker and of its leader's."""
    limits = [
        f"`barnabas configs reset --broker {broker} {role}.replication.throttled.rate{servers}`"
        for role in ("follower", "leader")
        if (broker := finding.values.get(f"throttled_{role}")) is not None
    ]
    return join_with_and(limits) if limits else ""


def registered_text(values: Mapping[str, str | int]) -> str:
    count = values.get("registered", 0)
    return f"{count} broker{' is' if count == 1 else 's are'} registered"


def missing_members_text(values: Mapping[str, str | int]) -> str:
    """Return `app at 10.0.0.7 to rejoin`, or what is known without the members of the last generation."""
    names = values.get("waits_for")
    if not names:
        return "its members to join"
    return (
        f"{names} to rejoin"
        if values.get("waits_count") == 1
        else f"at least one of {names} to rejoin"
    )


def timeout_text(values: Mapping[str, str | int]) -> str:
    if "timeout_ms" not in values:
        return ""
    return f" A member that does not rejoin within {format_duration(int(values['timeout_ms']))} is removed."


def coordinator_text(finding: Finding) -> str:
    if not finding.partitions:
        return "__consumer_offsets does not exist"
    partition, why = finding.partitions[0], finding.values.get("why")
    return f"{partition} has no leader" if finding.brokers or not why else f"{partition}: {why}"


def coordinator_step(finding: Finding, servers: str) -> str:
    if finding.partitions:
        return f"`barnabas partitions explain {finding.partitions[0]}{servers}` shows why"
    return f"`barnabas cluster explain{servers}` shows whether it can be created"


# ---- time and subject -----------------------------------------------------------------------------------------


def short_time(at_ms: int) -> str:
    return f"{format_time(datetime.fromtimestamp(at_ms / 1000, UTC))[:19]} UTC"


def since_text(finding: Finding, now_ms: int) -> str:
    """Return `since 2026-05-01 08:00:00 UTC (2 min 3 s)`, or an empty text."""
    if finding.since_ms is None:
        return ""
    passed = format_duration(max(0, now_ms - finding.since_ms))
    return f"since {short_time(finding.since_ms)} ({passed})"


def subject_text(finding: Finding) -> str:
    """Return what the finding is about: `orders-0`, `orders-0, 3 and 5`, `group billing`; empty for the cluster."""
    if finding.partitions:
        return partition_names(finding)
    if finding.group is not None:
        return f"group {finding.group}"
    topics = finding.topics if finding.topic is None else (finding.topic,)
    if len(topics) > TOPICS_NAMED_MAX:
        return f"{len(topics):,} topics"
    return f"topic{'s' if len(topics) > 1 else ''} {join_with_and(topics)}" if topics else ""


def partition_names(finding: Finding) -> str:
    """Return `orders-0`, `orders partitions 0 to 3; clicks-1`, or only numbers: `6,671 partitions of 101 topics`."""
    by_topic = numbers_by_topic(finding)
    if len(by_topic) > TOPICS_NAMED_MAX:
        return f"{len(finding.partitions):,} partitions of {len(by_topic):,} topics"
    return "; ".join(topic_partitions_text(topic, numbers) for topic, numbers in by_topic.items())


def numbers_by_topic(finding: Finding) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(finding.partitions):
        by_topic.setdefault(topic, []).append(number)
    return by_topic


def topic_partitions_text(topic: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{topic}-{numbers[0]}"
    ranges = plain_ranges(numbers)
    if len(ranges) > RANGES_LENGTH_MAX:
        return f"{len(numbers):,} partitions of {topic}"
    return f"{topic} partitions {ranges}"


# ---- documents ------------------------------------------------------------------------------------------------


def finding_document(
    finding: Finding,
    now_ms: int,
    servers: str = "",
    start_commands: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Return a finding for JSON and YAML, with its texts."""
    return {
        "cause": finding.cause.value,
        "severity": finding.severity.name.lower(),
        "subject": subject_text(finding),
        "topic": finding.topic,
        "topics": list(finding.topics),
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in finding.partitions
        ],
        "group": finding.group,
        "brokers": list(finding.brokers),
        "since_ms": finding.since_ms,
        "since": since_text(finding, now_ms) or None,
        "lag": finding.lag,
        "details": dict(finding.values),
        "why": cause_text(finding),
        "next": next_text(finding, servers, start_commands),
    }
