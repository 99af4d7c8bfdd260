"""Batches with random damage, and what the broker decides about them.

python -m support.mutated_batches 1000000      a digest of all verdicts, to compare compiled with interpreted code
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

import barnabas
from barnabas.batch.checksum import crc32c
from barnabas.batch.compression import Compression, compress
from barnabas.batch.header import ATTRIBUTES, CRC, CRC_START, HEADER_SIZE
from barnabas.batch.records import Record, build_batch, seal_batch
from barnabas.batch.validation import BatchValidator
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode

NOW_MS = 1_700_000_000_000
COUNTS = (1, 1, 2, 3, 5, 12, 70)
SIZES = (0, 1, 10, 63, 64, 200, 9000)
BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def mutated_batches(seed: int, count: int) -> Iterator[bytes]:
    """Yield batches with a valid checksum. Equal arguments give equal batches."""
    random = Random(seed)
    for _ in range(count):
        yield mutated_batch(random)


def mutated_batch(random: Random) -> bytes:
    """Return a batch whose records are damaged before or after they are compressed, or not at all."""
    count = random.choice(COUNTS)
    codec = random.choice(list(Compression))
    body = bytearray(build_batch(random_records(random, count))[HEADER_SIZE:])
    damage = random.choice(("records", "records", "compressed", "count", "none"))
    if damage == "records":
        mutate(random, body)
    elif damage == "count":
        count = max(1, count + random.choice((-1, 1, 100)))
    packed = bytearray(compress(codec, body))
    if damage == "compressed":
        mutate(random, packed)
    batch = bytearray(
        seal_batch(
            packed,
            count=count,
            last_offset_delta=count - 1,
            base_timestamp=NOW_MS,
            max_timestamp=NOW_MS,
            attributes=0,
        )
    )
    return with_codec(batch, codec)


def random_records(random: Random, count: int) -> list[Record]:
    return [
        Record(
            number,
            NOW_MS + random.choice((0, number, -number, 10**6)),
            random.choice((None, b"", b"key")),
            random.choice((None, b"value" * (random.choice(SIZES) // 5))),
            random.choice(((), (), (("name", b"value"), ("null", None)))),
        )
        for number in range(count)
    ]


def mutate(random: Random, data: bytearray) -> None:
    """Change, remove or insert a few bytes, most often near the start, where sizes are."""
    for _ in range(random.randint(1, 3)):
        if not data:
            return
        at = random.randrange(min(len(data), random.choice((12, 40, len(data)))))
        match random.randrange(5):
            case 0 | 1:
                data[at] = random.choice(BYTES)
            case 2:
                data[at] ^= 1 << random.randrange(8)
            case 3:
                del data[at : at + random.randint(1, 4)]
            case _:
                data[at:at] = random.choices(BYTES, k=random.randint(1, 4))


def with_codec(batch: bytearray, codec: int) -> bytes:
    """Return the batch, whose records are compressed already, with the codec in its attributes."""
    ATTRIBUTES.pack_into(batch, CRC_START, codec)
    CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def verdict(batch: bytes, validator: BatchValidator) -> ErrorCode:
    """Return the error code of a Produce request with this batch."""
    view = memoryview(bytearray(batch))
    try:
        validator.validate(view, NOW_MS)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def main() -> None:
    count = int(sys.argv[1])
    validators = (
        BatchValidator(TopicConfig()),
        BatchValidator(TopicConfig(cleanup_policy=("compact",))),
    )
    digest, verdicts = hashlib.sha256(), Counter[str]()
    for number, batch in enumerate(mutated_batches(0, count)):
        code = verdict(batch, validators[number % 2])
        digest.update(b"%d " % code)
        verdicts[code.name] += 1
    print(barnabas.code_mode, dict(verdicts.most_common()), digest.hexdigest(), sep="\n")


if __name__ == "__main__":
    main()
