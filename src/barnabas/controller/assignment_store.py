"""Writes of reassignments to the registry: topic znodes, and the requests of tools. All are fenced (store.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from barnabas.controller.store import BYTES_PER_PARTITION, ControllerStore, gather_bounded
from barnabas.errors import (
    ApiError,
    BadVersion,
    ControllerMoved,
    ErrorCode,
    MultiFailed,
    NoNode,
    RegistryError,
    RegistrySessionExpired,
)
from barnabas.metadata import znodes
from barnabas.model import TopicPartition
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.tasks import in_thread_if_large
from barnabas.world.ports import Delete, Op, SetData


async def write_assignments(
    store: ControllerStore, assignments: Mapping[TopicPartition, znodes.ReplicaAssignment]
) -> dict[TopicPartition, ApiError]:
    """Write the assignments of partitions. Returns the errors of those that could not be written.

    A topic whose znode is gone is left out without an error: it is deleted.
    """
    by_topic: dict[str, dict[int, znodes.ReplicaAssignment]] = {}
    for (topic, index), assignment in assignments.items():
        by_topic.setdefault(topic, {})[index] = assignment
    results = await gather_bounded(lambda item: write_topic(store, *item), tuple(by_topic.items()))
    return {
        TopicPartition(topic, index): ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        for (topic, changed), error in zip(by_topic.items(), results, strict=True)
        if error is not None
        for index in changed
    }


async def write_topic(
    store: ControllerStore, topic: str, changed: dict[int, znodes.ReplicaAssignment]
) -> RegistryError | None:
    """Change the assignments of some partitions of a topic. Returns an error if the znode is invalid or too large.

    Another broker may add partitions at the same time. So the write requires the version that was read.
    """
    path = znodes.topic_path(topic)
    backoff = Backoff(*CONFLICT_S, random=store.random)
    while True:
        try:
            data, stat = await store.registry.get(path)
            size = len(data) // BYTES_PER_PARTITION
            current = await in_thread_if_large(size, znodes.decode_topic, topic, data)
            updated = replace(current, partitions={**current.partitions, **changed})
            if updated == current:
                return None  # also if the response to our own write was lost
            content = await in_thread_if_large(size, znodes.encode_topic, updated)
            await store.write_fenced([SetData(path=path, data=content, version=stat.version)])
            return None
        except NoNode:
            return None
        except MultiFailed as error:
            if not isinstance(error.error, BadVersion | NoNode):
                store.log_once("cannot write the assignment of a topic", error)
                return error
            await backoff.wait()
        except (RegistrySessionExpired, ControllerMoved):
            raise
        except RegistryError as error:
            store.log_once("cannot write the assignment of a topic", error)
            return error


async def remove_reassignment_requests(
    store: ControllerStore, partitions: Collection[TopicPartition]
) -> None:
    """Remove partitions from /admin/reassign_partitions. Tools treat a removed partition as completed."""
    path = znodes.REASSIGN_PARTITIONS
    backoff = Backoff(*CONFLICT_S, random=store.random)
    while partitions:
        try:
            data, stat = await store.registry.get(path)
            requested = znodes.decode_reassignment(data)
        except NoNode:
            return
        except RegistrySessionExpired:
            raise
        except RegistryError as error:
            store.log_once("invalid reassignment request", error)
            return
        waiting = {each: target for each, target in requested.items() if each not in partitions}
        if len(waiting) == len(requested):
            return
        op: Op = Delete(path=path, version=stat.version)
        if waiting:
            content = znodes.encode_reassignment(waiting)
            op = SetData(path=path, data=content, version=stat.version)
        try:
            await store.write_fenced([op])
            return
        except MultiFailed as error:
            if not isinstance(error.error, BadVersion | NoNode):
                raise
            await backoff.wait()
