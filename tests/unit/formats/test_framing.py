from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.formats.framing import encode_indexes, frame_header, split_header, split_indexes
from barnabas.formats.problems import DecodeError

INDEXES = st.lists(st.integers(0, 5000), min_size=1, max_size=6).map(tuple)


@given(schema_id=st.integers(0, 2**32 - 1), body=st.binary())
def test_header_round_trip(schema_id: int, body: bytes) -> None:
    assert split_header(frame_header(schema_id) + body) == (schema_id, 5)


@given(indexes=INDEXES, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_message_indexes_round_trip(indexes: tuple[int, ...], before: bytes, after: bytes) -> None:
    encoded = encode_indexes(indexes)
    end = len(before) + len(encoded)
    assert split_indexes(before + encoded + after, len(before)) == (indexes, end)


def test_bytes_are_those_of_confluent() -> None:
    assert frame_header(258) == b"\0\0\0\1\2"
    assert encode_indexes((0,)) == b"\0"
    assert encode_indexes((1,)) == b"\2\2"
    assert encode_indexes((0, 1)) == b"\4\0\2"


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1"])
def test_short_record_has_no_schema_id(data: bytes) -> None:
    with pytest.raises(DecodeError, match="too short for a schema id"):
        split_header(data)


def test_other_magic_byte_is_rejected_with_the_next_step() -> None:
    with pytest.raises(DecodeError, match=r"first byte is 123, not 0.*schema= without registry="):
        split_header(b'{"id":1}')


@pytest.mark.parametrize("data", [b"", b"\2", b"\4\0", b"\x80", b"\1", b"\xff" * 9, b"\xfe\x7f"])
def test_invalid_message_indexes_are_rejected(data: bytes) -> None:
    with pytest.raises(DecodeError, match="message index"):
        split_indexes(data, 0)
