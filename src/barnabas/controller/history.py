"""The state-change history: what a controller did, why, and what came of it, as one JSON line per event.

    {"at":"2026-05-01T08:00:00.123Z","broker":1,"role":"controller","epoch":7,"sequence":12,"cause":"TopicsChanged#4",
     "what":"partition","id":"orders-0","topic":"orders","partition":0,"before":"NewPartition",
     "after":"OnlinePartition","leader":2,"leader_epoch":0,"isr":[2,3,1],"znode_version":0,"replicas":[2,3,1],
     "result":"done"}

`what` is a partition, a replica, a topic that a client asked for, a request to a broker or the controller itself.
`sequence` counts within one controller epoch, and an epoch has one controller: (epoch, sequence) names an event for
ever, wherever it is read.

A request is one event too, but may be about ten thousand partitions. It names them as ranges, `{"orders":"0-5,9"}`, and
goes on in further lines (`part` of `parts`) where its topics would not fit one: every topic finds its requests, and no
line is longer than a record may be. An answer names the event it answers, and only the partitions that failed.

A new controller of 10,000 partitions writes tens of thousands of lines before it serves anybody. So a line is text from
the start, written by hand and per batch of moves; nobody on this side ever needs it as anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol
from uuid import UUID

from barnabas.controller.decision import (
    PartitionFailure,
    PartitionMove,
    ReplicaFailure,
    ReplicaMove,
)
from barnabas.controller.states import PartitionState, Replica
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import BrokerId, ControllerEpoch, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.world.ports import Clock

OWN = ',"own":true'
"""Marks an event that is about the topic of the history and no other: it stays in the file. Publishing it would tell of
a change by causing the next."""

NAMES_LENGTH_MAX = 32_000
ERRORS_NAMED_MAX = 100
HAS_IT_ALREADY = ErrorCode.STALE_CONTROLLER_EPOCH

AnyMove = PartitionMove | ReplicaMove
AnyFailure = PartitionFailure | ReplicaFailure
Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Response = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
ReplicasOf = Callable[[TopicPartition], Sequence[BrokerId]]
Facts = Mapping[str, object]
"""More fields of one event."""


class StateChange(NamedTuple):
    """One event: its name, and its line without the line's end."""

    epoch: ControllerEpoch
    sequence: int
    line: str


class StateChangeLog(Protocol):
    """Where a controller leaves its history."""

    def record(self, changes: Sequence[StateChange]) -> None:
        """Written when it returns. Never raises: a history that cannot be written stops no controller."""
        ...


class Sent(NamedTuple):
    """A request that left, for its answer to refer to."""

    changes: list[StateChange]
    broker: BrokerId
    request: Request
    cause: str
    is_own: bool


