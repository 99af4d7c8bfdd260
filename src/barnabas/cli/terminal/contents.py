"""Formats of keys and values on the command line: `--key-format` and `--value-format`.

text      UTF-8; in JSON and YAML, other bytes are base64, and the field `value_encoding` says so
json      JSON; in JSON and YAML, the value itself instead of a string with JSON
hex       hexadecimal digits
base64    base64
avro      JSON, encoded as Avro with the schema of a file or of a schema registry
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click

from barnabas.cli.terminal.output import to_json
from barnabas.errors import ConfigError
from barnabas.formats.problems import DecodeError, EncodeError, require

if TYPE_CHECKING:
    from barnabas.formats.avro import AvroDecoder

F = TypeVar("F", bound=Callable[..., Any])


class ContentFormat(StrEnum):
    """Format of the keys or the values of a topic."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    AVRO = "avro"


class Shown(NamedTuple):
    """A key or a value in a JSON document. `encoding` is None for text and for a JSON value."""

    content: Any
    encoding: str | None = None
    error: str | None = None
    """Why the bytes do not have the chosen format."""


class Content(Protocol):
    """The keys or the values of a topic, in one format."""

    def to_document(self, data: bytes) -> Shown:
        """Return the content for a JSON document. Bytes in another format are text or base64."""

    def to_text(self, data: bytes) -> bytes:
        """Return the content for text output. Raises DecodeError."""

    def parse(self, text: bytes) -> bytes:
        """Return the bytes to write for a text of the user. Raises EncodeError."""


class TextContent:
    def to_document(self, data: bytes) -> Shown:
        try:
            return Shown(data.decode())
        except UnicodeDecodeError:
            return Shown(base64.b64encode(data).decode(), ContentFormat.BASE64)

    def to_text(self, data: bytes) -> bytes:
        return data

    def parse(self, text: bytes) -> bytes:
        return text


class DigitsContent:
    """Hexadecimal digits or base64."""

    def __init__(self, encoding: ContentFormat) -> None:
        self.encoding = encoding
        is_hex = encoding is ContentFormat.HEX
        self.encode = binascii.hexlify if is_hex else base64.b64encode
        self.decode = binascii.unhexlify if is_hex else decode_base64

    def to_document(self, data: bytes) -> Shown:
        return Shown(self.encode(data).decode(), self.encoding)

    def to_text(self, data: bytes) -> bytes:
        return self.encode(data)

    def parse(self, text: bytes) -> bytes:
        try:
            return self.decode(text.strip())
        except (binascii.Error, ValueError) as error:
            raise EncodeError(f"is not {self.encoding}: {error}") from None


class JsonContent:
    def to_document(self, data: bytes) -> Shown:
        try:
            return Shown(self.load(data))
        except DecodeError as error:
            return undecoded(data, error)

    def to_text(self, data: bytes) -> bytes:
        self.load(data)
        return data

    def parse(self, text: bytes) -> bytes:
        try:
            self.load(text)
        except DecodeError as error:
            raise EncodeError(str(error)) from None
        return text

    def load(self, data: bytes) -> Any:
        try:
            return json.loads(data, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"is not JSON: {error}") from None


def refuse_constant(name: str) -> Any:
    """Called for NaN and Infinity, which Python would accept."""
    raise ValueError(f"{name} is not a number in JSON")


