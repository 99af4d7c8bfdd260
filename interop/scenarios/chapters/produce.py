"""Produce in every version and with every kind of invalid batch; idempotent producers; InitProducerId."""

from __future__ import annotations

from barnabas.batch.compression import Compression
from barnabas.batch.records import TimestampType
from barnabas.wire.apis import APIS
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from interop.scenarios.requests import (
    ATTRIBUTES_AT,
    COUNT_AT,
    FAR,
    LAST_DELTA_AT,
    MAGIC_AT,
    THEN,
    ask,
    batch,
    changed,
    create,
    describe,
    fake_compressed,
    fetch,
    keyed,
    list_offsets,
    message_set,
    new_topic,
    numbered,
    produce,
)
from interop.scenarios.step import Ask, Await, Send, Step

VERSIONS = APIS[ProduceRequest.API_KEY].versions
HOUR_MS = "3600000"
TOPICS = (
    new_topic("p"),
    new_topic("broken"),
    new_topic("broken-old"),
    new_topic("faulty"),
    new_topic("compact", configs={"cleanup.policy": "compact"}),
    new_topic("timed", configs={"message.timestamp.before.max.ms": HOUR_MS}),
    new_topic("early", configs={"message.timestamp.after.max.ms": HOUR_MS}),
    new_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"}),
    new_topic("stamped-2", configs={"message.timestamp.type": "LogAppendTime"}),
    new_topic("small", configs={"max.message.bytes": "200"}),
    new_topic("segments", configs={"segment.bytes": "14", "max.message.bytes": "1000"}),
    new_topic("zipped", configs={"compression.type": "gzip"}),
    new_topic("zipped-small", configs={"compression.type": "gzip", "max.message.bytes": "500"}),
    new_topic("plain", configs={"compression.type": "uncompressed"}),
    new_topic("old"),
    new_topic("codecs"),
    new_topic("twofold", configs={"min.insync.replicas": "2"}),
    new_topic("idem"),
    new_topic("idem-2"),
)

ONE = batch(b"value")
BROKEN = {
    "a wrong crc": ONE[:-1] + bytes([ONE[-1] ^ 1]),
    "magic 3": changed(ONE, MAGIC_AT, ">b", 3),
    "magic -1": changed(ONE, MAGIC_AT, ">b", -1),
    "nothing": b"",
    "cut short": ONE[:-1],
    "a header cut short": ONE[:40],
    "seven bytes": ONE[:7],
    "sixteen bytes": ONE[:16],
    "a length too small": changed(ONE, 8, ">i", 10),
    "a length too large": changed(ONE, 8, ">i", 1 << 20),
    "a negative length": changed(ONE, 8, ">i", -1),
    "two batches": ONE + ONE,
    "a batch and a half": ONE + ONE[:30],
    "no records": changed(changed(ONE, COUNT_AT, ">i", 0), LAST_DELTA_AT, ">i", -1),
    "a count of 0": changed(ONE, COUNT_AT, ">i", 0),
    "a negative count": changed(ONE, COUNT_AT, ">i", -1),
    "a last offset that does not fit the count": changed(ONE, LAST_DELTA_AT, ">i", 5),
    "a control batch": batch(b"x", is_control=True),
    "codec 5": changed(ONE, ATTRIBUTES_AT, ">h", 5),
    "codec 7": changed(ONE, ATTRIBUTES_AT, ">h", 7),
    "log append time from a client": batch(b"x", timestamp_type=TimestampType.LOG_APPEND_TIME),
    "a base offset that is not 0": changed(ONE, 0, ">q", 17),
    "offsets from 5 on": changed(ONE, 0, ">q", 5),
    "a producer without a sequence": batch(b"x", producer_id=9, producer_epoch=0),
    "a transactional batch": batch(
        b"x", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    ),
    "magic 0": message_set(0, b"value"),
    "magic 1": message_set(1, b"value"),
}
# Their headers are valid; a broker that checks only headers accepts them.
FAULTY = {
    "more records announced than there are": changed(
        changed(ONE, COUNT_AT, ">i", 3), LAST_DELTA_AT, ">i", 2
    ),
    **{
        f"corrupt {codec.name.lower()}": fake_compressed(codec)
        for codec in Compression
        if codec is not Compression.NONE
    },
}


