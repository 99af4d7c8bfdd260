"""Brokers are stopped and killed: a follower, a leader, the controller, a leader that is also controller.

One recorded state covers many cases, since each topic is placed differently. Broker 1 is the first controller. If only
one other broker is left to take over, the successor is known; at the very end, two brokers compete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interop.scenarios.requests import (
    batch,
    create,
    delete,
    delete_records,
    epoch_end,
    fetch,
    grow,
    grown,
    list_offsets,
    metadata,
    new_topic,
    produce,
)
from interop.scenarios.step import Request
from interop.scenarios.three import groups, replication
from interop.scenarios.three.step import Kill, ListReplicas, Role, Start, Step, Stop
from interop.scenarios.three.topic_creation import AGAIN, ask, assigned


def stop(broker: int, what: str) -> Step:
    return Step(name=f"three brokers: stop {what}", action=Stop(broker=broker))


def kill(broker: int, what: str) -> Step:
    return Step(name=f"three brokers: kill {what}", action=Kill(broker=broker))


def start(broker: int, when: str, **settings: str) -> Step:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Step(
        name=f"three brokers: start {broker} {when}", action=Start(broker=broker, settings=named)
    )


def written(when: str, topic: str, broker: int, partition: int = 0, *, error: str = "NONE") -> Step:
    """Produce one record, as soon as the leader is ready."""
    value = f"{topic} {when}".encode()
    return ask(
        f"produce to {topic}-{partition} of broker {broker}, {when}",
        produce(topic, batch(value), partition=partition),
        broker,
        until=(f"responses.{topic}.partition_responses.{partition}.error_code", error),
    )


def of_id(topic: str, offsets: Mapping[int, int], **options: Any) -> Request:
    """A fetch by topic id, like newer clients send it."""
    return lambda context: fetch(topic, offsets, topic_id=context.topic_id(topic), **options)


FILES = (
    ("all", 0),
    ("back", 0),
    ("ring", 0),
    ("ring", 1),
    ("ring", 2),
    ("lead-1", 0),
    ("third", 0),
    ("careless", 0),
    ("two-1", 0),
)

STEPS: tuple[Step, ...] = (
    ask(
        "create what needs two in sync",
        create(assigned("pair", (2, 3), **{"min.insync.replicas": "2"})),
    ),
    written("at first", "all", 1),
    written("at first", "ring", 1, 0),
    written("at first", "ring", 2, 1),
    written("at first", "ring", 3, 2),
    written("at first", "back", 3, 0),
    written("at first", "third", 3),
    written("at first", "pair", 2),
    ask("produce to who does not lead", produce("all", batch(b"lost")), 2),
    *(
        ask(
            f"produce to who does not lead, version {version}",
            produce("all", batch(b"lost")),
            2,
            version=version,
        )
        for version in (8, 9, 10)
    ),
    ask("fetch from who does not lead, version 10", fetch("all", {0: 0}), 3, version=10),
    ask(
        "fetch from who does not lead, version 11",
        fetch("all", {0: 0}),
        3,
        version=11,
        # A follower learns the high watermark with its next fetch, one fetch after the records.
        until=("responses.all.partitions.0.high_watermark", 1),
    ),
    ask("fetch from who does not lead, version 12", fetch("all", {0: 0}), 3, version=12),
    ask("fetch from who does not lead", of_id("all", {0: 0}), 3),
    ask("fetch from who does not lead, beyond the end", of_id("all", {0: 9}), 3),
    ask("fetch what lies elsewhere", of_id("third", {0: 0}), 2),
    ask("fetch with an old epoch", of_id("all", {0: 0}, current_leader_epoch=-1), 1),
    ask("fetch with a new epoch", of_id("all", {0: 0}, current_leader_epoch=7), 1),
    ask("offsets of who does not lead", list_offsets("all", -1), 2),
    ask("offsets of what lies elsewhere", list_offsets("third", -1), 2),
    ask("end of an epoch of who does not lead", epoch_end("all", 0), 2),
    ask("delete records of who does not lead", delete_records("all", 1), 2),
    *groups.AT_FIRST,
    # A broker that leads some partitions and follows others, and is not the controller.
    stop(3, "3"),
    *groups.WITHOUT_3,
    written("without 3", "all", 1),
    written("without 3", "ring", 2, 1),
    written("without 3", "ring", 1, 2),
    written("without 3", "pair", 2, error="NOT_ENOUGH_REPLICAS"),
    *replication.WITHOUT_3,
    ask("create three replicas without 3", create(new_topic("new", 1, 3))),
    ask("create two replicas without 3", create(new_topic("any-two", 2, 2))),
    ask("delete without 3", delete("any-two", "good")),
    ask("delete what 3 has without 3", delete("shuffled", "hasty")),
    ask("create what waits for its deletion", create(assigned("shuffled", (1,)))),
    ask("delete what waits for its deletion", delete("shuffled", "better")),
    *replication.DOOMED_WITHOUT_3,
    ask("check an assignment to 3 without 3", create(assigned("new", (3, 1)), validate_only=True)),
    ask("of broker 2 without 3: create", create(new_topic("new", 1, 2)), 2),
    start(3, "again", broker_rack="far"),
    *replication.WITH_3_AGAIN,
    *groups.WITH_3_AGAIN,
    written("with 3 again", "all", 1),
    written("with 3 again", "third", 3),
    written("with 3 again", "pair", 2),
    ask("create where one has a rack", create(new_topic("new", 1, 2))),
    ask("grow where one has a rack", grow(grown("ring", 4))),
    ask("grow by hand where one has a rack", grow(grown("ring", 4, (2, 3)))),
    ask("wanted where one has a rack", metadata("new", create=True)),
    ask("of broker 2: wanted where one has a rack", metadata("new", create=True), 2),
    ask("create with one replica where one has a rack", create(new_topic("new", 1, 1))),
    ask("check where one has a rack", create(new_topic("new", 2, 3), validate_only=True)),
    ask("create an assignment where one has a rack", create(assigned("lead-3", (3, 2, 1)))),
    kill(3, "3"),
    written("after 3 was killed", "all", 1),
    written("after 3 was killed", "back", 2, 0),
    start(3, "after its kill"),
    # A leader.
    ask(
        "create what 2 leads",
        create(assigned("lead-2", (2, 3, 1)), assigned("two-2", (2, 1), (2, 3))),
    ),
    written("led by 2", "lead-2", 2, 0),
    kill(2, "2, which leads"),
    *groups.AFTER_2_WAS_KILLED,
    written("after 2 was killed", "lead-2", 3, 0),
    ask("fetch with the epoch before", of_id("lead-2", {0: 0}, current_leader_epoch=0), 3),
    ask(
        "fetch from a follower with the epoch before",
        of_id("lead-2", {0: 0}, current_leader_epoch=0),
        1,
    ),
    written("after 2 was killed", "two-2", 1, 0),
    start(2, "after its kill", broker_rack="near"),
    ask("create what 2 leads again", create(assigned("again-2", (2, 3), (2, 1)))),
    stop(2, "2, which leads"),
    start(2, "after its stop"),
    # The controller, which is also a leader. With 3 down, 2 takes over.
    ask(
        "create what 1 leads",
        create(
            assigned("lead-1", (1, 2, 3)),
            assigned("two-1", (1, 3), (1, 2)),
            assigned("careless", (1, 3), **{"unclean.leader.election.enable": "true"}),
            *replication.LOST,
            assigned("doomed", (2, 3), (2, 1)),
            assigned("doomed-1", (1, 2), (3, 2)),
            assigned("doomed-3", (3,)),
            assigned("growing", (1, 2, 3), (2, 1, 3)),
        ),
    ),
    written("led by 1", "lead-1", 1, 0),
    written("led by 1", "careless", 1),
    written("led by 1", "two-1", 1),
    written("led by 1", "lost", 1),
    stop(3, "3, so that 2 alone can take over"),
    # Broker 3 lacks these; one of the topics allows unclean elections.
    written("while 3 is away", "careless", 1),
    written("while 3 is away", "two-1", 1),
    written("while 3 is away", "lost", 1),
    ask("delete what the next controller finishes", delete("doomed", "doomed-1", "doomed-3")),
    ask("grow badly where one has no rack", grow(grown("nobody", 2), grown("doomed", 9))),
    kill(1, "1, which leads and is the controller"),
    *groups.WITH_2_ALONE,
    written("after 1 was killed", "lead-1", 2, 0),
    *replication.WITHOUT_1_AND_3,
    ask("of broker 2, the controller: create", create(assigned("of-2", (2,))), 2),
    ask("of broker 2, the controller: grow", grow(grown("of-2", 2)), 2),
    ask("of broker 2, the controller: grow what misses two", grow(grown("growing", 3)), 2),
    ask("of broker 2, the controller: grow what is doomed", grow(grown("doomed", 9)), 2),
    ask("of broker 2, the controller: create what is doomed", create(assigned("doomed", (2,))), 2),
    ask("of broker 2, alone: wanted", metadata("new", create=True), 2),
    ask("of broker 2, alone: what is doomed is wanted", metadata("doomed", create=True), 2),
    ask("of broker 2, the controller: delete what misses two", delete("growing"), 2),
    start(3, "while 1 is away"),
    written("while 1 is away", "careless", 3),
    *replication.WITHOUT_1,
    start(1, "after its kill", broker_rack="near"),
    *groups.DELETED,
    written("with everybody", "all", 2),
    written("with everybody", "careless", 3),
    ask("all that is left of careless", of_id("careless", {0: 0}), 3),
    ask("all of two-1", of_id("two-1", {0: 0}), 1),
    *replication.ALL_OF_LOST,
    ask("of broker 1, no longer the controller: create", create(new_topic("new", 1, 3)), 1),
    ask("create what the doomed was called", create(assigned("doomed", (3, 1), (1, 2))), 2),
    ask("create what had been growing", create(assigned("growing", (2, 3))), 2),
    ask("grow on racks", grow(grown("doomed", 7)), 2),
    ask("create on two racks", create(new_topic("any-racks", 6, 2)), 2),
    ask("create on all racks", create(new_topic("any-racks-all", 4, 3)), 2),
    ask("delete what lies on racks", delete("any-racks", "any-racks-all"), 2),
    ask("create an assignment against the racks", create(assigned("racks", (1, 2))), 2),
    # The controller again, stopped cleanly.
    stop(1, "1, so that 3 alone can take over"),
    stop(2, "2, which leads and is the controller"),
    ask("of broker 3, the controller: create", create(assigned("of-3", (3,))), 3),
    start(1, "at last"),
    start(2, "at last"),
    written("in the end", "lead-1", 3, 0),
    ask("create what 3 leads in the end", create(assigned("end", (3, 1, 2), (1, 3, 2))), 3),
    *(ask(f"end of epoch {epoch} of lead-1", epoch_end("lead-1", epoch), 3) for epoch in range(8)),
    ask("all of lead-1", of_id("lead-1", {0: 0}), 3),
    *(
        Step(
            name=f"three brokers: files of {topic}-{number}",
            action=ListReplicas(topic=topic, partition=number),
        )
        for topic, number in FILES
    ),
    kill(3, "3, which leads and is the controller, and two race"),
    *AGAIN,
    ask("of nobody in particular: what became of it", create(), Role.OTHER),
    start(3, "in the very end"),
    *replication.IN_THE_END,
)
