"""`barnabas topics history`: what the controllers did with a topic, when, why, and what came of it.

    2026-05-01 controller 1, epoch 7: TopicsChanged#4
      08:00:00.123  partition 0: new, on brokers 2,3,1
      08:00:00.131  partition 0: online, leader 2 in epoch 0, ISR 2,3,1
      08:00:00.131  LeaderAndIsr #19 to broker 3: partition 0
      08:00:00.140  broker 3 answered LeaderAndIsr #19: done

It is read from the topic `__state_changes` like any other topic. Events come at least once, and those of a broker that
was away come late: here they are told once, by (epoch, sequence), and in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from msgspec import UNSET

from barnabas.cli.options import bootstrap_option, complete_topics, output_option, timeout_option
from barnabas.cli.records.consume import raise_if_reader_gone
from barnabas.cli.records.start_position import parse_time
from barnabas.cli.terminal.failure import Hinted, unknown_topic
from barnabas.cli.terminal.output import (
    Output,
    note,
    printable_document,
    show,
    to_json,
    to_yaml,
    wrapped,
    write_out,
)
from barnabas.client.admin import Admin
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer, FromTime, Start
from barnabas.errors import ApiError, ErrorCode
from barnabas.lifecycle.event import (
    AnyEvent,
    ControllerEvent,
    RequestEvent,
    fields_of,
    read_event,
    skipped,
)
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.printable import printable

SETTING = "barnabas.history.topic.enable"
NOT_FOUND_HINT = "see `barnabas topics list`; what happened more than seven days ago is forgotten"

LOSSES = ("BrokersChanged", "LogDirFailed", "ControlledShutdown", "RequestAnswered")
"""Causes for which a partition loses its leader."""

Event = dict[str, Any]


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--since",
    metavar="WHEN",
    help="Only what happened since -1h, 2024-05-01T08:00 or a time in ms.",
)
@click.option("--follow", is_flag=True, help="Go on with what happens, until interrupted.")
@bootstrap_option
@timeout_option
@output_option
def history(
    name: str,
    since: str | None,
    follow: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Tell what happened to the topic NAME: transitions, elections, requests and answers, each with its cause."""
    start = Beginning() if since is None else FromTime(parse_time(since, now_ms(), "--since"))
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        require_history(cluster, name)
        consumer = Consumer(
            cluster, {TopicPartition(STATE_CHANGES, 0): start}, reset=Beginning(), fetch_wait_ms=100
        )
        timeline = Timeline(name)
        timeline.take(consumer.records(stop_at_end=True))
        if timeline.malformed:
            note(skipped(timeline.malformed))
        if not timeline.events and not follow:
            require_topic(cluster, name, start)
        narrator = Narrator(printable(name))
        if not follow:
            document = {"topic": name, "events": timeline.in_order()}
            show(output, document, lambda shown: text_of(shown, narrator))
            return
        write = follower(output, narrator)
        write(timeline.in_order())
        while True:
            write(timeline.take(consumer.poll(1.0)))
            raise_if_reader_gone()


# ---- is there a history? --------------------------------------------------------------------------------------


def require_history(cluster: Cluster, name: str | None = None) -> None:
    """Where there is none, say why; but of a topic that is not there either, say that first."""
    view = cluster.refresh(None)
    if STATE_CHANGES in view.topics:
        return
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if name is not None and name not in view.topics:
        raise unknown_topic(cluster, name, missing, else_hint=NOT_FOUND_HINT)
    setting = setting_of(cluster)
    if setting is None:
        why = f"this cluster keeps no history: there is no topic {STATE_CHANGES}"
        hint = "brokers of Barnabas keep one; those of Apache Kafka write a log file on each controller"
        raise Hinted(missing, why, hint)
    if setting != "true":
        hint = f"set {SETTING}=true for the brokers; until then it is in their log directories only"
        raise Hinted(missing, f"the history is turned off ({SETTING}={setting})", hint)
    hint = "try again in a moment" if view.topics else "it begins when the first topic is created"
    raise Hinted(missing, "the history is not published yet", hint)


def setting_of(cluster: Cluster) -> str | None:
    """None where brokers do not have this setting."""
    broker = min(cluster.view.brokers)
    for entry in Admin(cluster).describe_broker_configs(broker):
        if entry.name == SETTING:
            return entry.value
    return None


def require_topic(cluster: Cluster, name: str, start: Start) -> None:
    """There is nothing to tell: of a topic that exists this is fine, and said."""
    try:
        cluster.topic(name)
    except ApiError as error:
        raise unknown_topic(cluster, name, error, else_hint=NOT_FOUND_HINT) from None
    ago = "seven days" if isinstance(start, Beginning) else "that time"
    note(f"nothing happened to {name} within {ago}")


# ---- which events ---------------------------------------------------------------------------------------------