PRODUCE: tuple[Step, ...] = (
    ask("produce: topics", create(*TOPICS)),
    *(
        ask(f"produce: version {version}", produce("p", batch(b"a", b"b")), version)
        for version in VERSIONS
    ),
    *(ask(f"produce: acks {acks}", produce("p", ONE, acks=acks)) for acks in (1, -1, 2, 5, -2)),
    Step(name="produce: acks 0", action=Send(request=produce("p", ONE, acks=0))),
    Step(
        name="produce: acks 0 to an unknown topic",
        action=Send(request=produce("nobody", ONE, acks=0)),
    ),
    Step(
        name="produce: acks 0 and a wrong crc",
        action=Send(request=produce("p", BROKEN["a wrong crc"], acks=0)),
    ),
    ask("produce: an unknown topic", produce("nobody", ONE)),
    ask("produce: an unknown partition", produce("p", ONE, partition=7)),
    ask("produce: a negative partition", produce("p", ONE, partition=-1)),
    ask("produce: a bad name", produce("a/b", ONE)),
    ask("produce: an empty name", produce("", ONE)),
    ask("produce: no topics", ProduceRequest(acks=1, timeout_ms=1000, topic_data=())),
    ask(
        "produce: good and bad in one",
        ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=(
                TopicProduceData("p", (PartitionProduceData(0, ONE), PartitionProduceData(1, ONE))),
                TopicProduceData("nobody", (PartitionProduceData(0, ONE),)),
            ),
        ),
    ),
    ask("produce: acks -1 with too few replicas", produce("twofold", ONE)),
    ask(
        "produce: a transactional id",
        ProduceRequest(
            transactional_id="t",
            acks=-1,
            timeout_ms=1000,
            topic_data=(TopicProduceData("p", (PartitionProduceData(0, ONE),)),),
        ),
    ),
    *(ask(f"produce: {what}", produce("broken", data)) for what, data in BROKEN.items()),
    *(
        ask(f"produce: {what}, version 3", produce("broken", data), 3)
        for what, data in BROKEN.items()
    ),
    *(ask(f"produce: {what}", produce("faulty", data)) for what, data in FAULTY.items()),
    *(
        ask(f"produce: {what}, to a compacted topic", produce("compact", data))
        for what, data in FAULTY.items()
    ),
    *(
        ask(
            f"produce: corrupt {codec.name.lower()}, to a topic that decompresses",
            produce("plain", fake_compressed(codec)),
        )
        for codec in Compression
        if codec is not Compression.NONE
    ),
    Step(name="produce: null", action=Ask(request=produce("p", None), patience_s=1.0)),
    *(
        ask(f"produce: {what}, version 2", produce("broken-old", data), 2)
        for what, data in BROKEN.items()
        if what
        in ("a wrong crc", "nothing", "two batches", "cut short", "magic 3", "a control batch")
    ),
    *(
        ask(
            f"produce: {codec.name.lower()}",
            produce("codecs", batch(b"x" * 300, b"y" * 300, compression=codec)),
        )
        for codec in Compression
    ),
    ask("produce: a null value", produce("p", batch(None))),
    ask("produce: no key, to a compacted topic", produce("compact", ONE)),
    ask(
        "produce: the second without a key, to a compacted topic",
        produce("compact", keyed((b"k", b"v"), (None, b"v"), (b"k", None))),
    ),
    ask(
        "produce: keys, to a compacted topic", produce("compact", keyed((b"k", b"1"), (b"k", None)))
    ),
    ask("produce: a time too long ago", produce("timed", ONE)),
    ask("produce: no time", produce("timed", batch(b"x", timestamp=-1))),
    ask("produce: a time too far ahead", produce("early", batch(b"x", timestamp=FAR))),
    ask("produce: a time long ago where that is no matter", produce("early", ONE)),
    ask(
        "produce: a time far ahead where that is no matter",
        produce("p", batch(b"x", timestamp=FAR)),
    ),
    ask("produce: to a topic that stamps", produce("stamped", batch(b"a", b"b"))),
    ask("produce: to a topic that stamps, version 1", produce("stamped-2", ONE), 1),
    ask("produce: what was stamped", fetch("stamped", {0: 0}), 12),
    ask("produce: just small enough", produce("small", batch(b"x" * 129))),
    ask("produce: a byte too large", produce("small", batch(b"x" * 140))),
    ask("produce: larger than a segment", produce("segments", batch(b"x" * 300))),
    *(
        ask(
            f"produce: {codec.name.lower()} to a topic that unpacks",
            produce("plain", batch(b"x" * 300, b"y" * 300, compression=codec)),
        )
        for codec in Compression
    ),
    ask("produce: what was unpacked", fetch("plain", {0: 0}), 12),
    ask("produce: plain to a topic that packs", produce("zipped", batch(b"x" * 300))),
    ask("produce: too large until it is packed", produce("zipped-small", batch(b"x" * 1000))),
    *(
        ask(
            f"produce: zstd, version {version}",
            produce("p", batch(b"x" * 300, compression=Compression.ZSTD)),
            version,
        )
        for version in (3, 6, 7)
    ),
    *(
        ask(
            f"produce: messages of magic {magic}, version {version}",
            produce("old", message_set(magic, b"one", b"two", key=b"k", timestamp=THEN + magic)),
            version,
        )
        for magic in (0, 1)
        for version in (0, 1, 2)
    ),
    ask("produce: fetch the old messages", fetch("old", {0: 0}), 12),
    ask("produce: where it ended", list_offsets("p", -1)),
)

