"""Leader elections, with a broker that is not the controller, or answers like other releases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.leader_elections import elect_leaders
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from tests.unit.client.scripted_broker import ScriptedBroker

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def response(*codes: int, error_code: int = 0) -> ElectLeadersResponse:
    results = tuple(ElectLeadersPartitionResult(index, code) for index, code in enumerate(codes))
    return ElectLeadersResponse(
        error_code=error_code,
        replica_election_results=(ElectLeadersTopicResult("orders", results),) if codes else (),
    )


def elect(
    responses: Sequence[ElectLeadersResponse], partitions: Sequence[TopicPartition] | None
) -> tuple[dict[TopicPartition, ErrorCode | None], list[ElectLeadersRequest]]:
    """Run an election against a broker that sends these responses, in order. Returns the result and the requests."""
    left = list(responses)
    with ScriptedBroker({ElectLeadersRequest: lambda _: left.pop(0)}) as broker:
        with Cluster(broker.address, timeout_s=5) as cluster:
            found = elect_leaders(cluster, ElectionType.PREFERRED, partitions)
        codes = {partition: error.code if error else None for partition, error in found.items()}
        return codes, broker.received(ElectLeadersRequest)


def test_each_partition_has_its_own_error() -> None:
    found, (request,) = elect([response(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)], ORDERS)
    assert found == {ORDERS[0]: None, ORDERS[1]: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    ((topic, numbers),) = request.topic_partitions or ()
    assert (topic, tuple(numbers)) == ("orders", (0, 1))


def test_all_partitions_are_requested_without_a_list() -> None:
    found, (request,) = elect([response()], None)
    assert found == {}
    assert request.topic_partitions is None


@pytest.mark.parametrize(
    "refusal",
    [
        response(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER),
        response(error_code=ErrorCode.NOT_CONTROLLER),
    ],
)
def test_request_is_repeated_until_the_controller_answers(refusal: ElectLeadersResponse) -> None:
    found, requests = elect([refusal, response(0, 0)], ORDERS)
    assert found == dict.fromkeys(ORDERS)
    assert len(requests) == 2


def test_error_of_the_whole_request_is_raised() -> None:
    refusal = response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError) as caught:
        elect([refusal], ORDERS)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