class Timeline:
    """The events of one topic, each once. Elections of controllers belong to every topic's."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.events: dict[tuple[int, int], Event] = {}
        self.elections: dict[tuple[int, int], Event] = {}
        self.requests: set[tuple[int, int]] = set()
        self.malformed = 0
        """Records that are no events and were skipped."""

    def take(self, records: Iterable[ConsumedRecord]) -> list[Event]:
        """Those of the records that are new, and about this topic."""
        found = []
        for record in records:
            event = read_event(record.value)
            if event is None:
                self.malformed += 1
                continue
            is_known = event.key in self.events or event.key in self.elections
            kept = None if is_known else self.kept_with(event)
            if kept is None:
                continue
            fields = fields_of(record.value)
            if fields is None:
                self.malformed += 1
                continue
            kept[event.key] = fields
            found.append(fields)
        return found

    def kept_with(self, event: AnyEvent) -> dict[tuple[int, int], Event] | None:
        """Return where an event belongs, or None for one about other topics."""
        if isinstance(event, ControllerEvent):
            return self.elections
        if not isinstance(event, RequestEvent):
            mine = event.topic == self.topic
        elif event.answers is not UNSET:
            mine = (event.epoch, event.answers) in self.requests
        else:
            mine = event.topics is not UNSET and self.topic in event.topics
            if mine:
                part = 1 if event.part is UNSET else event.part
                self.requests.add((event.epoch, event.sequence - part + 1))
        return self.events if mine else None

    def in_order(self) -> list[Event]:
        """By epoch and sequence; of the elections, those since something happened to the topic."""
        if not self.events:
            return []
        first = (min(self.events)[0], 0)
        elections = {key: event for key, event in self.elections.items() if key > first}
        return [event for _, event in sorted({**self.events, **elections}.items())]


# ---- in words -------------------------------------------------------------------------------------------------


def follower(output: Output, narrator: Narrator) -> Callable[[list[Event]], None]:
    def lines(events: list[Event]) -> Iterable[str]:
        match output:
            case Output.JSON:
                return map(to_json, events)
            case Output.YAML:
                return (f"---\n{to_yaml(event)}" for event in events)
            case Output.TEXT:
                told = narrator.tell(printable_document(events))
                return (printable(text, keep="\n") for text in told)

    def write(events: list[Event]) -> None:
        text = "".join(f"{line}\n" for line in lines(events))
        write_out(text.encode())

    return write


def text_of(document: dict[str, Any], narrator: Narrator) -> str:
    return "\n".join(narrator.tell(document["events"])) or "no events"


class Narrator:
    """Sentences, from events whose strings are printable. It remembers who led, so that it can say what changed."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.chapter: tuple[object, ...] = ()
        self.known: dict[int, Event] = {}

    def tell(self, events: list[Event]) -> Iterator[str]:
        for run in runs(events):
            first = run[0]
            day, _, time = str(first.get("at", "")).rstrip("Z").partition("T")
            chapter = (day, first.get("epoch"), first.get("cause"))
            if chapter != self.chapter:
                self.chapter = chapter
                by = f"controller {first.get('broker')}, epoch {first.get('epoch')}"
                yield f"{day} {by}: {first.get('cause')}"
            yield wrapped(f"  {time}  {self.sentence(run)}", indent=len(time) + 6)

    def sentence(self, run: list[Event]) -> str:
        event = run[0]
        match event.get("what"):
            case "partition":
                told = self.partition(event)
            case "replica":
                told = self.replicas(run)
            case "request":
                told = self.request(event)
            case "topic":
                told = wish(event)
            case _:
                told = controller(event)
        if event.get("result") == "failed" and event.get("what") != "request":
            told += f": not done, {event.get('why')}"
        return told

    def partition(self, event: Event) -> str:
        partition = event["partition"]
        name = f"partition {partition}"
        if event.get("result") == "failed":
            return f"{name}: {plain(event['before'])} → {plain(event['after'])}"
        before, after = plain(event["before"]), plain(event["after"])
        known = self.known.get(partition)
        self.learn(event)
        if after == "new":
            assigned = event.get("replicas", [])
            noun = "broker" if len(assigned) == 1 else "brokers"
            return f"{name}: new, on {noun} {listed(assigned)}"
        if after == "online":
            state = "online, " if before != "online" else ""
            return f"{name}: {state}{leader(event, known)}, {in_sync(event, known)}"
        if after == "offline":
            # A topic that is to be deleted goes offline with its leaders alive.
            if known is None or not str(event.get("cause")).startswith(LOSSES):
                return f"{name}: offline"
            return f"{name}: offline, its leader {known['leader']} is gone"
        self.known.pop(partition, None)
        return f"{name}: gone"

    def learn(self, event: Event) -> None:
        """Who was the leader is worth knowing when there is none."""
        if "leader" in event:
            before = self.known.get(event["partition"])
            leads = event["leader"] if event["leader"] >= 0 or before is None else before["leader"]
            self.known[event["partition"]] = {"leader": leads, "isr": event["isr"]}

    def replicas(self, run: list[Event]) -> str:
        """`replicas 0 on 2,3,1; 1 on 3,1,2: online`, or `replica 0 on 2 (ISR 3,1, no leader): offline`"""
        by_partition: dict[int, list[int]] = {}
        left: dict[int, str] = {}
        for event in run:
            by_partition.setdefault(event["partition"], []).append(event["replica"])
            if "isr" in event:
                ending = "" if event["leader"] >= 0 else ", no leader"
                left[event["partition"]] = f" (ISR {listed(event['isr'])}{ending})"
                self.learn(event)
        where = "; ".join(
            f"{partition} on {listed(on)}{left.get(partition, '')}"
            for partition, on in by_partition.items()
        )
        noun = "replica" if len(run) == 1 else "replicas"
        event = run[0]
        after = plain(event["after"])
        if event.get("result") == "failed":
            after = f"{plain(event['before'])} → {after}"
        return f"{noun} {where}: {after}"

    def request(self, event: Event) -> str:
        kind = str(event["id"]).partition(" ")[0]
        if "answers" not in event:
            number = event["sequence"] - event.get("part", 1) + 1
            return f"{kind} #{number} to broker {event['to']}: {self.about(event)}"
        result = "done" if event["result"] == "done" else f"failed, {event.get('why')}"
        mine = [
            f"{item} {code}"
            for item, code in event.get("errors", {}).items()
            if item.rpartition("-")[0] == self.topic
        ]
        if mine:
            result += f" ({', '.join(mine)})"
        if event.get("known_already"):
            result += f", {event['known_already']} known already"
        return f"broker {event['to']} answered {kind} #{event['answers']}: {result}"

    def about(self, event: Event) -> str:
        ranges = str(event["topics"][self.topic])
        told = f"partition {ranges}" if ranges.isdigit() else f"partitions {ranges}"
        if "partitions" in event and (len(event["topics"]) > 1 or "parts" in event):
            told += f", {event['partitions']} with those of other topics"
        if event.get("deletes"):
            told += f", {event['deletes']} to be deleted"
        return told


