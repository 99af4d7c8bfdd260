"""DescribeClientQuotas: the quotas of users, client ids and IP addresses that match a filter."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Float64, Int8, Int16, Int32


class QuotaMatch(IntEnum):
    """EXACT matches one name, DEFAULT matches the default entity, and ANY matches every name and the default."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilterComponent(NamedTuple):
    """`match` is the name for an EXACT match, and None otherwise."""

    entity_type: str
    match_type: Int8
    match: str | None


class DescribeClientQuotasRequest(ApiMessage, frozen=True, kw_only=True):
    """`strict` excludes entities with a type that no component names."""

    components: tuple[QuotaFilterComponent, ...]
    strict: Bool


class DescribedQuotaEntity(NamedTuple):
    """`entity_name` is None for the default entity of its type."""

    entity_type: str
    entity_name: str | None


class DescribedQuotaValue(NamedTuple):
    key: str
    value: Float64


class DescribedQuotas(NamedTuple):
    entity: tuple[DescribedQuotaEntity, ...]
    values: tuple[DescribedQuotaValue, ...]


class DescribeClientQuotasResponse(ApiMessage, frozen=True, kw_only=True):
    """`entries` is None if the request failed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    entries: tuple[DescribedQuotas, ...] | None = ()
