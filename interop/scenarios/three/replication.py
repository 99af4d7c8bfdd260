"""Replication: acknowledgements, leader epochs, fetches of replicas, and leader elections.

Steps that need stopped brokers are played at the matching points of broker_failures.py. Most steps only read and change
nothing, so they do not record the whole cluster.
"""

from __future__ import annotations

from typing import Any

from barnabas.model import ZERO_ID
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersTopic,
)
from barnabas.wire.messages.fetch import (
    NOT_A_REPLICA,
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from interop.scenarios.requests import batch, create, delete_records, list_offsets
from interop.scenarios.step import Request, RequestContext
from interop.scenarios.three.step import Pause, Resume, Role, Send, Step, Which
from interop.scenarios.three.topic_creation import CONTROLLER, ask, assigned

LEADER, FOLLOWER, STRANGER, UNKNOWN_BROKER = 1, 2, 3, 77
CONSUMER, DEBUGGER = -1, -2
FETCH_BY_STATE_SINCE = 15
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
HIGH_WATERMARK = "responses.<id of {}>.partitions.0.high_watermark"


# ---- requests


def produced(
    topic: str, value: bytes = b"x", *, acks: int = -1, timeout_ms: int = 10_000, partition: int = 0
) -> ProduceRequest:
    data = TopicProduceData(topic, (PartitionProduceData(partition, batch(value)),))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(data,))


def fetched(
    topic: str,
    offset: int,
    *,
    version: int = 17,
    replica: int = CONSUMER,
    epoch: int = -1,
    last: int = -1,
    rack: str = "",
    partition: int = 0,
) -> Request:
    """A fetch of a client that claims to be `replica`, in leader epoch `epoch`, after records of epoch `last`."""

    def request(context: RequestContext) -> FetchRequest:
        wanted = FetchPartition(
            partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last,
            partition_max_bytes=1 << 20,
        )
        by_state = version >= FETCH_BY_STATE_SINCE
        topic_id = context.topic_id(topic) if topic != "nobody" else ZERO_ID
        return FetchRequest(
            replica_id=CONSUMER if by_state else replica,
            replica_state=FetchReplicaState(replica, -1) if by_state else NOT_A_REPLICA,
            max_wait_ms=0,
            min_bytes=0,
            topics=(FetchTopic(topic, topic_id, (wanted,)),),
            rack_id=rack,
        )

    return request


def end_of_epoch(
    topic: str, epoch: int, *, current: int = -1, replica: int = DEBUGGER, partition: int = 0
) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition, current, epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=replica, topics=(OffsetForLeaderTopic(topic, (wanted,)),)
    )


def elected(
    kind: int, topic: str | None = None, *partitions: int, timeout_ms: int = 30_000
) -> ElectLeadersRequest:
    wanted = None if topic is None else (ElectLeadersTopic(topic, partitions),)
    return ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=timeout_ms)


# ---- steps


def asks(name: str, request: Request, broker: Which = LEADER, **options: Any) -> Step:
    """A step that changes nothing."""
    return ask(name, request, broker, is_recorded=False, **options)


def fetches(name: str, topic: str, offset: int, broker: Which = LEADER, **options: Any) -> Step:
    until = options.pop("until", None)
    version = options.setdefault("version", 17)
    request = fetched(topic, offset, **options)
    return asks(f"fetch {topic} {name}", request, broker, version=version, until=until)


def pause(broker: int) -> Step:
    return Step(
        name=f"three brokers: halt {broker}", action=Pause(broker=broker), is_recorded=False
    )


def resume(broker: int) -> Step:
    return Step(name=f"three brokers: let {broker} go on", action=Resume(broker=broker))


def elects(name: str, request: ElectLeadersRequest, broker: Which, **options: Any) -> Step:
    return ask(f"elect {name}", request, broker, **options)


# ---- all brokers run, and broker 1 is the controller

