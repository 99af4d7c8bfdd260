from __future__ import annotations

import pytest

from barnabas.security.acl.filters import AclFilter, EntryFilter, PatternFilter
from barnabas.security.acl.hosts import format_host
from barnabas.security.acl.model import (
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
PATTERNS = [
    ResourcePattern(TOPIC, "orders", LITERAL),
    ResourcePattern(TOPIC, "orders", PREFIXED),
    ResourcePattern(TOPIC, "ord", PREFIXED),
    ResourcePattern(TOPIC, "*", LITERAL),
    ResourcePattern(GROUP, "orders", LITERAL),
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (PatternFilter(), [0, 1, 2, 3, 4]),
        (PatternFilter(TOPIC), [0, 1, 2, 3]),
        (PatternFilter(TOPIC, "orders", PatternType.ANY), [0, 1]),
        (PatternFilter(TOPIC, "orders", LITERAL), [0]),
        (PatternFilter(TOPIC, "orders", PREFIXED), [1]),
        (PatternFilter(TOPIC, "orders", PatternType.MATCH), [0, 1, 2, 3]),
        (PatternFilter(ResourceType.ANY, "ord", PatternType.MATCH), [2, 3]),
        (PatternFilter(TOPIC, None, LITERAL), [0, 3]),
        (PatternFilter(TOPIC, "*", PatternType.ANY), [3]),
        (PatternFilter(TOPIC, "orders", PatternType.UNKNOWN), []),
        (PatternFilter(ResourceType.UNKNOWN), []),
    ],
)
def test_pattern_filter(wanted: PatternFilter, expected: list[int]) -> None:
    assert [at for at, each in enumerate(PATTERNS) if wanted.matches(each)] == expected


def test_filter_names_patterns_only_if_it_is_definite() -> None:
    assert list(PatternFilter(TOPIC, "a", PatternType.ANY).named_patterns()) == [
        ResourcePattern(TOPIC, "a", LITERAL),
        ResourcePattern(TOPIC, "a", PREFIXED),
    ]
    assert list(PatternFilter(TOPIC, "a", LITERAL).named_patterns()) == [
        ResourcePattern(TOPIC, "a", LITERAL)
    ]
    for indefinite in (
        PatternFilter(TOPIC, "a", PatternType.MATCH),
        PatternFilter(TOPIC, None, LITERAL),
        PatternFilter(ResourceType.ANY, "a", LITERAL),
    ):
        assert not list(indefinite.named_patterns())


def test_entry_filter() -> None:
    entry = AccessControlEntry("User:a", "*", Operation.READ, Permission.ALLOW)
    acl = Acl(PATTERNS[0], entry)
    assert AclFilter().matches(acl)
    assert AclFilter(entry=EntryFilter(*entry)).matches(acl)
    for other in (
        EntryFilter(principal="User:b"),
        EntryFilter(host="h"),
        EntryFilter(operation=Operation.ALL),
        EntryFilter(permission=Permission.DENY),
    ):
        assert not AclFilter(entry=other).matches(acl)


@pytest.mark.parametrize("enum", [ResourceType, PatternType, Operation, Permission])
def test_names_are_parsed_as_kafka_writes_them(enum: type[Operation]) -> None:
    for each in enum:
        assert enum.parse(each.label) is enum.parse(each.label.upper()) is each
    assert enum.parse("Nonsense") == enum.from_code(99) == enum.from_code(-1) == 0


def test_labels_are_in_pascal_case() -> None:
    assert Operation.IDEMPOTENT_WRITE.label == "IdempotentWrite"
    assert ResourceType.TRANSACTIONAL_ID.label == "TransactionalId"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a:0b%eth0", "fe80:0:0:0:0:0:a:b%eth0"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_hosts_are_formatted_as_by_java(address: str, expected: str) -> None:
    assert format_host(address) == expected
