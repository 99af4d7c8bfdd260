"""Batches with a valid header whose records do not match it: uncompressed, and compressed with each codec.

No client sends these. A broker that accepts one has a log that no consumer can read.
"""

from __future__ import annotations

from functools import partial

import cramjam

from barnabas.batch.compression import Compression, compress
from barnabas.batch.records import seal_batch, varint
from interop.scenarios.requests import (
    ATTRIBUTES_AT,
    THEN,
    ask,
    changed,
    create,
    delete,
    fetch,
    list_offsets,
    new_topic,
    produce,
)
from interop.scenarios.step import Step

KEY, VALUE = b"key", b"value"
NO_HEADERS = varint(0)
FIELDS = varint(len(KEY)) + KEY + varint(len(VALUE)) + VALUE
PACKED = tuple(codec for codec in Compression if codec is not Compression.NONE)
TOO_LONG = b"\xff" * 5 + b"\x01"
FAR_TOO_LONG = b"\xff" * 10 + b"\x01"


def record(
    delta: int,
    fields: bytes = FIELDS + NO_HEADERS,
    *,
    longer: int = 0,
    attributes: bytes = b"\0",
    time: bytes = varint(0),
    offset: bytes | None = None,
) -> bytes:
    body = attributes + time + (varint(delta) if offset is None else offset) + fields
    return varint(len(body) + longer) + body


def records(count: int) -> bytes:
    return b"".join(record(delta) for delta in range(count))


def wide(number: int, size: int = 5) -> bytes:
    """A varint of `size` bytes, whose last byte has bits that do not fit."""
    doubled = number << 1 | 1 << (7 * size - 1)
    digits = [doubled >> 7 * place & 0x7F | 0x80 for place in range(size)]
    return bytes(digits[:-1]) + bytes((digits[-1] & 0x7F,))


def among_many(number: int, fields: bytes) -> bytes:
    """400 records, one of which has other fields."""
    return records(number) + record(number, fields) + records(400)[len(records(number + 1)) :]


def amid(odd: bytes) -> bytes:
    """Three records with `odd` as the second."""
    return record(0) + odd + record(2)


OUT_OF_ORDER = b"".join(record(delta, time=varint(delta * 977 % 100)) for delta in range(100))

# The records of a batch, and the announced count.
CONTENTS: dict[str, tuple[bytes, int]] = {
    "as it should be": (records(3), 3),
    "one more announced": (records(3), 4),
    "two fewer announced": (records(3), 1),
    "many, and one more announced": (records(100), 101),
    "many, and one fewer announced": (records(100), 99),
    "many, and as many more announced": (records(100), 200),
    "nothing in it": (b"", 3),
    "a byte behind the last": (records(3) + b"\0", 3),
    "the last a byte short": (records(3)[:-1], 3),
    "many, the last a byte short": (records(100)[:-1], 100),
    "many, a byte behind the last": (records(100) + b"\0", 100),
    "zeros": (bytes(64), 3),
    "many, out of order in time": (OUT_OF_ORDER, 100),
    "many, with headers": (
        b"".join(record(delta, FIELDS + varint(1) + b"\x02h\x02\xff") for delta in range(100)),
        100,
    ),
    "a record longer than the batch": (amid(record(1, longer=1000)), 3),
    "a record a byte too long": (amid(record(1, longer=1)), 3),
    "a record a byte too short": (amid(record(1, longer=-1)), 3),
    "the last a byte too long": (records(2) + record(2, longer=1), 3),
    "a record of no bytes": (amid(varint(0)), 3),
    "a record of negative length": (amid(varint(-5)), 3),
    "a length that does not end": (amid(TOO_LONG), 3),
    "nothing but a length that does not end": (TOO_LONG, 3),
    "attributes": (amid(record(1, attributes=b"\x07")), 3),
    "the last with attributes": (records(2) + record(2, attributes=b"\x80"), 3),
    "a time that does not end": (amid(record(1, time=FAR_TOO_LONG)), 3),
    "a time far off": (amid(record(1, time=varint(-(1 << 40)))), 3),
    "an offset that does not end": (amid(record(1, offset=TOO_LONG)), 3),
    "an offset twice": (amid(record(0)), 3),
    "an offset left out": (record(0) + record(2) + record(3), 3),
    "offsets from 7 on": (record(7) + record(8) + record(9), 3),
    "offsets downwards": (record(2) + record(1) + record(0), 3),
    "many, the last offset too far": (records(99) + record(100), 100),
    "a negative offset": (record(-1) + record(1) + record(2), 3),
    "a key of length -2": (amid(record(1, varint(-2) + varint(1) + b"v" + NO_HEADERS)), 3),
    "a value of length -9": (amid(record(1, varint(1) + b"k" + varint(-9) + NO_HEADERS)), 3),
    "a key longer than its record": (amid(record(1, varint(500) + FIELDS + NO_HEADERS)), 3),
    "a key that takes the next record": (amid(record(1, varint(18) + b"k" + NO_HEADERS)), 3),
    "a value longer than its record": (
        amid(record(1, varint(0) + varint(500) + VALUE + NO_HEADERS)),
        3,
    ),
    "no count of headers": (amid(record(1, FIELDS)), 3),
    "a negative count of headers": (amid(record(1, FIELDS + varint(-1))), 3),
    "more headers than there are": (amid(record(1, FIELDS + varint(2) + b"\x02h\x02v")), 3),
    "a header": (amid(record(1, FIELDS + varint(1) + b"\x02h\x02v")), 3),
    "a header without a name": (amid(record(1, FIELDS + varint(1) + b"\x01\x02v")), 3),
    "a header without a value": (amid(record(1, FIELDS + varint(1) + b"\x02h\x01")), 3),
    "a header whose name is not UTF-8": (amid(record(1, FIELDS + varint(1) + b"\x02\xff\x00")), 3),
    "a header longer than its record": (amid(record(1, FIELDS + varint(1) + b"\x7eh\x02v")), 3),
    "bytes behind the headers": (amid(record(1, FIELDS + NO_HEADERS + b"more")), 3),
    "a length with bits to spare": (amid(wide(len(record(1)) - 1) + record(1)[1:]), 3),
    "an offset with bits to spare": (amid(record(1, offset=wide(1))), 3),
    "a value's size with bits to spare": (
        amid(record(1, varint(-1) + wide(len(VALUE)) + VALUE + NO_HEADERS)),
        3,
    ),
    "a count of headers with bits to spare": (amid(record(1, FIELDS + wide(0))), 3),
    "a time with bits to spare": (amid(record(1, time=wide(0, size=10))), 3),
    **{
        f"many, of which number {number} has {what}": (among_many(number, fields), 400)
        for number in (5, 63, 64, 200, 398)
        for what, fields in {
            "a value too long": varint(-1) + varint(len(VALUE) + 1) + VALUE + NO_HEADERS,
            "a negative count of headers": FIELDS + varint(-1),
            "headers": FIELDS + varint(1) + b"\x02h\x02v",
        }.items()
    },
    "many of many sizes, one of them broken": (
        b"".join(
            record(delta, varint(-1) + varint(delta % 90) + bytes(delta % 90) + NO_HEADERS)
            if delta != 150
            else record(delta, FIELDS + varint(-3))
            for delta in range(300)
        ),
        300,
    ),
}