class History:
    """The events of one controller in one epoch, in order.

    log.record(history.moved(outcome.won.moves, replicas_of=context.replicas))
    """

    def __init__(self, controller_id: BrokerId, epoch: ControllerEpoch, clock: Clock) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.clock = clock
        self.sequence = 0
        self.last_rendered: tuple[object, Rendered] | None = None

    # ---- the controller itself

    def elected(self, *, cause: str, previous: BrokerId | None = None) -> list[StateChange]:
        """`previous` led the epoch before, where that is known."""
        before = "null" if previous is None else str(previous)
        return [self.controller_change(cause, before, str(self.controller_id))]

    def resigned(self, *, cause: str) -> list[StateChange]:
        return [self.controller_change(cause, str(self.controller_id), "null")]

    def controller_change(self, cause: str, before: str, after: str) -> StateChange:
        rest = f'"what":"controller","id":"controller","before":{before},"after":{after},"result":"done"'
        return self.event(cause, rest)

    # ---- transitions

    def moved(
        self, moves: Iterable[AnyMove], *, replicas_of: ReplicasOf | None = None
    ) -> list[StateChange]:
        """Moves that were made. `replicas_of` adds to a partition where it is assigned."""
        epoch, sequence, head = self.epoch, self.sequence, self.head()
        changes = []
        cause = quoted_cause = ""
        for move in moves:
            sequence += 1
            if move.cause is not cause:
                cause, quoted_cause = move.cause, quoted(move.cause)
            known = move.leadership
            leadership = "" if known is None else leadership_of(known)
            if move.is_unclean:
                leadership += ',"unclean":true'
            assigned = ""
            if replicas_of is not None and isinstance(move.item, TopicPartition):
                assigned = f',"replicas":{numbers(tuple(replicas_of(move.item)))}'
            line = (
                f'{head}{sequence},"cause":{quoted_cause},{subject(move.item)},'
                f'"before":"{move.before}","after":"{move.after}"{leadership}{assigned},'
                '"result":"done"'
            )
            changes.append(StateChange(epoch, sequence, f"{line}{own(move.item)}}}"))
        self.sequence = sequence
        return changes

    def failed(self, failures: Iterable[AnyFailure]) -> list[StateChange]:
        """Moves that were not made, partitions' or replicas': the state stays as it was."""
        return [
            self.event(
                failure.cause,
                f'{subject(failure.item)},"before":"{failure.before}","after":"{failure.after}",'
                f'"result":"failed","why":{json.dumps(f"{failure.reason}: {failure.why}")}'
                f"{own(failure.item)}",
            )
            for failure in failures
        ]

    def isr_changed(
        self, states: Iterable[tuple[TopicPartition, LeaderAndIsr]], *, cause: str
    ) -> list[StateChange]:
        """Leaders asked for another ISR and got it: no change of state, but what the next election rests on."""
        online = PartitionState.ONLINE
        return [
            self.event(
                cause,
                f'{subject(partition)},"before":"{online}","after":"{online}"{leadership_of(state)},'
                f'"result":"done"{own(partition)}',
            )
            for partition, state in states
        ]

    def asked(
        self,
        topics: Iterable[str],
        *,
        request: str,
        after: str,
        client: str | None,
        host: str,
        asked_at_ms: int | None = None,
        facts: Mapping[str, Facts] | None = None,
    ) -> list[StateChange]:
        """Somebody had these topics created, enlarged or marked for deletion, and it was done; `facts` say of each what
        came of it. The rest is the controller's."""
        by = f'"by":{json.dumps(client)},"host":{json.dumps(host)}'
        if asked_at_ms is not None:
            by += f',"asked_at":"{instant(asked_at_ms)}"'
        more = {
            topic: f"{json.dumps(told, separators=(',', ':'))[1:-1]},"
            for topic, told in (facts or {}).items()
            if told
        }
        return [
            self.event(
                request,
                f'"what":"topic","id":"{inside(topic)}","topic":"{inside(topic)}",'
                f'"after":"{after}",{by},{more.get(topic, "")}'
                f'"result":"done"{OWN if topic == STATE_CHANGES else ""}',
            )
            for topic in topics
        ]

    # ---- requests

    def sent(self, broker: BrokerId, request: Request, *, cause: str) -> Sent:
        """A request that goes to this broker. Its `changes` are to be recorded."""
        rendered = self.rendered(request)
        about = f'"what":"request","id":"{name_of(request)} to {broker}","to":{broker}'
        count = f',"partitions":{rendered.partitions}'
        if isinstance(request, StopReplicaRequest):
            count += f',"deletes":{deletes(request)}'
        mark = OWN if rendered.is_own else ""
        parts = len(rendered.topics)
        changes = [
            self.event(
                cause,
                about
                + (f',"part":{part},"parts":{parts}' if parts > 1 else "")
                + f'{count},"topics":{{{topics}}},"result":"sent"{mark}',
            )
            for part, topics in enumerate(rendered.topics, 1)
        ]
        return Sent(changes, broker, request, cause, rendered.is_own)

    def rendered(self, request: Request) -> Rendered:
        """The metadata goes to every broker alike, and its topics are written out once."""
        states = request.topic_states
        if self.last_rendered is not None and self.last_rendered[0] is states:
            return self.last_rendered[1]
        rendered = render(
            (topic.topic_name, [state.partition_index for state in topic.partition_states])
            for topic in states
        )
        self.last_rendered = (states, rendered)
        return rendered

    def forget_rendered(self) -> None:
        """Those of one batch are told: what they said is not to be kept until the next."""
        self.last_rendered = None

    def answered(self, sent: Sent, response: Response) -> list[StateChange]:
        """A partition's STALE_CONTROLLER_EPOCH is no failure: the broker has this leader epoch, or a later one."""
        errors = list(errors_of(sent.request, response))
        failed = [(item, code) for item, code in errors if code != HAS_IT_ALREADY]
        known = f'"known_already":{len(errors) - len(failed)},' if len(errors) > len(failed) else ""
        if not response.error_code and not failed:
            return [self.answer(sent, f'{known}"result":"done"')]
        named = ",".join(
            f'"{item}":"{code_name(code)}"' for item, code in failed[:ERRORS_NAMED_MAX]
        )
        why = code_name(response.error_code) if response.error_code else f"{len(failed)} failed"
        rest = f'{known}"errors":{{{named}}},"error_count":{len(failed)},"result":"failed","why":"{why}"'
        return [self.answer(sent, rest)]

    def unanswered(self, sent: Sent, why: str) -> list[StateChange]:
        """The broker left before it answered."""
        return [self.answer(sent, f'"result":"failed","why":{json.dumps(why)}')]

    def answer(self, sent: Sent, rest: str) -> StateChange:
        about = (
            f'"what":"request","id":"{name_of(sent.request)} to {sent.broker}","to":{sent.broker}'
        )
        mark = OWN if sent.is_own else ""
        return self.event(sent.cause, f'{about},"answers":{sent.changes[0].sequence},{rest}{mark}')

    # ---- lines

    def head(self) -> str:
        at = instant(self.clock.now_ms())
        return (
            f'{{"at":"{at}","broker":{self.controller_id},"role":"controller","epoch":{self.epoch},'
            '"sequence":'
        )

    def event(self, cause: str, rest: str) -> StateChange:
        self.sequence += 1
        line = f'{self.head()}{self.sequence},"cause":{quoted(cause)},{rest}}}'
        return StateChange(self.epoch, self.sequence, line)