def runs(events: list[Event]) -> Iterator[list[Event]]:
    """Replicas that went the same way for the same reason are told of together."""
    run: list[Event] = []
    for event in events:
        if run and not (event.get("what") == "replica" and same_way(run[-1], event)):
            yield run
            run = []
        run.append(event)
    if run:
        yield run


def same_way(one: Event, other: Event) -> bool:
    keys = ("what", "epoch", "cause", "before", "after", "result", "why")
    return all(one.get(key) == other.get(key) for key in keys)


def leader(event: Event, known: Event | None) -> str:
    now = f"leader {event['leader']} in epoch {event['leader_epoch']}"
    if known is not None and known["leader"] != event["leader"]:
        now += f" after {known['leader']}"
    return f"{now}, unclean: it was not in sync" if event.get("unclean") else now


def in_sync(event: Event, known: Event | None) -> str:
    now = f"ISR {listed(event['isr'])}"
    if known is None or known["isr"] == event["isr"]:
        return now
    lost = [broker for broker in known["isr"] if broker not in event["isr"]]
    came = [broker for broker in event["isr"] if broker not in known["isr"]]
    change = [f"without {listed(lost)}"] * bool(lost) + [f"now with {listed(came)}"] * bool(came)
    return f"{now} ({', '.join(change)})" if change else now


def wish(event: Event) -> str:
    """`created automatically when app at ::1 asked broker 2 for it: 6 partitions (num.partitions), 3 replicas each`"""
    who = f"{event.get('by') or 'a client without a name'} at {event.get('host')}"
    told = f"{event.get('after')}, as {who} asked"
    if event.get("automatic"):
        told = (
            f"{event.get('after')} automatically when {who} asked broker {event.get('via')} for it"
        )
    if "partitions" in event and "replication_factor" in event:
        defaults = event.get("defaults", [])
        of_partitions, of_replicas = (
            next((f" ({name})" for name in defaults if name.endswith(ending)), "")
            for ending in ("num.partitions", "replication.factor")
        )
        partitions, replicas = event["partitions"], event["replication_factor"]
        told += (
            f": {partitions} partition{'s' if partitions != 1 else ''}{of_partitions},"
            f" {replicas} replica{'s' if replicas != 1 else ''} each{of_replicas}"
        )
    return told


def controller(event: Event) -> str:
    if event.get("after") is None:
        return f"controller {event.get('before')} resigned"
    before = event.get("before")
    return f"controller {event['after']} elected" + ("" if before is None else f" after {before}")


WORDS = {
    "ReplicaDeletionStarted": "being deleted",
    "ReplicaDeletionSuccessful": "deleted",
    "ReplicaDeletionIneligible": "cannot be deleted now",
    "NonExistentPartition": "gone",
    "NonExistentReplica": "gone",
}


def plain(state: str) -> str:
    """
    >>> plain("OnlinePartition"), plain("ReplicaDeletionStarted")
    ('online', 'being deleted')
    """
    return WORDS.get(state) or state.removesuffix("Partition").removesuffix("Replica").lower()


def listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
