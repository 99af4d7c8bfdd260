"""Records that confluent-kafka 2.16.1 wrote with its serializers, and their schemas.

The schema ids are 1 (Avro), 2 (Protobuf) and 3 (JSON). `use.deprecated.format` was false.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

AVRO_SCHEMA = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
 {"name": "id", "type": "long"},
 {"name": "user", "type": ["null", "string"], "default": null},
 {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
 {"name": "day", "type": {"type": "int", "logicalType": "date"}},
 {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
 {"name": "at2", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
 {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
 {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
 {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
   {"name": "sku", "type": "string"},
   {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}}},
 {"name": "tags", "type": {"type": "map", "values": "int"}},
 {"name": "first", "type": ["null", "Item"]}]}"""

PROTO_SCHEMA = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message Order {
  message Line { int32 number = 1; }
  message Item { string sku = 1; uint32 count = 2; }
  int64 id = 1;
  optional string note = 2;
  uint64 big = 3;
  State state = 4;
  repeated Item items = 5;
  google.protobuf.Timestamp at = 6;
  oneof payment { string card = 7; Item voucher = 8; }
  map<int32, double> prices = 9;
}
message Refund { int64 order = 1; }
"""

NOW = dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC)

AVRO_ROW: dict[str, Any] = {
    "id": -5,
    "user": None,
    "amount": Decimal("-12.34"),
    "day": dt.date(2024, 1, 2),
    "at": NOW,
    "at2": NOW,
    "uid": "00000000-0000-0000-0000-000000000005",
    "state": "OLD",
    "items": [{"sku": "x", "t": NOW}],
    "tags": [("a", 1)],
    "first": {"sku": "y", "t": NOW},
}
AVRO_RECORD = bytes.fromhex(
    "0000000001090004fb2e98b402dcec8682996302e0aec185b8fb860648303030303030"
    "30302d303030302d303030302d303030302d30303030303030303030303502020278dc"
    "ec86829963000202610200020279dcec86829963"
)

ORDER_ROW: dict[str, Any] = {
    "id": -5,
    "note": "",
    "big": Decimal(2**64 - 1),
    "state": "PAID",
    "items": [{"sku": "a", "count": 3}],
    "at": NOW,
    "card": "c",
    "voucher": None,
    "prices": [(3, 1.5)],
}
ORDER_RECORD = bytes.fromhex(
    "00000000020008fbffffffffffffffff01120018ffffffffffffffffff0120012a050a"
    "01611003320c08a5facdac061080eba5c3023a01634a0b080311000000000000f83f"
)
ITEM_ROW: dict[str, Any] = {"sku": "z", "count": 1}
ITEM_RECORD = bytes.fromhex("00000000020400020a017a1001")
"""Message indexes [0, 1]."""
REFUND_ROW: dict[str, Any] = {"order": 9}
REFUND_RECORD = bytes.fromhex("000000000202020809")
"""Message indexes [1]."""

JSON_SCHEMA = """{"title": "Order", "type": "object",
 "properties": {"id": {"type": "integer"}, "user": {"type": "string"}}}"""
JSON_RECORD = bytes.fromhex("00000000037b226964223a312c2275736572223a22c3bc227d")
