"""Memory of a thousand groups in a coordinator: 5 MB when this was written."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import cast

from barnabas.config import BrokerConfig
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.loading import DecodedGroups
from barnabas.groups.records import (
    GroupMetadataValue,
    MemberSnapshot,
    OffsetCommitValue,
    group_metadata_record,
    offset_record,
)
from barnabas.groups.store import GroupStore
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from tests.unit.groups.test_coordinator import FixedClock, ListStore

GROUPS = 1000
PARTITIONS = 10
BYTES_MAX = 10 << 20


async def test_thousand_groups_take_less_than_10_mb() -> None:
    subscription = encode_subscription(ConsumerSubscription(("orders",)))
    coordinator = GroupCoordinator(
        config=BrokerConfig(),
        store=cast(GroupStore, ListStore()),
        clock=FixedClock(),
        random=Random(7),
    )
    tracemalloc.start()
    try:
        decoded = DecodedGroups()
        for number in range(GROUPS):
            name = f"group-{number}"
            member = MemberSnapshot(f"client-{number}", subscription=subscription)
            snapshot = GroupMetadataValue("consumer", 1, "range", member.member_id, 0, (member,))
            decoded.add(*require_value(group_metadata_record(name, snapshot)), number)
            for partition in range(PARTITIONS):
                offset = OffsetCommitValue(number, 0, "", 1_700_000_000_000)
                decoded.add(
                    *require_value(offset_record(name, "orders", partition, offset)), number
                )
        for group in decoded.groups(now_ms=0):
            coordinator.add_loaded_group(group, 0)
        del decoded
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(coordinator.groups) == GROUPS
    assert used < BYTES_MAX
    await coordinator.stop()


def require_value(record: tuple[bytes, bytes | None]) -> tuple[bytes, bytes]:
    key, value = record
    assert value is not None
    return key, value
