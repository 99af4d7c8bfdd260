"""Requests that only brokers send, and the limits that do not apply to them."""

from __future__ import annotations

from barnabas.wire.apis import ApiKey

CONTROLLER_REQUESTS = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
)
"""Requests that only the controller sends."""
BROKER_REQUESTS = CONTROLLER_REQUESTS | {
    *(ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS)
}
"""Requests that only brokers send."""
MAY_BE_LARGE = CONTROLLER_REQUESTS | {ApiKey.PRODUCE}
"""Requests that may be larger than REQUEST_BYTES_MAX of connection.py."""
WITHOUT_QUOTA = BROKER_REQUESTS | {ApiKey.WRITE_TXN_MARKERS}
"""Requests whose time no quota limits."""
