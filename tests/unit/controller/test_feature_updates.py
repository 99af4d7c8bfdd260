"""Validation of UpdateFeatures. No feature is supported, so only deletions succeed."""

from __future__ import annotations

import pytest

from barnabas.controller.feature_updates import decide_features
from barnabas.errors import ErrorCode
from barnabas.wire.messages.update_features import FeatureUpdateKey, UpgradeType

UPGRADE, SAFE, UNSAFE = UpgradeType
CURRENT = {"old.feature": 3}


def update(name: str, level: int, kind: int = UPGRADE) -> FeatureUpdateKey:
    return FeatureUpdateKey(name, level, upgrade_type=kind)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (update("", 1), "is empty"),
        (update("", 0, 9), "is empty"),
        (update("new.feature", 1, 0), "unknown upgrade type 0"),
        (update("new.feature", 1, 4), "unknown upgrade type 4"),
        (update("new.feature", 0, SAFE), "not finalized"),
        (update("new.feature", -1, UNSAFE), "not finalized"),
        (update("old.feature", 0), "needs a downgrade type"),
        (update("old.feature", 3), "already has level 3"),
        (update("old.feature", 2), "use a safe downgrade"),
        (update("old.feature", 2, UNSAFE), "use a safe downgrade"),
        (update("old.feature", 4, SAFE), "no downgrade"),
        (update("old.feature", 4), "not supported"),
        (update("old.feature", 2, SAFE), "not supported"),
        (update("new.feature", 1), "not supported"),
    ],
)
def test_invalid_update_changes_nothing(wanted: FeatureUpdateKey, why: str) -> None:
    levels, errors = decide_features(CURRENT, [wanted], 1)
    assert levels == CURRENT
    error = errors[wanted.feature]
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert why in error.message


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_downgrade_to_level_0_deletes_feature(kind: int) -> None:
    assert decide_features(CURRENT, [update("old.feature", 0, kind)], 1) == (
        {},
        {"old.feature": None},
    )


def test_version_0_deletes_with_allow_downgrade_only() -> None:
    refused = FeatureUpdateKey("old.feature", 0, upgrade_type=SAFE)
    assert decide_features(CURRENT, [refused], 0).levels == CURRENT
    allowed = FeatureUpdateKey("old.feature", 0, allow_downgrade=True)
    assert decide_features(CURRENT, [allowed], 0).levels == {}


def test_valid_update_is_applied_next_to_invalid_one() -> None:
    levels, errors = decide_features(
        CURRENT, [update("new.feature", 1), update("old.feature", 0, SAFE)], 1
    )
    assert levels == {}
    assert errors["old.feature"] is None
    assert errors["new.feature"] is not None
