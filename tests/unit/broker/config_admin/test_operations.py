"""Requests to change settings: invalid requests, and the operations SET, DELETE, APPEND and SUBTRACT."""

from __future__ import annotations

import time

import pytest

from barnabas.broker.config_admin.operations import (
    ResourceChange,
    SettingChange,
    apply_operations,
    check_resources,
    require_own_id,
)
from barnabas.config import TOPIC_SETTINGS, BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation
from barnabas.wire.primitives import STRING_MAX

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPICS = ("orders", "other")


def change(
    *changes: tuple[str, int, str | None],
    kind: int = ResourceType.TOPIC,
    name: str = "orders",
    keeps_others: bool = True,
) -> ResourceChange:
    return ResourceChange(kind, name, tuple(SettingChange(*each) for each in changes), keeps_others)


def apply(settings: dict[str, str], *changes: tuple[str, int, str | None]) -> dict[str, str]:
    return apply_operations(settings, change(*changes), TOPIC_SETTINGS.get)


# ---- checks


@pytest.mark.parametrize(
    ("requested", "why"),
    [
        (change(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)), "twice: retention.ms"),
        (change(("retention.ms", SET, None)), "missing: retention.ms"),
        (change(("cleanup.policy", APPEND, None)), "missing: cleanup.policy"),
        (change(("retention.ms", 4, "1")), "no operation 4"),
        (change(("retention.ms", SET, "1"), name=""), "no name"),
        (change(kind=ResourceType.UNKNOWN), "type 0"),
        (change(kind=ResourceType.CLIENT_METRICS), "type 16"),
        (change(kind=ResourceType.BROKER_LOGGER, keeps_others=False), "type 8"),
    ],
)
def test_invalid_resource_is_rejected(requested: ResourceChange, why: str) -> None:
    (error,) = check_resources([requested], TOPICS)
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert why in error.message


def test_repeated_resource_is_rejected_each_time() -> None:
    valid = change(name="other")
    errors = check_resources([change(), valid, change()], TOPICS)
    assert [error and error.code for error in errors] == [
        ErrorCode.INVALID_REQUEST,
        None,
        ErrorCode.INVALID_REQUEST,
    ]


def test_same_name_of_different_types_is_allowed() -> None:
    assert check_resources([change(), change(kind=ResourceType.BROKER)], TOPICS) == [None, None]


def test_unknown_topic_is_rejected() -> None:
    (error,) = check_resources([change(name="nowhere")], TOPICS)
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_needs_no_value() -> None:
    assert check_resources([change(("retention.ms", DELETE, None))], TOPICS) == [None]


# ---- operations


def test_set_and_delete_keep_other_settings() -> None:
    settings = {"retention.ms": "1", "segment.bytes": "100"}
    changed = apply(settings, ("retention.ms", SET, "2"), ("segment.bytes", DELETE, None))
    assert changed == {"retention.ms": "2"}
    assert settings == {"retention.ms": "1", "segment.bytes": "100"}


def test_deleting_an_unset_setting_does_nothing() -> None:
    assert apply({}, ("retention.ms", DELETE, None)) == {}


def test_replacing_change_drops_other_settings() -> None:
    requested = change(("retention.ms", SET, "2"), keeps_others=False)
    assert apply_operations({"segment.bytes": "1"}, requested, TOPIC_SETTINGS.get) == {
        "retention.ms": "2"
    }


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),  # starts from the default
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact,delete", APPEND, "delete", "compact,delete"),
        ("", APPEND, "delete", "delete"),
        (None, SUBTRACT, "delete", ""),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact", SUBTRACT, "delete", "compact"),
        ("compact,delete", SUBTRACT, "compact,delete", ""),
    ],
)
def test_list_operations(before: str | None, operation: int, value: str, after: str) -> None:
    settings = {} if before is None else {"cleanup.policy": before}
    assert apply(settings, ("cleanup.policy", operation, value)) == {"cleanup.policy": after}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_list_operation_on_other_type_is_rejected(operation: int) -> None:
    with pytest.raises(ApiError, match=r"retention\.ms: is not a list") as caught:
        apply({}, ("retention.ms", operation, "1"))
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_long_lists_are_changed_in_milliseconds() -> None:
    many = [f"{number}:1" for number in range(4000)]
    name = "leader.replication.throttled.replicas"
    began = time.process_time()
    changed = apply({name: ",".join(many[:2000])}, (name, APPEND, ",".join(many)))
    assert changed == {name: ",".join(many)}
    assert apply(changed, (name, SUBTRACT, ",".join(many[1:]))) == {name: many[0]}
    assert time.process_time() - began < 0.1


def test_list_that_no_response_could_contain_is_rejected() -> None:
    name = "leader.replication.throttled.replicas"
    longest = "0:1," * (STRING_MAX // 4) + "1:1"
    assert apply({}, (name, APPEND, longest)) == {name: longest}
    with pytest.raises(ApiError, match="at most 32767 are allowed") as caught:
        apply({name: longest}, (name, APPEND, "2:2"))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    # A longer list, which another program wrote, can be shortened.
    assert apply({name: longest + ",2:2"}, (name, SUBTRACT, "0:1")) == {name: "1:1,2:2"}


# ---- broker ids


@pytest.mark.parametrize("name", ["2", "-1", "one", "1 ", "", "١", "01", "1" * 5000])
def test_other_broker_id_is_rejected(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        require_own_id(BrokerConfig(broker_id=1), name)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_own_broker_id_is_accepted() -> None:
    require_own_id(BrokerConfig(broker_id=1), "1")
