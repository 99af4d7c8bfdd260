"""Settings of all unit tests."""

from __future__ import annotations

from hypothesis import settings

# Examples have no deadline: the machine may be busy.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
