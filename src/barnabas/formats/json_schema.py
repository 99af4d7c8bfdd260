"""Arrow types of JSON Schemas. Pure.

The type decides how Spark parses the text; values are not validated against other rules of the schema. A part of the
schema without a Spark type, for example `oneOf` of two objects, becomes a string with the JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from barnabas.errors import ConfigError
from barnabas.formats.avro_types import list_type

JSON_TEXT = pa.string()
SCALARS = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
STRING_FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
REFERENCES_MAX = 100
"""Maximum length of a chain of `$ref`, so that a circular one ends."""


def json_schema_type(text: str, references: Mapping[str, str] | None = None) -> pa.DataType:
    """Return the struct type of a schema. `references` are the other schemas that it names. Raises ConfigError."""
    documents = {name: parse(content) for name, content in (references or {}).items()}
    document = parse(text)
    found = JsonSchemaTypes(documents).type_of(document, document, ())
    if not pa.types.is_struct(found):
        raise ConfigError("schema", "must describe an object with properties")
    return found


def parse(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError("schema", f"is not a JSON Schema: not valid JSON, {error}") from None
    except RecursionError:
        raise ConfigError("schema", "is not a JSON Schema: it is nested too deeply") from None
    if not isinstance(found, dict | bool):
        raise ConfigError("schema", "is not a JSON Schema: it must be a JSON object")
    return found


class JsonSchemaTypes:
    """Types of one schema and of the documents that it refers to."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents

    def type_of(self, schema: Any, document: Any, outer: tuple[int, ...]) -> pa.DataType:
        """Return the type of a schema within a document. `outer` has the ids of the enclosing objects."""
        schema, document = self.resolved(schema, document)
        if not isinstance(schema, dict):
            return JSON_TEXT
        kind = kind_of(schema)
        if kind == "object":
            return self.object_type(schema, document, outer)
        if kind == "array":
            return list_type(self.type_of(schema.get("items", True), document, outer))
        if kind == "string":
            return STRING_FORMATS.get(schema.get("format", ""), pa.string())
        return SCALARS.get(kind, JSON_TEXT)

    def object_type(self, schema: Any, document: Any, outer: tuple[int, ...]) -> pa.DataType:
        if id(schema) in outer:
            why = "an object contains itself through $ref; Spark has no recursive types"
            raise ConfigError("schema", f"{why}: read it with a schema without this property")
        inner = (*outer, id(schema))
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            fields = [
                (name, self.type_of(each, document, inner)) for name, each in properties.items()
            ]
            return pa.struct(fields)
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return pa.map_(pa.string(), self.type_of(values, document, inner))
        return JSON_TEXT

    def resolved(self, schema: Any, document: Any) -> tuple[Any, Any]:
        """Follow `$ref`, and `oneOf` or `anyOf` with one schema besides null."""
        for _ in range(REFERENCES_MAX):
            if not isinstance(schema, dict):
                break
            if "$ref" in schema:
                schema, document = self.target(str(schema["$ref"]), document)
                continue
            choices = schema.get("oneOf") or schema.get("anyOf") or ()
            others = [each for each in choices if each != {"type": "null"}]
            if "type" in schema or len(others) != 1:
                break
            schema = others[0]
        else:
            raise ConfigError("schema", "has a circular $ref")
        return schema, document

    def target(self, reference: str, document: Any) -> tuple[Any, Any]:
        """Return the schema that a `$ref` names, and its document."""
        name, _, pointer = reference.partition("#")
        if name:
            if name not in self.documents:
                hint = (
                    "only references within the file and references of the registry are supported"
                )
                raise ConfigError("schema", f"refers to {name}, which is unknown; {hint}")
            document = self.documents[name]
        found = document
        for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise ConfigError("schema", f"$ref {reference} does not exist")
            found = found[key]
        return found, document


def kind_of(schema: Mapping[str, Any]) -> str:
    """Return the only type besides null. Without `type`, it follows from other keywords; empty if it is unknown."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        if sorted(map(str, others)) == ["integer", "number"]:
            return "number"
        return str(others[0]) if len(others) == 1 else ""
    if isinstance(kinds, str):
        return kinds
    if "properties" in schema:
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(isinstance(value, str) for value in values):
        return "string"
    return ""
