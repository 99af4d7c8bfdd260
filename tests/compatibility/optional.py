"""Clients that pip cannot install. Their tests are skipped if the client is missing, but fail in CI."""

import os

import pytest


def require(present: bool, name: str) -> None:
    if present:
        return
    why = f"{name} is not installed; run python -m tests.tools to install it"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