MISNUMBERED = (
    "an offset twice",
    "an offset left out",
    "offsets from 7 on",
    "offsets downwards",
    "a negative offset",
)


def sealed(body: bytes, count: int, attributes: int = 0) -> bytes:
    latest = 99 if body == OUT_OF_ORDER else 0
    return seal_batch(
        body,
        count=count,
        last_offset_delta=count - 1,
        base_timestamp=THEN,
        max_timestamp=THEN + latest,
        attributes=attributes,
    )


def packed(codec: Compression, frames: bytes) -> bytes:
    """A compressed batch that claims to have three records."""
    return changed(sealed(frames, 3), ATTRIBUTES_AT, ">h", codec)


def flipped(data: bytes, at: int, bits: int = 0x10) -> bytes:
    changed = bytearray(data)
    changed[at] ^= bits
    return bytes(changed)


gzipped = partial(compress, Compression.GZIP)
snappy = partial(compress, Compression.SNAPPY)
zstd = partial(compress, Compression.ZSTD)


def frames(codec: Compression) -> dict[str, bytes]:
    """Frames with invalid compression."""
    whole = compress(codec, records(3))
    return {
        "cut short": whole[:-1],
        "cut in half": whole[: len(whole) // 2],
        "of which only the first bytes are there": whole[:8],
        "that is empty": b"",
        "with a byte behind it": whole + b"\0",
        "with rubbish behind it": whole + b"this is not packed by anything",
        "twice": whole + whole,
        "a bit of which is wrong": flipped(whole, len(whole) * 2 // 3),
        "whose last byte is wrong": flipped(whole, len(whole) - 1),
        "in two parts": compress(codec, records(3)[:10]) + compress(codec, records(3)[10:]),
        "packed twice": compress(codec, whole),
    }


LONG_TEXT = bytes(ord("a") + place * place // 7 % 23 for place in range(200))


def long_records(broken: int | None = None) -> bytes:
    """400 KB of records, in several compressed blocks; one may be invalid."""
    return b"".join(
        record(
            number,
            varint(-1)
            + varint(len(LONG_TEXT))
            + LONG_TEXT[number % 200 :]
            + LONG_TEXT[: number % 200]
            + varint(-1 if number == broken else 0),
        )
        for number in range(LONG)
    )


LONG = 2_000
DAMAGES = ("cut in half", "cut short", "with rubbish behind it", "a bit of which is wrong")


def damaged(codec: Compression, what: str, broken: int | None) -> bytes:
    """A batch with damaged compressed data, possibly after an invalid record."""
    whole = compress(codec, long_records(broken))
    frame = {
        "cut in half": whole[: len(whole) // 2],
        "cut short": whole[:-2],
        "with rubbish behind it": whole + b"this is not packed by anything",
        "a bit of which is wrong": flipped(whole, len(whole) * 3 // 4),
    }[what]
    return changed(sealed(frame, LONG), ATTRIBUTES_AT, ">h", codec)


def lz4(**options: bool) -> bytes:
    frame = cramjam.lz4.Compressor(**options)
    frame.compress(records(3))
    return bytes(frame.finish())


LZ4_CHECKED = lz4(block_linked=False, content_checksum=True)
ODD_FRAMES = {
    Compression.LZ4: {
        "in linked blocks": lz4(block_linked=True),
        "with a checksum": LZ4_CHECKED,
        "with a part of a checksum": LZ4_CHECKED[:-1],
        "with another magic": flipped(LZ4_CHECKED, 1),
        "with a wrong checksum of its head": flipped(LZ4_CHECKED, 6),
    },
    Compression.GZIP: {
        "with a flag nobody knows": flipped(gzipped(records(3)), 3, 0x20),
        "with a time": flipped(gzipped(records(3)), 5),
        "with a short rest behind it": gzipped(records(3)) + gzipped(b"")[:15],
        "with a longer rest behind it": gzipped(records(3)) + gzipped(records(9))[:-3],
    },
    Compression.SNAPPY: {
        "with another head in it": snappy(b"") + snappy(records(3)),
        "with a wrong head in it": snappy(b"") + flipped(snappy(records(3)), 6),
        "with a part of a head behind it": snappy(records(3)) + snappy(b"")[:9],
    },
}
ACCEPTED_BY_KAFKA = {
    Compression.LZ4: {
        "a wrong checksum of the content": flipped(LZ4_CHECKED, len(LZ4_CHECKED) - 1),
    },
    Compression.ZSTD: {
        "a part of a second frame": zstd(records(3)) + zstd(records(3))[:-1],
        "the beginning of a second frame": zstd(records(3)) + zstd(records(3))[:4],
    },
}
"""Corrupt data that Kafka does not notice. A topic of their own keeps the offsets of the others equal."""


def topic(codec: Compression) -> str:
    return f"contents-{codec.name.lower()}"


STEPS: tuple[Step, ...] = (
    ask(
        "contents: topics",
        create(
            *(new_topic(topic(codec)) for codec in Compression),
            new_topic("contents-unnoticed"),
            new_topic("contents-keyed", configs={"cleanup.policy": "compact"}),
            new_topic("contents-packing", configs={"compression.type": "gzip"}),
            new_topic("contents-unpacking", configs={"compression.type": "uncompressed"}),
            new_topic("contents-renumbered", configs={"compression.type": "uncompressed"}),
        ),
    ),
    *(
        ask(
            f"contents: {codec.name.lower()}, {what}",
            produce(topic(codec), sealed(body, count, codec)),
        )
        for codec in Compression
        for what, (body, count) in CONTENTS.items()
    ),
    *(
        ask(
            f"contents: {codec.name.lower()} {what}",
            produce(topic(codec), packed(codec, data)),
        )
        for codec in PACKED
        for what, data in frames(codec).items()
    ),
    *(
        ask(f"contents: {codec.name.lower()} {what}", produce(topic(codec), packed(codec, data)))
        for codec, odd in ODD_FRAMES.items()
        for what, data in odd.items()
    ),
    *(
        ask(
            f"contents: corrupt data that Kafka accepts, {codec.name.lower()} with {what}",
            produce("contents-unnoticed", packed(codec, data)),
        )
        for codec, frames_of_codec in ACCEPTED_BY_KAFKA.items()
        for what, data in frames_of_codec.items()
    ),
    *(
        ask(
            f"contents: {codec.name.lower()}, many, {what}, number {broken} broken",
            produce(topic(codec), damaged(codec, what, broken)),
        )
        for codec in PACKED
        for what in DAMAGES
        for broken in (None, 0, 500, 1_000, 1_999)
    ),
    *(
        ask(
            f"contents: {codec.name.lower()} to a {kind} topic, {what}",
            produce(f"contents-{kind}", sealed(body, count, codec)),
        )
        for kind in ("keyed", "packing", "unpacking")
        for codec in (Compression.NONE, Compression.LZ4)
        for what, (body, count) in CONTENTS.items()
    ),
    *(
        ask(f"contents: {codec.name.lower()}, where it ended", list_offsets(topic(codec), -1))
        for codec in Compression
    ),
    *(
        ask(
            f"contents: to be numbered anew, {what}",
            produce("contents-renumbered", sealed(*CONTENTS[what], Compression.LZ4)),
        )
        for what in (*MISNUMBERED, "many, with headers", "many, out of order in time")
    ),
    *(
        ask(f"contents: what became of {name}", fetch(f"contents-{name}", {0: 0}), 12)
        for name in ("none", "lz4", "renumbered")
    ),
    ask("contents: delete the topic with corrupt data", delete("contents-unnoticed")),
)
