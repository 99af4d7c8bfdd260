"""The script for the new consumer protocol (KIP-848), which Kafka 3.9 serves only without ZooKeeper.

Members choose their own ids here, unless a step is about ids that the coordinator assigns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.java.find import Java
from barnabas.wire.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from interop.harness.jars import Jars
from interop.harness.kafka import SETTINGS
from interop.harness.kraft import KRaftBroker
from interop.scenarios.group_requests import (
    by,
    commit,
    committed,
    delete_groups,
    describe_groups,
    forget,
    heartbeat,
    join,
    leave,
    list_groups,
    subscribed,
    sync,
)
from interop.scenarios.requests import ask, create, metadata, new_topic
from interop.scenarios.runner import Ours, RealKafka, Runner
from interop.scenarios.step import Await, RequestContext, Step, Transcript
from support.broker import BrokerProcess

TOPIC, OTHER = "c-topic", "c-other"
GROUP = "c-group"
MAX_SIZE = 3
SAME = {
    "group.consumer.max.size": str(MAX_SIZE),
    "group.consumer.migration.policy": "bidirectional",
    "log.initial.task.delay.ms": "3600000",
}
TIMEOUT_MS = 300_000

Owned = Mapping[str, Sequence[int]]
Builder = Callable[[RequestContext], ConsumerGroupHeartbeatRequest]


def beat(
    member: str,
    epoch: int,
    *,
    group: str = GROUP,
    topics: Sequence[str] | None = None,
    owned: Owned | None = None,
    timeout_ms: int = -1,
    **more: Any,
) -> Builder:
    """A heartbeat. Fields that have not changed since the last one are left out."""
    return lambda context: ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=timeout_ms,
        subscribed_topic_names=None if topics is None else tuple(topics),
        topic_partitions=None
        if owned is None
        else tuple(
            HeartbeatTopicPartitions(context.topic_id(topic), tuple(indexes))
            for topic, indexes in owned.items()
        ),
        **more,
    )


def first(
    member: str, group: str = GROUP, topics: Sequence[str] = (TOPIC,), **more: Any
) -> Builder:
    """The first heartbeat, with which a member joins."""
    owned: Owned = {}
    return beat(member, 0, group=group, topics=topics, owned=owned, timeout_ms=TIMEOUT_MS, **more)


def described(step: str, *groups: str) -> Step:
    return ask(f"{step}: described", ConsumerGroupDescribeRequest(group_ids=groups or (GROUP,)))


def c(name: str, request: Any, version: int | None = None) -> Step:
    return ask(f"consumer groups: {name}", request, version)


def fetched(member: str | None, epoch: int, group: str = GROUP) -> OffsetFetchRequest:
    topics = (OffsetFetchRequestTopic(TOPIC, (0, 1)),)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, member, epoch, topics),))


PREPARATION: tuple[Step, ...] = (
    c("create", create(new_topic(TOPIC, 4), new_topic(OTHER, 2))),
    *(
        Step(
            name=f"consumer groups: {topic} is there",
            action=Await(
                request=metadata(topic),
                path=f"topics.{topic}.partitions.1.error_code",
                value="NONE",
            ),
        )
        for topic in (TOPIC, OTHER)
    ),
    Step(
        name="consumer groups: the topic of groups is there",
        action=Await(
            request=metadata("__consumer_offsets", create=True),
            path="topics.__consumer_offsets.partitions.3.error_code",
            value="NONE",
        ),
    ),
    *(
        Step(
            name=f"consumer groups: the coordinator of {group} is ready",
            action=Await(request=committed(group), path=f"groups.{group}.error_code", value="NONE"),
        )
        for group in (
            GROUP,
            "c-static",
            "c-classic",
            "c-range",
            "c-two",
            "c-up",
            "c-full",
            "c-mixed",
        )
    ),
)

BAD = {
    "an empty group": first("m", ""),
    "no member id after the first": beat("", 1),
    "epoch -3": beat("m", -3),
    "epoch -2 without an instance id": beat("m", -2),
    "no timeout": beat("m", 0, topics=(TOPIC,), owned={}),
    "no partitions": beat("m", 0, topics=(TOPIC,), timeout_ms=TIMEOUT_MS),
    "partitions in the first": beat(
        "m", 0, topics=(TOPIC,), owned={TOPIC: (0,)}, timeout_ms=TIMEOUT_MS
    ),
    "no topics": beat("m", 0, owned={}, timeout_ms=TIMEOUT_MS),
    "an empty list of topics": first("m", topics=()),
    "an empty instance id": first("m", instance_id=""),
    "an empty rack": first("m", rack_id=""),
    "an unknown assignor": first("m", server_assignor="fair"),
    "an empty assignor": first("m", server_assignor=""),
    "an unknown group": beat("m", 5, group="c-nobody"),
    "leave an unknown group": beat("m", -1, group="c-nobody"),
    "leave an unknown group, static": beat("m", -2, group="c-nobody", instance_id="i"),
}

ALL: Owned = {TOPIC: (0, 1, 2, 3)}
HALF: Owned = {TOPIC: (0, 1)}
MEMBERS: tuple[Step, ...] = (
    *(c(what, request) for what, request in BAD.items()),
    described("consumer groups: nothing joined"),
    c("one joins", first("m-1")),
    described("consumer groups: one joined"),
    c("one owns nothing yet", beat("m-1", 1, owned={})),
    described("consumer groups: one owns nothing yet"),
    c("one owns all", beat("m-1", 1, owned=ALL)),
    c("one goes on", beat("m-1", 1)),
    c("one sends all fields", beat("m-1", 1, topics=(TOPIC,), owned=ALL, timeout_ms=TIMEOUT_MS)),
    described("consumer groups: one owns all"),
    c("an unknown member", beat("m-9", 1)),
    c("an unknown member leaves", beat("m-9", -1)),
    c("a future epoch", beat("m-1", 7)),
    c("an old epoch", beat("m-1", 0)),
    c("one joins again", first("m-1")),
    c("one owns all again", beat("m-1", 1, owned=ALL)),
    c("two joins", first("m-2")),
    described("consumer groups: two joined"),
    c("two waits", beat("m-2", 2, owned={})),
    c("one must revoke", beat("m-1", 1, owned=ALL)),
    described("consumer groups: one must revoke"),
    c("one has not revoked", beat("m-1", 1, owned=ALL)),
    c("two still waits", beat("m-2", 2)),
    c("one has revoked", beat("m-1", 1, owned=HALF)),
    described("consumer groups: one has revoked"),
    c("one sends the previous epoch", beat("m-1", 1, owned=HALF)),
    c("one sends the previous epoch and too much", beat("m-1", 1, owned=ALL)),
    c("two gets its part", beat("m-2", 2, owned={})),
    c("two owns its part", beat("m-2", 2, owned={TOPIC: (2, 3)})),
    c("two owns an unknown partition", beat("m-2", 2, owned={TOPIC: (2, 3, 9)})),
    described("consumer groups: both are stable"),
    c("two changes its topics", beat("m-2", 2, topics=(TOPIC, OTHER), owned={TOPIC: (2, 3)})),
    described("consumer groups: two changed its topics"),
    c("one after the change", beat("m-1", 2, owned=HALF)),
    c("two after the change", beat("m-2", 3, owned={TOPIC: (2, 3)})),
    described("consumer groups: after the change"),
    c("two subscribes to an unknown topic", beat("m-2", 3, topics=(TOPIC, "nobody"))),
    described("consumer groups: an unknown topic"),
    c("two changes its assignor", beat("m-2", 3, server_assignor="range")),
    described("consumer groups: another assignor"),
    c("two changes its rack", beat("m-2", 4, rack_id="r")),
    described("consumer groups: a rack"),
)

OFFSETS: tuple[Step, ...] = (
    *(
        c(f"commit of {what}", commit(GROUP, {TOPIC: {0: 5}}, member=member, generation=epoch))
        for what, member, epoch in (
            ("nobody", "", -1),
            ("an unknown member", "m-9", 2),
            ("an old epoch", "m-1", 0),
            ("a future epoch", "m-1", 99),
            ("a member without an epoch", "m-1", -1),
        )
    ),
    *(
        c(
            f"commit of an old epoch, version {version}",
            commit(GROUP, {TOPIC: {0: 5}}, member="m-1", generation=0),
            version,
        )
        for version in (8, 9)
    ),
    *(
        c(f"fetch offsets of {what}", fetched(member, epoch))
        for what, member, epoch in (
            ("nobody", None, -1),
            ("an unknown member", "m-9", 2),
            ("an old epoch", "m-1", 0),
            ("a future epoch", "m-1", 99),
            ("a member without an epoch", "m-1", -1),
        )
    ),
    c("forget subscribed offsets", forget(GROUP, {TOPIC: (0,)})),
    c("delete a group with members", delete_groups(GROUP)),
    c("describe as classic", describe_groups(GROUP)),
    c("list", list_groups()),
    c("list of type consumer", list_groups(types=("consumer",))),
    c("list of type classic", list_groups(types=("classic",))),
    c("list of an unknown type", list_groups(types=("fair",))),
    c("list of state stable", list_groups(states=("Stable",))),
    c("list of state reconciling", list_groups(states=("Reconciling",))),
    c("list of state empty", list_groups(states=("Empty",))),
    c("list, version 4", list_groups(), 4),
    c("a classic heartbeat", heartbeat(GROUP, 2, "m-1")),
    c("a classic member leaves", leave(GROUP, MemberIdentity("m-9"))),
    c("a classic sync", sync(GROUP, 2, "m-1")),
    c("describe an unknown group", ConsumerGroupDescribeRequest(group_ids=("c-nobody",))),
    c("describe none", ConsumerGroupDescribeRequest(group_ids=())),
    c("one leaves", beat("m-1", -1)),
    c("one leaves again", beat("m-1", -1)),
    described("consumer groups: one left"),
    c("two leaves", beat("m-2", -1)),
    described("consumer groups: both left"),
    c("list when both left", list_groups(types=("consumer",))),
    c("a commit without a member when both left", commit(GROUP, {TOPIC: {0: 7}})),
    c("offsets when both left", fetched(None, -1)),
    c("a heartbeat after leaving", beat("m-1", 3)),
    c("the next joins", first("m-3")),
    described("consumer groups: the next joined"),
    c("the next leaves", beat("m-3", -1)),
    c("delete", delete_groups(GROUP)),
    described("consumer groups: deleted"),
)

S = "c-static"
STATIC: tuple[Step, ...] = (
    c("static: joins", first("s-1", S, instance_id="i-1")),
    c("static: owns all", beat("s-1", 1, group=S, instance_id="i-1", owned=ALL)),
    c("static: goes on without its instance id", beat("s-1", 1, group=S)),
    c("static: another with the same instance id", first("s-2", S, instance_id="i-1")),
    c("static: fenced", beat("s-2", 1, group=S, instance_id="i-1")),
    c("static: unknown instance id", beat("s-1", 1, group=S, instance_id="i-9")),
    described("consumer groups: static", S),
    c("static: leaves for a while", beat("s-1", -2, group=S, instance_id="i-1")),
    described("consumer groups: static, away", S),
    c("static: heartbeat when away", beat("s-1", 1, group=S, instance_id="i-1")),
    c("static: leaves again", beat("s-1", -2, group=S, instance_id="i-1")),
    c("static: comes back", first("s-3", S, instance_id="i-1")),
    described("consumer groups: static, back", S),
    c("static: the old one", beat("s-1", 1, group=S, instance_id="i-1")),
    c("static: leaves for good", beat("s-3", -1, group=S, instance_id="i-1")),
    described("consumer groups: static, gone", S),
)

RANGE: tuple[Step, ...] = (
    c("range: one joins", first("r-1", "c-range", (TOPIC, OTHER), server_assignor="range")),
    c("range: two joins", first("r-2", "c-range", (TOPIC, OTHER), server_assignor="range")),
    described("consumer groups: range", "c-range"),
    c("range: one revokes", beat("r-1", 1, group="c-range", owned={TOPIC: (0, 1), OTHER: (0,)})),
    c("range: two", beat("r-2", 2, group="c-range", owned={})),
    described("consumer groups: range, revoked", "c-range"),
    c("uniform: one joins", first("u-1", "c-two", (TOPIC,))),
    c("uniform: two joins", first("u-2", "c-two", (OTHER,))),
    c("uniform: three joins", first("u-3", "c-two", (TOPIC, OTHER))),
    described("consumer groups: uniform, different topics", "c-two"),
    *(c(f"full: {number} joins", first(f"f-{number}", "c-full")) for number in range(MAX_SIZE)),
    c("full: one more", first("f-more", "c-full")),
    described("consumer groups: full", "c-full"),
)

UP, K = "c-up", "c-classic"
JOINED = "consumer groups: a classic member joins"
MIXED, MIXED_JOINED = "c-mixed", "consumer groups: mixed: a classic member joins"
ASSIGNED = encode_assignment(ConsumerAssignment((TopicPartitions(TOPIC, (0, 1, 2, 3)),)))
KEPT = ConsumerSubscription((TOPIC,), owned_partitions=(TopicPartitions(TOPIC, (0, 1)),))
OWNING = (("range", encode_subscription(KEPT)),)
SUBSCRIBED = (("range", subscribed(TOPIC)),)
MIGRATION: tuple[Step, ...] = (
    c("a classic member asks for its id", join(K, protocols=SUBSCRIBED)),
    ask(
        JOINED,
        by(
            "consumer groups: a classic member asks for its id",
            lambda it: join(K, it, protocols=SUBSCRIBED),
        ),
    ),
    c("describe a classic group", ConsumerGroupDescribeRequest(group_ids=(K,))),
    c("list with a classic group", list_groups(types=("classic",))),
    c("a classic member is assigned", by(JOINED, lambda it: sync(K, 1, it, {it: b""}))),
    c("a consumer heartbeat in a classic group", beat("k-1", 3, group=K)),
    c("a consumer leaves a classic group", beat("k-1", -1, group=K)),
    c("an empty group: commit", commit(UP, {TOPIC: {0: 3}})),
    c("an empty group: list", list_groups(types=("classic",))),
    c("an empty group: a member joins", first("up-1", UP)),
    described("consumer groups: an empty group was upgraded", UP),
    c("an empty group: its offsets", fetched("up-1", 1, UP)),
    c("an empty group: the member leaves", beat("up-1", -1, group=UP)),
    c("an empty group: a classic member asks for its id", join(UP, protocols=SUBSCRIBED)),
    c(
        "an empty group: a classic member joins",
        by(
            "consumer groups: an empty group: a classic member asks for its id",
            lambda it: join(UP, it, protocols=SUBSCRIBED),
        ),
    ),
    # Online migration: a consumer joins a group with a classic member, and leaves it again.
    c("mixed: a classic member asks for its id", join(MIXED, protocols=SUBSCRIBED)),
    ask(
        MIXED_JOINED,
        by(
            "consumer groups: mixed: a classic member asks for its id",
            lambda it: join(MIXED, it, protocols=SUBSCRIBED),
        ),
    ),
    c(
        "mixed: the classic member is assigned",
        by(MIXED_JOINED, lambda it: sync(MIXED, 1, it, {it: ASSIGNED})),
    ),
    c(
        "mixed: a commit",
        by(MIXED_JOINED, lambda it: commit(MIXED, {TOPIC: {0: 4}}, member=it, generation=1)),
    ),
    c("mixed: a consumer joins", first("mix-1", MIXED)),
    described("consumer groups: mixed", MIXED),
    c("mixed: as classic", describe_groups(MIXED)),
    c("mixed: the type", list_groups(types=("consumer",))),
    c(
        "mixed: the classic member learns of it",
        by(MIXED_JOINED, lambda it: heartbeat(MIXED, 1, it)),
    ),
    c(
        "mixed: the classic member joins again",
        by(MIXED_JOINED, lambda it: join(MIXED, it, protocols=OWNING)),
    ),
    c("mixed: the classic member syncs", by(MIXED_JOINED, lambda it: sync(MIXED, 2, it))),
    described("consumer groups: mixed, rejoined", MIXED),
    c("mixed: the consumer gets its part", beat("mix-1", 2, group=MIXED, owned={})),
    described("consumer groups: mixed, balanced", MIXED),
    c("mixed: the offset", fetched(None, -1, MIXED)),
    c("mixed: the consumer leaves", beat("mix-1", -1, group=MIXED)),
    c("mixed: classic again, listed", list_groups(types=("classic",))),
)

SCRIPT: tuple[Step, ...] = (
    *PREPARATION,
    *MEMBERS,
    *OFFSETS,
    *STATIC,
    *RANGE,
    *MIGRATION,
)


def play_to_consumer_groups(
    directory: Path, java: Java, jars: Jars
) -> tuple[Transcript, Transcript]:
    """Play the script to one Kafka broker without ZooKeeper, and to one of ours."""
    kafka_broker = KRaftBroker(directory / "kafka", java=java, jars=jars, settings=SAME).start()
    try:
        kafka = Runner(RealKafka(kafka_broker)).run(SCRIPT)
    finally:
        kafka_broker.kill()
    with BrokerProcess(directory / "barnabas", {**SETTINGS, **SAME}) as broker:
        ours = Runner(Ours(broker)).run(SCRIPT)
    return kafka, ours
