"""Validation of UpdateFeatures, in the order of Kafka. No feature is supported, so only deletions can succeed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.messages.update_features import FeatureUpdateKey, UpgradeType

UPGRADE_TYPE_SINCE = 1


class FeatureDecision(NamedTuple):
    """The finalized features after the update, and the error of each requested feature, or None."""

    levels: Mapping[str, int]
    errors: dict[str, ApiError | None]


def decide_features(
    current: Mapping[str, int], updates: Iterable[FeatureUpdateKey], version: int
) -> FeatureDecision:
    """Apply valid updates to the current levels. `version` is that of the request."""
    levels = dict(current)
    errors: dict[str, ApiError | None] = {}
    for update in updates:
        why = find_update_error(update, current.get(update.feature), version)
        errors[update.feature] = None if why is None else ApiError(ErrorCode.INVALID_REQUEST, why)
        if why is None:
            levels.pop(update.feature, None)
    return FeatureDecision(levels, errors)


def find_update_error(update: FeatureUpdateKey, current: int | None, version: int) -> str | None:
    """Return why an update is rejected. None: it deletes a finalized feature, which is `current`."""
    name, level = update.feature, update.max_version_level
    kind = find_upgrade_type(update, version)
    if not name:
        return "the feature name is empty"
    if kind not in UpgradeType.__members__.values():
        return f"unknown upgrade type {kind}"
    if level < 1 and kind != UpgradeType.UPGRADE:
        return None if current is not None else f"feature '{name}' is not finalized"
    if level < 1:
        return f"level {level} deletes feature '{name}', which needs a downgrade type"
    if current is not None and level == current:
        return f"feature '{name}' already has level {level}"
    if current is not None and level < current and kind != UpgradeType.SAFE_DOWNGRADE:
        return f"level {level} of feature '{name}' is below {current}; use a safe downgrade"
    if current is not None and level > current and kind != UpgradeType.UPGRADE:
        return f"level {level} of feature '{name}' is above {current}; that is no downgrade"
    return f"feature '{name}' is not supported"


def find_upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version >= UPGRADE_TYPE_SINCE:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
