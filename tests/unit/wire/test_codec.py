from __future__ import annotations

import tracemalloc
from typing import Annotated, Any, ClassVar, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import (
    Bool,
    Bytes,
    Essential,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableSince,
    Since,
    Tag,
    Until,
    decode,
    decode_from,
    encode,
)
from barnabas.wire.primitives import (
    compact_size,
    read_compact_size,
    read_uvarint32,
    uvarint,
)


class Inner(NamedTuple):
    number: Int32 = 0
    word: str = ""


EMPTY = Inner()


class AllTypes(Struct, frozen=True, kw_only=True):
    """Message with every field type, flexible since version 2."""

    API_KEY: ClassVar[int] = ApiKey.VOTE
    VERSIONS: ClassVar[range] = range(4)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    flag: Bool = False
    tiny: Int8 = 0
    short: Int16 = 0
    long: Annotated[Int64, Since(1)] = 7
    old: Annotated[Int32, Until(1)] = 8
    precise: Float64 = 0.0
    id: UUID = ZERO_ID
    word: str = "w"
    maybe_word: Annotated[str | None, NullableSince(1)] = "m"
    raw: Bytes = b""
    maybe_raw: Bytes | None = None
    numbers: tuple[Int32, ...] = ()
    words: Annotated[tuple[str, ...] | None, NullableSince(1)] = ()
    inner: Inner = EMPTY
    maybe_inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    must: Annotated[Bool, Since(1), Essential] = False
    tagged: Annotated[Int32, Since(3), Tag(1)] = -1
    tagged_inner: Annotated[Inner, Since(3), Tag(0)] = EMPTY


