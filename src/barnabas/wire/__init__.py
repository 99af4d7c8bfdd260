"""Encoding and decoding of Kafka's wire protocol. Does no I/O."""
