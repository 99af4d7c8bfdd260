"""Clients that pip cannot bring: a test of theirs is skipped where they are missing, but fails in CI."""

import os

import pytest


def require(present: bool, name: str) -> None:
    if present:
        return
    why = f"{name} is not installed; python -m tests.tools installs it where that is possible"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
