"""Messages of magic 0 and 1, from before record batches: Produce up to version 2 and Fetch up to version 3 have them.

    int64 offset   int32 size   uint32 crc   int8 magic   int8 attributes   [int64 timestamp]   bytes key   bytes value

The crc covers all behind it; only magic 1 has a timestamp. A message whose attributes name a codec is a wrapper: its
value is a message set, compressed. Offsets inside a wrapper are absolute in magic 0 and count from 0 in magic 1; the
wrapper itself has the offset of its last message.

Logs hold nothing but batches: what comes is turned into one, and turned back for who cannot read them. Hardly anybody
sends these today, so this is written for few lines and not for speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.compression import Compression, compress, decompress
from barnabas.wire.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Record,
    batch_headers,
    build_batch,
    records,
)

ENTRY = Struct(">qi")
CRC = Struct(">I")
MAGIC_AND_ATTRIBUTES = Struct(">bb")
TIMESTAMP = Struct(">q")
LENGTH = Struct(">i")
SMALLEST = 14  # of magic 0, with neither key nor value
PLAIN_BYTES_MAX = 32 << 20


class Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Compression:
        number = self.attributes & COMPRESSION_MASK
        if number > Compression.LZ4:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {number} in a message")
        return Compression(number)


# ---- coming in


def as_batch(data: memoryview) -> memoryview | None:
    """What a producer sent in a version that may hold either, as record batches. None if there is nothing whole."""
    if len(data) < LOG_OVERHEAD or ENTRY.unpack_from(data)[1] + LOG_OVERHEAD > len(data):
        return None
    if len(data) <= MAGIC_AT or data[MAGIC_AT] >= MAGIC:
        return data
    found: list[Record] = []
    codec = Compression.NONE
    for message in messages(data):
        codec = message.codec or codec
        for inner in opened(message):
            found.append(Record(len(found), inner.timestamp, inner.key, inner.value))
    return memoryview(bytearray(build_batch(found, compression=codec)))


def messages(data: memoryview) -> Iterator[Message]:
    """Each whole one; what is cut off at the end counts as not sent. ApiError if one is broken."""
    at = 0
    while len(data) - at >= LOG_OVERHEAD:
        offset, size = ENTRY.unpack_from(data, at)
        if size < SMALLEST:
            raise corrupt(f"a message of {size} bytes")
        end = at + LOG_OVERHEAD + size
        if end > len(data):
            return
        yield read_message(offset, data[at + LOG_OVERHEAD : end])
        at = end


def read_message(offset: int, data: memoryview) -> Message:
    if crc32(data[4:]) != CRC.unpack_from(data)[0]:
        raise corrupt("the checksum of a message does not match")
    magic, attributes = MAGIC_AND_ATTRIBUTES.unpack_from(data, 4)
    if magic not in (0, 1):
        raise corrupt(f"magic {magic} among older messages")
    at, timestamp = 6, NO_TIMESTAMP
    if magic == 1 and len(data) >= SMALLEST + 8:
        at, timestamp = 14, TIMESTAMP.unpack_from(data, 6)[0]
    key, at = read_bytes(data, at)
    value, at = read_bytes(data, at)
    if at != len(data):
        raise corrupt("a message is longer than its fields")
    return Message(offset, magic, attributes, timestamp, key, value)


def read_bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size = LENGTH.unpack_from(data, at)[0] if at + 4 <= len(data) else len(data)
    if at + 4 + size > len(data) or size < -1:
        raise corrupt(f"a field of {size} bytes in a message")
    return (None, at + 4) if size < 0 else (bytes(data[at + 4 : at + 4 + size]), at + 4 + size)


def opened(message: Message) -> Iterator[Message]:
    """The messages in a wrapper; any other is its own."""
    if not message.codec:
        yield message
        return
    try:
        plain = decompress(message.codec, message.value or b"", limit=PLAIN_BYTES_MAX)
    except RemoteWireError as error:
        raise corrupt(str(error)) from None
    inner = list(messages(memoryview(plain)))
    if not inner or any(found.codec for found in inner):
        raise corrupt("a wrapper holds plain messages, one at least")
    first = message.offset - inner[-1].offset if message.magic == 1 else 0
    for found in inner:
        by_broker = message.attributes & LOG_APPEND_TIME
        at = message.timestamp if by_broker else found.timestamp
        yield found._replace(offset=first + found.offset, timestamp=at)


def corrupt(why: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, why)


# ---- going out


def as_messages(data: memoryview, magic: int, first_offset: int) -> bytes:
    """Batches for a client that knows messages only, in as many bytes as they had, for that is what it allowed.

    Of batches that are not compressed, records ahead of `first_offset` are left out. zstd has no older form: ApiError
    if it comes first, else the end of the answer, so that the client meets the error when it asks for more.
    """
    found = bytearray()
    size = len(data)
    for at, header in batch_headers(data):
        if header.is_control:
            continue
        if header.compression == Compression.ZSTD:
            if found:
                break
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is younger than messages")
        batch = list(records(data[at : at + header.size]))
        if not header.compression:
            batch = [record for record in batch if record.offset >= first_offset]
        if batch:
            is_first = not found
            found += packed(batch, header, magic)
            # One batch is sent whole, or a client could never get over it.
            size = max(size, len(found)) if is_first else size
    if not found:
        return unusable(LOG_OVERHEAD) if len(data) >= HEADER_SIZE else b""
    return bytes(found[:size]) + unusable(size - len(found))


def packed(batch: Sequence[Record], header: BatchHeader, magic: int) -> bytes:
    codec = Compression(header.compression)
    time_attribute = header.attributes & LOG_APPEND_TIME if magic == 1 else 0
    first = batch[0].offset if codec and magic == 1 else 0
    plain = b"".join(
        written(record._replace(offset=record.offset - first), magic, time_attribute)
        for record in batch
    )
    if not codec:
        return plain
    latest = max(record.timestamp for record in batch)
    wrapper = Record(batch[-1].offset, latest, None, compress(codec, plain))
    return written(wrapper, magic, codec | time_attribute)


def written(record: Record, magic: int, attributes: int) -> bytes:
    body = MAGIC_AND_ATTRIBUTES.pack(magic, attributes)
    if magic == 1:
        body += TIMESTAMP.pack(record.timestamp)
    for field in (record.key, record.value):
        body += LENGTH.pack(-1) if field is None else LENGTH.pack(len(field)) + field
    return ENTRY.pack(record.offset, len(body) + 4) + CRC.pack(crc32(body)) + body


def unusable(size: int) -> bytes:
    """So many bytes that no client takes for a message: the beginning of one that is longer than they are."""
    if size <= 0:
        return b""
    return (ENTRY.pack(-1, max(size + 1, HEADER_SIZE)) + bytes(size))[:size]
