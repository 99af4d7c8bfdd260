"""The argument `schema=` of the column functions: the path of a file, or the schema itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import ConfigError, reason

SchemaSource = str | bytes | os.PathLike[str]


class SchemaFile(NamedTuple):
    """Content of a schema, and the file that it was read from. `path` is None if the caller passed the content."""

    content: bytes
    path: Path | None

    @property
    def text(self) -> str:
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            where = f"file {self.path}" if self.path else "the value"
            raise ConfigError("schema", f"{where} is not UTF-8 text") from None


def load_schema(source: SchemaSource | object) -> SchemaFile:
    """Read the file if `source` is a path. Raises ConfigError."""
    if isinstance(source, bytes):
        return SchemaFile(source, None)
    if isinstance(source, str) and is_schema_text(source):
        return SchemaFile(source.encode(), None)
    if not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise ConfigError("schema", f"must be a path or the text of a schema, not {kind}")
    path = Path(source)
    try:
        return SchemaFile(path.read_bytes(), path)
    except FileNotFoundError:
        hint = "pass the path of a schema file, or the text of a schema"
        raise ConfigError("schema", f"file {path} does not exist; {hint}") from None
    except (OSError, ValueError) as error:
        raise ConfigError("schema", f"cannot read file {path}: {reason(error)}") from None


def is_schema_text(source: str) -> bool:
    """Return whether the string is a schema rather than a path. Schemas have braces, quotes or several lines."""
    return any(mark in source for mark in '{"\n;')
