"""Paths and formats of the ACL znodes, as Kafka's AclAuthorizer writes them. No access to the registry.

    /kafka-acl/Topic/orders                         {"version":1,"acls":[{"principal":"User:alice",…}]}
    /kafka-acl-extended/prefixed/Topic/orders-      the same, for a prefixed pattern
    /kafka-acl-changes/acl_changes_0000000001       TOPIC:orders
    /kafka-acl-extended-changes/acl_changes_…       {"version":1,"resourceType":"TOPIC","name":…,"patternType":…}

Decoders raise RegistryError, with the path of the znode, for invalid data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from barnabas.errors import RegistryError
from barnabas.security.acl.model import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal

STORES = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
"""Path of the ACLs by pattern type."""
CHANGES = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
"""Path of the notifications by pattern type."""
CHANGE_PREFIX = "acl_changes_"
TYPES = tuple(each for each in ResourceType if each > ResourceType.ANY)
"""The types that resources have."""
PERSISTENT_PATHS = (
    "/kafka-acl-extended",
    *STORES.values(),
    *CHANGES.values(),
    *(f"{path}/{each.label}" for path in STORES.values() for each in TYPES),
)
"""The paths that every broker with ACLs creates. Parents come before their children."""


def type_path(resource_type: ResourceType, pattern: PatternType) -> str:
    return f"{STORES[pattern]}/{resource_type.label}"


def acl_path(pattern: ResourcePattern) -> str:
    return f"{type_path(pattern.type, pattern.pattern)}/{pattern.name}"


def parse_acl_path(directory: str, name: str) -> ResourcePattern:
    """Return the pattern of a znode in a directory such as /kafka-acl/Topic. Raises RegistryError."""
    store, _, label = directory.rpartition("/")
    for pattern, path in STORES.items():
        resource_type = ResourceType.parse(label)
        if path == store and resource_type in TYPES:
            return ResourcePattern(resource_type, name, pattern)
    raise RegistryError(f"{directory}/{name}", "not the path of ACLs")


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.label,
            "operation": entry.operation.label,
            "host": entry.host,
        }
        for entry in entries
    ]
    return encode_json({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> list[AccessControlEntry]:
    """Decode the ACLs of one pattern. An unknown operation or permission is UNKNOWN, which matches nothing."""
    if not data:
        return []
    content = decode_json(path, data)
    acls = content.get("acls")
    if content.get("version") != 1 or not isinstance(acls, list):
        raise RegistryError(path, f"not ACLs of version 1: {data[:80]!r}")
    return [decode_entry(path, each) for each in acls]


def decode_entry(path: str, content: Any) -> AccessControlEntry:
    try:
        values = [content[key] for key in ("principal", "host", "operation", "permissionType")]
    except (KeyError, TypeError):
        raise RegistryError(path, f"not an ACL: {content!r:.80}") from None
    if not all(isinstance(each, str) for each in values):
        raise RegistryError(path, f"not an ACL: {content!r:.80}")
    principal, host, operation, permission = values
    check_principal(path, principal)
    return AccessControlEntry(
        principal, host, Operation.parse(operation), Permission.parse(permission)
    )


def check_principal(path: str, text: str) -> Principal:
    """Return the principal of an ACL. Its name may be empty. Raises RegistryError."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise RegistryError(path, f"{text!r:.80} is not of the form User:name")
    return Principal(name, kind)


def encode_change(pattern: ResourcePattern) -> bytes:
    """Encode the notification of a change."""
    if pattern.pattern is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return encode_json(
        {
            "version": 1,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern.name,
        }
    )


def decode_literal_change(path: str, data: bytes) -> tuple[str, str]:
    """Return the directory and the name of the changed znode, such as ("/kafka-acl/Topic", "orders")."""
    resource_type, colon, name = data.decode("utf-8", "replace").partition(":")
    return locate(path, resource_type, name if colon else "", PatternType.LITERAL)


def decode_extended_change(path: str, data: bytes) -> tuple[str, str]:
    """The same for a prefixed pattern."""
    content = decode_json(path, data)
    resource_type, name = content.get("resourceType"), content.get("name")
    pattern = PatternType.parse(str(content.get("patternType")))
    return locate(path, str(resource_type), name if isinstance(name, str) else "", pattern)


def locate(path: str, type_name: str, name: str, pattern: PatternType) -> tuple[str, str]:
    resource_type = next((each for each in TYPES if each.name == type_name.upper()), None)
    if resource_type is None or not name or "/" in name or pattern not in STORES:
        raise RegistryError(path, "not the notification of an ACL change")
    return type_path(resource_type, pattern), name


def encode_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(path: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
        if b"\\u" in data:
            encode_json(content)  # rejects lone surrogates
    except (ValueError, RecursionError):
        raise RegistryError(path, f"not JSON: {data[:80]!r}") from None
    if not isinstance(content, dict):
        raise RegistryError(path, f"not a JSON object: {data[:80]!r}")
    return content


def is_valid_name(name: str) -> bool:
    """Whether a resource name can be a znode: not `.`, no slash and no character that ZooKeeper rejects."""
    return name not in ("", ".", "..") and all(is_valid_character(each) for each in name)


def is_valid_character(character: str) -> bool:
    code = ord(character)
    is_valid = 0x1F < code < 0x7F or 0x9F < code < 0xD800 or 0xF8FF < code < 0xFFF0
    return is_valid and character != "/"
