"""DeleteTopics with all brokers running and with one down: pending deletions, and their state meanwhile."""

from __future__ import annotations

from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from interop.scenarios.requests import batch, create, delete, fetch, grow, grown, metadata, produce
from interop.scenarios.step import Request
from interop.scenarios.three.broker_failures import kill, start, stop, written
from interop.scenarios.three.step import Step
from interop.scenarios.three.topic_creation import ask, assigned


def delete_by_id(*topics: str) -> Request:
    return lambda context: DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(None, context.topic_id(topic)) for topic in topics),
        timeout_ms=30_000,
    )


def hasty(*topics: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(topic) for topic in topics), timeout_ms=0
    )


def recreated(when: str, topic: str, broker: int) -> tuple[Step, ...]:
    """A recreated topic starts empty."""
    return (
        written(when, topic, broker),
        ask(
            f"all of {topic}, {when}",
            lambda context: fetch(topic, {0: 0}, topic_id=context.topic_id(topic)),
            broker,
        ),
    )


WAITING = ("wait", "wait-3", "wait-grown")
"""Broker 3 has a replica of each."""

STEPS: tuple[Step, ...] = (
    ask(
        "create what goes",
        create(
            assigned("go", (1, 2, 3), (2, 3, 1)),
            assigned("go-id", (3, 2)),
            assigned("go-hasty", (2, 1, 3)),
            assigned("go-2", (2,)),
            assigned("wait", (1, 2, 3), (3, 2, 1)),
            assigned("wait-3", (3,)),
            assigned("wait-grown", (2, 3)),
            assigned("stay", (2, 1)),
        ),
    ),
    written("while it is there", "go", 1),
    written("while it is there", "go-hasty", 2),
    written("while it is there", "wait", 1),
    written("while it is there", "wait-3", 3),
    ask("delete go", delete("go")),
    ask("produce to what is gone", produce("go", batch(b"late")), 1),
    ask("fetch what is gone", fetch("go", {0: 0}), 1, version=12),
    ask(
        "fetch what is gone, by its id",
        lambda context: fetch("go", {0: 0}, topic_id=context.topic_id("go")),
    ),
    ask("delete go again", delete("go")),
    ask("create go again", create(assigned("go", (3, 1)))),
    *recreated("born again", "go", 3),
    ask("delete by id", delete_by_id("go-id")),
    ask("delete by an id that is gone", delete_by_id("go-id")),
    ask("delete without waiting", hasty("go-hasty", "nobody")),
    ask("create what was deleted without waiting", create(assigned("go-hasty", (1, 2)))),
    *recreated("born again", "go-hasty", 1),
    ask("grow what will wait", grow(grown("wait-grown", 3))),
    # With 3 down, its replicas wait for it.
    stop(3, "3, for what is deleted meanwhile"),
    ask("delete what waits for 3", delete(*WAITING)),
    ask("delete what waits for 3 again", delete(*WAITING)),
    ask("delete what waits for 3 by its id", delete_by_id("wait", "wait-3")),
    *(
        step
        for broker in (1, 2)
        for step in (
            ask(
                f"of broker {broker}: what waits for 3 is wanted",
                metadata(*WAITING, create=True),
                broker,
            ),
            ask(f"of broker {broker}: what waits for 3 is not there", metadata(*WAITING), broker),
            ask(
                f"of broker {broker}: produce to what waits for 3",
                produce("wait", batch(b"x")),
                broker,
            ),
        )
    ),
    *(ask(f"create {name}, which waits for 3", create(assigned(name, (1,)))) for name in WAITING),
    *(ask(f"grow {name}, which waits for 3", grow(grown(name, 9))) for name in WAITING),
    ask("grow what 3 has no part in", grow(grown("stay", 2))),
    ask("grow what 3 has a part in", grow(grown("grow", 10))),
    ask("grow what 3 leads, by hand to 3", grow(grown("grow-1", 7, (3,)))),
    ask("grow what needs three", grow(grown("grow-3", 5))),
    ask("delete what 3 has no part in", delete("go-2")),
    ask("wanted without 3", metadata("any-wanted-without-3", create=True), 2),
    ask("delete what was wanted without 3", delete("any-wanted-without-3")),
    start(3, "for what it still has", num_partitions="3"),
    *(ask(f"create {name}, which waited", create(assigned(name, (3, 1)))) for name in WAITING),
    *recreated("after 3 came back", "wait", 3),
    *recreated("after 3 came back", "wait-3", 3),
    # Broker 3 would create three partitions of a topic, and the controller two.
    ask("of broker 3, which has other defaults: wanted", metadata("any-three", create=True), 3),
    ask("of broker 2, which has not: wanted", metadata("any-two-parts", create=True), 2),
    ask("delete what was made by defaults", delete("any-three", "any-two-parts")),
    # Killed, not stopped: there is no controlled shutdown.
    kill(3, "3, for what is deleted meanwhile"),
    ask("delete without 3, which was killed", delete("wait", "wait-grown", "grow-3")),
    ask("grow without 3, which was killed", grow(grown("grow-3", 9))),
    ask("grow the rest without 3, which was killed", grow(grown("stay", 4))),
    start(3, "after it was killed, for what it still has"),
    ask(
        "create what 3 had, after its kill",
        create(assigned("wait", (3, 2, 1)), assigned("grow-3", (1, 3))),
    ),
    *recreated("after 3 was killed", "wait", 3),
    ask(
        "delete what went and stayed",
        delete(
            *WAITING,
            "go",
            "go-hasty",
            "stay",
            "grow",
            "grow-1",
            "grow-3",
            "grow-v0",
            "grow-v2",
            "grow-v3",
        ),
    ),
)
