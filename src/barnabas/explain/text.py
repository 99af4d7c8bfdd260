"""Text of findings: one or two sentences for the cause, and the next step with its command.

    orders-0: no leader. Its in-sync replica is on broker 2, which is down.
    next: start broker 2 again

Templates use the fields of `text_fields`. Names in commands are quoted for the shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Any, NamedTuple

from barnabas.explain.finding import Cause, Finding
from barnabas.explain.wording import join_with_and, name_brokers, plain_ranges
from barnabas.history.words import format_duration, format_time

PARTITIONS_NAMED_MAX = 12
TOPICS_NAMED_MAX = 4
RANGES_LENGTH_MAX = 60
"""Longer lists of topics and partitions are replaced by their numbers; JSON has all."""


class Sentences(NamedTuple):
    """Templates. `cause` says what is wrong and why, `next_step` what to do."""

    cause: str
    next_step: str


START = "{start_again}; `barnabas brokers explain {broker}{servers}` shows what waits for it"
SEE_BROKER = "`barnabas brokers explain {broker}{servers}` shows its state"
RESUME = "check the process of {brokers} and its log: it may be paused, overloaded or out of memory"
FREE_SPACE = "free space on the disk, or shorten the retention; the broker continues by itself"
REPAIR = "repair or replace the disk, then restart {brokers}"
SEE_CONTROLLER = "`barnabas cluster explain{servers}` shows the state of the controller"
SEE_MOVES = "`barnabas reassign status{servers}` shows the progress"
ELECT = "`barnabas elect-leaders --topic {selection}{servers}` elects it now"
DESCRIBE_GROUP = (
    "`barnabas groups describe {group}{servers} --watch` shows the members and their lag"
)

SENTENCES: Mapping[Cause, Sentences] = {
    # partitions without a leader
    Cause.NEVER_LED: Sentences(
        "no leader: none of its replicas was ever online. They are assigned to {brokers}",
        "start {brokers}, or delete the topic: `barnabas topics delete {topic}{servers}`",
    ),
    Cause.ALL_REPLICAS_DOWN: Sentences("no leader: {all_replicas} down", START),
    Cause.IN_SYNC_REPLICAS_DOWN: Sentences(
        "no leader: {in_sync_replicas} down.{unclean_text}",
        "{start_again}{unclean_step}",
    ),
    Cause.IN_SYNC_LOG_DIR_FAILED: Sentences(
        "no leader: the log directory of the in-sync replica on {brokers} failed.{unclean_text}",
        "repair or replace the disk, then restart {brokers}{unclean_step}",
    ),
    Cause.ELECTION_PENDING: Sentences(
        "no leader yet: {brokers} can lead, and the controller has not elected it", SEE_CONTROLLER
    ),
    Cause.LEADER_SILENT: Sentences(
        "its leader, {brokers}, is registered but does not respond. Another replica is elected when its registry"
        " session expires",
        RESUME,
    ),
    # partitions with too few in-sync replicas
    Cause.FOLLOWER_DOWN: Sentences("{replicas_are_missing}: {the_brokers_are} down", START),
    Cause.FOLLOWER_STOPPED: Sentences(
        "{replicas_are_missing}: {the_brokers_were} shut down", START
    ),
    Cause.FOLLOWER_NEVER_SEEN: Sentences(
        "{replicas_are_missing}: no broker with this id has joined the cluster",
        "start {brokers}; `barnabas brokers list{servers}` shows the brokers that are alive",
    ),
    Cause.FOLLOWER_SHUTTING_DOWN: Sentences(
        "{replicas_are_missing}: {the_brokers_are} shutting down",
        "wait until it has stopped, then {start_again}; " + SEE_BROKER,
    ),
    Cause.FOLLOWER_SILENT: Sentences(
        "{replicas_are_missing}: {the_brokers_are} registered, but {do_not} respond", RESUME
    ),
    Cause.FOLLOWER_LOG_DIR_FAILED: Sentences(
        "{replicas_are_missing}: its log directory failed{in_dirs_or_shutdown}", REPAIR
    ),
    Cause.FOLLOWER_DISK_FULL: Sentences(
        "{replicas_are_missing}: its disk is full{in_dirs}, so it cannot copy records{lag_text}",
        FREE_SPACE,
    ),
    Cause.FOLLOWER_THROTTLED: Sentences(
        "{replicas_are_on} catching up{lag_text}. A throttle limits it to {rate} bytes/s",
        "`barnabas configs reset --broker {broker} follower.replication.throttled.rate{servers}` removes the limit",
    ),
    Cause.FOLLOWER_LAGGING: Sentences(
        "{replicas_are_on} catching up with the leader{lag_text}",
        "wait, and watch it with `barnabas topics describe {topic}{servers} --watch`",
    ),
    Cause.ISR_CHANGE_PENDING: Sentences(
        "the replica on {brokers} has all records, and the controller has not added it to the ISR yet",
        SEE_CONTROLLER,
    ),
    Cause.BELOW_MIN_ISR: Sentences(
        "writes with acks=all are rejected: {in_sync} in sync, min.insync.replicas={minimum}", START
    ),
    Cause.MIN_ISR_ABOVE_REPLICAS: Sentences(
        "writes with acks=all are always rejected: min.insync.replicas={minimum}, but there {replicas_are}",
        "`barnabas configs alter --topic {topic} min.insync.replicas={replicas}{servers}` makes them possible",
    ),
    # leaders that are not the preferred replica
    Cause.PREFERRED_NOT_IN_SYNC: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader, which is not in sync",
        "wait until {brokers} has caught up; " + SEE_BROKER,
    ),
    Cause.PREFERRED_REBALANCE_DISABLED: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader: auto.leader.rebalance.enable is false",
        ELECT,
    ),
    Cause.PREFERRED_BELOW_THRESHOLD: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader. Too few partitions are affected for an"
        " automatic election (leader.imbalance.per.broker.percentage={threshold})",
        ELECT,
    ),
    Cause.PREFERRED_WAITS_FOR_CHECK: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader. The controller checks this every {interval}",
        "wait, or elect now: `barnabas elect-leaders --topic {selection}{servers}`",
    ),
    # reassignments
    Cause.MOVE_TARGET_DOWN: Sentences(
        "the reassignment waits for {brokers}, a new replica, which is down",
        "{start_again}, or cancel the reassignment: `barnabas reassign cancel {move}{servers}`",
    ),
    Cause.MOVE_TARGET_SILENT: Sentences(
        "the reassignment waits for {brokers}, a new replica, which does not respond", RESUME
    ),
    Cause.MOVE_THROTTLED: Sentences(
        "the reassignment waits for {brokers}, a new replica, which a throttle limits to {rate} bytes/s{lag_text}",
        "`barnabas configs reset --broker {broker} follower.replication.throttled.rate{servers}` removes the limit",
    ),
    Cause.MOVE_CATCHING_UP: Sentences(
        "the reassignment waits for {brokers}, a new replica, which is catching up with the leader{lag_text}",
        SEE_MOVES,
    ),
    Cause.MOVE_FINISHING: Sentences(
        "the reassignment is almost done: all new replicas are in sync, and the controller removes the old ones",
        SEE_MOVES,
    ),
    Cause.MOVE_REQUESTED: Sentences(
        "a reassignment is requested in /admin/reassign_partitions, and the controller has not started it",
        SEE_CONTROLLER,
    ),
    Cause.THROTTLE_LEFT: Sentences(
        "a replication throttle is set, but no partition is being reassigned. It slows down followers that catch up",
        "`barnabas reassign status{servers}` removes it",
    ),
    # deletions and topics
    Cause.DELETION_WAITS_FOR_BROKER: Sentences(
        "the deletion{by_text} waits for {brokers}: the replicas there can only be deleted when the broker is up",
        START,
    ),
    Cause.DELETION_WAITS_FOR_LOG_DIR: Sentences(
        "the deletion{by_text} waits for {brokers}: a log directory failed{in_dirs}", REPAIR
    ),
    Cause.DELETION_WAITS_FOR_CONTROLLER: Sentences(
        "the deletion{by_text} waits for a controller", SEE_CONTROLLER
    ),
    Cause.DELETION_DISABLED: Sentences(
        "the topic is marked for deletion, but delete.topic.enable is false: the controller removes the mark",
        "set delete.topic.enable=true on all brokers and restart them, then delete the topic again",
    ),
    Cause.DELETION_RUNNING: Sentences(
        "the topic is being deleted on {brokers}", "wait; this takes a few seconds"
    ),
    Cause.MARKER_WITHOUT_TOPIC: Sentences(
        "there is a mark for its deletion, but no such topic: the controller removes the mark",
        "`barnabas topics list{servers}` shows the topics",
    ),
    Cause.TOPIC_NAMES_COLLIDE: Sentences(
        "its name differs from {other} only in '.' and '_': their metrics have the same name",
        "copy the records to a topic with another name, then delete this one",
    ),
    Cause.TOPIC_ZNODE_INVALID: Sentences(
        "its znode {path} is invalid, and the controller ignores it: {why}",
        "write the znode again with a ZooKeeper client, or delete it",
    ),
    # brokers
    Cause.BROKER_DOWN: Sentences(
        "{brokers} is down: it is not registered{replica_text}", "{start_again}"
    ),
    Cause.BROKER_STOPPED: Sentences("{brokers} was shut down{replica_text}", "{start_again}"),
    Cause.BROKER_NEVER_SEEN: Sentences(
        "{brokers} has never joined the cluster{replica_text}",
        "start a broker with broker.id={broker}; `barnabas brokers list{servers}` shows the brokers that are alive",
    ),
    Cause.BROKER_SILENT: Sentences(
        "{brokers} is registered, but does not respond at {address}", RESUME
    ),
    Cause.BROKER_UNREACHABLE: Sentences(
        "{brokers} is registered, but nothing listens at {address}",
        "check advertised.listeners of {brokers}, and whether it has crashed: its registry session expires soon",
    ),
    Cause.BROKER_ADDRESS_SHARED: Sentences(
        "{brokers} advertises {address}, the same address as broker {other}: clients reach only one of them",
        "set advertised.listeners of {brokers} to its own address, then restart it",
    ),
    Cause.LOG_DIR_FAILED: Sentences("the log directory {dirs} of {brokers} failed", REPAIR),
    Cause.DISK_FULL: Sentences("the disk of {brokers} is full ({dirs})", FREE_SPACE),
    # the cluster
    Cause.NO_BROKER_ANSWERS: Sentences(
        "no broker answers{registered_text}",
        "start the brokers, or name other ones with -b HOST:PORT",
    ),
    Cause.NO_CONTROLLER: Sentences(
        "there is no controller: no leader is elected, and topics cannot be created or deleted",
        "check that the brokers reach the registry; `barnabas brokers list{servers}` shows which are alive",
    ),
    Cause.CONTROLLER_SILENT: Sentences(
        "the controller, {brokers}, does not respond: no leader is elected until its registry session expires",
        RESUME,
    ),
    Cause.CONTROLLER_STUCK: Sentences(
        "the controller, {brokers}, handles no events: its queue did not answer in time",
        "look for slow registry writes in the log of {brokers}; a restart moves the controller to another broker",
    ),
    Cause.REGISTRY_DOWN: Sentences(
        "{registry} does not answer this command: {why}. Brokers that cannot reach it keep their leaders, but no leader"
        " is elected and no topic is changed",
        "check that a majority of the ZooKeeper servers is running",
    ),
    Cause.OFFSETS_TOPIC_IMPOSSIBLE: Sentences(
        "no group can commit offsets: __consumer_offsets cannot be created with"
        " offsets.topic.replication.factor={factor} and {registered} registered brokers",
        "start more brokers, or lower offsets.topic.replication.factor on all brokers and restart them",
    ),
    # groups
    Cause.GROUP_UNKNOWN: Sentences(
        "the group has no members and no committed offsets",
        "`barnabas groups list{servers}` shows the groups",
    ),
    Cause.GROUP_EMPTY: Sentences(
        "no consumer is running{waiting_records}",
        "start a consumer of the group; " + DESCRIBE_GROUP,
    ),
    Cause.GROUP_WAITS_FOR_MEMBERS: Sentences(
        "a rebalance waits for {missing_members}.{timeout_text} Until then no member gets records",
        "check that these consumers call poll() often enough; " + DESCRIBE_GROUP,
    ),
    Cause.GROUP_WAITS_FOR_ASSIGNMENT: Sentences(
        "a rebalance waits for the assignment, which the first of {members} members computes",
        DESCRIBE_GROUP,
    ),
    Cause.COORDINATOR_OFFLINE: Sentences(
        "no broker coordinates the group: {offsets_partition} has no leader", "{coordinator_step}"
    ),
    Cause.COORDINATOR_SILENT: Sentences(
        "its coordinator, {brokers}, is registered but does not respond", RESUME
    ),
    Cause.COORDINATOR_LOADING: Sentences(
        "its coordinator is loading the group's offsets", "wait; this takes a few seconds"
    ),
    Cause.NEVER_COMMITTED: Sentences(
        "{member} reads it but has never committed an offset{lag_text}: after a restart it would start again",
        "check that the consumer commits: enable.auto.commit=true, or a call of commit()",
    ),
    Cause.NOT_COMMITTING: Sentences(
        "{member} is a member but commits no offsets any more{lag_text}",
        "check that the consumer still calls poll(), and that its processing does not hang",
    ),
    Cause.LAGGING: Sentences(
        "{member} commits offsets but is behind{lag_text}",
        DESCRIBE_GROUP + "; add consumers if the lag grows",
    ),
    Cause.OFFSET_BELOW_START: Sentences(
        "its committed offset {committed} is out of range: the log starts at {start}. {lag} records were deleted before"
        " the group read them",
        "stop the consumers, then `barnabas groups reset {group} --topic {a_topic} --to-earliest --execute{servers}`",
    ),
    Cause.OFFSET_BEYOND_END: Sentences(
        "its committed offset {committed} is out of range: the log ends at {end}. The topic was created again, or lost"
        " records in an unclean election",
        "stop the consumers, then `barnabas groups reset {group} --topic {a_topic} --to-latest --execute{servers}`",
    ),
    Cause.READS_OFFLINE_PARTITION: Sentences(
        "the group cannot read it: the partition has no leader{waits_text}",
        "`barnabas partitions explain {partition}{servers}` shows why",
    ),
    Cause.READS_DELETED_TOPIC: Sentences(
        "the group has committed offsets of {topic_value}, which does not exist",
        "`barnabas topics list{servers}` shows the topics",
    ),
    Cause.IDLE_MEMBERS: Sentences(
        "{idle} of {members} members have no partition: there are only {assigned}",
        "stop the idle consumers, or add partitions to the topic",
    ),
}


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
    fields["start_again"] = start_text(finding.brokers, start_commands or {})
    return SENTENCES[finding.cause].next_step.format_map(fields)


def start_text(brokers: Sequence[int], commands: Mapping[int, str]) -> str:
    """Return `start broker 2 again`, with the command if it is known for all brokers."""
    text = f"start {name_brokers(brokers) if brokers else 'the brokers'} again"
    known = [f"`{commands[broker]}`" for broker in brokers if broker in commands]
    return f"{text}: {join_with_and(known)}" if known and len(known) == len(brokers) else text


def text_fields(finding: Finding, servers: str) -> dict[str, Any]:
    """Return the fields of the templates. Fields that a finding does not have are empty."""
    values = finding.values
    brokers = finding.brokers
    first = finding.partitions[0] if finding.partitions else None
    return {
        **EMPTY_FIELDS,
        **values,
        "servers": servers,
        "topic": quote(finding.topic or (first.topic if first else "")),
        "topic_value": values.get("topic", ""),
        "group": quote(finding.group or ""),
        "partition": quote(str(first or "")),
        "move": quote(f"{first.topic}:{first.partition}") if first else "",
        "selection": selection_text(finding),
        "a_topic": quote(first.topic) if first else "",
        "brokers": name_brokers(brokers) if brokers else "the brokers",
        "broker": brokers[0] if brokers else "",
        **number_fields(brokers),
        "lag": f"{finding.lag or 0:,}",
        "lag_text": f" ({count_records(finding.lag)} behind)" if finding.lag else "",
        "in_dirs": f" ({values['dirs']})" if values.get("dirs") else "",
        "in_dirs_or_shutdown": f" ({values['dirs']})"
        if values.get("dirs")
        else ", or its broker is shutting down",
        "by_text": f" requested by {values['by']}" if "by" in values else "",
        "replica_text": replica_text(values.get("replicas")),
        "replicas_are": f"{'is' if values.get('replicas') == 1 else 'are'} only {count_replicas_text(values)}",
        "all_replicas": all_replicas_text(finding),
        "in_sync_replicas": in_sync_text(finding),
        "unclean_text": unclean_text(finding),
        "unclean_step": unclean_step(finding, servers),
        "interval": format_duration(int(values.get("interval_s", 0)) * 1000),
        "registered_text": f"; registered: {name_brokers(brokers)}" if brokers else "",
        "waiting_records": f": {count_records(finding.lag)} wait" if finding.lag else "",
        "missing_members": missing_members_text(values),
        "timeout_text": timeout_text(values),
        "waits_text": f"; it waits for {name_brokers(brokers)}" if brokers else "",
        "offsets_partition": str(first) if first else "__consumer_offsets",
        "coordinator_step": coordinator_step(finding, servers),
    }


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


EMPTY_FIELDS: Mapping[str, Any] = dict.fromkeys(
    (
        *(
            "address",
            "assigned",
            "committed",
            "end",
            "factor",
            "idle",
            "in_sync",
            "leader",
            "member",
            "members",
        ),
        *(
            "minimum",
            "other",
            "path",
            "rate",
            "registered",
            "registry",
            "replicas",
            "start",
            "threshold",
            "why",
        ),
        "dirs",
    ),
    "",
)


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
    command = f"`barnabas elect-leaders --unclean --topic {selection_text(finding)}{servers}`"
    return f"; if its data is lost for good, accept the loss: {command}"


def selection_text(finding: Finding) -> str:
    """Return the partitions of the first topic as `orders:0,2`, for options of commands."""
    if not finding.partitions:
        return ""
    topic = finding.partitions[0].topic
    numbers = [each.partition for each in finding.partitions if each.topic == topic]
    return quote(f"{topic}:{','.join(map(str, numbers[:PARTITIONS_NAMED_MAX]))}")


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


def coordinator_step(finding: Finding, servers: str) -> str:
    if finding.partitions:
        return f"`barnabas partitions explain {finding.partitions[0]}{servers}` shows why"
    return f"`barnabas cluster explain{servers}` shows why __consumer_offsets has no leader"


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
    return f"topic {finding.topic}" if finding.topic is not None else ""


def partition_names(finding: Finding) -> str:
    """Return `orders-0`, `orders partitions 0 to 3; clicks-1`, or only numbers: `6,671 partitions of 101 topics`."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(finding.partitions):
        by_topic.setdefault(topic, []).append(number)
    if len(by_topic) > TOPICS_NAMED_MAX:
        return f"{len(finding.partitions):,} partitions of {len(by_topic):,} topics"
    return "; ".join(topic_partitions_text(topic, numbers) for topic, numbers in by_topic.items())


def topic_partitions_text(topic: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{topic}-{numbers[0]}"
    ranges = plain_ranges(numbers)
    is_long = len(ranges) > RANGES_LENGTH_MAX
    return f"{len(numbers):,} partitions of {topic}" if is_long else f"{topic} partitions {ranges}"


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