# ---- pieces of a line -------------------------------------------------------------------------------------

quoted = lru_cache(maxsize=1024)(json.dumps)


@lru_cache(maxsize=16)
def instant(at_ms: int) -> str:
    """
    >>> instant(1_777_622_400_123)
    '2026-05-01T08:00:00.123Z'
    """
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=4096)
def numbers(values: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, values))}]"


@lru_cache(maxsize=1024)
def inside(topic: str) -> str:
    """The name as it stands between quotes. Names are checked when a topic is born, but the registry is anybody's."""
    return json.dumps(topic)[1:-1]


def subject(item: TopicPartition | Replica) -> str:
    if isinstance(item, Replica):
        (topic, partition), broker = item
        name = inside(topic)
        return (
            f'"what":"replica","id":"{name}-{partition} on {broker}","topic":"{name}",'
            f'"partition":{partition},"replica":{broker}'
        )
    topic, partition = item
    name = inside(topic)
    return f'"what":"partition","id":"{name}-{partition}","topic":"{name}","partition":{partition}'


def own(item: TopicPartition | Replica) -> str:
    topic = item.partition.topic if isinstance(item, Replica) else item.topic
    return OWN if topic == STATE_CHANGES else ""


def leadership_of(known: LeaderAndIsr) -> str:
    return (
        f',"leader":{known.leader},"leader_epoch":{known.leader_epoch},'
        f'"isr":{numbers(known.isr)},"znode_version":{known.partition_epoch}'
    )


# ---- requests ---------------------------------------------------------------------------------------------


class Rendered(NamedTuple):
    """What a request is about: the insides of one or more JSON objects, topic → ranges of partitions."""

    topics: list[str]
    partitions: int
    is_own: bool


def render(topics: Iterable[tuple[str, list[int]]]) -> Rendered:
    lines: list[str] = []
    names: list[str] = []
    length = count = 0
    is_own = True
    for topic, partitions in topics:
        is_own = is_own and topic == STATE_CHANGES
        named = f'"{inside(topic)}":"{ranges(partitions)}"'
        if names and length + len(named) > NAMES_LENGTH_MAX:
            lines.append(",".join(names))
            names, length = [], 0
        names.append(named)
        length += len(named) + 1
        count += len(partitions)
    lines.append(",".join(names))
    return Rendered(lines, count, is_own and count > 0)


def ranges(partitions: list[int]) -> str:
    """
    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    ordered = sorted(partitions)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        return span(ordered[0], ordered[-1])
    spans = []
    first = last = -1
    for partition in ordered:
        if partition != last + 1 or first < 0:
            if first >= 0:
                spans.append(span(first, last))
            first = partition
        last = partition
    return ",".join([*spans, span(first, last)] if first >= 0 else spans)


def span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def name_of(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")


def deletes(request: StopReplicaRequest) -> int:
    return sum(
        state.delete_partition for topic in request.topic_states for state in topic.partition_states
    )


def errors_of(request: Request, response: Response) -> Iterator[tuple[str, int]]:
    """The partitions that failed. An answer to LeaderAndIsr knows topics by their ids alone."""
    if isinstance(response, LeaderAndIsrResponse):
        names: dict[UUID, str] = {}
        if isinstance(request, LeaderAndIsrRequest):
            names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        for topic in response.topics:
            name = inside(names.get(topic.topic_id, str(topic.topic_id)))
            for entry in topic.partition_errors:
                if entry.error_code:
                    yield f"{name}-{entry.partition_index}", entry.error_code
    elif isinstance(response, StopReplicaResponse):
        for error in response.partition_errors:
            if error.error_code:
                yield f"{inside(error.topic_name)}-{error.partition_index}", error.error_code


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
