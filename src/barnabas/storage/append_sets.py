"""Batches of a fetch response, which a follower verifies and appends in append sets.

An append set is a run of batches that go into the same segment with one write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.batch.header import BatchHeader, batch_headers, crc_is_valid
from barnabas.errors import ApiError, ErrorCode, RemoteWireError


class FollowerAppend(NamedTuple):
    """The result of a follower's append. `size` excludes an incomplete batch at the end of the data."""

    first_offset: int
    last_offset: int
    size: int


NOTHING_APPENDED: Final = FollowerAppend(-1, -1, 0)


def verified_headers(data: memoryview) -> list[BatchHeader]:
    """Return the headers of the complete batches. Raises ApiError for a wrong checksum or offsets that do not ascend.

    The checksums are verified so that damage on the wire or on the leader's disk is not copied.
    """
    headers: list[BatchHeader] = []
    previous = -1
    try:
        for position, header in batch_headers(data):
            if not crc_is_valid(data, position, header):
                why = f"checksum of batch {header.base_offset}"
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, why)
            if header.base_offset <= previous or header.last_offset_delta < 0:
                why = f"offset {header.base_offset} after {previous}"
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
            previous = header.last_offset
            headers.append(header)
    except RemoteWireError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return headers


def first_set(headers: Sequence[BatchHeader], max_bytes: int) -> tuple[int, int]:
    """Return number and size of the batches in the first append set: up to `max_bytes`, but at least one batch."""
    count, size = 1, headers[0].size
    while count < len(headers) and size + headers[count].size <= max_bytes:
        size += headers[count].size
        count += 1
    return count, size
