"""Limits for Avro records whose size in memory is not bounded by their bytes. Pure.

fastavro trusts two numbers in a record. An array of items that take no bytes, such as null, can declare a billion of
them in five bytes. A type that contains itself can be nested until the stack overflows, which kills the process. So
records of schemas with such types are walked before fastavro reads them. All other schemas need no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.formats.problems import DecodeError

EMPTY_ITEMS_MAX = 1_000
"""Items without bytes in the arrays of one record."""
DEPTH_MAX = 1_000
"""Nested values. fastavro crashes at about ten times as many."""
LONG_BYTES_MAX = 10
SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
RECORDS = ("record", "error")


def needs_limits(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a parsed schema has an array of items without bytes, or a type that contains itself."""
    checked: set[str] = set()

    def check(schema: Any, outer: tuple[str, ...]) -> bool:
        schema = definition(schema, named)
        if isinstance(schema, list):
            return any(check(branch, outer) for branch in schema)
        kind = schema["type"]
        if kind == "array":
            return takes_no_bytes(schema["items"], named) or check(schema["items"], outer)
        if kind == "map":
            return check(schema["values"], outer)
        if kind not in RECORDS or schema["name"] in checked:
            return False
        if schema["name"] in outer:
            return True
        inner = (*outer, schema["name"])
        if any(check(field["type"], inner) for field in schema["fields"]):
            return True
        checked.add(schema["name"])
        return False

    return check(schema, ())


def takes_no_bytes(schema: Any, named: Mapping[str, Any], outer: tuple[str, ...] = ()) -> bool:
    """Return whether every value of a schema takes no bytes."""
    schema = definition(schema, named)
    if isinstance(schema, list):
        return False
    if schema["type"] in RECORDS:
        inner = (*outer, schema["name"])
        return schema["name"] not in outer and all(
            takes_no_bytes(field["type"], named, inner) for field in schema["fields"]
        )
    return bool(schema["type"] == "null" or schema.get("size") == 0)


def definition(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return a union as a list, and any other schema as a dict with the name of its type under `type`."""
    while not isinstance(schema, list):
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and kind not in named:
            return {"type": kind} if isinstance(schema, str) else schema
        schema = named[kind] if isinstance(kind, str) else kind
    return schema


def check_limits(data: bytes, position: int, schema: Any, named: Mapping[str, Any]) -> None:
    """Raise DecodeError if a record exceeds a limit. A record that ends too early is left to fastavro."""
    walk = RecordWalk(data, position, named)
    walk.values.append((schema, 0))
    while walk.values and walk.position <= len(data):
        schema, depth = walk.values.pop()
        if depth > DEPTH_MAX:
            raise DecodeError(f"its values are nested more than {DEPTH_MAX:,} deep")
        walk.read(schema, depth)


class Block:
    """The rest of a block of an array or a map."""

    def __init__(self, schema: Any, left: int) -> None:
        self.schema = schema
        self.left = left


class RecordWalk:
    """Position in a record, and the values that are still to read, the next one last, with their depths."""

    def __init__(self, data: bytes, position: int, named: Mapping[str, Any]) -> None:
        self.data = data
        self.position = position
        self.named = named
        self.values: list[tuple[Any, int]] = []
        self.empty_items = 0

    def read(self, schema: Any, depth: int) -> None:
        """Skip a value, or push the values that it consists of."""
        if isinstance(schema, Block):
            self.read_item(schema, depth)
            return
        schema = definition(schema, self.named)
        if isinstance(schema, list):
            branch = self.read_long()
            if 0 <= branch < len(schema):
                self.values.append((schema[branch], depth))
            return
        kind = schema["type"]
        if kind in RECORDS:
            self.values += [(field["type"], depth + 1) for field in reversed(schema["fields"])]
        elif kind in ("array", "map"):
            self.read_block(schema, depth + 1)
        elif kind in ("bytes", "string"):
            self.skip_bytes()
        elif kind == "fixed":
            self.position += schema["size"]
        elif kind in SIZES:
            self.position += SIZES[kind]
        else:
            self.read_long()

    def read_block(self, schema: Any, depth: int) -> None:
        """Read the start of a block. A block without items ends the array or map."""
        count = self.read_long()
        if count < 0:
            count = -count
            self.read_long()  # size in bytes
        if count == 0:
            return
        if schema["type"] == "array" and takes_no_bytes(schema["items"], self.named):
            self.empty_items += count
            if self.empty_items > EMPTY_ITEMS_MAX:
                why = f"more than {EMPTY_ITEMS_MAX:,} items that take no bytes"
                raise DecodeError(f"its arrays have {why}")
            count = 0
        self.values.append((Block(schema, count), depth))

    def read_item(self, block: Block, depth: int) -> None:
        if block.left == 0:
            self.read_block(block.schema, depth)
            return
        block.left -= 1
        self.values.append((block, depth))
        if block.schema["type"] == "map":
            self.skip_bytes()
            self.values.append((block.schema["values"], depth))
        else:
            self.values.append((block.schema["items"], depth))

    def skip_bytes(self) -> None:
        length = self.read_long()
        self.position += max(0, length)

    def read_long(self) -> int:
        """Read a number. At the end of the record, the position moves beyond it."""
        found = 0
        for shift in range(0, 7 * LONG_BYTES_MAX, 7):
            byte = self.data[self.position] if self.position < len(self.data) else 0
            self.position += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise DecodeError(f"a number has more than {LONG_BYTES_MAX} bytes")
