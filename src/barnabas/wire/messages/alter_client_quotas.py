"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Float64, Int16, Int32


class AlteredQuotaEntity(NamedTuple):
    """`entity_name` is None for the default entity of its type."""

    entity_type: str
    entity_name: str | None


class AlteredQuotaValue(NamedTuple):
    """`value` is ignored if `remove` is true."""

    key: str
    value: Float64
    remove: Bool


class AlteredQuotas(NamedTuple):
    entity: tuple[AlteredQuotaEntity, ...]
    ops: tuple[AlteredQuotaValue, ...]


class AlterClientQuotasRequest(ApiMessage, frozen=True, kw_only=True):
    entries: tuple[AlteredQuotas, ...]
    validate_only: Bool


class AlteredQuotasResult(NamedTuple):
    error_code: Int16
    error_message: str | None
    entity: tuple[AlteredQuotaEntity, ...]


class AlterClientQuotasResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    entries: tuple[AlteredQuotasResult, ...] = ()
