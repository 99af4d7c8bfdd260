"""SASLprep (RFC 4013): the normal form of user names and passwords.

Kafka and most of its clients do not apply it, some do. So a password that SASLprep changes works with some clients
only. Barnabas sends passwords unchanged, as Kafka does, and refuses to create credentials with such a password.
"""

from __future__ import annotations

import stringprep
import unicodedata

PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """Return the normal form of a text. Raises ValueError if it has a prohibited character.

    >>> saslprep("I\u00adX"), saslprep("\u2168")
    ('IX', 'IX')
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in text
        if not stringprep.in_table_b1(char)
    )
    normal = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_in_table(char) for char in normal for is_in_table in PROHIBITED):
        raise ValueError("a control character, or one that is not allowed in passwords")
    has_right_to_left = any(map(stringprep.in_table_d1, normal))
    if has_right_to_left:
        is_framed = stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])
        if not is_framed or any(map(stringprep.in_table_d2, normal)):
            raise ValueError("letters of both writing directions")
    return normal


def is_portable(text: str) -> bool:
    """Whether clients with and without SASLprep send the same bytes for this text."""
    if text.isascii():
        return text.isprintable()
    try:
        return saslprep(text) == text
    except ValueError:
        return False
