"""Text of events: one line per event or group of replica events, with a heading for each cause."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cli.history.timeline import Event
from barnabas.cli.terminal.output import join_numbers, plural, wrap

LEADER_LOSS_CAUSES = ("BrokersChanged", "LogDirFailed", "ControlledShutdown", "RequestAnswered")
"""Prefixes of the causes for which a partition loses its leader. RequestAnswered is one of them because a LeaderAndIsr
response may report a failed log directory."""


class Narrator:
    """Formats events as text. It remembers the last leader and ISR of each partition, to show what changed.

    The strings of the events must be printable (see barnabas/printable.py).
    """

    def __init__(self, topic: str, *, with_requests: bool = True) -> None:
        self.topic = topic
        self.with_requests = with_requests
        self.heading: tuple[object, ...] = ()
        self.last_states: dict[int, Event] = {}  # partition → its last leader and ISR

    def lines(self, events: list[Event]) -> Iterator[str]:
        if not self.with_requests:
            events = [event for event in events if not self.is_plain_request(event)]
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
            case "assignment":
                text = assignment_text(event)
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
        last = self.last_states.get(partition)
        self.remember(event)
        if after == "new":
            assigned = event.get("replicas", [])
            noun = "broker" if len(assigned) == 1 else "brokers"
            return f"{name}: new, on {noun} {join_numbers(assigned)}"
        if after == "online":
            state = "online, " if before != "online" else ""
            return f"{name}: {state}{leader_text(event, last)}, {isr_text(event, last)}"
        if after == "offline":
            # A topic that is being deleted goes offline while its leaders are alive.
            if last is None or not str(event.get("cause")).startswith(LEADER_LOSS_CAUSES):
                return f"{name}: offline"
            return f"{name}: offline, lost its leader {last['leader']}"
        self.last_states.pop(partition, None)
        return f"{name}: removed"

    def remember(self, event: Event) -> None:
        """Remember leader and ISR. While there is no leader, remember the last one."""
        if "leader" in event:
            last = self.last_states.get(event["partition"])
            leader = event["leader"] if event["leader"] >= 0 or last is None else last["leader"]
            self.last_states[event["partition"]] = {"leader": leader, "isr": event["isr"]}

    def replicas(self, run: list[Event]) -> str:
        """Return, for example:

        replicas of partition 0 on 2,3,1; 1 on 3,1,2: online
        replica of partition 0 on 2 (ISR 3,1, no leader): offline
        """
        by_partition: dict[int, list[int]] = {}
        isr_texts: dict[int, str] = {}
        for event in run:
            by_partition.setdefault(event["partition"], []).append(event["replica"])
            if "isr" in event:
                ending = "" if event["leader"] >= 0 else ", no leader"
                isr_texts[event["partition"]] = f" (ISR {join_numbers(event['isr'])}{ending})"
                self.remember(event)
        where = "; ".join(
            f"{partition} on {join_numbers(brokers)}{isr_texts.get(partition, '')}"
            for partition, brokers in by_partition.items()
        )
        noun = "replica" if len(run) == 1 else "replicas"
        event = run[0]
        after = state_name(event["after"])
        if event.get("result") == "failed":
            after = f"{state_name(event['before'])} → {after}"
        return f"{noun} of partition {where}: {after}"

    def is_plain_request(self, event: Event) -> bool:
        """Return whether the event is a request or a response without an error for this topic."""
        if event.get("what") != "request" or event.get("result") == "failed":
            return False
        return not self.own_errors(event)

    def own_errors(self, event: Event) -> list[str]:
        return [
            f"{item} {code}"
            for item, code in event.get("errors", {}).items()
            if item.rpartition("-")[0] == self.topic
        ]

    def request(self, event: Event) -> str:
        kind = str(event["id"]).partition(" ")[0]
        if "answers" not in event:
            # A large request is recorded as several events, its parts. Its number is the sequence number of the first.
            number = event["sequence"] - event.get("part", 1) + 1
            return f"{kind} #{number} to broker {event['to']}: {self.request_content(event)}"
        result = "done" if event["result"] == "done" else f"failed, {event.get('why')}"
        if own_errors := self.own_errors(event):
            result += f" ({', '.join(own_errors)})"
        if event.get("known_already"):
            result += (
                f", leader epoch already known for {plural(event['known_already'], 'partition')}"
            )
        return f"broker {event['to']} answered {kind} #{event['answers']}: {result}"

    def request_content(self, event: Event) -> str:
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


def leader_text(event: Event, last: Event | None) -> str:
    now = f"leader {event['leader']}"
    if last is not None and last["leader"] != event["leader"]:
        now += f" (before: {last['leader']})"
    now += f" in epoch {event['leader_epoch']}"
    return f"{now}, unclean: it was not in sync" if event.get("unclean") else now


def isr_text(event: Event, last: Event | None) -> str:
    now = f"ISR {join_numbers(event['isr'])}"
    if last is None or last["isr"] == event["isr"]:
        return now
    left = [broker for broker in last["isr"] if broker not in event["isr"]]
    joined = [broker for broker in event["isr"] if broker not in last["isr"]]
    change = [f"without {join_numbers(left)}"] if left else []
    change += [f"now with {join_numbers(joined)}"] if joined else []
    return f"{now} ({', '.join(change)})" if change else now


def assignment_text(event: Event) -> str:
    """Return `partition 0: replicas 4,5,1, adding 4,5, removing 1`, or `partition 0: replicas 4,5` after the move."""
    text = f"partition {event['partition']}: replicas {join_numbers(event['replicas'])}"
    changes = [
        f", {change} {join_numbers(event[change])}"
        for change in ("adding", "removing")
        if event.get(change)
    ]
    return text + "".join(changes)


def topic_change_text(event: Event) -> str:
    """Return, for example:

    created, requested by app at ::1: 6 partitions (num.partitions), 3 replicas each
    created automatically for app at ::1 via broker 2: 6 partitions (num.partitions), 3 replicas each
    (default.replication.factor)
    """
    client = f"{event.get('by') or 'a client without a name'} at {event.get('host')}"
    text = f"{event.get('after')}, requested by {client}"
    if event.get("automatic"):
        text = f"{event.get('after')} automatically for {client} via broker {event.get('via')}"
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
    return f"controller {event['after']} elected" + (
        "" if before is None else f" (before: {before})"
    )


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