ACKNOWLEDGED: tuple[Step, ...] = (
    *(
        asks(f"produce with acks={acks}", produced("copied", acks=acks))
        for acks in (1, -1, 2, -2, 100, 32_767, -32_768)
    ),
    *(
        asks(
            f"produce with acks={acks}, version {version}",
            produced("copied", acks=acks),
            version=version,
        )
        for acks in (1, -1, 2)
        for version in (3, 8)
    ),
    *(
        Step(
            name=f"three brokers: produce with acks=0 {what}",
            action=Send(broker=broker, request=request),
            is_recorded=False,
        )
        for what, broker, request in (
            ("to the leader", LEADER, produced("copied", acks=0)),
            ("to a follower", FOLLOWER, produced("copied", acks=0)),
            ("to who has no copy", STRANGER, produced("copied", acks=0)),
            ("to nothing", LEADER, produced("nobody", acks=0)),
        )
    ),
    asks("produce with acks=1 to a follower", produced("copied", acks=1), FOLLOWER),
    asks("produce with acks=1 to who has no copy", produced("copied", acks=1), STRANGER),
    asks("produce with acks=2 to a follower", produced("copied", acks=2), FOLLOWER),
    asks(
        "end of what was acknowledged",
        list_offsets("copied", -1),
        until=("topics.copied.partitions.0.offset", 7),
    ),
    *(
        asks(f"produce to {topic} with acks={acks}", produced(topic, acks=acks))
        for topic in ("beyond", "alone", "strict")
        for acks in (-1, 1)
    ),
)

# The follower is registered but does not fetch: nothing is committed.
UNCOMMITTED: tuple[Step, ...] = (
    asks(
        "end before the halt",
        list_offsets("strict", -1),
        until=("topics.strict.partitions.0.offset", 2),
    ),
    pause(FOLLOWER),
    asks("produce while the follower halts, acks=-1", produced("strict", timeout_ms=700)),
    asks("produce while the follower halts, acks=1", produced("strict", acks=1)),
    asks("end while the follower halts", list_offsets("strict", -1)),
    asks(
        "end for a debugger while the follower halts",
        list_offsets("strict", -1, replica_id=DEBUGGER),
    ),
    asks(
        "end for a replica while the follower halts",
        list_offsets("strict", -1, replica_id=FOLLOWER),
    ),
    asks("largest timestamp while the follower halts", list_offsets("strict", -3)),
    fetches("up to the high watermark", "strict", 0),
    fetches("at the high watermark", "strict", 2),
    fetches("between the high watermark and the end", "strict", 3),
    fetches("at the end", "strict", 4),
    fetches("beyond the end", "strict", 5),
    resume(FOLLOWER),
    fetches("when all is committed", "strict", 2, until=(HIGH_WATERMARK.format("strict"), 4)),
)

EPOCHS: tuple[Step, ...] = (
    *(
        asks(
            f"end of epoch {epoch} for {replica} of broker {broker}, which should be in {current}",
            end_of_epoch("copied", epoch, current=current, replica=replica),
            broker,
        )
        for broker in (LEADER, FOLLOWER, STRANGER)
        for replica in (CONSUMER, FOLLOWER)
        for current in (-1, 0, 1)
        for epoch in (-1, 0, 1)
    ),
    *(
        asks(f"end of epoch 0, version {version}", end_of_epoch("copied", 0), version=version)
        for version in range(5)
    ),
    asks("end of epoch 0 for one that is no replica", end_of_epoch("copied", 0, replica=STRANGER)),
    asks("end of epoch -2", end_of_epoch("copied", -2)),
    asks("end of an epoch of nothing", end_of_epoch("nobody", 0)),
    asks("end of an epoch of no partition", end_of_epoch("copied", 0, partition=9)),
    *(
        fetches(
            f"of broker {broker} which should be in epoch {epoch}, version {version}",
            "copied",
            0,
            broker,
            epoch=epoch,
            version=version,
        )
        for broker in (LEADER, FOLLOWER, STRANGER)
        for epoch in (0, 1)
        for version in (9, 12, 17)
    ),
    *(
        asks(
            f"offsets of broker {broker} which should be in epoch {epoch}",
            list_offsets("copied", -1, epoch=epoch),
            broker,
        )
        for broker in (LEADER, FOLLOWER, STRANGER)
        for epoch in (0, 1)
    ),
    *(
        asks(
            f"offsets for {replica} of broker {broker}",
            list_offsets("copied", -1, replica_id=replica),
            broker,
        )
        for broker in (LEADER, FOLLOWER)
        for replica in (DEBUGGER, FOLLOWER, STRANGER, UNKNOWN_BROKER)
    ),
    *(
        fetches(f"after epoch {last} from {offset}", "copied", offset, last=last)
        for last, offset in ((0, 0), (0, 7), (0, 8), (1, 0), (5, 7))
    ),
    *(
        fetches(
            f"after epoch {last} from {offset}, as a replica, version {version}",
            "copied",
            offset,
            last=last,
            replica=FOLLOWER,
            version=version,
        )
        for last, offset in ((0, 7), (0, 8), (5, 7))
        for version in (12, 17)
    ),
)

