"""FindCoordinator, and InitProducerId with a transactional id."""

from __future__ import annotations

from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.apis import APIS
from barnabas.wire.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from interop.harness.kafka import SETTINGS
from interop.scenarios.group_requests import alone, committed
from interop.scenarios.requests import ask, metadata
from interop.scenarios.step import Await, Step

VERSIONS = APIS[FindCoordinatorRequest.API_KEY].versions
MANY_SINCE = 4
PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
GROUP, TRANSACTION, SHARE = CoordinatorType


def find(*keys: str, version: int, kind: int = GROUP) -> FindCoordinatorRequest:
    if version < MANY_SINCE:
        (key,) = keys
        return FindCoordinatorRequest(key=key, key_type=kind)
    return FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)


def coordinators_are_ready(when: str) -> tuple[Step, ...]:
    """Wait until each partition of the offsets topic is loaded."""
    return tuple(
        Step(
            name=f"{when}: the coordinator of {alone(number)} is ready",
            action=Await(
                request=committed(alone(number)),
                path=f"groups.{alone(number)}.error_code",
                value="NONE",
            ),
        )
        for number in range(PARTITIONS)
    )


STEPS: tuple[Step, ...] = (
    ask("find coordinator: before there is one", find("billing", version=6)),
    Step(
        name="find coordinator: when there is one",
        action=Await(
            request=find("billing", version=3), version=3, path="error_code", value="NONE"
        ),
    ),
    *coordinators_are_ready("find coordinator"),
    ask("find coordinator: the topic of groups", metadata(CONSUMER_OFFSETS)),
    *(
        ask(f"find coordinator: version {version}", find("billing", version=version), version)
        for version in VERSIONS
    ),
    *(
        ask(
            f"find coordinator: an empty name, version {version}",
            find("", version=version),
            version,
        )
        for version in (0, 1, 3, 4, 6)
    ),
    ask("find coordinator: several", find("a", "b", "c", "d", version=6)),
    ask("find coordinator: one twice", find("a", "a", version=6)),
    ask("find coordinator: none", find(version=6)),
    *(
        ask(
            f"find coordinator: of type {kind}, version {version}",
            find("billing", version=version, kind=kind),
            version,
        )
        for kind in (SHARE.value, 3, -1, 99)
        for version in VERSIONS[1:]
    ),
    ask("transactions: their topic", metadata(TRANSACTION_STATE, create=True)),
    Step(
        name="transactions: their topic is there",
        action=Await(
            request=metadata(TRANSACTION_STATE),
            path=f"topics.{TRANSACTION_STATE}.partitions.3.error_code",
            value="NONE",
        ),
    ),
    *(
        ask(
            f"transactions: find coordinator, version {version}",
            find("writer", version=version, kind=TRANSACTION),
            version,
        )
        for version in VERSIONS[1:]
    ),
    *(
        ask(
            f"transactions: find coordinator of an empty name, version {version}",
            find("", version=version, kind=TRANSACTION),
            version,
        )
        for version in (1, 3, 4, 6)
    ),
    *(
        ask(
            f"transactions: an empty id, version {version}",
            InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000),
            version,
        )
        for version in APIS[InitProducerIdRequest.API_KEY].versions
    ),
    Step(
        name="transactions: begin one",
        action=Await(  # the coordinator may still be loading
            request=InitProducerIdRequest(transactional_id="writer", transaction_timeout_ms=1000),
            path="error_code",
            value="NONE",
        ),
    ),
)
