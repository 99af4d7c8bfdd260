"""The script for a broker with three log directories: AlterReplicaLogDirs and DescribeLogDirs.

The paths of the directories differ between the brokers. A request takes them from an earlier response.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barnabas.java.find import Java
from barnabas.wire.apis import APIS
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from interop.harness.jars import Jars
from interop.harness.kafka import SETTINGS, KafkaCluster
from interop.harness.zookeeper import ZooKeeper
from interop.scenarios.both import SAME
from interop.scenarios.requests import (
    ask,
    batch,
    create,
    delete,
    delete_records,
    epoch_end,
    fetch,
    keyed,
    list_offsets,
    new_topic,
    numbered,
    produce,
)
from interop.scenarios.runner import Ours, RealKafka, Runner
from interop.scenarios.step import Await, ListPartition, RequestContext, Restart, Step, Transcript
from support.broker import BrokerProcess

NAMES = ("one", "two", "three")
ONE, TWO, THREE = range(3)
PATHS = "three dirs: the directories"
UNUSED = "/no/such/directory"
LONG = "x" * 249
LONGEST = "y" * 213
"""The longest name whose future log has a valid directory name."""
VERSIONS = APIS[AlterReplicaLogDirsRequest.API_KEY].versions

ROUND_TRIP = ((ONE, TWO), (TWO, THREE), (THREE, ONE))

Directory = int | str
"""The number of a directory of the broker, or a path."""


def path(context: RequestContext, directory: Directory) -> str:
    if isinstance(directory, str):
        return directory
    found: str = context.answer(PATHS).results[directory].log_dir
    return found


def alter(
    *moves: tuple[Directory, str, tuple[int, ...]],
) -> Callable[[RequestContext], AlterReplicaLogDirsRequest]:
    return lambda context: AlterReplicaLogDirsRequest(
        dirs=tuple(
            AlterReplicaLogDir(
                path(context, directory), (AlterReplicaLogDirTopic(topic, partitions),)
            )
            for directory, topic, partitions in moves
        )
    )


def describe(topic: str, *partitions: int) -> DescribeLogDirsRequest:
    wanted = DescribableLogDirTopic(topic, partitions or (0, 1, 2))
    return DescribeLogDirsRequest(topics=(wanted,))


def placed(what: str, topic: str, directory: int, partition: int = 0) -> Step:
    """Wait until the broker has created or loaded the replica in the directory, and describe it."""
    return Step(
        name=f"three dirs: {what}",
        action=Await(
            request=describe(topic, partition),
            path=f"results.{directory}.topics.{topic}.partitions.{partition}.offset_lag",
            value=0,
        ),
    )


def moved(what: str, topic: str, source: int, partition: int = 0) -> Step:
    """Wait until the replica is no longer in the directory, and describe it. During the swap, Kafka shows two logs."""
    return Step(
        name=f"three dirs: {what}, has left {NAMES[source]}",
        action=Await(
            request=describe(topic, partition), path=f"results.{source}.topics.count", value=0
        ),
    )


def move(
    what: str, topic: str, source: int, target: int, version: int | None = None
) -> tuple[Step, ...]:
    return (
        ask(f"three dirs: {what}", alter((target, topic, (0,))), version),
        moved(what, topic, source),
    )


REFUSED = {
    "an unknown directory": alter((UNUSED, "m", (0,))),
    "an empty path": alter(("", "m", (0,))),
    "a relative path": alter(("one", "m", (0,))),
    "an unknown topic": alter((ONE, "nobody", (0,))),
    "an unknown topic in an unknown directory": alter((UNUSED, "nobody", (0,))),
    "an unknown partition": alter((ONE, "m", (7,))),
    "a negative partition": alter((ONE, "m", (-1,))),
    "a bad name": alter((ONE, "a/b", (0,))),
    "an empty name": alter((ONE, "", (0,))),
    "a long name": alter((ONE, LONG, (0,))),
    "a long name in an unknown directory": alter((UNUSED, LONG, (0,))),
    "a long name that no topic has": alter((ONE, "z" * 220, (0,))),
    "no directory": alter(),
    "no partition": alter((ONE, "m", ())),
    "good and bad in one": alter((ONE, "m", (0,)), (UNUSED, "m", (1,)), (ONE, "nobody", (0,))),
    "a partition twice": alter((ONE, "m", (0, 0))),
}

SCRIPT: tuple[Step, ...] = (
    ask(PATHS, DescribeLogDirsRequest(topics=None)),
    # The directory of a partition that does not exist is stored.
    ask("three dirs: choose for m-0", alter((ONE, "m", (0,)))),
    ask("three dirs: choose for m-1", alter((TWO, "m", (1,)))),
    ask("three dirs: choose for m-2", alter((THREE, "m", (2,)))),
    ask("three dirs: choose again for m-2", alter((TWO, "m", (2,)))),
    *(
        ask(f"three dirs: choose for {topic}", alter((ONE, topic, (0,))))
        for topic in ("deleted", "compact", "idem", "empty", LONGEST)
    ),
    ask("three dirs: create m", create(new_topic("m", 3))),
    ask("three dirs: create a long name", create(new_topic(LONG))),
    ask("three dirs: create the longest name", create(new_topic(LONGEST))),
    *(
        ask(f"three dirs: create {topic}", create(new_topic(topic)))
        for topic in ("deleted", "idem", "empty")
    ),
    ask(
        "three dirs: create compact",
        create(new_topic("compact", configs={"cleanup.policy": "compact"})),
    ),
    placed("m-0 is where it was chosen", "m", ONE),
    placed("m-1 is where it was chosen", "m", TWO, 1),
    placed("m-2 is where it was chosen", "m", TWO, 2),
    *(ask(f"three dirs: move {what}", request) for what, request in REFUSED.items()),
    *(
        ask(f"three dirs: produce {number}", produce("m", batch(b"%d" % number, b"x" * 100)))
        for number in range(10)
    ),
    ask("three dirs: describe the written log", describe("m")),
    *(
        step
        for version, (source, target) in zip(VERSIONS, ROUND_TRIP, strict=True)
        for step in move(f"move m with version {version}", "m", source, target, version)
    ),
    ask("three dirs: fetch the moved log", fetch("m", {0: 0}), 12),
    ask("three dirs: end of the moved log", list_offsets("m", -1)),
    ask("three dirs: epoch of the moved log", epoch_end("m", 0)),
    ask("three dirs: produce to the moved log", produce("m", batch(b"after"))),
    ask("three dirs: move to its own directory", alter((ONE, "m", (0,)))),
    ask("three dirs: describe the log in its own directory", describe("m")),
    *move("move and back", "m", ONE, TWO),
    *move("back again", "m", TWO, ONE),
    ask("three dirs: move two partitions", alter((THREE, "m", (1, 2)))),
    moved("the first of two", "m", TWO, 1),
    moved("the second of two", "m", TWO, 2),
    ask(
        "three dirs: a partition with two directories",
        alter((UNUSED, "m", (1,)), (THREE, "m", (1,))),
    ),
    ask(
        "three dirs: a partition with two directories, the other way",
        alter((THREE, "m", (1,)), (UNUSED, "m", (1,))),
    ),
    *move("move an empty log", "empty", ONE, TWO),
    ask("three dirs: produce to the empty log", produce("empty", batch(b"first"))),
    *move("move the longest name", LONGEST, ONE, THREE),
    # A log that starts inside a batch.
    *(
        ask(f"three dirs: produce to deleted {number}", produce("deleted", batch(b"a", b"b", b"c")))
        for number in range(3)
    ),
    ask("three dirs: delete records", delete_records("deleted", 4)),
    *move("move the rest", "deleted", ONE, THREE),
    ask("three dirs: start of the rest", list_offsets("deleted", -2)),
    ask("three dirs: fetch deleted records", fetch("deleted", {0: 3}), 12),
    ask("three dirs: fetch the rest", fetch("deleted", {0: 4}), 12),
    ask("three dirs: delete more records", delete_records("deleted", 7)),
    # The state of an idempotent producer.
    ask("three dirs: produce once", produce("idem", numbered(7, 0, 0))),
    *move("move idempotent records", "idem", ONE, THREE),
    ask("three dirs: produce again", produce("idem", numbered(7, 0, 0))),
    ask("three dirs: produce the next", produce("idem", numbered(7, 0, 1))),
    ask("three dirs: produce with a gap", produce("idem", numbered(7, 0, 9))),
    ask("three dirs: produce compact", produce("compact", keyed((b"k", b"1"), (b"k", b"2")))),
    *move("move compact", "compact", ONE, THREE),
    ask("three dirs: fetch compact", fetch("compact", {0: 0}), 12),
    *(
        Step(name=f"three dirs: files of {topic}", action=ListPartition(topic=topic))
        for topic in ("idem", "compact")
    ),
    Step(name="three dirs: restart", action=Restart()),
    *(
        placed(f"{topic} after a restart", topic, THREE)
        for topic in ("deleted", "idem", "compact", LONGEST)
    ),
    placed("m after a restart", "m", ONE),
    # Before the restart, Kafka keeps the empty segments of the copy as *.deleted.
    Step(name="three dirs: files of deleted", action=ListPartition(topic="deleted")),
    ask("three dirs: start after a restart", list_offsets("deleted", -2)),
    ask("three dirs: fetch after a restart", fetch("m", {0: 0}), 12),
    *move("move after a restart", "idem", THREE, ONE),
    ask("three dirs: produce again after a restart", produce("idem", numbered(7, 0, 1))),
    ask("three dirs: delete m", delete("m")),
    moved("delete m-0", "m", ONE),
    moved("delete m-1", "m", THREE, 1),
    moved("delete m-2", "m", THREE, 2),
    ask("three dirs: describe what was deleted", describe("m")),
    ask("three dirs: move what was deleted", alter((ONE, "m", (0,)))),
    ask("three dirs: describe every log", DescribeLogDirsRequest(topics=None)),
)


def play_to_log_dirs(directory: Path, java: Java, jars: Jars) -> tuple[Transcript, Transcript]:
    """Play the script to one Kafka broker and one of ours."""
    with (
        ZooKeeper(directory / "zookeeper", java) as zookeeper,
        KafkaCluster(
            directory / "kafka",
            java=java,
            jars=jars,
            zookeeper=zookeeper,
            settings={**SAME, **log_dirs(directory / "kafka")},
        ) as cluster,
    ):
        kafka = play_in(RealKafka(cluster.brokers[0]), directory / "kafka")
    settings = {**SETTINGS, **SAME, **log_dirs(directory / "ours")}
    with BrokerProcess(directory / "barnabas", settings) as broker:
        ours = play_in(Ours(broker), directory / "ours")
    return kafka, ours


def log_dirs(directory: Path) -> dict[str, str]:
    return {"log.dirs": ",".join(str(directory / name) for name in NAMES)}


def play_in(broker: RealKafka | Ours, directory: Path) -> Transcript:
    broker.log_dir = directory / NAMES[THREE]
    return Runner(broker).run(SCRIPT)
