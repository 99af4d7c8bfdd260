"""Reader of DER, the encoding of certificates and PKCS#12 files. Raises ValueError for invalid bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
SEQUENCE = 0x30
CONSTRUCTED = 0x20
DEPTH_MAX = 32


class Element(NamedTuple):
    """One element: its tag, its content, and its complete encoding."""

    tag: int
    content: bytes
    encoded: bytes

    @property
    def is_constructed(self) -> bool:
        return bool(self.tag & CONSTRUCTED)

    def children(self) -> list[Element]:
        return list(read_elements(self.content))


def read_element(data: bytes, start: int = 0) -> Element:
    """Return the element that starts at this position."""
    if start + 2 > len(data):
        raise ValueError("element is cut off")
    tag, size = data[start], data[start + 1]
    content = start + 2
    if tag & 0x1F == 0x1F:
        raise ValueError("tags of several bytes are not supported")
    if size >= 0x80:
        digits = size & 0x7F
        if not 1 <= digits <= 4:
            raise ValueError("length has no definite form")
        size = int.from_bytes(data[content : content + digits], "big")
        content += digits
    end = content + size
    if end > len(data):
        raise ValueError("element is cut off")
    return Element(tag, data[content:end], data[start:end])


def read_elements(data: bytes) -> Iterator[Element]:
    position = 0
    while position < len(data):
        element = read_element(data, position)
        yield element
        position += len(element.encoded)


def read_object_identifier(content: bytes) -> str:
    """Return an object identifier in its dotted form.

    >>> read_object_identifier(bytes.fromhex("550403"))
    '2.5.4.3'
    """
    if not content or content[-1] & 0x80:
        raise ValueError("object identifier is cut off")
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:]))


def find_iterations(data: bytes, depth: int = 0) -> int:
    """Return the largest iteration count of a PKCS#12 file or of an encrypted private key; 0 if there is none.

    All key derivations in them have a salt, an OCTET STRING, which is followed by the number of iterations.
    """
    if depth > DEPTH_MAX:
        raise ValueError("elements are nested too deeply")
    largest = 0
    previous = 0
    for element in read_elements(data):
        if element.tag == INTEGER and previous == OCTET_STRING:
            largest = max(largest, int.from_bytes(element.content, "big", signed=True))
        elif element.is_constructed:
            largest = max(largest, find_iterations(element.content, depth + 1))
        elif element.tag == OCTET_STRING and element.content[:1] == b"\x30":
            # The content may be DER, as in PKCS#12, or random bytes.
            with suppress(ValueError):
                largest = max(largest, find_iterations(element.content, depth + 1))
        previous = element.tag
    return largest
