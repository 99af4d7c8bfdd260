"""JoinGroup rejects names that do not fit into the records of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.broker.handlers import join_group
from barnabas.errors import ErrorCode
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tests.unit.replication.nodes import NO_CONNECTION, Node, Nodes

LONG = "n" * 8001


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Nodes(Node(1))
    await made.start()
    yield made[1]
    await made.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"group_instance_id": LONG},
        {"protocol_type": LONG},
        {"protocols": tuple(JoinGroupRequestProtocol(name, b"") for name in ("range", LONG))},
    ],
)
async def test_long_names_are_rejected(node: Node, change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol("range", b""),),
    }
    header = RequestHeader(ApiKey.JOIN_GROUP, 7, 0, "client")
    request = JoinGroupRequest(**fields | change)
    response = join_group.handle(node.context, request, header, NO_CONNECTION)
    assert isinstance(response, JoinGroupResponse)
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_REQUEST, "m")
