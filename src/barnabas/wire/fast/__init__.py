"""Produce, Fetch and Metadata by hand: the few messages whose microseconds add up to a broker's throughput.

Every function here has a twin in the compiler and must agree with it byte for byte, and refuse what it refuses; the
tests hold the two together in all versions. The rare shapes (unknown tags, record errors, leader hints) are handed to
the compiler rather than written out twice.
"""

from barnabas.wire.fast.fetch_request import decode_fetch
from barnabas.wire.fast.fetch_response import FetchedPartition, FetchedTopic, encode_fetch_response
from barnabas.wire.fast.metadata import encode_metadata_response, encode_metadata_topic
from barnabas.wire.fast.produce import (
    ManyPartitions,
    decode_produce,
    decode_small_produce,
    encode_produce_response,
)
from barnabas.wire.fast.repeated import RepeatedProduce, RepeatedProduces
from barnabas.wire.fast.repeated_fetch import RepeatedFetch, RepeatedFetches, Told

__all__ = [
    "FetchedPartition",
    "FetchedTopic",
    "ManyPartitions",
    "RepeatedFetch",
    "RepeatedFetches",
    "RepeatedProduce",
    "RepeatedProduces",
    "Told",
    "decode_fetch",
    "decode_produce",
    "decode_small_produce",
    "encode_fetch_response",
    "encode_metadata_response",
    "encode_metadata_topic",
    "encode_produce_response",
]
