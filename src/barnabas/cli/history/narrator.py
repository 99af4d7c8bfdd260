"""Text of events: one line per event, with a heading for each cause."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cli.history.timeline import Event
from barnabas.cli.terminal.output import join_numbers, wrap

LEADER_LOSS_CAUSES = ("BrokersChanged", "LogDirFailed", "ControlledShutdown", "RequestAnswered")
"""Causes for which a partition loses its leader."""


class Narrator:
    """Formats events as text. It keeps the last leader and ISR of each partition, to show what changed.

    The strings of the events must be printable (see barnabas/printable.py).
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.heading: tuple[object, ...] = ()
        self.known: dict[int, Event] = {}

    def lines(self, events: list[Event]) -> Iterator[str]:
        for run in group_replica_events(events):
            first = run[0]
            day, _, time = str(first.get("at", "")).rstrip("Z").partition("T")
            heading = (day, first.get("epoch"), first.get("cause"))
            if heading != self.heading:
                self.heading = heading
                by = f"controller {first.get('broker')}, epoch {first.get('epoch')}"
                yield f"{day} {by}: {first.get('cause')}"
            yield wrap(f"  {time}  {self.sentence(run)}", indent=len(time) + 6)

    def sentence(self, run: list[Event]) -> str:
        event = run[0]
        match event.get("what"):
            case "partition":
                text = self.partition(event)
            case "replica":
                text = self.replicas(run)
            case "request":
                text = self.request(event)
            case "topic":
                text = topic_change_text(event)
            case _:
                text = election_text(event)
        if event.get("result") == "failed" and event.get("what") != "request":
            text += f": failed, {event.get('why')}"
        return text

    def partition(self, event: Event) -> str:
        partition = event["partition"]
        name = f"partition {partition}"
        if event.get("result") == "failed":
            return f"{name}: {state_name(event['before'])} → {state_name(event['after'])}"
        before, after = state_name(event["before"]), state_name(event["after"])
        known = self.known.get(partition)
        self.learn(event)
        if after == "new":
            assigned = event.get("replicas", [])
            noun = "broker" if len(assigned) == 1 else "brokers"
            return f"{name}: new, on {noun} {join_numbers(assigned)}"
        if after == "online":
            state = "online, " if before != "online" else ""
            return f"{name}: {state}{leader_text(event, known)}, {isr_text(event, known)}"
        if after == "offline":
            # A topic that is being deleted goes offline while its leaders are alive.
            if known is None or not str(event.get("cause")).startswith(LEADER_LOSS_CAUSES):
                return f"{name}: offline"
            return f"{name}: offline, lost its leader {known['leader']}"
        self.known.pop(partition, None)
        return f"{name}: removed"

    def learn(self, event: Event) -> None:
        """Keep leader and ISR. While there is no leader, keep the last one."""
        if "leader" in event:
            before = self.known.get(event["partition"])
            leads = event["leader"] if event["leader"] >= 0 or before is None else before["leader"]
            self.known[event["partition"]] = {"leader": leads, "isr": event["isr"]}

    def replicas(self, run: list[Event]) -> str:
        """Return `replicas 0 on 2,3,1; 1 on 3,1,2: online`, or `replica 0 on 2 (ISR 3,1, no leader): offline`."""
        by_partition: dict[int, list[int]] = {}
        left: dict[int, str] = {}
        for event in run:
            by_partition.setdefault(event["partition"], []).append(event["replica"])
            if "isr" in event:
                ending = "" if event["leader"] >= 0 else ", no leader"
                left[event["partition"]] = f" (ISR {join_numbers(event['isr'])}{ending})"
                self.learn(event)
        where = "; ".join(
            f"{partition} on {join_numbers(on)}{left.get(partition, '')}"
            for partition, on in by_partition.items()
        )
        noun = "replica" if len(run) == 1 else "replicas"
        event = run[0]
        after = state_name(event["after"])
        if event.get("result") == "failed":
            after = f"{state_name(event['before'])} → {after}"
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
            result += f", {event['known_already']} already known"
        return f"broker {event['to']} answered {kind} #{event['answers']}: {result}"

    def about(self, event: Event) -> str:
        ranges = str(event["topics"][self.topic])
        text = f"partition {ranges}" if ranges.isdigit() else f"partitions {ranges}"
        if "partitions" in event and (len(event["topics"]) > 1 or "parts" in event):
            text += f", {event['partitions']} including other topics"
        if event.get("deletes"):
            text += f", {event['deletes']} to be deleted"
        return text


def group_replica_events(events: list[Event]) -> Iterator[list[Event]]:
    """Group consecutive events of replicas with the same change and cause."""
    run: list[Event] = []
    for event in events:
        if run and not (event.get("what") == "replica" and is_same_change(run[-1], event)):
            yield run
            run = []
        run.append(event)
    if run:
        yield run


def is_same_change(one: Event, other: Event) -> bool:
    keys = ("what", "epoch", "cause", "before", "after", "result", "why")
    return all(one.get(key) == other.get(key) for key in keys)


def leader_text(event: Event, known: Event | None) -> str:
    now = f"leader {event['leader']} in epoch {event['leader_epoch']}"
    if known is not None and known["leader"] != event["leader"]:
        now += f" after {known['leader']}"
    return f"{now}, unclean: it was not in sync" if event.get("unclean") else now


def isr_text(event: Event, known: Event | None) -> str:
    now = f"ISR {join_numbers(event['isr'])}"
    if known is None or known["isr"] == event["isr"]:
        return now
    lost = [broker for broker in known["isr"] if broker not in event["isr"]]
    came = [broker for broker in event["isr"] if broker not in known["isr"]]
    change = [f"without {join_numbers(lost)}"] * bool(lost) + [
        f"now with {join_numbers(came)}"
    ] * bool(came)
    return f"{now} ({', '.join(change)})" if change else now


def topic_change_text(event: Event) -> str:
    """Return `created automatically for app at ::1 by broker 2: 6 partitions (num.partitions), 3 replicas each`."""
    client = f"{event.get('by') or 'a client without a name'} at {event.get('host')}"
    text = f"{event.get('after')}, requested by {client}"
    if event.get("automatic"):
        text = f"{event.get('after')} automatically for {client} by broker {event.get('via')}"
    if "partitions" in event and "replication_factor" in event:
        defaults = event.get("defaults", [])
        of_partitions, of_replicas = (
            next((f" ({name})" for name in defaults if name.endswith(ending)), "")
            for ending in ("num.partitions", "replication.factor")
        )
        partitions, replicas = event["partitions"], event["replication_factor"]
        text += (
            f": {partitions} partition{'s' if partitions != 1 else ''}{of_partitions},"
            f" {replicas} replica{'s' if replicas != 1 else ''} each{of_replicas}"
        )
    return text


def election_text(event: Event) -> str:
    if event.get("after") is None:
        return f"controller {event.get('before')} resigned"
    before = event.get("before")
    return f"controller {event['after']} elected" + ("" if before is None else f" after {before}")


STATE_NAMES = {
    "ReplicaDeletionStarted": "being deleted",
    "ReplicaDeletionSuccessful": "deleted",
    "ReplicaDeletionIneligible": "cannot be deleted now",
    "NonExistentPartition": "removed",
    "NonExistentReplica": "removed",
}


def state_name(state: str) -> str:
    """
    >>> state_name("OnlinePartition"), state_name("ReplicaDeletionStarted")
    ('online', 'being deleted')
    """
    return STATE_NAMES.get(state) or state.removesuffix("Partition").removesuffix("Replica").lower()
