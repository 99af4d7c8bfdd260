"""ConsumerGroupDescribe: rejected with UNSUPPORTED_VERSION. Tools then send DescribeGroups."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


def handle(
    context: BrokerContext, request: ConsumerGroupDescribeRequest, _: RequestHeader, __: Connection
) -> Work[ConsumerGroupDescribeResponse]:
    groups = []
    for group_id in request.group_ids:
        groups.append(DescribedConsumerGroup(ErrorCode.UNSUPPORTED_VERSION, None, group_id))
        yield None
    return ConsumerGroupDescribeResponse(groups=tuple(groups))
