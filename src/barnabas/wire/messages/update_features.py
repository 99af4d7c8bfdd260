"""UpdateFeatures: changes the finalized features of the cluster.

Version 0 has `allow_downgrade`, version 1 has `upgrade_type` and `validate_only` instead.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Since, Until


class UpgradeType(IntEnum):
    """Direction in which a feature may change. Lossy downgrades are UNSAFE."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdateKey(NamedTuple):
    feature: str
    max_version_level: Int16
    """A level below 1 deletes the feature."""
    allow_downgrade: Annotated[Bool, Until(0)] = False
    upgrade_type: Annotated[Int8, Since(1)] = UpgradeType.UPGRADE


class UpdateFeaturesRequest(ApiMessage, frozen=True, kw_only=True):
    timeout_ms: Int32 = 60_000
    feature_updates: tuple[FeatureUpdateKey, ...]
    validate_only: Annotated[Bool, Since(1), Essential] = False


class UpdatableFeatureResult(NamedTuple):
    feature: str
    error_code: Int16 = 0
    error_message: str | None = None


class UpdateFeaturesResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: tuple[UpdatableFeatureResult, ...] = ()
