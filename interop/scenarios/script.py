"""The whole script, chapter by chapter. New requests go into a new chapter or an existing one."""

from __future__ import annotations

from barnabas.wire.messages.metadata import MetadataRequest
from interop.scenarios.chapters import (
    administration,
    configs,
    connections,
    contents,
    coordinators,
    group_members,
    group_offsets,
    metadata,
    produce,
    topics,
    transactional_offsets,
    transactional_records,
    transactions,
)
from interop.scenarios.chapters import fetch as fetching
from interop.scenarios.requests import ask, epoch_end, fetch, list_offsets
from interop.scenarios.step import Await, ListLogDir, ListPartition, ListZnodes, Restart, Step

WRITTEN = (
    *("p", "codecs", "compact", "stamped", "plain", "idem", "idem-2", "old"),
    *("f", "many", "empty", "squeezed", "untimed", "segments", "early"),
)


def files(when: str) -> tuple[Step, ...]:
    return tuple(
        Step(name=f"files {when}: {topic}", action=ListPartition(topic=topic)) for topic in WRITTEN
    )


TRANSACTIONS: tuple[Step, ...] = (
    *transactions.STEPS,
    *transactional_records.STEPS,
    *transactional_offsets.STEPS,
    *transactional_records.files("in use"),
)
TRANSACTIONS_ONLY = (
    *TRANSACTIONS,
    Step(name="restart", action=Restart()),
    *transactional_records.AFTER_RESTART,
    *transactional_offsets.AFTER_RESTART,
    *transactional_records.files("after a restart"),
)

SCRIPT: tuple[Step, ...] = (
    *topics.STEPS,
    *metadata.STEPS,
    *produce.STEPS,
    *contents.STEPS,
    *fetching.STEPS,
    *coordinators.STEPS,
    *group_members.STEPS,
    *group_offsets.STEPS,
    *TRANSACTIONS,
    *administration.STEPS,
    *configs.STEPS,
    *connections.STEPS,
    *files("in use"),
    Step(name="znodes", action=ListZnodes()),
    Step(name="restart", action=Restart()),
    Step(
        name="restarted: up again",
        action=Await(
            request=MetadataRequest(topics=None),
            path="topics.three.partitions.2.leader_id",
            value=1,
        ),
    ),
    *configs.AFTER_RESTART,
    *group_offsets.AFTER_RESTART,
    *group_members.AFTER_RESTART,
    ask("restarted: all topics", MetadataRequest(topics=None)),
    *(ask(f"restarted: start of {topic}", list_offsets(topic, -2)) for topic in ("f", "many", "p")),
    *(ask(f"restarted: end of {topic}", list_offsets(topic, -1)) for topic in ("f", "many", "p")),
    ask("restarted: fetch of what was deleted", fetch("f", {0: 0}), 12),
    ask("restarted: fetch", fetch("f", {0: 6}), 12),
    ask("restarted: end of the first epoch", epoch_end("f", 0)),
    *produce.AFTER_RESTART,
    *administration.AFTER_RESTART,
    *transactional_records.AFTER_RESTART,
    *transactional_offsets.AFTER_RESTART,
    *group_members.MISSED,
    *files("after a restart"),
    *transactional_records.files("after a restart"),
    Step(name="znodes after a restart", action=ListZnodes()),
)
AFTER_STOP: tuple[Step, ...] = (
    *files("after a stop"),
    *transactional_records.files("after a stop"),
    Step(name="files after a stop: beside the partitions", action=ListLogDir()),
)
