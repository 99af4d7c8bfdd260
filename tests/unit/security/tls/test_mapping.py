"""ssl.principal.mapping.rules, with the examples of Kafka's documentation."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.security.tls.mapping import SUBJECT_CHARACTERS_MAX, map_subject, parse_rules

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        (
            DOCUMENTED,
            "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "serviceuser",
        ),
        (DOCUMENTED, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=X", "adminuser@admin"),
        (DOCUMENTED, "O=Shop,CN=Some.One,OU=x", "some.one"),
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a", "CN=a"),
        (" RULE:^CN=(.*?)$/$1/U , DEFAULT ", "CN=alice", "ALICE"),
        (r"RULE:^CN=(.*)\/(.*)$/$2 $1 \$3 $3/,DEFAULT", "CN=a/b", "b a $3 $3"),
        ("RULE:^CN=(?<name>.*?),.*$/${name}!/", "CN=x,O=y", "x!"),
        ("RULE:a,b/comma,in,rule/,DEFAULT", "a,b", "comma,in,rule"),
        ("RULE:^CN=x$//,DEFAULT", "CN=x", ""),
    ],
)
def test_first_matching_rule_decides(rules: str, subject: str, expected: str) -> None:
    assert map_subject(parse_rules(rules), subject) == expected


def test_subject_without_a_matching_rule_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"no rule of .* matches"):
        map_subject(parse_rules("RULE:^CN=x$/y/"), "CN=z")


def test_long_subject_is_not_matched_with_patterns() -> None:
    subject = "CN=" + "a" * SUBJECT_CHARACTERS_MAX
    with pytest.raises(ValueError, match="accepts 512"):
        map_subject(parse_rules("RULE:^(.*)$/$1/,DEFAULT"), subject)
    assert map_subject(parse_rules("DEFAULT"), subject) == subject


@pytest.mark.parametrize(
    "rules",
    [
        "nonsense",
        "RULE:a/b",
        "RULE:(/b/",
        "RULE:a/b/X",
        "RULE:a/${none}/",
        r"RULE:\p{Alpha}/b/",
    ],
)
def test_invalid_rules_are_rejected(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