class Small(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.ENVELOPE
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    words: tuple[str, ...] = ()
    raw: Bytes = b""
    numbers: tuple[Int64, ...] = ()


ALL_SET = AllTypes(
    flag=True,
    tiny=-1,
    short=-2,
    long=-3,
    precise=1.5,
    id=UUID(int=5),
    word="grüße",
    raw=b"raw",
    maybe_raw=b"",
    numbers=(1, -2, 3),
    words=("a", "", "b"),
    inner=Inner(4, "inner"),
    maybe_inner=Inner(5, "maybe"),
    inners=(Inner(6, "x"), Inner(7, "y")),
    must=True,
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_type_round_trips(version: int) -> None:
    assert decode(AllTypes, version, encode(ALL_SET, version)) == ALL_SET


@pytest.mark.parametrize("version", range(4))
def test_null_and_empty_values_round_trip(version: int) -> None:
    empty = AllTypes()
    if version >= 1:
        empty = AllTypes(maybe_word=None, words=None)
    assert decode(AllTypes, version, encode(empty, version)) == empty


def test_bytes_of_plain_message() -> None:
    small = Small(words=("ab", ""), raw=b"xyz", numbers=(1,))
    assert encode(small, 0) == (
        b"\x00\x00\x00\x02\x00\x02ab\x00\x00"  # two strings
        b"\x00\x00\x00\x03xyz"
        b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"
    )


def test_bytes_of_flexible_message() -> None:
    small = Small(words=("ab", ""), raw=b"xyz", numbers=(1,))
    assert encode(small, 1) == b"\x03\x03ab\x01\x04xyz\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00"


def test_field_outside_its_versions_gets_its_default() -> None:
    sent = AllTypes(long=1000, old=2000)
    assert decode(AllTypes, 0, encode(sent, 0)).long == 7
    assert decode(AllTypes, 0, encode(sent, 0)).old == 2000
    assert decode(AllTypes, 2, encode(sent, 2)).long == 1000
    assert decode(AllTypes, 2, encode(sent, 2)).old == 8


def test_tagged_field_at_default_is_not_written() -> None:
    assert encode(AllTypes(), 3) == encode(AllTypes(), 2)
    tagged = AllTypes(tagged=5, tagged_inner=Inner(1, "t"))
    assert encode(tagged, 3).endswith(
        b"\x02"  # two tags, in ascending order
        b"\x00\x07\x00\x00\x00\x01\x02t\x00"
        b"\x01\x04\x00\x00\x00\x05"
    )
    assert decode(AllTypes, 3, encode(tagged, 3)) == tagged


def test_unknown_tags_are_skipped() -> None:
    plain = encode(AllTypes(tagged=5), 3)
    assert plain.endswith(b"\x01\x01\x04\x00\x00\x00\x05")
    more = plain[:-7] + b"\x03\x01\x04\x00\x00\x00\x05\x09\x02zz\x80\x01\x00"
    assert decode_from(AllTypes, 3, more) == (AllTypes(tagged=5), len(more))


def test_bytes_are_decoded_as_views() -> None:
    data = bytearray(encode(Small(raw=b"xyz"), 0))
    raw = decode(Small, 0, memoryview(data)).raw
    data[data.index(b"xyz")] = ord("X")
    assert bytes(raw) == b"Xyz"


def test_trailing_bytes_are_ignored() -> None:
    data = b"ahead" + encode(ALL_SET, 3) + b"\x00\x00\x00"
    assert decode_from(AllTypes, 3, data, 5) == (ALL_SET, len(data) - 3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_truncation_is_rejected(version: int) -> None:
    data = encode(ALL_SET, version)
    for size in range(len(data)):
        with pytest.raises(RemoteWireError):
            decode(AllTypes, version, data[:size])


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b"\x7f\xff\xff\xff"),  # count
        (0, b"\x00\x00\x00\x00\x7f\xff\xff\xff"),  # size
        (0, b"\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff"),  # count of numbers
        (0, b"\xff\xff\xff\xfe"),  # neither a count nor null
        (0, b"\xff\xff\xff\xff"),  # null in a non-nullable field
        (0, b"\x00\x00\x00\x01\xff\xff"),
        (1, b"\xff\xff\xff\xff\x0f"),
        (1, b"\x01\xff\xff\xff\xff\x0f"),
        (1, b"\x01\x01\xff\xff\xff\xff\x0f"),
        (1, b"\x01\x01\x01\xff\xff\xff\xff\x0f"),  # number of tags
        (1, b"\x01\x01\x01\x01\x05\xff\xff\xff\xff\x0f"),  # size of a tag
        (1, b"\x00"),  # null in a non-nullable field
        (1, b"\xff\xff\xff\xff\x1f"),  # more than 32 bits
        (1, b"\xff\xff\xff\xff\xff\x01"),  # more than five bytes
    ],
)
def test_impossible_sizes_are_rejected_without_allocation(version: int, data: bytes) -> None:
    # Empty strings and zeros: a reader that does not check the count first would start to decode.
    data += bytes(200_000)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteWireError):
            decode(Small, version, data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_too_many_tags_are_rejected() -> None:
    body = encode(Small(), 1)[:-1]
    assert decode(Small, 1, body + b"\x80\x01" + b"\x09\x00" * 128) == Small()
    with pytest.raises(RemoteWireError):
        decode(Small, 1, body + b"\x81\x01" + b"\x09\x00" * 129)


def test_known_tag_of_wrong_size_is_rejected() -> None:
    data = encode(AllTypes(tagged=5), 3)
    with pytest.raises(RemoteWireError):
        decode(AllTypes, 3, data[:-5] + b"\x05\x00\x00\x00\x05\x00")


def test_invalid_utf8_is_rejected() -> None:
    with pytest.raises(RemoteWireError):
        decode(Small, 0, b"\x00\x00\x00\x01\x00\x02\xff\xfe" + bytes(8))


def test_unknown_version_is_rejected() -> None:
    with pytest.raises(RemoteWireError):
        decode(Small, 2, bytes(20))
    with pytest.raises(LocalWireError):
        encode(Small(), 2)


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (AllTypes(tiny=128), 1),
        (AllTypes(word="x" * 40_000), 1),
        (AllTypes(word="x" * 40_000), 2),
        (AllTypes(word="\ud800"), 1),
        (AllTypes(maybe_word=None), 0),  # nullable since version 1
        (AllTypes(words=None), 0),
        (AllTypes(must=True), 0),  # essential, but not in version 0
        (AllTypes(word=5), 1),  # type: ignore[arg-type]
        (AllTypes(numbers=("1",)), 1),  # type: ignore[arg-type]
        (AllTypes(inner=None), 1),  # type: ignore[arg-type]
    ],
)
def test_unencodable_value_is_a_local_error(value: Any, version: int) -> None:
    with pytest.raises(LocalWireError):
        encode(value, version)


class SameNumbers(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.FETCH_SNAPSHOT
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    since: Annotated[str | None, Since(1)] = "s"
    until: Annotated[str | None, Until(1)] = "u"
    nullable: Annotated[str | None, NullableSince(1)] = "n"
    tag: Annotated[str | None, Tag(1)] = "t"
    raw: Annotated[Bytes, Since(1)] = b""


def test_marks_with_same_number_are_distinguished() -> None:
    assert encode(SameNumbers(raw=b"lost"), 0) == b"\x02u\x02n\x00"
    assert encode(SameNumbers(), 1) == b"\x02s\x02u\x02n\x01\x00"
    assert encode(SameNumbers(nullable=None), 2) == b"\x02s\x00\x01\x00"


@given(st.integers(0, 0xFFFF_FFFF))
def test_varints_round_trip(number: int) -> None:
    data = memoryview(uvarint(number) + b"\xff")
    assert read_uvarint32(data, 0) == (number, len(data) - 1)


@given(st.integers(-1, 0xFFFF_FFFE))
def test_compact_sizes_round_trip(size: int) -> None:
    data = memoryview(compact_size(size))
    assert read_compact_size(data, 0) == (size, len(data))
