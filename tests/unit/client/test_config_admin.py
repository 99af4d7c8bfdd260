"""Admin client for configs: retries without a controller, and results per resource."""

from __future__ import annotations

from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import (
    DEFAULT_NAME,
    ConfigAdmin,
    ConfigChange,
    ConfigResource,
    QuotaEntity,
    from_quota_entity,
    target_broker,
    to_quota_entity,
)
from barnabas.errors import ErrorCode
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotasResult,
)
from barnabas.wire.messages.alter_configs import AlterConfigsResourceResponse
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.client.scripted_broker import ScriptedBroker

ORDERS = ConfigResource(ResourceType.TOPIC, "orders")
BILLS = ConfigResource(ResourceType.TOPIC, "bills")
CHANGE = [ConfigChange("retention.ms", "1")]


def answers(*codes: tuple[ErrorCode, ErrorCode]) -> list[IncrementalAlterConfigsResponse]:
    return [
        IncrementalAlterConfigsResponse(
            responses=tuple(
                AlterConfigsResourceResponse(code, None, *resource)
                for code, resource in zip(pair, (ORDERS, BILLS), strict=True)
            )
        )
        for pair in codes
    ]


def alter(waiting: list[IncrementalAlterConfigsResponse]) -> list[ErrorCode | None]:
    with ScriptedBroker() as broker:
        broker.answers[IncrementalAlterConfigsRequest] = lambda _: waiting.pop(0)
        with Cluster(f"127.0.0.1:{broker.port}") as cluster:
            changes = {ORDERS: CHANGE, BILLS: CHANGE}
            results = ConfigAdmin(cluster).incremental_alter_configs(changes)
    assert list(results) == [ORDERS, BILLS]
    return [None if error is None else error.code for error in results.values()]


def test_request_is_retried_while_there_is_no_controller() -> None:
    no_controller = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER)
    done = (ErrorCode.NONE, ErrorCode.NONE)
    assert alter(answers(no_controller, no_controller, done)) == [None, None]


def test_change_of_quotas_is_retried_while_there_is_no_controller() -> None:
    anna = QuotaEntity(user="anna")
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def answer(_: object) -> AlterClientQuotasResponse:
        result = AlteredQuotasResult(codes.pop(0), None, from_quota_entity(anna))
        return AlterClientQuotasResponse(entries=(result,))

    with ScriptedBroker() as broker:
        broker.answers[AlterClientQuotasRequest] = answer
        with Cluster(f"127.0.0.1:{broker.port}") as cluster:
            changes = {anna: {"producer_byte_rate": 1.0}}
            assert ConfigAdmin(cluster).alter_client_quotas(changes) == {anna: None}
    assert codes == []


def test_errors_of_single_resources_are_results() -> None:
    some = (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    assert alter(answers(some)) == [None, ErrorCode.INVALID_CONFIG]


def test_only_broker_resources_have_a_target() -> None:
    assert target_broker(ConfigResource(ResourceType.BROKER, "3")) == 3
    assert target_broker(ConfigResource(ResourceType.BROKER_LOGGER, "3")) == 3
    for resource in (
        ConfigResource(ResourceType.BROKER, ""),
        ConfigResource(ResourceType.BROKER, "three"),
        ConfigResource(ResourceType.TOPIC, "3"),
    ):
        assert target_broker(resource) is None


def test_quota_entities_survive_the_protocol() -> None:
    for entity in (
        QuotaEntity(user="anna"),
        QuotaEntity(user=DEFAULT_NAME, client_id="reports"),
        QuotaEntity(ip=DEFAULT_NAME),
    ):
        assert to_quota_entity(from_quota_entity(entity)) == entity
