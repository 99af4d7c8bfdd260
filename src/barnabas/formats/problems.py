"""Errors of the codecs, and the check that their libraries are installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from barnabas.errors import BarnabasError, ConfigError

SHOWN_BYTES = 16


class DecodeError(BarnabasError):
    """The bytes of a record do not fit the format or the schema."""


class EncodeError(BarnabasError):
    """A row does not fit the schema."""


def first_bytes(data: bytes) -> str:
    """Return the first bytes in hexadecimal, for an error message.

    >>> first_bytes(bytes(20)), first_bytes(b"")
    ('00000000000000000000000000000000… (20 bytes)', 'none (0 bytes)')
    """
    more = "…" if len(data) > SHOWN_BYTES else ""
    return f"{data[:SHOWN_BYTES].hex() or 'none'}{more} ({len(data)} bytes)"


def require(module: str, package: str) -> None:
    """Raise ConfigError if a library of the extra `formats` is not installed."""
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        found = False
    if not found:
        where = "in the Python of the driver and of the workers"
        raise ConfigError(
            package, f"is not installed; {where}, run: pip install 'barnabas[formats]'"
        )


def among(names: Sequence[str]) -> str:
    """Return the names as a list for an error message, at most ten."""
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
