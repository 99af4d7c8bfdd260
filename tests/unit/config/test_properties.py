from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import parse_properties
from barnabas.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a  =  b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a\t:b:c", {"a": "b:c"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=b  ", {"a": "b  "}),
        ("   a=b", {"a": "b"}),
        ("# a=b\n  ! c=d\n\n\f\ne=f", {"e": "f"}),
        ("a=b#c!d", {"a": "b#c!d"}),
        ("a=1\ra=2\r\na=3\nb=4", {"a": "3", "b": "4"}),
        ("a=b,\\\n   c", {"a": "b,c"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("# a comment is not continued\\\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n", {}),
        ("\\\n# still a comment\na=b", {"a": "b"}),
        (r"a\=\:\ b=c", {"a=: b": "c"}),
        (r"a=\t\n\r\f\q\\", {"a": "\t\n\r\fq\\"}),
        (r"a=\  b", {"a": "  b"}),
        (r"a=caf\u00E9", {"a": "café"}),
        (r"a=\uD83D\uDE00", {"a": "😀"}),
        (r"a=\\u00E9", {"a": "\\u00E9"}),
    ],
)
def test_properties_are_parsed_like_java(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text, "server.properties") == properties


@pytest.mark.parametrize("line", [r"a=\u12", r"a=\u12G4", r"\u=b", r"a=\\\u1"])
def test_incomplete_escape_is_rejected_with_file_and_line(line: str) -> None:
    text = f"# first\nb=\\\n  c\n{line}\n"
    with pytest.raises(ConfigError) as refused:
        parse_properties(text, "server.properties")
    assert str(refused.value) == (
        r"server.properties:4: \u must be followed by four hexadecimal digits"
    )


def escape(text: str) -> str:
    """Escape every character with a special meaning."""
    return "".join(f"\\u{ord(c):04x}" if c in "\\=: \t\f\r\n#!" else c for c in text)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_escaped_properties_round_trip(properties: dict[str, str]) -> None:
    text = "\n".join(f"{escape(key)} = {escape(value)}" for key, value in properties.items())
    assert parse_properties(text, "any") == properties
