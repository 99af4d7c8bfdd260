"""The same questions about coordinators and offsets to the real Kafka and to ours: the answers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec import structs

from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.wire.consumer_protocol import Subscription, encode_subscription
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.group_membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from interop.harness.kafka import KafkaBroker
from tests.broker_process import BrokerProcess, eventually
from tests.compatibility.raw import Raw

TOPIC, OTHER = "committed-to", "not-read"
Answers = dict[str, Any]
At = OffsetCommitRequestPartition


def test_coordinators_and_offsets_are_told_as_kafka_tells_them(
    kafka: KafkaBroker, ours: BrokerProcess
) -> None:
    expected, found = (answers(each.bootstrap_servers) for each in (kafka, ours))
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == expected[name], name


def answers(servers: str) -> Answers:
    with Raw(servers) as raw:
        for topic in (TOPIC, OTHER):
            raw.create_topic(topic, partitions=3)
        eventually(lambda: is_found(raw), "a coordinator", seconds=60.0)
        told: Answers = {}
        for name, work in questions(raw):
            told[name] = work()
        return told


def is_found(raw: Raw) -> bool:
    answer = raw.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
    return not answer.error_code and not errors(commit(raw, "first", At(0, 1)))


def questions(raw: Raw) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from coordinators(raw)
    yield from commits(raw)
    yield from members(raw)
    yield from fetches(raw)
    yield from deletions(raw)


def coordinators(raw: Raw) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in APIS[10].versions:
        for key_type in (0, 1, 2, 3) if version else (0,):
            if key_type == 1:
                continue  # here Kafka has transactions

            def find(version: int = version, key_type: int = key_type) -> Any:
                if version < 4:
                    request = FindCoordinatorRequest(key="g", key_type=key_type)
                    answer = raw.ask(request, FindCoordinatorResponse, version)
                    return answer.error_code, answer.error_code or answer.error_message
                request = FindCoordinatorRequest(coordinator_keys=("g", ""), key_type=key_type)
                found = raw.ask(request, FindCoordinatorResponse, version).coordinators
                return [
                    (each.key, each.error_code, each.node_id < 0, each.port < 0) for each in found
                ]

            yield f"coordinator of type {key_type} v{version}", find


def commits(raw: Raw) -> Iterator[tuple[str, Callable[[], Any]]]:
    for version in APIS[8].versions:
        for name, work in {
            "commit": partial(commit, raw, "simple", At(0, 5), version=version),
            "partitions that are not there": partial(
                commit, raw, "simple", At(0, 6), At(3, 6), At(-1, 6), version=version
            ),
            "a note": partial(
                commit, raw, "simple", At(1, 7, committed_metadata="note"), version=version
            ),
            "no note": partial(
                commit, raw, "simple", At(2, 7, committed_metadata=None), version=version
            ),
            "a negative offset": partial(
                commit, raw, "negative", At(0, -1), At(1, -2), version=version
            ),
            "a long note": partial(
                commit,
                raw,
                "simple",
                At(1, 8, committed_metadata="x" * 4097),
                At(2, 8, committed_metadata="x" * 4096),
                version=version,
            ),
            "a long note alone": partial(
                commit, raw, "simple", At(1, 8, committed_metadata="x" * 4097), version=version
            ),
            "no partitions": partial(commit, raw, "simple", version=version),
            "an unknown topic": partial(
                commit, raw, "simple", At(0, 1), version=version, topic="nowhere"
            ),
        }.items():
            yield f"{name} v{version}", work
    for version in range(1, 10):
        yield (
            f"a generation of nobody v{version}",
            partial(
                commit,
                raw,
                "nobody",
                At(0, 1),
                version=version,
                generation_id_or_member_epoch=3,
                member_id="me",
            ),
        )
        yield (
            f"a member of nobody v{version}",
            partial(commit, raw, f"nobody-{version}", At(0, 1), version=version, member_id="me"),
        )
        yield (
            f"no name v{version}",
            partial(commit, raw, "", At(0, 1), version=version),
        )
    yield (
        "an instance of nobody",
        partial(commit, raw, "nobody-static", At(0, 1), group_instance_id="one"),
    )
    yield "a group of emptiness", partial(commit, raw, "simple")


def members(raw: Raw) -> Iterator[tuple[str, Callable[[], Any]]]:
    joined: dict[str, Any] = {}

    def join(group: str, protocol_type: str = "consumer") -> Any:
        metadata = encode_subscription(Subscription((TOPIC,)))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type=protocol_type,
            protocols=(JoinGroupRequestProtocol("range", metadata),),
        )
        joined[group] = raw.ask(request, JoinGroupResponse, 3)
        return joined[group].error_code, joined[group].generation_id

    def sync(group: str) -> Any:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined[group].generation_id,
            member_id=joined[group].member_id,
        )
        return raw.ask(request, SyncGroupResponse, 3).error_code

    def by_member(**more: Any) -> Any:
        who = {
            "generation_id_or_member_epoch": joined["members"].generation_id,
            "member_id": joined["members"].member_id,
        }
        return commit(raw, "members", At(0, 11), **{**who, **more})

    yield "before anybody joined", partial(commit, raw, "members", At(0, 3), At(1, 3))
    yield "not read either", partial(commit, raw, "members", At(0, 3), topic=OTHER)
    yield "join", lambda: join("members")
    yield "while it waits for its assignment", by_member
    yield "nobody while it waits", partial(commit, raw, "members", At(0, 4))
    yield "sync", lambda: sync("members")
    yield "by its member", by_member
    yield "by a generation to come", lambda: by_member(generation_id_or_member_epoch=9)
    yield "without its generation", lambda: by_member(generation_id_or_member_epoch=-1)
    yield "by somebody", lambda: by_member(member_id="somebody")
    yield "by an unknown instance", lambda: by_member(group_instance_id="one")
    yield "by nobody", partial(commit, raw, "members", At(0, 4))
    yield (
        "by nobody but an instance",
        partial(commit, raw, "members", At(0, 4), group_instance_id="one"),
    )
    yield "before connectors", partial(commit, raw, "connectors", At(0, 3))
    yield "connectors join", lambda: join("connectors", "connect")
    yield "connectors sync", lambda: sync("connectors")


def fetches(raw: Raw) -> Iterator[tuple[str, Callable[[], Any]]]:
    named = (OffsetFetchRequestTopic(TOPIC, (0, 1, 2, 9)), OffsetFetchRequestTopic("nowhere", (0,)))
    for version in APIS[9].versions:
        for group in ("simple", "negative", "members", "nobody at all", ""):
            if version < 8:
                yield (
                    f"fetch {group!r} v{version}",
                    partial(
                        told,
                        raw,
                        OffsetFetchRequest(group_id=group, topics=named),
                        OffsetFetchResponse,
                        version,
                    ),
                )
        if 2 <= version < 8:
            yield (
                f"fetch everything v{version}",
                partial(
                    told,
                    raw,
                    OffsetFetchRequest(group_id="simple", topics=None),
                    OffsetFetchResponse,
                    version,
                ),
            )
        if version >= 8:
            many = tuple(
                OffsetFetchRequestGroup(group, topics=topics)
                for group in ("simple", "members", "nobody at all", "")
                for topics in (named, None)
            )
            yield (
                f"fetch many v{version}",
                partial(told, raw, OffsetFetchRequest(groups=many), OffsetFetchResponse, version),
            )


def deletions(raw: Raw) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "delete of nobody", partial(delete, raw, "nobody at all", TOPIC, 0)
    yield "delete without a name", partial(delete, raw, "", TOPIC, 0)
    yield "delete what is read", partial(delete, raw, "members", TOPIC, 0, 9)
    yield "delete what is not read", partial(delete, raw, "members", OTHER, 0, 1)
    yield "delete of connectors", partial(delete, raw, "connectors", TOPIC, 0)
    yield "delete some", partial(delete, raw, "simple", TOPIC, 0, 9)
    yield "delete of nowhere", partial(delete, raw, "simple", "nowhere", 0)
    yield "delete the rest", partial(delete, raw, "simple", TOPIC, 1, 2)
    yield "delete what is gone", partial(delete, raw, "simple", TOPIC, 1)
    for group in ("simple", "members"):
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group),))
        yield (
            f"left of {group}",
            partial(told, raw, request, OffsetFetchResponse, 9),
        )


def commit(
    raw: Raw, group: str, *partitions: At, topic: str = TOPIC, version: int = 9, **more: Any
) -> Any:
    topics = (OffsetCommitRequestTopic(topic, partitions),) if partitions else ()
    request = OffsetCommitRequest(group_id=group, topics=topics, **more)
    return told(raw, request, OffsetCommitResponse, version)


def delete(raw: Raw, group: str, topic: str, *partitions: int) -> Any:
    wanted = tuple(OffsetDeleteRequestPartition(each) for each in partitions)
    request = OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(topic, wanted),))
    return told(raw, request, OffsetDeleteResponse, 0)


def errors(answer: Any) -> list[int]:
    return [each[1] for _, partitions in answer["topics"] for each in partitions if each[1]]


def told(raw: Raw, request: Message, response: type[Any], version: int) -> Any:
    """Topics and partitions in order of their names: Kafka has none."""
    return in_order(structs.asdict(raw.ask(request, response, version)))


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_order(each) for key, each in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return sorted((in_order(each) for each in value), key=repr)
    if isinstance(value, tuple):
        return tuple(in_order(each) for each in value)
    return value
