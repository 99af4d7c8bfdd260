"""Recorder: records each action of a controller as an event, before any broker learns of the action.

An event is one line of JSON:

    {"at":"2026-05-01T08:00:00.123Z","broker":1,"role":"controller","epoch":7,"sequence":12,"cause":"TopicsChanged#4",
     "what":"partition","id":"orders-0","topic":"orders","partition":0,"before":"NewPartition",
     "after":"OnlinePartition","leader":2,"leader_epoch":0,"isr":[2,3,1],"znode_version":0,"replicas":[2,3,1],
     "result":"done"}

`what` is a partition, its assignment, a replica, a topic that a client requested, a request to a broker or the
controller itself.
`sequence` counts the events of a controller epoch from 1. So (epoch, sequence) is the unique key of an event.

A request can cover ten thousand partitions. Its event names them as ranges, `{"orders":"0-5,9"}`. If the topics do
not fit one line, the request has several events (`part` of `parts`), so that no line exceeds the maximum size of a
record. A response names the event of its request, and only the partitions that failed.

A new controller of 10,000 partitions writes tens of thousands of lines before it serves requests. For speed, lines are
formatted by hand, and all transitions of a batch in one loop. Readers parse them with the model in `event.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol
from uuid import UUID

from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, ControllerEpoch, LeaderAndIsr, Replica, TopicPartition
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.world.ports import Clock

OWN = ',"own":true'
"""Marks an event that is only about `__state_changes`, the topic where events are published. Such an event is not
published: that would cause another event of this kind."""

NAMES_LENGTH_MAX = 32_000
"""Maximum length of the topics in one event of a request."""
ERRORS_NAMED_MAX = 100
ONLINE = "OnlinePartition"
ALREADY_KNOWN = ErrorCode.STALE_CONTROLLER_EPOCH

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Response = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
ReplicasOf = Callable[[TopicPartition], Sequence[BrokerId]]
Facts = Mapping[str, object]
"""Additional fields of an event."""


class AnyTransition(Protocol):
    """A state transition of a partition or a replica."""

    @property
    def item(self) -> TopicPartition | Replica: ...
    @property
    def before(self) -> str: ...
    @property
    def after(self) -> str: ...
    @property
    def cause(self) -> str: ...


class Transition(AnyTransition, Protocol):
    """A transition that was made."""

    @property
    def leadership(self) -> LeaderAndIsr | None: ...
    @property
    def is_unclean(self) -> bool: ...


class FailedTransition(AnyTransition, Protocol):
    """A transition that failed: the state stays `before`. `why` gives the details of `reason`."""

    @property
    def reason(self) -> str: ...
    @property
    def why(self) -> str: ...


class EventLine(NamedTuple):
    """An event in its written form: its key, and its line without the newline."""

    epoch: ControllerEpoch
    sequence: int
    line: str


class EventSink(Protocol):
    """Receives the events of a recorder."""

    def append(self, events: Sequence[EventLine]) -> None:
        """Write the events before returning. Never raises: a write error must not stop the controller."""
        ...


class SentRequest(NamedTuple):
    """A recorded request, which the event of its response refers to."""

    events: list[EventLine]
    broker: BrokerId
    request: Request
    cause: str
    is_own: bool


class Recorder:
    """Records the events of one controller in one epoch, in order. Methods return the events that they recorded.

    recorder.record_transitions(outcome.committed.transitions, outcome.failures, replicas_of=context.replicas)
    """

    def __init__(
        self, controller_id: BrokerId, epoch: ControllerEpoch, clock: Clock, sink: EventSink
    ) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.clock = clock
        self.sink = sink
        self.sequence = 0
        self.last_topics: tuple[object, TopicRanges] | None = None

    def record(self, events: list[EventLine]) -> list[EventLine]:
        self.sink.append(events)
        return events

    # ---- the controller itself

    def record_election(self, *, cause: str, previous: BrokerId | None = None) -> list[EventLine]:
        """Record the election of this controller. `previous` is the controller of the epoch before, if known."""
        return self.record_controller(cause, previous, self.controller_id)

    def record_resignation(self, *, cause: str) -> list[EventLine]:
        return self.record_controller(cause, self.controller_id, None)

    def record_controller(
        self, cause: str, before: BrokerId | None, after: BrokerId | None
    ) -> list[EventLine]:
        change = f'"before":{json.dumps(before)},"after":{json.dumps(after)}'
        rest = f'"what":"controller","id":"controller",{change},"result":"done"'
        return self.record([self.event(cause, rest)])

    # ---- transitions

    def record_transitions(
        self,
        transitions: Iterable[Transition],
        failures: Iterable[FailedTransition] = (),
        *,
        replicas_of: ReplicasOf | None = None,
    ) -> list[EventLine]:
        """Record transitions and failed ones. With `replicas_of`, events of partitions name the assigned replicas."""
        events = self.transition_events(transitions, replicas_of)
        events += self.failure_events(failures)
        return self.record(events)

    def transition_events(
        self, transitions: Iterable[Transition], replicas_of: ReplicasOf | None
    ) -> list[EventLine]:
        epoch, sequence, head = self.epoch, self.sequence, self.head()
        events = []
        cause = quoted_cause = ""
        for transition in transitions:
            sequence += 1
            item = transition.item
            if transition.cause is not cause:
                cause, quoted_cause = transition.cause, json_string(transition.cause)
            known = transition.leadership
            leadership = "" if known is None else leadership_fields(known)
            if transition.is_unclean:
                leadership += ',"unclean":true'
            assigned = ""
            if replicas_of is not None and isinstance(item, TopicPartition):
                assigned = f',"replicas":{json_numbers(tuple(replicas_of(item)))}'
            line = (
                f'{head}{sequence},"cause":{quoted_cause},{subject_fields(item)},'
                f'"before":"{transition.before}","after":"{transition.after}"{leadership}{assigned},'
                f'"result":"done"{own_mark(item)}}}'
            )
            events.append(EventLine(epoch, sequence, line))
        self.sequence = sequence
        return events

    def failure_events(self, failures: Iterable[FailedTransition]) -> list[EventLine]:
        return [
            self.event(
                each.cause,
                f'{subject_fields(each.item)},"before":"{each.before}","after":"{each.after}",'
                f'"result":"failed","why":{json.dumps(f"{each.reason}: {each.why}")}{own_mark(each.item)}',
            )
            for each in failures
        ]

    def record_isr_changes(
        self, states: Iterable[tuple[TopicPartition, LeaderAndIsr]], *, cause: str
    ) -> list[EventLine]:
        """Record ISR changes that leaders requested. The next election depends on the ISR."""
        return self.record(
            [
                self.event(
                    cause,
                    f'{subject_fields(partition)},"before":"{ONLINE}","after":"{ONLINE}"{leadership_fields(state)},'
                    f'"result":"done"{own_mark(partition)}',
                )
                for partition, state in states
            ]
        )

    def record_assignments(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment], *, cause: str
    ) -> list[EventLine]:
        """Record assignments that were written to the registry: a reassignment started, changed or ended."""
        return self.record(
            [
                self.event(
                    cause,
                    f'{subject_fields(partition, "assignment")},"replicas":{json_numbers(each.replicas)},'
                    f'"adding":{json_numbers(each.adding)},"removing":{json_numbers(each.removing)},'
                    f'"result":"done"{own_mark(partition)}',
                )
                for partition, each in assignments.items()
            ]
        )

    def record_topic_request(
        self,
        topics: Iterable[str],
        *,
        request: str,
        after: str,
        client: str | None,
        host: str,
        asked_at_ms: int | None = None,
        facts: Mapping[str, Facts] | None = None,
    ) -> list[EventLine]:
        """Record a client's request to create, grow or delete topics, after it was written to the registry.

        `facts` are additional fields by topic. The transitions that the request causes are separate events.
        """
        by = f'"by":{json.dumps(client)},"host":{json.dumps(host)}'
        if asked_at_ms is not None:
            by += f',"asked_at":"{format_instant(asked_at_ms)}"'
        more = {
            topic: f"{json.dumps(fields, separators=(',', ':'))[1:-1]},"
            for topic, fields in (facts or {}).items()
            if fields
        }
        return self.record(
            [
                self.event(
                    request,
                    f'"what":"topic","id":"{json_inside(topic)}","topic":"{json_inside(topic)}",'
                    f'"after":"{after}",{by},{more.get(topic, "")}'
                    f'"result":"done"{OWN if topic == STATE_CHANGES else ""}',
                )
                for topic in topics
            ]
        )

    # ---- requests to brokers

    def record_request(self, broker: BrokerId, request: Request, *, cause: str) -> SentRequest:
        """Record a request. Call this before the request is sent."""
        ranges = self.topic_ranges(request)
        about = request_fields(request, broker)
        count = f',"partitions":{ranges.partitions}'
        if isinstance(request, StopReplicaRequest):
            count += f',"deletes":{count_deletes(request)}'
        mark = OWN if ranges.is_own else ""
        parts = len(ranges.topics)
        events = [
            self.event(
                cause,
                about
                + (f',"part":{part},"parts":{parts}' if parts > 1 else "")
                + f'{count},"topics":{{{topics}}},"result":"sent"{mark}',
            )
            for part, topics in enumerate(ranges.topics, 1)
        ]
        return SentRequest(self.record(events), broker, request, cause, ranges.is_own)

    def topic_ranges(self, request: Request) -> TopicRanges:
        """Return the topics of a request. The last result is cached: every broker gets the same UpdateMetadata."""
        states = request.topic_states
        if self.last_topics is not None and self.last_topics[0] is states:
            return self.last_topics[1]
        found = format_topics(
            (topic.topic_name, [state.partition_index for state in topic.partition_states])
            for topic in states
        )
        self.last_topics = (states, found)
        return found

    def forget_topics(self) -> None:
        """Free the cache after a batch of requests."""
        self.last_topics = None

    def record_response(self, sent: SentRequest, response: Response) -> list[EventLine]:
        """Record a response. STALE_CONTROLLER_EPOCH of a partition is no failure: the broker knows this leader epoch or
        a later one."""
        errors = list(partition_errors(sent.request, response))
        failed = [(item, code) for item, code in errors if code != ALREADY_KNOWN]
        known = f'"known_already":{len(errors) - len(failed)},' if len(errors) > len(failed) else ""
        if not response.error_code and not failed:
            return self.record_answer(sent, f'{known}"result":"done"')
        named = ",".join(
            f'"{item}":"{code_name(code)}"' for item, code in failed[:ERRORS_NAMED_MAX]
        )
        why = code_name(response.error_code) if response.error_code else f"{len(failed)} failed"
        rest = f'{known}"errors":{{{named}}},"error_count":{len(failed)},"result":"failed","why":"{why}"'
        return self.record_answer(sent, rest)

    def record_missing_response(self, sent: SentRequest, why: str) -> list[EventLine]:
        """Record that a broker did not respond, because it failed or was shut down."""
        return self.record_answer(sent, f'"result":"failed","why":{json.dumps(why)}')

    def record_answer(self, sent: SentRequest, rest: str) -> list[EventLine]:
        answered = (
            f'{request_fields(sent.request, sent.broker)},"answers":{sent.events[0].sequence}'
        )
        mark = OWN if sent.is_own else ""
        return self.record([self.event(sent.cause, f"{answered},{rest}{mark}")])

    # ---- lines

    def head(self) -> str:
        at = format_instant(self.clock.now_ms())
        return (
            f'{{"at":"{at}","broker":{self.controller_id},"role":"controller","epoch":{self.epoch},'
            '"sequence":'
        )

    def event(self, cause: str, rest: str) -> EventLine:
        self.sequence += 1
        line = f'{self.head()}{self.sequence},"cause":{json_string(cause)},{rest}}}'
        return EventLine(self.epoch, self.sequence, line)


# ---- pieces of a line -------------------------------------------------------------------------------------

json_string = lru_cache(maxsize=1024)(json.dumps)


@lru_cache(maxsize=16)
def format_instant(at_ms: int) -> str:
    """
    >>> format_instant(1_777_622_400_123)
    '2026-05-01T08:00:00.123Z'
    """
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=4096)
def json_numbers(values: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, values))}]"


@lru_cache(maxsize=1024)
def json_inside(topic: str) -> str:
    """Return the JSON string of a topic name without its quotes. Names in the registry may be invalid topic names."""
    return json.dumps(topic)[1:-1]


def subject_fields(item: TopicPartition | Replica, what: str = "partition") -> str:
    if isinstance(item, Replica):
        (topic, partition), broker = item
        name = json_inside(topic)
        return (
            f'"what":"replica","id":"{name}-{partition} on {broker}","topic":"{name}",'
            f'"partition":{partition},"replica":{broker}'
        )
    topic, partition = item
    name = json_inside(topic)
    return f'"what":"{what}","id":"{name}-{partition}","topic":"{name}","partition":{partition}'


def own_mark(item: TopicPartition | Replica) -> str:
    topic = item.partition.topic if isinstance(item, Replica) else item.topic
    return OWN if topic == STATE_CHANGES else ""


def leadership_fields(known: LeaderAndIsr) -> str:
    return (
        f',"leader":{known.leader},"leader_epoch":{known.leader_epoch},'
        f'"isr":{json_numbers(known.isr)},"znode_version":{known.partition_epoch}'
    )


# ---- requests ---------------------------------------------------------------------------------------------


class TopicRanges(NamedTuple):
    """Topics of a request. `topics` has one element per event: the inside of a JSON object, topic → ranges."""

    topics: list[str]
    partitions: int
    is_own: bool


def format_topics(topics: Iterable[tuple[str, list[int]]]) -> TopicRanges:
    lines: list[str] = []
    names: list[str] = []
    length = count = 0
    is_own = True
    for topic, partitions in topics:
        is_own = is_own and topic == STATE_CHANGES
        named = f'"{json_inside(topic)}":"{format_ranges(partitions)}"'
        if names and length + len(named) > NAMES_LENGTH_MAX:
            lines.append(",".join(names))
            names, length = [], 0
        names.append(named)
        length += len(named) + 1
        count += len(partitions)
    lines.append(",".join(names))
    return TopicRanges(lines, count, is_own and count > 0)


def format_ranges(partitions: list[int]) -> str:
    """
    >>> format_ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    ordered = sorted(partitions)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        return format_range(ordered[0], ordered[-1])
    runs: list[list[int]] = []
    for partition in ordered:
        if runs and partition == runs[-1][1] + 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return ",".join(format_range(first, last) for first, last in runs)


def format_range(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def request_fields(request: Request, broker: BrokerId) -> str:
    name = type(request).__name__.removesuffix("Request")
    return f'"what":"request","id":"{name} to {broker}","to":{broker}'


def count_deletes(request: StopReplicaRequest) -> int:
    return sum(
        state.delete_partition for topic in request.topic_states for state in topic.partition_states
    )


def partition_errors(request: Request, response: Response) -> Iterator[tuple[str, int]]:
    """Yield the partitions with an error, and its code. A LeaderAndIsr response has topic ids instead of names."""
    if isinstance(response, LeaderAndIsrResponse):
        names: dict[UUID, str] = {}
        if isinstance(request, LeaderAndIsrRequest):
            names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        for topic in response.topics:
            name = json_inside(names.get(topic.topic_id, str(topic.topic_id)))
            for entry in topic.partition_errors:
                if entry.error_code:
                    yield f"{name}-{entry.partition_index}", entry.error_code
    elif isinstance(response, StopReplicaResponse):
        for error in response.partition_errors:
            if error.error_code:
                yield f"{json_inside(error.topic_name)}-{error.partition_index}", error.error_code


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
