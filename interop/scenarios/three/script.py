"""The whole script for three brokers."""

from __future__ import annotations

from interop.scenarios.three import (
    asking,
    creating,
    deleting,
    growing,
    replicating,
    stopping,
)
from interop.scenarios.three.step import Step

SCRIPT: tuple[Step, ...] = (
    *creating.STEPS,
    *asking.STEPS,
    *creating.CLEARED,
    *growing.STEPS,
    *deleting.STEPS,
    *replicating.STEPS,
    *stopping.STEPS,
)
