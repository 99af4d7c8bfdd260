r"""`barnabas produce`: write the lines of standard input or of files as records.

Options are those of kcat: -K is the delimiter of key and value, -k one key for all records, -D the record delimiter,
-H a header, -p the partition, -z the codec; -Z turns empty keys and values into null. \t, \n, \x1f work in delimiters.

Records are sent as soon as the input pauses. By default the command prints nothing on standard output.

With --transactional-id, all records are written in one transaction. It is committed at the end of the input. An error,
Ctrl-C and SIGTERM abort it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO

import click

from barnabas.batch.compression import Compression
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, is_encodable
from barnabas.cli.terminal.contents import ContentOptions, content_options
from barnabas.cli.terminal.formats import delimiter_option, unescape_bytes
from barnabas.cli.terminal.output import OutputFormat, plural, print_note, show
from barnabas.cli.terminal.signals import raise_on_signals
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer, SentBatch
from barnabas.client.transactional_producer import ProducerPhase, TransactionalProducer
from barnabas.errors import ApiError, ConfigError
from barnabas.formats.problems import EncodeError
from barnabas.printable import NAME_MAX, printable
from barnabas.progress_line import ProgressLine

CHUNK_BYTES = 256 << 10
RECORD_BYTES_MAX = 64 << 20
BAR_WIDTH = 30
TRANSACTION_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = (2**31 - 1) / 1000
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

KeyAndValue = tuple[bytes | None, bytes | None]
SplitKey = Callable[[bytes], KeyAndValue]
EncodeRecord = Callable[[bytes | None, bytes | None], KeyAndValue]


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option(
    "-K",
    "--key-delimiter",
    metavar="TEXT",
    help="Text between key and value in each input record.",
)
@click.option("-k", "--key", metavar="TEXT", help="One key for all records.")
@delimiter_option
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Target partition; default: chosen by key.",
)
@click.option(
    "-Z", "--null", "empty_is_null", is_flag=True, help="An empty value or key becomes null."
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
    help="Compression codec.",
)
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Replicas that must acknowledge a record.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Write all records in one transaction: read_committed consumers get all or none. "
    "It fences other producers with this id.",
)
@click.option(
    "--transaction-timeout",
    "transaction_timeout_s",
    type=click.FloatRange(min=0.001, max=MAX_TIMEOUT_S),
    metavar="SECONDS",
    help=f"The cluster aborts a transaction that is open for this time; default: {TRANSACTION_TIMEOUT_S:g}.",
)
@content_options
@dry_run_option
@cluster_command
def produce(
    cluster: Cluster,
    topic: str,
    files: tuple[BinaryIO, ...],
    key_delimiter: str | None,
    key: str | None,
    delimiter: str,
    headers: tuple[str, ...],
    partition: int | None,
    empty_is_null: bool,
    compression: str,
    acks: str,
    transactional_id: str | None,
    transaction_timeout_s: float | None,
    dry_run: bool,
    output: OutputFormat,
    **formats: Any,
) -> None:
    """Write records to TOPIC, from FILES or standard input, one per line.

    Example: tail -f app.log | barnabas produce logs -z zstd
    """
    if key is not None and key_delimiter is not None:
        raise ConfigError("--key", "cannot be combined with --key-delimiter")
    check_transaction(transactional_id, transaction_timeout_s, acks)
    delimiter_bytes = unescape_bytes(delimiter)
    if not delimiter_bytes:
        raise ConfigError("--delimiter", "cannot be empty")
    split = key_splitter(key, key_delimiter, empty_is_null)
    encode = content_encoder(ContentOptions(**formats), topic)
    header_pairs = parse_headers(headers)
    sources = files or (sys.stdin.buffer,)
    chunks = (split_records(source, delimiter_bytes) for source in sources)
    # An unknown topic is rejected before any input is read: `produce` never creates topics.
    find_partitions(cluster, topic, () if partition is None else (partition,))
    codec = Compression[compression.upper()]
    producer = Producer(cluster, acks=ACKS[acks], compression=codec)
    transaction: TransactionalProducer | None = None
    if transactional_id is not None and not dry_run:
        raise_on_signals()
        producer = transaction = TransactionalProducer(
            cluster,
            transactional_id,
            timeout_ms=round((transaction_timeout_s or TRANSACTION_TIMEOUT_S) * 1000),
            compression=codec,
        )
        transaction.begin()
    progress = ProduceProgress(topic, dry_run, input_size(files))
    try:
        for records in chain.from_iterable(chunks):
            progress.records_read += len(records)
            for record in records:
                record_key, value = encode(*split(record))
                if dry_run:
                    target = producer.target(topic, record_key, partition)
                    progress.add_sent([SentBatch(target, -1, 1)])
                else:
                    producer.send(
                        topic, value, key=record_key, headers=header_pairs, partition=partition
                    )
            progress.add_sent(producer.flush())
            progress.update(sum(map(len, records)) + len(records) * len(delimiter_bytes))
        if transaction is not None:
            transaction.commit()
    except BaseException as error:
        progress.add_sent(producer.sent)
        if transaction is not None:
            progress.report_failure()
            print_note(abort(transaction))
        elif isinstance(error, KeyboardInterrupt) and not progress.outstanding:
            progress.finish()
        else:
            progress.report_failure()
        raise
    progress.finish()
    if output is not OutputFormat.TEXT or dry_run:
        show(output, progress.document(), produced_text)


RESULTS = {
    ProducerPhase.READY: "the transaction was committed",
    ProducerPhase.ENDING: "the result of the transaction is unknown",
    ProducerPhase.FENCED: "the cluster has aborted the transaction",
}
"""The result of a transaction that is not open any more."""


def check_transaction(
    transactional_id: str | None, transaction_timeout_s: float | None, acks: str
) -> None:
    if transactional_id is not None and (
        not transactional_id or not is_encodable(transactional_id)
    ):
        raise ConfigError("--transactional-id", "is not a name of at least one character")
    if transactional_id is None and transaction_timeout_s is not None:
        raise ConfigError("--transaction-timeout", "needs --transactional-id")
    if transactional_id is not None and ACKS[acks] != ACKS["all"]:
        raise ConfigError("--transactional-id", f"cannot be combined with --acks {acks}")


def abort(producer: TransactionalProducer) -> str:
    """Abort the transaction. Returns a sentence about the result."""
    if producer.phase in RESULTS:
        return RESULTS[producer.phase]
    producer.cluster.close()  # an interrupt may have left a partly read response
    try:
        producer.abort()
    except ApiError:
        timeout_s = producer.link.timeout_ms / 1000
        why = f"the transaction could not be aborted; the cluster does so after {timeout_s:g} s"
        return RESULTS.get(producer.phase, why)
    return "the transaction was aborted: read_committed consumers get none of its records"


def split_records(source: BinaryIO, delimiter: bytes) -> Iterator[list[bytes]]:
    """Yield the complete records of each chunk of input as it arrives. The last record needs no delimiter."""
    rest = bytearray()
    read = getattr(source, "read1", source.read)
    while chunk := read(CHUNK_BYTES):
        unsearched = max(0, len(rest) - len(delimiter) + 1)
        rest += chunk
        if rest.find(delimiter, unsearched) >= 0:
            *complete, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield complete
        if len(rest) > RECORD_BYTES_MAX:
            raise ConfigError("--delimiter", f"does not occur in {RECORD_BYTES_MAX} bytes of input")
    if rest:
        yield [bytes(rest)]


def key_splitter(key: str | None, delimiter: str | None, empty_is_null: bool) -> SplitKey:
    def to_null(content: bytes | None) -> bytes | None:
        return None if empty_is_null and not content else content

    if delimiter is None:
        fixed = None if key is None else key.encode("utf-8", "surrogateescape")
        return lambda record: (to_null(fixed), to_null(record))
    between = unescape_bytes(delimiter)
    if not between:
        raise ConfigError("--key-delimiter", "cannot be empty")

    def split(record: bytes) -> tuple[bytes | None, bytes | None]:
        before, found, after = record.partition(between)
        return (to_null(before), to_null(after)) if found else (None, to_null(record))

    return split


def content_encoder(options: ContentOptions, topic: str) -> EncodeRecord:
    """Return the function that encodes key and value in the chosen formats. It raises ConfigError."""
    options.check()
    keys, values = options.of_keys(topic), options.of_values(topic)

    def encode(key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        option = "--key-format"
        try:
            encoded_key = None if key is None else keys.parse(key)
            option = "--value-format"
            return encoded_key, None if value is None else values.parse(value)
        except EncodeError as error:
            text = printable((key if option == "--key-format" else value) or b"", NAME_MAX)
            raise ConfigError(option, f"{text!r}: {error}") from None

    return encode


def parse_headers(pairs: tuple[str, ...]) -> tuple[tuple[str, bytes | None], ...]:
    """Parse `-H trace=7`. A name alone has a null value."""
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not is_encodable(name):
            raise ConfigError("--header", f"{pair!r} is not NAME=VALUE")
        headers.append((name, value.encode("utf-8", "surrogateescape") if equals else None))
    return tuple(headers)


class ProduceProgress:
    """Counts and offsets of the sent records by partition, and the progress line if standard error is a terminal."""

    def __init__(self, topic: str, dry_run: bool, bytes_expected: int | None = None) -> None:
        self.topic = topic
        self.dry_run = dry_run
        self.bytes_expected = bytes_expected
        self.bytes_read = 0
        self.records_read = 0
        self.counts: dict[int, int] = {}
        self.first_offsets: dict[int, int] = {}
        self.last_offsets: dict[int, int] = {}
        self.line = ProgressLine(sys.stderr) if sys.stderr.isatty() else None

    @property
    def records_sent(self) -> int:
        return sum(self.counts.values())

    def add_sent(self, batches: list[SentBatch]) -> None:
        for batch in batches:
            number = batch.partition.partition
            self.counts[number] = self.counts.get(number, 0) + batch.count
            if batch.base_offset >= 0:
                self.first_offsets.setdefault(number, batch.base_offset)
                self.last_offsets[number] = batch.base_offset + batch.count - 1

    def update(self, bytes_added: int) -> None:
        self.bytes_read += bytes_added
        if self.line is not None:
            self.line.show(progress_text(self.records_sent, self.bytes_read, self.bytes_expected))

    def finish(self) -> None:
        if self.line is not None:
            self.line.erase()
            verb = "would write" if self.dry_run else "wrote"
            topic = printable(self.topic, NAME_MAX)
            print_note(f"{verb} {plural(self.records_sent, 'record')} to {topic}")

    @property
    def outstanding(self) -> int:
        return self.records_read - self.records_sent

    def report_failure(self) -> None:
        """Print how many records were acknowledged. Unconfirmed ones may have been written: a response may be lost."""
        if self.dry_run:
            return
        if self.line is not None:
            self.line.erase()
        done = f"{plural(self.records_sent, 'record')} acknowledged by {self.topic}"
        print_note(f"{done}; {self.outstanding:,} failed or unconfirmed")

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "dry_run": self.dry_run,
            "records": self.records_sent,
            "partitions": [
                {
                    "partition": number,
                    "records": count,
                    "first_offset": self.first_offsets.get(number),
                    "last_offset": self.last_offsets.get(number),
                }
                for number, count in sorted(self.counts.items())
            ],
        }


def progress_text(records: int, bytes_read: int, bytes_expected: int | None) -> str:
    """Return `[####····]  52%  12,000 records`, or only the count if the size of the input is not known."""
    counted = plural(records, "record")
    if not bytes_expected:
        return counted
    share = min(1.0, bytes_read / bytes_expected)
    bar = ("#" * round(share * BAR_WIDTH)).ljust(BAR_WIDTH, "·")
    return f"[{bar}] {share:4.0%}  {counted}"


def input_size(files: tuple[BinaryIO, ...]) -> int | None:
    """Return the total size in bytes, or None if there are no files or not all are regular files."""
    stats = [os.fstat(file.fileno()) for file in files]
    is_known = bool(stats) and all(stat.S_ISREG(found.st_mode) for found in stats)
    return sum(found.st_size for found in stats) if is_known else None


def produced_text(document: dict[str, Any]) -> str:
    verb = "would write" if document["dry_run"] else "wrote"
    lines = [f"{verb} {plural(document['records'], 'record')} to {document['topic']}"]
    lines += [
        f"  partition {found['partition']}: {plural(found['records'], 'record')}"
        for found in document["partitions"]
    ]
    return "\n".join(lines)
