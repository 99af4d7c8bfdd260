from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.security.jaas import PLAIN_MODULE, JaasLine, parse_jaas


def test_options_are_words_or_quoted_strings_with_escapes() -> None:
    text = (
        f"{PLAIN_MODULE} required // a comment\n"
        'username="broker" /* another */ password="a\\"b\\\\c;=\\041" user_alice=\'p w\' flag=true;'
    )
    assert parse_jaas(text) == JaasLine(
        PLAIN_MODULE,
        {"username": "broker", "password": 'a"b\\c;=!', "user_alice": "p w", "flag": "true"},
    )


def test_repr_shows_no_values() -> None:
    assert "secret" not in repr(parse_jaas("org.example.Module required password=secret;"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be of the form"),
        ("org.example.Module required password=hidden", "must be of the form"),
        ("org.example.Module always password=hidden;", "control flag"),
        ("org.example.Module required password hidden;", "option 1 is not"),
        ("org.example.Module required a=b password=;", "option 2 is not"),
        ("org.example.Module required a=1 a=hidden;", "option a twice"),
        ('org.example.Module required a="hidden;', "not closed"),
        ("org.example.One required a=hidden; org.example.Two required;", "more than one"),
    ],
)
def test_invalid_line_is_refused_without_its_values(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse_jaas(text, "listener.name.x.sasl.jaas.config")
    assert raised.value.key == "listener.name.x.sasl.jaas.config"
    assert "hidden" not in str(raised.value)


def test_long_line_is_parsed_in_linear_time() -> None:
    users = " ".join(f'user_u{n}="p{n}"' for n in range(20_000))
    assert len(parse_jaas(f"{PLAIN_MODULE} required {users};").options) == 20_000
