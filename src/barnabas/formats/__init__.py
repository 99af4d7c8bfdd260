"""Codecs for record values: JSON, Avro and Protobuf, with or without a schema registry. No module imports Spark.

    framing.py            Confluent's wire format: magic byte, schema id, message indexes
    schema_files.py       the argument `schema=`: a path, or the schema itself
    schema_registry.py    HTTP client of a schema registry
    decoding.py           a column of bytes → an Arrow column, row by row, with FAILFAST or PERMISSIVE
    encoding.py           an Arrow column → rows for an encoder
    avro.py, avro_types.py
    protobuf.py, protobuf_types.py, protoc.py
    json_schema.py        JSON Schema → Arrow type

Types are Arrow types. The libraries `fastavro`, `protobuf` and `grpcio-tools` are installed with `barnabas[formats]`.
"""
