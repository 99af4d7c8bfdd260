"""Hand-written codecs of Produce, Fetch and Metadata, the messages that limit a broker's throughput.

Each codec must produce the same bytes as codec.py and reject the same input; the tests compare the two in all versions.
Rare cases (tagged partitions, record errors, leader hints) are delegated to codec.py.
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
from barnabas.wire.fast.repeated_fetch import PartitionFetchResult, RepeatedFetch, RepeatedFetches
from barnabas.wire.fast.repeated_produce import RepeatedProduce, RepeatedProduces

__all__ = [
    "FetchedPartition",
    "FetchedTopic",
    "ManyPartitions",
    "PartitionFetchResult",
    "RepeatedFetch",
    "RepeatedFetches",
    "RepeatedProduce",
    "RepeatedProduces",
    "decode_fetch",
    "decode_produce",
    "decode_small_produce",
    "encode_fetch_response",
    "encode_metadata_response",
    "encode_metadata_topic",
    "encode_produce_response",
]
