"""The whole script for three brokers."""

from __future__ import annotations

from interop.scenarios.three import creating, stopping
from interop.scenarios.three.step import Step

SCRIPT: tuple[Step, ...] = (*creating.STEPS, *creating.CLEARED, *stopping.STEPS)
