"""Batches as aiokafka builds them."""

from __future__ import annotations

import aiokafka.record.default_records as aiokafka_records


def uncompressed_builder() -> aiokafka_records.DefaultRecordBatchBuilder:
    return aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
