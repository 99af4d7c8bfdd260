"""CreateTopics and DeleteTopics: every input of the error table, and the resulting state."""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.apis import APIS
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from interop.scenarios.requests import ask, create, delete, metadata, new_topic
from interop.scenarios.step import Await, Step

UNKNOWN_ID = UUID("00000000-0000-4000-8000-00000000beef")

BAD_NAMES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "too long": "x" * 250,
    "with a slash": "a/b",
    "with a space": "a b",
    "with a letter beyond ascii": "ä",
    "a name of Kafka's own": "__cluster_metadata",
}

REFUSED = {
    "no partitions": new_topic("new", 0),
    "-2 partitions": new_topic("new", -2),
    "replication factor 0": new_topic("new", 1, 0),
    "replication factor -2": new_topic("new", 1, -2),
    "replication factor beyond the brokers": new_topic("new", 1, 2),
    "a bad name and a bad replication factor": new_topic("a/b", 1, 9),
    "partitions and an assignment": new_topic("new", 1, -1, assignments={0: (1,)}),
    "replication factor and an assignment": new_topic("new", -1, 1, assignments={0: (1,)}),
    "assignments of unequal size": new_topic("new", -1, -1, assignments={0: (1,), 1: (1, 2)}),
    "a broker twice": new_topic("new", -1, -1, assignments={0: (1, 1)}),
    "partitions from 1 on": new_topic("new", -1, -1, assignments={1: (1,)}),
    "a gap between partitions": new_topic("new", -1, -1, assignments={0: (1,), 2: (1,)}),
    "a negative partition": new_topic("new", -1, -1, assignments={-1: (1,), 0: (1,)}),
    "an unknown setting": new_topic("new", configs={"no.such.setting": "1"}),
    "a setting of brokers": new_topic("new", configs={"log.retention.ms": "1"}),
    "a number that is none": new_topic("new", configs={"retention.ms": "soon"}),
    "a number out of range": new_topic("new", configs={"segment.bytes": "13"}),
    "an unknown policy": new_topic("new", configs={"cleanup.policy": "burn"}),
    "an unknown codec": new_topic("new", configs={"compression.type": "rar"}),
    "a boolean that is none": new_topic("new", configs={"preallocate": "perhaps"}),
    "null as a value": new_topic("new", configs={"retention.ms": None}),
    "an empty value": new_topic("new", configs={"retention.ms": ""}),
    "min.insync.replicas 0": new_topic("new", configs={"min.insync.replicas": "0"}),
    "a level of gzip out of range": new_topic("new", configs={"compression.gzip.level": "99"}),
    "a message format that never was": new_topic("new", configs={"message.format.version": "x"}),
}

# Validated only, since Kafka would create them.
TOO_MANY = {
    "10000 partitions": new_topic("new", 10_000),
    "10001 partitions": new_topic("new", 10_001),
}

ACCEPTED = {
    "counts left to the broker": new_topic("defaults", -1, -1),
    "three partitions": new_topic("three", 3),
    "a name of 249": new_topic("x" * 249),
    "an assignment": new_topic("assigned", -1, -1, assignments={0: (1,), 1: (1,)}),
    "an assignment in any order": new_topic("disordered", -1, -1, assignments={1: (1,), 0: (1,)}),
    "settings": new_topic(
        "set",
        configs={
            "cleanup.policy": "compact,delete",
            "retention.ms": "-1",
            "compression.type": "lz4",
            "min.insync.replicas": "3",
            "segment.bytes": "1048576",
        },
    ),
    "spaces around a value": new_topic("spaces", configs={"cleanup.policy": " compact , delete "}),
    "a boolean in capitals": new_topic("capitals", configs={"preallocate": "TRUE"}),
    "dots": new_topic("a.b"),
    "local retention above retention": new_topic(
        "local", configs={"retention.ms": "10", "local.retention.ms": "20"}
    ),
    "a hyphen and a digit": new_topic("name-7"),
}

# Validated only: Kafka would create them, and they would never have a leader.
QUIRKS = {
    "an unknown broker": new_topic("new", -1, -1, assignments={0: (77,)}),
    "a negative broker": new_topic("new", -1, -1, assignments={0: (-1,)}),
    "no replicas at all": new_topic("new", -1, -1, assignments={0: ()}),
    "partition ids with the right sum": new_topic(
        "new", -1, -1, assignments={-1: (1,), 0: (1,), 3: (1,)}
    ),
}
TWICE = CreatableTopic(
    "new", -1, -1, (CreatableReplicaAssignment(0, (1,)), CreatableReplicaAssignment(0, (1,)))
)


STEPS: tuple[Step, ...] = (
    *(ask(f"create: name {what}", create(new_topic(name))) for what, name in BAD_NAMES.items()),
    *(ask(f"create: {what}", create(topic)) for what, topic in REFUSED.items()),
    *(
        ask(f"create, validate only: {what}", create(topic, validate_only=True))
        for what, topic in {**REFUSED, **QUIRKS, **TOO_MANY, **ACCEPTED}.items()
    ),
    ask("create: a partition assigned twice", create(TWICE)),
    *(ask(f"create: {what}", create(topic)) for what, topic in ACCEPTED.items()),
    ask("create: what exists", create(new_topic("three"))),
    ask("create: what exists, validate only", create(new_topic("three"), validate_only=True)),
    ask("create: what exists, with bad counts", create(new_topic("three", 0, 9))),
    ask("create: a name that collides", create(new_topic("a_b"))),
    ask("create: the same topic twice", create(new_topic("twin"), new_topic("twin", 2))),
    ask("create: nothing", create()),
    ask(
        "create: good and bad in one",
        create(new_topic("good"), new_topic("bad", 0), new_topic("three"), new_topic("good-2")),
    ),
    *(
        ask(f"create: version {version}", create(new_topic(f"created-v{version}", 2)), version)
        for version in APIS[CreateTopicsRequest.API_KEY].versions
    ),
    ask("create: without waiting", create(new_topic("hasty"), timeout_ms=0)),
    Step(
        name="create: what was not waited for is there",
        action=Await(
            request=metadata("hasty"), path="topics.hasty.partitions.0.leader_id", value=1
        ),
    ),
    ask("delete: an unknown topic", delete("nobody")),
    ask("delete: a bad name", delete("a/b")),
    ask("delete: an empty name", delete("")),
    ask(
        "delete: an unknown id",
        DeleteTopicsRequest(topics=(DeleteTopicState(None, UNKNOWN_ID),), timeout_ms=1000),
    ),
    ask(
        "delete: neither name nor id",
        DeleteTopicsRequest(topics=(DeleteTopicState(None),), timeout_ms=1000),
    ),
    ask(
        "delete: by name and id",
        lambda context: DeleteTopicsRequest(
            topics=(DeleteTopicState("good", context.topic_id("good")),), timeout_ms=1000
        ),
    ),
    ask("delete: a topic twice", delete("good", "good")),
    ask("delete: nothing", delete()),
    ask(
        "delete: by id",
        lambda context: DeleteTopicsRequest(
            topics=(DeleteTopicState(None, context.topic_id("good-2")),), timeout_ms=30_000
        ),
    ),
    *(
        ask(
            f"delete: version {version}",
            delete(f"created-v{version}", version=version),
            version,
        )
        for version in APIS[DeleteTopicsRequest.API_KEY].versions
    ),
    ask("delete: good and unknown in one", delete("hasty", "nobody")),
    ask("delete: what is gone", delete("hasty")),
    Step(
        name="create: what was deleted",
        action=Await(
            request=create(new_topic("hasty", 2)), path="topics.hasty.error_code", value="NONE"
        ),
    ),
)
