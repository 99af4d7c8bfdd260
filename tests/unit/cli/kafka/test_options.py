import pytest

from barnabas.cli.kafka.failures import InvalidCommandLine, RequestRejected, WrongUsage
from barnabas.cli.kafka.options import (
    Option,
    ParsedOptions,
    forbid_together,
    parse_options,
    require_options,
    usage_text,
)

OPTIONS = (
    Option("topic", "The topic.", "name"),
    Option("partitions", "How many.", "number"),
    Option("delete-config", "Settings to take away.", "names", is_list=True),
    Option("list", "List them."),
)


def given(*arguments: str) -> ParsedOptions:
    return parse_options(OPTIONS, arguments)


@pytest.mark.parametrize(
    "arguments", [("--topic", "orders"), ("--topic=orders",), ("-topic", "orders")]
)
def test_an_option_may_be_written_in_three_ways(arguments: tuple[str, ...]) -> None:
    assert given(*arguments, "--list").value("topic") == "orders"


def test_a_value_is_what_comes_next_whatever_it_looks_like() -> None:
    found = given("--topic", "--list")
    assert found.value("topic") == "--list"
    assert not found.has("list")
    assert given("--topic=", "orders").value("topic") == "orders"


def test_words_without_an_option_and_values_of_flags_are_not_looked_at() -> None:
    found = given("stray", "--list=yes", "-", "--", "--topic", "orders")
    assert found.found == (("list", None),)


def test_an_option_that_takes_a_list_has_several_values() -> None:
    found = given("--delete-config", "a,b", "--delete-config", "c,")
    assert found.values("delete-config") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--topics", "a"), "topics is not a recognized option"),
        (("--lis",), "lis is not a recognized option"),
        (("-x",), "x is not a recognized option"),
        (("-lis",), "l is not a recognized option"),
        (("--topic",), "Option topic requires an argument"),
    ],
)
def test_what_cannot_be_read_is_said_in_kafkas_words(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidCommandLine) as caught:
        given(*arguments)
    assert caught.value.message == why


def test_two_values_are_wrong_only_for_who_asks_for_one() -> None:
    found = given("--topic", "a", "--topic", "b")
    assert found.values("topic") == ["a", "b"]
    with pytest.raises(
        RequestRejected, match="Found multiple arguments for option topic, but you asked"
    ):
        found.value("topic")


@pytest.mark.parametrize("text", ["x", "1.5", "2147483648", "٣", ""])
def test_a_number_is_one_of_32_bits(text: str) -> None:
    found = ParsedOptions((("partitions", text),))
    with pytest.raises(RequestRejected, match=r"Cannot parse argument '.*' of option partitions"):
        found.number("partitions")
    assert given("--partitions", "-3").number("partitions") == -3
    assert given().number("partitions") is None


def test_what_is_missing_and_what_excludes_another_is_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match=r'Missing required argument "\[topic\]"'):
        require_options(given("--list"), "topic")
    with pytest.raises(WrongUsage) as caught:
        forbid_together(given("--list", "--partitions", "3"), "partitions", ["topic", "list"])
    expected = 'Option "[partitions]" can\'t be used with option "[list]"'
    assert caught.value.message == expected
    forbid_together(given("--list"), "partitions", ["list"])


def test_help_names_every_option_within_a_hundred_columns() -> None:
    lines = usage_text(
        (*OPTIONS, Option("long", "word " * 60, "a value with a very long description"))
    )
    assert all(len(line) <= 100 for line in lines.splitlines())
    assert all(f"--{option.name}" in lines for option in OPTIONS)
