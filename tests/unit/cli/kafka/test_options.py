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
    Option("partitions", "Number of partitions.", "number"),
    Option("delete-config", "Settings to delete.", "names", is_list=True),
    Option("list", "List topics."),
)


def parse(*arguments: str) -> ParsedOptions:
    return parse_options(OPTIONS, arguments)


@pytest.mark.parametrize(
    "arguments", [("--topic", "orders"), ("--topic=orders",), ("-topic", "orders")]
)
def test_option_accepts_three_notations(arguments: tuple[str, ...]) -> None:
    assert parse(*arguments, "--list").value("topic") == "orders"


def test_next_word_is_always_the_value() -> None:
    found = parse("--topic", "--list")
    assert found.value("topic") == "--list"
    assert not found.has("list")
    assert parse("--topic=", "orders").value("topic") == "orders"


def test_stray_words_and_flag_values_are_ignored() -> None:
    found = parse("stray", "--list=yes", "-", "--", "--topic", "orders")
    assert found.pairs == (("list", None),)


def test_list_option_collects_several_values() -> None:
    found = parse("--delete-config", "a,b", "--delete-config", "c,")
    assert found.values("delete-config") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topics", "a"), "topics is not a recognized option"),
        (("--lis",), "lis is not a recognized option"),
        (("-x",), "x is not a recognized option"),
        (("-lis",), "l is not a recognized option"),
        (("--topic",), "Option topic requires an argument"),
    ],
)
def test_parse_errors_have_kafka_messages(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidCommandLine) as caught:
        parse(*arguments)
    assert caught.value.message == message


def test_repeated_option_fails_only_for_single_value() -> None:
    found = parse("--topic", "a", "--topic", "b")
    assert found.values("topic") == ["a", "b"]
    with pytest.raises(
        RequestRejected, match="Found multiple arguments for option topic, but you asked"
    ):
        found.value("topic")


@pytest.mark.parametrize("text", ["x", "1.5", "2147483648", "٣", ""])
def test_number_must_fit_32_bits(text: str) -> None:
    found = ParsedOptions((("partitions", text),))
    with pytest.raises(RequestRejected, match=r"Cannot parse argument '.*' of option partitions"):
        found.number("partitions")
    assert parse("--partitions", "-3").number("partitions") == -3
    assert parse().number("partitions") is None


def test_missing_and_excluded_options_are_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match=r'Missing required argument "\[topic\]"'):
        require_options(parse("--list"), "topic")
    with pytest.raises(WrongUsage) as caught:
        forbid_together(parse("--list", "--partitions", "3"), "partitions", ["topic", "list"])
    expected = 'Option "[partitions]" can\'t be used with option "[list]"'
    assert caught.value.message == expected
    forbid_together(parse("--list"), "partitions", ["list"])


def test_help_lists_every_option_within_100_columns() -> None:
    lines = usage_text(
        (*OPTIONS, Option("long", "word " * 60, "a value with a very long description"))
    )
    assert all(len(line) <= 100 for line in lines.splitlines())
    assert all(f"--{option.name}" in lines for option in OPTIONS)