CLAIMED: tuple[Step, ...] = (
    *(
        fetches(
            f"as replica {replica} in epoch {epoch}, version {version}",
            "copied",
            0,
            replica=replica,
            epoch=epoch,
            version=version,
        )
        for replica in (STRANGER, UNKNOWN_BROKER)
        for epoch in (-1, 0, 1)
        for version in (11, 17)
    ),
    *(
        fetches(
            f"as the leader itself, version {version}", "copied", 7, replica=LEADER, version=version
        )
        for version in (11, 17)
    ),
    *(
        fetches(
            f"as a follower, of a follower, version {version}",
            "copied",
            0,
            FOLLOWER,
            replica=FOLLOWER,
            version=version,
        )
        for version in (11, 17)
    ),
    *(
        fetches(
            f"as a follower beyond the end, version {version}",
            "copied",
            9,
            replica=FOLLOWER,
            version=version,
        )
        for version in (11, 17)
    ),
    fetches("as a debugger", "copied", 0, replica=DEBUGGER, version=11),
    fetches("as a debugger, of a follower", "copied", 0, FOLLOWER, replica=DEBUGGER, version=11),
    fetches(
        "as a debugger, of who has no copy", "copied", 0, STRANGER, replica=DEBUGGER, version=11
    ),
    fetches("as a replica of no partition", "copied", 0, replica=FOLLOWER, partition=9, version=11),
    fetches("as a replica", "nobody", 0, replica=FOLLOWER, version=11),
    asks("what became of it: end", list_offsets("copied", -1)),
)

CUT: tuple[Step, ...] = (
    ask("delete records of what is copied", delete_records("copied", 3)),
    fetches("below its start", "copied", 2),
    fetches("at its start", "copied", 3),
    fetches("below its start, of a follower", "copied", 2, FOLLOWER),
    fetches("at its start, of a follower", "copied", 3, FOLLOWER),
    fetches("at its start, as a replica that is none", "copied", 3, replica=STRANGER, epoch=0),
    asks("start of what is copied", list_offsets("copied", -2)),
    asks(
        "start of what is copied, of a follower, for a debugger",
        list_offsets("copied", -2, replica_id=DEBUGGER),
        FOLLOWER,
    ),
)

CALLED: tuple[Step, ...] = (
    elects("who leads already", elected(PREFERRED, "chosen", 0, 1, 2), CONTROLLER),
    elects("who leads already, uncleanly", elected(UNCLEAN, "chosen", 0), CONTROLLER),
    elects("for nothing", elected(PREFERRED, "nobody", 0), CONTROLLER),
    elects("for no partition", elected(PREFERRED, "chosen", 9, -1), CONTROLLER),
    elects("for one partition twice", elected(PREFERRED, "chosen", 0, 0), CONTROLLER),
    elects("for a topic without partitions", elected(PREFERRED, "chosen"), CONTROLLER),
    elects("of broker 2", elected(PREFERRED, "chosen", 0, 9), 2, is_recorded=False),
    elects("of broker 2, for all", elected(UNCLEAN), 2, is_recorded=False),
    elects("in an unknown way", elected(7, "chosen", 0), CONTROLLER, is_recorded=False),
    elects("version 0", elected(PREFERRED, "chosen", 0), CONTROLLER, version=0, is_recorded=False),
    elects("version 1", elected(PREFERRED, "chosen", 0), CONTROLLER, version=1, is_recorded=False),
)

STEPS: tuple[Step, ...] = (
    ask(
        "create what is copied",
        create(
            assigned("copied", (LEADER, FOLLOWER)),
            assigned("strict", (LEADER, FOLLOWER), **{"min.insync.replicas": "2"}),
            assigned("beyond", (LEADER, STRANGER), **{"min.insync.replicas": "3"}),
            assigned("alone", (LEADER,), **{"min.insync.replicas": "2"}),
            assigned("chosen", (3, 1), (2, 3), (1, 2)),
        ),
    ),
    *ACKNOWLEDGED,
    *UNCOMMITTED,
    *EPOCHS,
    *CLAIMED,
    *CUT,
    *CALLED,
)

# ---- broker 3 was stopped