class AvroContent:
    """Avro records, shown as JSON. With a registry, each record starts with the id of its schema."""

    def __init__(self, *, schema: str | None, registry: str | None, subject: str) -> None:
        require("fastavro", "fastavro")
        # Imported here: only Avro needs pyarrow and fastavro.
        from barnabas.formats.avro import AvroDecoder, avro_schema
        from barnabas.formats.schema_files import load_schema

        if schema is None and registry is None:
            raise ConfigError("--schema", "is missing; avro needs --schema FILE or --registry URL")
        self.text = None if schema is None else load_schema(schema).text
        self.schema = None if self.text is None else avro_schema(self.text)
        self.registry = registry
        self.subject = subject
        self.decoder = None if self.schema is None else AvroDecoder(self.schema)
        self.by_id: dict[int, AvroDecoder] = {}
        self.encode: Callable[[Any], bytes] | None = None

    def to_document(self, data: bytes) -> Shown:
        try:
            return Shown(plain(self.load(data)))
        except DecodeError as error:
            return undecoded(data, error)

    def to_text(self, data: bytes) -> bytes:
        return to_json(plain(self.load(data))).encode()

    def load(self, data: bytes) -> Any:
        if self.registry is None:
            assert self.decoder is not None
            return self.decoder.decode(data)
        from barnabas.formats.avro import AvroDecoder, Resolution, registered_avro
        from barnabas.formats.framing import split_header
        from barnabas.formats.schema_registry import shared_registry

        schema_id, position = split_header(data)
        decoder = self.by_id.get(schema_id)
        if decoder is None:
            writer = registered_avro(shared_registry(self.registry).by_id(schema_id))
            decoder = self.by_id[schema_id] = AvroDecoder(writer)
        reader = None if self.schema is None else self.schema.raw
        return decoder.read_value(data, position, Resolution(decoder.reader, reader))

    def parse(self, text: bytes) -> bytes:
        if self.encode is None:
            self.encode = self.new_encoder()
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise EncodeError(f"is not JSON: {error}") from None
        return self.encode(row)

    def new_encoder(self) -> Callable[[Any], bytes]:
        """Return the function that encodes a row. A schema of a file is registered if there is a registry."""
        from barnabas.formats.avro import AvroEncoder, registered_avro
        from barnabas.formats.schema_registry import AVRO, shared_registry

        if self.registry is None:
            assert self.schema is not None
            return AvroEncoder(self.schema).encode
        registry = shared_registry(self.registry)
        if self.schema is None or self.text is None:
            found = registry.by_subject(self.subject)
            return AvroEncoder(registered_avro(found), found.id).encode
        schema_id = registry.register(self.subject, AVRO, self.text)
        return AvroEncoder(self.schema, schema_id).encode


def decode_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def undecoded(data: bytes, error: DecodeError) -> Shown:
    shown = TextContent().to_document(data)
    return Shown(shown.content, shown.encoding or ContentFormat.TEXT, str(error))


def plain(value: Any) -> Any:
    """Return a decoded Avro value for JSON: bytes as base64, decimals as text."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value


# ---- options ----------------------------------------------------------------------------------------------------


class ContentOptions(NamedTuple):
    """The options that `content_options` adds to a command."""

    key_format: str
    value_format: str
    key_schema: str | None
    schema: str | None
    registry: str | None

    def of_keys(self, topic: str) -> Content:
        return new_content(self.key_format, self.key_schema, self.registry, f"{topic}-key")

    def of_values(self, topic: str) -> Content:
        return new_content(self.value_format, self.schema, self.registry, f"{topic}-value")

    def check(self) -> None:
        """Raise ConfigError for a schema that no format uses."""
        uses_avro = ContentFormat.AVRO in (self.key_format, self.value_format)
        for option, value, is_used in (
            ("--key-schema", self.key_schema, self.key_format == ContentFormat.AVRO),
            ("--schema", self.schema, self.value_format == ContentFormat.AVRO),
            ("--registry", self.registry, uses_avro),
        ):
            if value is not None and not is_used:
                needed = "--key-format" if option == "--key-schema" else "--value-format"
                raise ConfigError(option, f"needs {needed} avro")


def new_content(name: str, schema: str | None, registry: str | None, subject: str) -> Content:
    match ContentFormat(name):
        case ContentFormat.TEXT:
            return TextContent()
        case ContentFormat.JSON:
            return JsonContent()
        case ContentFormat.AVRO:
            return AvroContent(schema=schema, registry=registry, subject=subject)
        case digits:
            return DigitsContent(digits)


def content_options(command: F) -> F:
    """Add the options for the formats of keys and values. The command gets them as keyword arguments."""
    choice = click.Choice([each.value for each in ContentFormat])
    for option in (
        click.option(
            "--registry", metavar="URL", help="Schema registry of avro records, http://host:8081."
        ),
        click.option("--schema", metavar="FILE", help="Avro schema of the values."),
        click.option("--key-schema", metavar="FILE", help="Avro schema of the keys."),
        click.option(
            "--value-format",
            type=choice,
            default=ContentFormat.TEXT.value,
            show_default=True,
            help="Format of the values.",
        ),
        click.option(
            "--key-format",
            type=choice,
            default=ContentFormat.TEXT.value,
            show_default=True,
            help="Format of the keys.",
        ),
    ):
        command = option(command)
    return command
