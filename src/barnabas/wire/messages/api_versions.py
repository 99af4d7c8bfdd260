"""ApiVersions: the APIs that a broker serves, with their versions. Clients send it first."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32, Int64, Since, Tag


class ApiVersionsRequest(ApiMessage, frozen=True, kw_only=True):
    client_software_name: Annotated[str, Since(3)] = ""
    client_software_version: Annotated[str, Since(3)] = ""


class ApiVersion(NamedTuple):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(NamedTuple):
    name: str
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(NamedTuple):
    name: str
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Since(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tag(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Since(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Bool, Since(3), Tag(3)] = False
