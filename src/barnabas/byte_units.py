"""Numbers of bytes as text. Units are decimal: 1 MB is 1,000,000 bytes."""

from __future__ import annotations

BYTE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def bytes_text(count: float) -> str:
    """
    >>> bytes_text(0), bytes_text(999), bytes_text(1234567), bytes_text(56_000_000_000)
    ('0 B', '999 B', '1.2 MB', '56 GB')
    """
    size = float(count)
    for unit in BYTE_UNITS:
        if round(size, 1 if size < 10 else 0) < 1000 or unit == BYTE_UNITS[-1]:
            break
        size /= 1000
    digits = 1 if unit != "B" and size < 10 else 0
    return f"{size:.{digits}f} {unit}"
