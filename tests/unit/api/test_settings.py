"""Settings, keys, values and headers that users pass to the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import barnabas
from barnabas.api.settings import (
    parse_acks,
    parse_assignors,
    parse_auto_offset_reset,
    parse_compression_type,
    require_positive,
    require_text_list,
    to_bytes,
    to_headers,
    to_int64,
)
from barnabas.batch.compression import Compression
from barnabas.client.consumer import Beginning, End
from barnabas.errors import ConfigError


def test_kafka_names_of_settings_are_accepted() -> None:
    assert [parse_acks(acks) for acks in ("all", -1, "1", 1, 0)] == [-1, -1, 1, 1, 0]
    assert parse_compression_type("zstd") is Compression.ZSTD
    assert parse_auto_offset_reset("earliest") == Beginning()
    assert parse_auto_offset_reset("latest") == End()
    assert parse_assignors("range") == ("range",)
    assert require_text_list("topics", "orders") == ("orders",)


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (parse_acks, 2, "acks: 2 is not one of 'all', 1, 0"),
        (
            parse_compression_type,
            "zip",
            "compression_type: 'zip' is not one of 'none', 'gzip', 'snappy', 'lz4', 'zstd'",
        ),
        (
            parse_auto_offset_reset,
            "none",
            "auto_offset_reset: 'none' is not one of 'earliest', 'latest'",
        ),
        (
            parse_assignors,
            ["sticky"],
            "partition_assignment_strategy: 'sticky' is not one of 'range', 'cooperative-sticky'",
        ),
        (lambda value: require_positive("max_records", value), 0, "max_records: 0 is not greater"),
        (lambda value: require_text_list("topics", value), [], "topics: is empty; name at least"),
    ],
)
def test_wrong_value_is_named_with_alternatives(
    parse: Callable[[Any], object], value: object, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(value)
    assert str(raised.value).startswith(message)


def test_strings_are_encoded_as_utf8() -> None:
    assert to_bytes("key", "Größe") == "Größe".encode()
    assert to_bytes("key", bytearray(b"raw")) == b"raw"
    assert to_bytes("key", None) is None
    assert to_headers({"trace": "1", "empty": None}) == (("trace", b"1"), ("empty", None))
    assert to_headers([("a", b"1"), ("a", b"2")]) == (("a", b"1"), ("a", b"2"))


def test_other_types_are_rejected_with_next_step() -> None:
    with pytest.raises(TypeError, match="value must be bytes, str or None, not dict; encode it"):
        to_bytes("value", {"a": 1})
    with pytest.raises(TypeError, match="header 'n' must be bytes, str or None, not int"):
        to_headers({"n": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the name of header b'n' must be str, not bytes"):
        to_headers([(b"n", b"1")])  # type: ignore[list-item]
    with pytest.raises(UnicodeError, match="surrogates not allowed"):
        to_headers({"\ud800": b"1"})
    with pytest.raises(
        TypeError, match=r"timestamp must be an int, not float; convert it with int"
    ):
        to_int64("timestamp", 1e12)
    with pytest.raises(ConfigError, match=r"timestamp: 10+ is out of range"):
        to_int64("timestamp", 10**30)


def test_integers_of_numpy_are_converted() -> None:
    assert type(to_int64("partition", np.int32(7))) is int


def test_every_public_name_is_imported_from_its_module() -> None:
    names = [name for names in barnabas._MODULES.values() for name in names]
    assert sorted(names) == barnabas.__all__
    for name in barnabas.__all__:
        assert getattr(barnabas, name).__name__ == name
        assert name in dir(barnabas)
    with pytest.raises(AttributeError, match="no attribute 'Topic'"):
        _ = barnabas.Topic
