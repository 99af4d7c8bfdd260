"""Entities of client quotas: users, client ids and IP addresses, in requests and in the registry.

    user anna                       /config/users/anna
    every other user                /config/users/<default>
    user anna, client id reports    /config/users/anna/clients/reports
    client id reports               /config/clients/reports
    address 10.0.0.1                /config/ips/10.0.0.1

Names are percent-encoded as in Kafka, so that any name is valid in a path. A name of None is the default of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from math import isfinite
from typing import NamedTuple

from barnabas.broker.config_admin.operations import invalid_request
from barnabas.broker.config_admin.write import Entity
from barnabas.config.client_quotas import CLIENT_QUOTAS, IP_QUOTAS, MUTATION_RATE, ClientQuota
from barnabas.config.setting import DOUBLE, INT, INT_MAX, LONG_MAX, Kind, java_double
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import sanitise
from barnabas.wire.messages.describe_client_quotas import QuotaFilterComponent, QuotaMatch

USER, CLIENT_ID, IP = "user", "client-id", "ip"
QUOTA_TYPES_KNOWN = (USER, CLIENT_ID, IP)
RELATIVE_NAMES = (".", "..")
"""Names that cannot be part of a path in the registry, and so have no quotas."""
ROUNDING = 1e-6
"""A number in a request may differ from an integer by this much."""

Names = Mapping[str, str | None]
"""Names of an entity by type. None is the default of the type."""


class QuotaOperation(NamedTuple):
    """A new value of a quota; None removes it."""

    key: str
    value: float | None


class QuotaCondition(NamedTuple):
    """The condition of a filter on one entity type. `name` is set for an EXACT match."""

    match: QuotaMatch
    name: str | None

    def holds(self, name: str | None) -> bool:
        match self.match:
            case QuotaMatch.EXACT:
                return name == self.name
            case QuotaMatch.DEFAULT:
                return name is None
            case QuotaMatch.ANY:
                return True


# ---- changes


def find_quota_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity in the registry. Raises INVALID_REQUEST."""
    names: dict[str, str | None] = {}
    for entity_type, name in parts:
        if entity_type not in QUOTA_TYPES_KNOWN:
            types = ", ".join(QUOTA_TYPES_KNOWN)
            raise invalid_request(f"'{entity_type}' has no quotas; the types are {types}")
        if entity_type in names:
            raise invalid_request(f"the entity has two names of type {entity_type}")
        if name == "":
            raise invalid_request(f"the {entity_type} has an empty name")
        if name in RELATIVE_NAMES:
            raise invalid_request(f"the {entity_type} '{name}' cannot be part of a path")
        names[entity_type] = name
    if not names:
        raise invalid_request("the entity is empty; name a user, client-id or ip")
    if IP in names:
        if len(names) > 1:
            raise invalid_request("an ip cannot be combined with a user or client-id")
        check_address(names[IP])
        return Entity("ips", sanitise(names[IP]))
    if USER not in names:
        return Entity("clients", sanitise(names[CLIENT_ID]))
    user = sanitise(names[USER])
    if CLIENT_ID not in names:
        return Entity("users", user)
    return Entity("users", f"{user}/clients/{sanitise(names[CLIENT_ID])}")


def check_address(name: str | None) -> None:
    try:
        if name is not None:
            ip_address(name)
    except ValueError:
        raise invalid_request(f"'{name}' is not an IP address") from None


def known_quotas(entity: Entity) -> Mapping[str, ClientQuota]:
    return IP_QUOTAS if entity.type == "ips" else CLIENT_QUOTAS


def apply_quotas(
    settings: Mapping[str, str], operations: Iterable[QuotaOperation], entity: Entity
) -> dict[str, str]:
    """Return the settings of an entity with changed quotas. Raises INVALID_REQUEST."""
    changed = dict(settings)
    known = known_quotas(entity)
    for key, value in operations:
        if value is None:
            changed.pop(key, None)
        elif key not in known:
            quotas = ", ".join(known)
            raise invalid_request(f"there is no quota {key} here; the quotas are {quotas}")
        else:
            changed[key] = format_quota(key, known[key].kind, value)
    return changed


def format_quota(key: str, kind: Kind, value: float) -> str:
    """Return the text of a quota in the registry. Raises INVALID_REQUEST."""
    if not isfinite(value) or value < 0:
        raise invalid_request(f"{key}: {value} is not allowed, it must be at least 0")
    if value == 0 and key == MUTATION_RATE:
        raise invalid_request(f"{key}: 0 is not allowed; remove the quota for no limit")
    if kind is DOUBLE:
        return java_double(value)
    number = int(value + ROUNDING)
    if abs(number - value) > ROUNDING or number > (INT_MAX if kind is INT else LONG_MAX):
        raise invalid_request(f"{key}: {value} is not allowed, it must be an integer")
    return str(number)


# ---- filters


def parse_filter(components: Iterable[QuotaFilterComponent]) -> dict[str, QuotaCondition]:
    """Return the conditions by entity type. Raises INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type."""
    conditions: dict[str, QuotaCondition] = {}
    for entity_type, match, name in components:
        if not entity_type:
            raise invalid_request("a component of the filter has an empty entity type")
        if entity_type not in QUOTA_TYPES_KNOWN:
            why = f"'{entity_type}' has no quotas; the types are {', '.join(QUOTA_TYPES_KNOWN)}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, why)
        if entity_type in conditions:
            raise invalid_request(f"the filter has two components of type {entity_type}")
        if match not in (QuotaMatch.EXACT, QuotaMatch.DEFAULT, QuotaMatch.ANY):
            raise invalid_request(f"there is no match type {match}")
        if match == QuotaMatch.EXACT and name is None:
            raise invalid_request(f"the exact match of {entity_type} has no name")
        conditions[entity_type] = QuotaCondition(QuotaMatch(match), name)
    if IP in conditions and len(conditions) > 1:
        raise invalid_request("a filter of ip cannot be combined with user or client-id")
    return conditions


def matches_filter(names: Names, conditions: Mapping[str, QuotaCondition], *, strict: bool) -> bool:
    """Whether every condition holds. `strict` rejects entities with a type that has no condition."""
    if strict and not names.keys() <= conditions.keys():
        return False
    return all(
        entity_type in names and condition.holds(names[entity_type])
        for entity_type, condition in conditions.items()
    )


def parse_quotas(settings: Mapping[str, str], known: Iterable[str]) -> dict[str, float]:
    """Return the quotas among the settings of an entity. A user also has credentials, and texts may be invalid."""
    found = {}
    for key in known:
        try:
            if key in settings:
                found[key] = float(settings[key])
        except ValueError:
            continue
    return found
