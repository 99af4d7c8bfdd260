"""Analysis of the events: tables about topics and controllers, as rows. These definitions hold with and without Spark.

    elections      controllers: predecessor, time without a controller, duration of the takeover
    outages        times in which a partition had no leader
    leader_moves   changes of the leader of a partition
    steps          waiting times: for the controller, an election, the response of a broker, the return of a broker
    creations      from a client's request until every partition had a leader
    deletions      from a client's request until the last replica was deleted, and the brokers that delay it
    topics         one row per life of a topic
    brokers        times in which a broker was up or down (brokers.py)
    incidents      outages with the same cause: a broker failure affects many partitions (incidents.py)

`analyse` runs in this process. spark_analysis.py runs the same functions on Spark: `split_epoch` for each epoch, then
`analyse_topic` for each topic, then `assemble`.

Times are by the clocks of the controllers. After a broker failure, an outage starts when the controller notices it. If
a new controller finds a partition without a leader, the outage starts with the election of this controller. In a row
that is still ongoing, `ms` is the time until `now`, and the end is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec import UNSET

from barnabas.history.brokers import build_brokers
from barnabas.history.event import AnyEvent, PartitionEvent, ReplicaEvent, TopicEvent
from barnabas.history.incidents import add_incidents
from barnabas.history.reader import (
    BrokerSighting,
    EpochSummary,
    TopicEntry,
    TopicRequest,
    sighting,
    split_epoch,
    split_lives,
)
from barnabas.history.words import LOSSES, SHUTDOWN, Row, millis_of

TableRow = tuple[str, Any]
"""Name of a table and a row of it; or "sightings" and a BrokerSighting."""
TOPIC_TABLES = ("topics", "creations", "deletions", "outages", "leader_moves", "steps")
STUCK_MS = 30_000
"""A deletion that takes longer is stuck."""
DELETED = ("ReplicaDeletionSuccessful", "NonExistentReplica")
INELIGIBLE = "ReplicaDeletionIneligible"


def analyse(
    events: Mapping[tuple[int, int], AnyEvent], now: datetime, session_timeout_ms: int | None = None
) -> dict[str, list[Row]]:
    """Build all tables from events by their keys (epoch, sequence). `now` is the time by the local clock."""
    summaries: list[EpochSummary] = []
    found: dict[str, list[Any]] = defaultdict(list)
    topics: dict[str, list[TopicEntry]] = defaultdict(list)
    ordered = [events[key] for key in sorted(events)]
    for _, group in groupby(ordered, key=attrgetter("epoch")):
        for topic, item in split_epoch(group):
            if isinstance(item, EpochSummary):
                summaries.append(item)
            elif isinstance(item, BrokerSighting):
                found["sightings"].append(item)
            elif topic is not None:
                topics[topic].append(item)
    elections = build_elections(summaries)
    now = report_time(now, elections)
    for topic, entries in topics.items():
        entries.sort(key=attrgetter("epoch", "sequence"))
        for table, row in analyse_topic(topic, entries, elections, now):
            found[table].append(row)
    return assemble(elections, found, now, session_timeout_ms)


def assemble(
    elections: list[Row],
    found: Mapping[str, list[Any]],
    now: datetime,
    session_timeout_ms: int | None,
) -> dict[str, list[Row]]:
    """Complete the tables with those that need the rows of all topics."""
    tables = {name: found.get(name, []) for name in TOPIC_TABLES}
    brokers = build_brokers(found.get("sightings", []), now)
    incidents = add_incidents(tables, brokers, session_timeout_ms)
    return {"elections": elections, **tables, "brokers": brokers, "incidents": incidents}


def report_time(now: datetime, elections: Sequence[Row]) -> datetime:
    """Return the time of the report: now, or the time of the last event if the local clock is behind."""
    latest: datetime = max([now, *(row["last_at"] for row in elections)])
    return latest


# ---- controllers ----------------------------------------------------------------------------------------------


def build_elections(summaries: Iterable[EpochSummary]) -> list[Row]:
    """Return one row per controller epoch. `vacant_ms` is the time without a controller before it. It is known only if
    the previous controller resigned, because a controller that crashes records nothing."""
    rows: list[Row] = []
    for each in sorted(summaries, key=attrgetter("epoch")):
        previous = rows[-1] if rows else {"controller": None, "resigned_at": None}
        rows.append(
            {
                "epoch": each.epoch,
                "elected_at": each.elected_at,
                "controller": each.controller,
                "previous": previous["controller"],
                "cause": each.cause,
                "vacant_ms": millis_between(previous["resigned_at"], each.elected_at),
                "takeover_ms": millis_between(each.elected_at, each.settled_at),
                "resigned_at": each.resigned_at,
                "first_at": each.first_at,
                "last_at": each.last_at,
                "events": each.events,
            }
        )
    return rows


# ---- one topic ------------------------------------------------------------------------------------------------


def analyse_topic(
    topic: str, entries: Iterable[TopicEntry], elections: Sequence[Row], now: datetime
) -> Iterator[TableRow]:
    """Yield the rows about a topic, from its entries in the order of (epoch, sequence)."""
    for number, life in enumerate(split_lives(entries), 1):
        tables = analyse_life({"topic": topic, "life": number}, life, elections, now)
        for table, rows in tables.items():
            yield from ((table, row) for row in rows)
        yield from (("sightings", each) for each in find_sightings(life, tables["leader_moves"]))


def analyse_life(
    name: Row, life: Sequence[TopicEntry], elections: Sequence[Row], now: datetime
) -> dict[str, list[Row]]:
    partitions: dict[int, list[PartitionEvent]] = defaultdict(list)
    for entry in life:
        if isinstance(entry, PartitionEvent):
            partitions[entry.partition].append(entry)
    creations = build_creation(name, life, partitions)
    deletions = build_deletion(name, life, now)
    outages = [
        row
        for number, events in partitions.items()
        for row in build_outages({**name, "partition": number}, events, elections, now)
    ]
    leader_moves = [
        row
        for number, events in partitions.items()
        for row in build_leader_moves({**name, "partition": number}, events)
    ]
    steps = build_steps(name, life, creations, deletions, now)
    tables = {
        "creations": creations,
        "deletions": deletions,
        "outages": outages,
        "leader_moves": leader_moves,
        "steps": steps,
    }
    return {"topics": [summarize_life(name, life, tables)], **tables}


# ---- partitions -----------------------------------------------------------------------------------------------


def build_outages(
    name: Row, events: Sequence[PartitionEvent], elections: Sequence[Row], now: datetime
) -> list[Row]:
    """Return one row per outage of a partition. `lost_leader` led before it.

    Offline 08:00:10.0, Online 08:00:10.4  →  from 08:00:10.0, until 08:00:10.4, 400 ms
    """
    outages: list[Row] = []
    down: Row | None = None
    leader: int | None = None
    for index, event in enumerate(events):
        before = events[index - 1] if index else None
        is_deleted = is_deleted_next(events, index)
        outage = {**name, "epoch": event.epoch, "cause": event.cause, "why": event.why}
        if down is None and is_found_down(event, before) and not is_deleted:
            down = {**outage, "from": elected_at(elections, event.epoch) or event.at}
            outages.append({**down, "lost_leader": leader})
        state = state_after(event)
        is_down = state == "OfflinePartition" and not is_deleted
        is_down = is_down or (state == "NewPartition" and event.result == "failed")
        if is_down and down is None:
            down = {**outage, "from": event.at}
            outages.append({**down, "lost_leader": leader})
        elif not is_down and down is not None:
            down = None
            outages[-1] |= {"until": event.at, "ended_by": event.cause}
        if event.leader is not UNSET and event.leader >= 0:
            leader = event.leader
    for row in outages:
        row.setdefault("until", None)
        row.setdefault("ended_by", None)
    if down is not None:
        # A new controller records an event for every partition without a leader. If it recorded none, the partition
        # had a leader again before the election, but the previous controller did not record it.
        outages[-1]["until"] = next_elected_at(elections, events[-1].epoch)
    for row in outages:
        row["ms"] = millis_between(row["from"], row["until"] or now)
    return outages


def is_found_down(event: PartitionEvent, before: PartitionEvent | None) -> bool:
    """Return whether a new controller found the partition without a leader. It records only its attempt to elect."""
    if event.before != "OfflinePartition" or event.after == "NonExistentPartition":
        return False
    if before is None:
        return True
    return before.epoch != event.epoch and state_after(before) != "NonExistentPartition"


def is_deleted_next(events: Sequence[PartitionEvent], index: int) -> bool:
    """Return whether the next event has the same cause and deletes the partition. This is not an outage."""
    if index + 1 == len(events):
        return False
    event, following = events[index], events[index + 1]
    return (following.after, following.cause, following.epoch) == (
        *("NonExistentPartition", event.cause, event.epoch),
    )


def state_after(event: PartitionEvent) -> str:
    return event.before if event.result == "failed" else event.after


def elected_at(elections: Sequence[Row], epoch: int) -> datetime | None:
    return next((row["elected_at"] for row in elections if row["epoch"] == epoch), None)


def next_elected_at(elections: Sequence[Row], epoch: int) -> datetime | None:
    return next((row["elected_at"] for row in elections if row["epoch"] > epoch), None)


def build_leader_moves(name: Row, events: Sequence[PartitionEvent]) -> list[Row]:
    """Return one row per change of the leader, also if there was no leader in between."""
    moves: list[Row] = []
    before: int | None = None
    for event in events:
        leader = event.leader
        if event.result != "done" or leader is UNSET or leader < 0:
            continue
        if before is not None and before != leader:
            moves.append(
                {
                    **name,
                    "at": event.at,
                    "before": before,
                    "after": leader,
                    "leader_epoch": None if event.leader_epoch is UNSET else event.leader_epoch,
                    "epoch": event.epoch,
                    "sequence": event.sequence,
                    "cause": event.cause,
                }
            )
        before = leader
    return moves


def find_sightings(
    life: Sequence[TopicEntry], leader_moves: Sequence[Row]
) -> Iterator[BrokerSighting]:
    """Yield the signs of brokers that went offline or returned, one for all replicas with the same cause."""
    found: dict[tuple[int, str, int, str], BrokerSighting] = {}
    for each in (*replica_sightings(life), *shutdown_sightings(leader_moves)):
        found.setdefault((each.broker, each.sign, each.epoch, each.cause), each)
    yield from found.values()


def replica_sightings(life: Sequence[TopicEntry]) -> Iterator[BrokerSighting]:
    for entry in life:
        if isinstance(entry, PartitionEvent) and entry.after == "NonExistentPartition":
            return  # The deletion of a topic takes its replicas offline, too.
        if not isinstance(entry, ReplicaEvent) or entry.result != "done":
            continue
        if entry.after == "OnlineReplica" and entry.cause.startswith(LOSSES):
            yield sighting(entry, entry.replica, "online")
        elif entry.after == "OfflineReplica" and entry.cause.startswith(LOSSES):
            is_shutdown = entry.cause.startswith(SHUTDOWN)
            yield sighting(entry, entry.replica, "shutdown" if is_shutdown else "offline")


def shutdown_sightings(leader_moves: Sequence[Row]) -> Iterator[BrokerSighting]:
    for row in leader_moves:
        if row["cause"].startswith(SHUTDOWN):
            key = row["epoch"], row["sequence"], row["before"]
            yield BrokerSighting(*key, "shutdown", row["at"], row["cause"])


# ---- requests of clients --------------------------------------------------------------------------------------


def build_creation(
    name: Row, life: Sequence[TopicEntry], partitions: Mapping[int, Sequence[PartitionEvent]]
) -> list[Row]:
    """Return one row if the start of the life is in the history.

    `online_at` is None until every initial partition has had a leader. Partitions that were added later do not count.
    """
    births = [
        birth
        for events in partitions.values()
        if (birth := first_done(events, "NewPartition")) is not None
    ]
    if not births:
        return []
    first = min(births, key=attrgetter("epoch", "sequence"))
    initial = [each for each in births if (each.epoch, each.cause) == (first.epoch, first.cause)]
    online = [first_done(partitions[each.partition], "OnlinePartition") for each in initial]
    times = [each.at for each in online if each is not None]
    online_at = max(times) if len(times) == len(initial) else None
    requests = [e for e in life if isinstance(e, TopicEvent) and e.after == "created"]
    request = min(requests, key=requested_at, default=None)
    at = first.at if request is None else min(requested_at(request), first.at)
    return [
        {
            **name,
            "requested_at": at,
            "assigned_at": first.at,
            "online_at": online_at,
            "ms": millis_between(at, online_at),
            "partitions": len(initial),
            "replication_factor": None if first.replicas is UNSET else len(first.replicas),
            "by": request and request.by,
            "host": request and request.host,
            "automatic": request and (None if request.automatic is UNSET else request.automatic),
            "cause": first.cause,
        }
    ]


def first_done(events: Sequence[PartitionEvent], after: str) -> PartitionEvent | None:
    return next((each for each in events if each.after == after and each.result == "done"), None)


def requested_at(event: TopicEvent) -> datetime:
    return event.at if event.asked_at is UNSET else event.asked_at


def build_deletion(name: Row, life: Sequence[TopicEntry], now: datetime) -> list[Row]:
    """Return one row if the topic was marked for deletion.

    `state` is done, running or stuck. `waits_for` are the brokers that have not deleted their replicas yet.
    `waited_for` are the brokers that could not delete a replica at first: they were down, or the deletion failed.
    """
    marks = [e for e in life if isinstance(e, TopicEvent) and e.after == "marked for deletion"]
    removals = [
        entry
        for entry in life
        if isinstance(entry, PartitionEvent) and entry.after == "NonExistentPartition"
    ]
    starts = [each.at for each in removals if each.result == "done"]
    if not marks and not starts:
        return []
    states: dict[tuple[int, int], str] = {}
    ineligible: set[int] = set()
    finished: list[datetime] = []
    # A replica may have been removed before the deletion, while the topic continued with others.
    for entry in life[life.index(removals[0]) :] if removals else ():
        if not isinstance(entry, ReplicaEvent) or entry.result != "done":
            continue
        states[entry.partition, entry.replica] = entry.after
        if entry.after == INELIGIBLE:
            ineligible.add(entry.replica)
        elif entry.after == "NonExistentReplica":
            finished.append(entry.at)
    at = min([*map(requested_at, marks), *starts])
    finished_at = max(finished, default=None)
    ms = millis_between(at, finished_at or now)
    state = "stuck" if ineligible or (ms or 0) > STUCK_MS else "running"
    return [
        {
            **name,
            "state": "done" if finished_at else state,
            "requested_at": at,
            "started_at": min(starts, default=None),
            "finished_at": finished_at,
            "ms": ms,
            "waits_for": sorted({key[1] for key, after in states.items() if after not in DELETED}),
            "waited_for": sorted(ineligible),
            "by": next((each.by for each in marks if each.by), None),
            "host": next((each.host for each in marks if each.host), None),
        }
    ]


def build_steps(
    name: Row,
    life: Sequence[TopicEntry],
    creations: Sequence[Row],
    deletions: Sequence[Row],
    now: datetime,
) -> list[Row]:
    """Return one row per waiting time. `ended_at` is None if it is ongoing.

    the controller          from the client's request until the controller started
    an election             from the assignment until the last partition had a leader
    LeaderAndIsr …          from the controller's request until the broker's response
    the return of a broker  from the first deletion that the broker missed until it deleted its last replica
    """

    def step(
        what: str, broker: int | None, began: datetime, ended: datetime | None, cause: str
    ) -> Row:
        times = {"began_at": began, "ended_at": ended, "ms": millis_between(began, ended or now)}
        return {**name, "step": what, "broker": broker, "cause": cause, **times}

    steps = []
    for row in creations:
        times = row["requested_at"], row["assigned_at"], row["online_at"]
        steps.append(step("the controller", None, times[0], times[1], row["cause"]))
        steps.append(step("an election", None, times[1], times[2], row["cause"]))
    steps += [
        step("the controller", None, row["requested_at"], row["started_at"], "DeleteTopics")
        for row in deletions
        if row["started_at"] is not None
    ]
    missed: dict[int, ReplicaEvent] = {}
    deleted: dict[int, datetime] = {}
    for entry in life:
        if isinstance(entry, TopicRequest):
            steps.append(step(entry.name, entry.to, entry.at, entry.answered_at, entry.cause))
        elif isinstance(entry, ReplicaEvent) and entry.result == "done":
            if entry.after == INELIGIBLE:
                missed.setdefault(entry.replica, entry)
            elif entry.after == "ReplicaDeletionSuccessful":
                deleted[entry.replica] = entry.at
    steps += [
        step("the return of a broker", broker, event.at, deleted.get(broker), event.cause)
        for broker, event in missed.items()
    ]
    return steps


# ---- summary --------------------------------------------------------------------------------------------------


def summarize_life(
    name: Row, life: Sequence[TopicEntry], tables: Mapping[str, Sequence[Row]]
) -> Row:
    """Return the row of the table `topics`: a summary of the other tables."""
    creation, deletion = (next(iter(tables[each]), None) for each in ("creations", "deletions"))
    outages = tables["outages"]
    slowest = max(tables["steps"], key=lambda row: row["ms"], default=None)
    deleted_at = deletion and deletion["finished_at"]
    sizes = [
        len(e.replicas) for e in life if isinstance(e, PartitionEvent) and e.replicas is not UNSET
    ]
    return {
        **name,
        "partitions": len(
            {e.partition for e in life if isinstance(e, PartitionEvent | ReplicaEvent)}
        ),
        "replication_factor": max(sizes, default=None),
        "first_at": min(entry.at for entry in life),
        "last_at": max(entry.at for entry in life),
        "requested_at": creation and creation["requested_at"],
        "online_at": creation and creation["online_at"],
        "online_after_ms": creation and creation["ms"],
        "deletion": deletion and deletion["state"],
        "deleted_at": deleted_at,
        "unavailable_ms": sum(row["ms"] for row in outages),
        "longest_outage_ms": max((row["ms"] for row in outages), default=0),
        "partitions_affected": len({row["partition"] for row in outages}),
        "offline_now": 0 if deleted_at else sum(row["until"] is None for row in outages),
        "leader_moves": len(tables["leader_moves"]),
        "slowest_ms": slowest and slowest["ms"],
        "slowest_step": slowest and slowest["step"],
        "slowest_broker": slowest and slowest["broker"],
    }


def millis_between(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else millis_of(end) - millis_of(start)