A, B = 5_000, 6_000
IDEMPOTENT: tuple[Step, ...] = (
    ask("idempotent: a first sequence that is not 0", produce("idem", numbered(B, 0, 7))),
    ask("idempotent: it goes on from there", produce("idem", numbered(B, 0, 8))),
    ask("idempotent: the first", produce("idem", numbered(A, 0, 0, 2))),
    ask("idempotent: the next", produce("idem", numbered(A, 0, 2, 3))),
    ask("idempotent: a gap", produce("idem", numbered(A, 0, 9))),
    *(
        ask(f"idempotent: sequence {sequence}", produce("idem", numbered(A, 0, sequence)))
        for sequence in range(5, 10)
    ),
    *(
        ask(f"idempotent: sequence {sequence} again", produce("idem", numbered(A, 0, sequence)))
        for sequence in range(5, 10)
    ),
    ask("idempotent: one older than five", produce("idem", numbered(A, 0, 2, 3))),
    ask("idempotent: a repeated one of another size", produce("idem", numbered(A, 0, 9, 2))),
    ask("idempotent: the first of all again", produce("idem", numbered(A, 0, 0, 2))),
    ask("idempotent: a later epoch that does not begin at 0", produce("idem", numbered(A, 1, 4))),
    ask("idempotent: a later epoch", produce("idem", numbered(A, 1, 0))),
    ask("idempotent: the former epoch", produce("idem", numbered(A, 0, 10))),
    ask("idempotent: up to the last number", produce("idem", numbered(B, 1, 0))),
    ask("idempotent: near the last number", produce("idem-2", numbered(A, 0, 2**31 - 2, 2))),
    ask("idempotent: over the last number", produce("idem-2", numbered(A, 0, 0))),
    ask("idempotent: across the last number", produce("idem-2", numbered(B, 0, 2**31 - 2, 4))),
    ask("idempotent: after it", produce("idem-2", numbered(B, 0, 2))),
    ask("idempotent: across it, again", produce("idem-2", numbered(B, 0, 2**31 - 2, 4))),
    ask("idempotent: a negative epoch", produce("idem-2", numbered(B, -1, 3))),
    Step(
        name="producer id: the first takes a while",
        action=Await(
            request=InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
            path="error_code",
            value="NONE",
        ),
    ),
    *(
        ask(
            f"producer id: version {version}",
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
            version,
        )
        for version in APIS[InitProducerIdRequest.API_KEY].versions
    ),
    *(
        ask(
            f"producer id: {what}",
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=1000,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
        )
        for what, name, producer_id, epoch in (
            ("an empty transactional id", "", -1, -1),
            ("an id without an epoch", None, 7, -1),
            ("an epoch without an id", None, -1, 7),
            ("an id and an epoch", None, 7, 7),
        )
    ),
)

AFTER_RESTART: tuple[Step, ...] = (
    ask("restarted: the last sequence again", produce("idem", numbered(A, 1, 0))),
    ask("restarted: the next sequence", produce("idem", numbered(A, 1, 1))),
    ask("restarted: a gap", produce("idem", numbered(A, 1, 5))),
    ask("restarted: the former epoch", produce("idem", numbered(A, 0, 10))),
    ask("restarted: everything of the producers", fetch("idem", {0: 0}), 12),
    ask("restarted: settings of a topic", describe(2, "set", "retention.ms", "cleanup.policy")),
)

STEPS = (*PRODUCE, *IDEMPOTENT)
