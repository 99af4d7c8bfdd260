"""What holds for every unit test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing of what it is an example for: the machine may be busy with something else.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
