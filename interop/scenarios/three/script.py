"""The whole script for three brokers."""

from __future__ import annotations

from interop.scenarios.three import (
    auto_creation,
    broker_failures,
    reassignment,
    replication,
    topic_creation,
    topic_deletion,
    topic_expansion,
)
from interop.scenarios.three.step import Step

SCRIPT: tuple[Step, ...] = (
    *topic_creation.STEPS,
    *auto_creation.STEPS,
    *topic_creation.CLEARED,
    *topic_expansion.STEPS,
    *topic_deletion.STEPS,
    *replication.STEPS,
    *reassignment.STEPS,
    *broker_failures.STEPS,
)