WITHOUT_3: tuple[Step, ...] = (
    *(
        asks(f"produce to beyond without 3, acks={acks}", produced("beyond", acks=acks))
        for acks in (-1, 1)
    ),
    asks("produce to alone without 3", produced("alone")),
    # Too few replicas are in sync: records are written but not committed.
    fetches("without 3", "beyond", 2),
    asks("end of beyond without 3", list_offsets("beyond", -1)),
    elects("who is away", elected(PREFERRED, "chosen", 0), CONTROLLER),
    elects("who is away, uncleanly", elected(UNCLEAN, "chosen", 0), CONTROLLER),
)
DOOMED_WITHOUT_3: tuple[Step, ...] = (
    elects(
        "for what is being deleted",
        elected(PREFERRED, "shuffled", 0),
        CONTROLLER,
        is_recorded=False,
    ),
    elects("for all without 3", elected(UNCLEAN), CONTROLLER),
)
WITH_3_AGAIN: tuple[Step, ...] = (
    fetches("with 3 again", "beyond", 2, until=(HIGH_WATERMARK.format("beyond"), 3)),
    asks("produce to beyond with 3 again", produced("beyond")),
    elects("who is back", elected(PREFERRED, "chosen", 0, 1), CONTROLLER),
    fetches("of who led meanwhile, in its epoch", "chosen", 0, 1, epoch=1),
    fetches("of who leads again, in the epoch before", "chosen", 0, 3, epoch=1),
    fetches("of who leads again, in its epoch", "chosen", 0, 3, epoch=2),
)

# ---- broker 1 was killed while 3 was down: 2 is the controller, and 3 lacks some records

LOST = (assigned("lost", (1, 3)), assigned("gone", (1,)))
ALONE = 2
WITHOUT_1_AND_3: tuple[Step, ...] = (
    elects("where nobody is left", elected(UNCLEAN, "lost", 0), ALONE),
    elects("where nobody is left, cleanly", elected(PREFERRED, "lost", 0), ALONE),
)
WITHOUT_1: tuple[Step, ...] = (
    elects("who is not in sync, cleanly", elected(PREFERRED, "lost", 0), ALONE),
    elects("where nobody is left still", elected(UNCLEAN, "gone", 0), ALONE),
    elects("who is not in sync", elected(UNCLEAN, "lost", 0), ALONE),
    asks(
        "produce to who was not in sync",
        produced("lost"),
        3,
        until=("responses.lost.partition_responses.0.error_code", "NONE"),
    ),
)
ALL_OF_LOST: tuple[Step, ...] = (
    fetches("all that is left of it", "lost", 0, 3),
    *(asks(f"end of epoch {epoch} of lost", end_of_epoch("lost", epoch), 3) for epoch in range(5)),
)

# ---- at the end: all brokers run again, 1 and 2 in one rack and 3 in another; several epochs have passed

IN_THE_END: tuple[Step, ...] = (
    *(
        fetches(f"after epoch {last} from {offset}, in the end", "lead-1", offset, 2, last=last)
        for last, offset in ((0, 0), (0, 1), (0, 2), (1, 1), (2, 3), (3, 2), (9, 1))
    ),
    ask(
        "create what is read from near",
        # With two near replicas, the choice would be random.
        create(assigned("near", (1, 3, 2)), assigned("near-1", (1, 2)), assigned("far", (3, 1))),
        Role.CONTROLLER,
    ),
    *(
        asks(
            f"produce to {topic}, which is read from near",
            produced(topic),
            broker,
            until=(f"responses.{topic}.partition_responses.0.error_code", "NONE"),
        )
        for topic, broker in (("near", 1), ("near-1", 1), ("far", 3))
    ),
    *(
        fetches(f"from rack '{rack}', version {version}", "near", 0, 1, rack=rack, version=version)
        for rack in ("", "near", "far", "nowhere")
        for version in (11, 17)
    ),
    fetches("from rack 'near', of one that is far", "far", 0, 3, rack="near"),
    fetches("from rack 'far', at the end", "near", 1, 1, rack="far"),
    fetches("from rack 'far', beyond the end", "near", 2, 1, rack="far"),
    fetches("from rack 'far', of a follower that is near", "near", 0, 2, rack="far"),
    fetches(
        "from rack 'far', of the one that is far",
        "near",
        0,
        3,
        rack="far",
        until=(HIGH_WATERMARK.format("near"), 1),
    ),
    fetches("from rack 'far', where nobody is far", "near-1", 0, 1, rack="far"),
    fetches(
        "from rack 'far', as a debugger", "near", 0, 1, rack="far", replica=DEBUGGER, version=11
    ),
    elects("all preferred replicas", elected(PREFERRED), Role.CONTROLLER),
    elects("all preferred replicas again", elected(PREFERRED), Role.CONTROLLER),
    elects("all that are lost", elected(UNCLEAN), Role.CONTROLLER),
)
