from __future__ import annotations

import pytest

from barnabas.errors import RegistryError
from barnabas.security.acl import znodes
from barnabas.security.acl.model import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ENTRY = AccessControlEntry("User:CN=a:b,O=c", "*", Operation.DESCRIBE_CONFIGS, Permission.DENY)
DATA = (
    b'{"version":1,"acls":[{"principal":"User:CN=a:b,O=c","permissionType":"Deny",'
    b'"operation":"DescribeConfigs","host":"*"}]}'
)
LITERAL = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "pay:1", PatternType.LITERAL)
PREFIXED = ResourcePattern(ResourceType.TOPIC, "orders-", PatternType.PREFIXED)


def test_acls_have_kafkas_format() -> None:
    assert znodes.encode_acls([ENTRY]) == DATA
    assert znodes.decode_acls("/p", DATA) == [ENTRY]
    assert znodes.decode_acls("/p", b"") == []


def test_names_are_accepted_in_any_case_and_unknown_ones_match_nothing() -> None:
    data = DATA.replace(b"DescribeConfigs", b"READ").replace(b"Deny", b"Nonsense")
    (entry,) = znodes.decode_acls("/p", data)
    assert (entry.operation, entry.permission) == (Operation.READ, Permission.UNKNOWN)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":[{}]}',
        DATA.replace(b'"*"', b"7"),
        DATA.replace(b"User:CN=a:b,O=c", b"alice"),
        DATA.replace(b'"User', b'"\\ud800User'),
    ],
)
def test_invalid_acls_raise_error(data: bytes) -> None:
    with pytest.raises(RegistryError, match="/kafka-acl/Topic/x"):
        znodes.decode_acls("/kafka-acl/Topic/x", data)


def test_paths_are_kafkas() -> None:
    assert znodes.acl_path(LITERAL) == "/kafka-acl/TransactionalId/pay:1"
    assert znodes.acl_path(PREFIXED) == "/kafka-acl-extended/prefixed/Topic/orders-"
    for pattern in (LITERAL, PREFIXED):
        directory, _, name = znodes.acl_path(pattern).rpartition("/")
        assert znodes.parse_acl_path(directory, name) == pattern
    for directory in ("/kafka-acl/Nonsense", "/kafka-acl/Any", "/other/Topic"):
        with pytest.raises(RegistryError):
            znodes.parse_acl_path(directory, "x")


def test_notifications_have_kafkas_format() -> None:
    assert znodes.encode_change(LITERAL) == b"TRANSACTIONAL_ID:pay:1"
    assert znodes.encode_change(PREFIXED) == (
        b'{"version":1,"resourceType":"TOPIC","name":"orders-","patternType":"PREFIXED"}'
    )
    assert znodes.decode_literal_change("/p", znodes.encode_change(LITERAL)) == (
        "/kafka-acl/TransactionalId",
        "pay:1",
    )
    assert znodes.decode_extended_change("/p", znodes.encode_change(PREFIXED)) == (
        "/kafka-acl-extended/prefixed/Topic",
        "orders-",
    )


@pytest.mark.parametrize("data", [b"", b"TOPIC", b"TOPIC:", b"NONSENSE:a", b"TOPIC:a/b", b"\xff"])
def test_invalid_literal_notification_raises_error(data: bytes) -> None:
    with pytest.raises(RegistryError):
        znodes.decode_literal_change("/p", data)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"resourceType":"TOPIC","name":"a","patternType":"MATCH"}', b"[]"]
)
def test_invalid_extended_notification_raises_error(data: bytes) -> None:
    with pytest.raises(RegistryError):
        znodes.decode_extended_change("/p", data)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "\x7f", "\ud800", "\U0001f600"])
def test_name_that_cannot_be_a_znode_is_invalid(name: str) -> None:
    assert not znodes.is_valid_name(name)


def test_common_names_are_valid() -> None:
    for name in ("*", "orders-1", "User:CN=a,O=b", "größe", "a b", "..."):
        assert znodes.is_valid_name(name)
