"""Names in certificates: the subject in the form that Java prints, and the alternative names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from barnabas.security.tls.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    Element,
    read_element,
    read_object_identifier,
)

VALIDITY, SUBJECT = 4, 5
"""Positions in a certificate: version, serial number, algorithm, issuer, validity, subject."""
UTC_TIME = 0x17
VERSION_TAG = 0xA0
EXTENSIONS_TAG = 0xA3
ALTERNATIVE_NAMES = "2.5.29.17"
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Keywords of RFC 2253. Java prints other attributes with their object identifier."""
TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads all of them as UTF-8."""
ESCAPED = frozenset(',=+<>#;"\\')


def read_subject(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, as Java's X500Principal.getName does. Raises ValueError.

    The last part of the name comes first: `CN=alice,OU=orders,O=Shop`.
    """
    fields = read_fields(certificate)
    if len(fields) <= SUBJECT or fields[SUBJECT].tag != SEQUENCE:
        raise ValueError("the certificate has no subject")
    parts = fields[SUBJECT].children()
    return ",".join("+".join(map(format_attribute, part.children())) for part in reversed(parts))


def read_alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return the subject's alternative names, each in DER. Raises ValueError."""
    for field in read_fields(certificate):
        if field.tag == EXTENSIONS_TAG:
            for extension in read_element(field.content).children():
                identifier, *_, value = extension.children()
                if read_object_identifier(identifier.content) == ALTERNATIVE_NAMES:
                    names = read_element(value.content).children()
                    return frozenset(each.encoded for each in names)
    return frozenset()


def read_expiry(certificate: bytes) -> datetime:
    """Return the end of the validity of a certificate. Raises ValueError."""
    fields = read_fields(certificate)
    if len(fields) <= VALIDITY:
        raise ValueError("the certificate has no validity")
    _, until = fields[VALIDITY].children()
    text = until.content.decode("ascii")
    if until.tag == UTC_TIME:  # years have two digits, from 1950
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def read_fields(certificate: bytes) -> list[Element]:
    """Return the fields of a certificate. The version is always the first one, also if it is missing."""
    signed = read_element(read_element(certificate).content)
    fields = signed.children()
    if fields and fields[0].tag != VERSION_TAG:
        fields.insert(0, Element(VERSION_TAG, b"", b""))
    return fields


def format_attribute(attribute: Element) -> str:
    kind, value = attribute.children()
    if kind.tag != OBJECT_IDENTIFIER:
        raise ValueError("the subject is invalid")
    identifier = read_object_identifier(kind.content)
    keyword = KEYWORDS.get(identifier)
    if keyword is None or value.tag not in TEXT_TAGS:
        return f"{keyword or identifier}=#{value.encoded.hex()}"
    return f"{keyword}={escape(value.content.decode())}"


def escape(value: str) -> str:
    r"""Escape special characters, and spaces at the beginning and at the end.

    >>> print(escape(" a, b "))
    \ a\, b\ 
    """  # noqa: W291
    return "".join(escape_characters(value))


def escape_characters(value: str) -> Iterator[str]:
    begin = len(value) - len(value.lstrip(" \r"))
    end = len(value.rstrip(" \r"))
    for index, character in enumerate(value):
        if character == "\0":
            yield "\\00"
        elif character in ESCAPED or not begin <= index < end:
            yield "\\" + character
        else:
            yield character
