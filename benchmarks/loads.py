"""Description of a load (sizes and counts), and the cost of a run."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024
MB = 1024 * KB
GB = 1024 * MB

TOPIC = "load"
WARM_UP_DIVISOR = 20
WARM_UP_BYTES_MIN = 4 * MB
CLIENT_IN_FLIGHT = 5
NO_CODEC = "none"
CODECS = (NO_CODEC, "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Amount and shape of the data, before compression.

    `in_flight` is the maximum of produce requests in flight on one connection.
    """

    batch_bytes: int
    record_bytes: int = KB
    partitions: int = 1
    total_bytes: int = 512 * MB
    in_flight: int = CLIENT_IN_FLIGHT
    varies: bool = False
    """Whether record sizes range from half to one and a half of `record_bytes`."""
    codec: str = NO_CODEC
    """Compression of the batches of prebuilt frames."""

    @property
    def batches(self) -> int:
        """Number of batches in total. Each partition gets the same number."""
        return max(1, self.total_bytes // self.batch_bytes // self.partitions) * self.partitions

    @property
    def warm_up_batches(self) -> int:
        """Number of batches sent before the measurement: buffers grow and Python specialises its bytecode."""
        size = max(WARM_UP_BYTES_MIN, self.total_bytes // WARM_UP_DIVISOR)
        return max(1, size // self.batch_bytes // self.partitions) * self.partitions

    def __str__(self) -> str:
        sizes = "~" if self.varies else ""
        record, batch = format_size(self.record_bytes), format_size(self.batch_bytes)
        codec = "" if self.codec == NO_CODEC else f", {self.codec}"
        return f"{sizes}{record} records, {batch} batches, {self.partitions} p.{codec}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Wall-clock time and CPU time of the broker in one run."""

    data_bytes: int
    wall_s: float
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.data_bytes / self.wall_s / 1e6

    @property
    def busy_cores(self) -> float:
        """CPU seconds of the broker per second."""
        return self.cpu_s / self.wall_s

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.data_bytes / 1e9)


def format_size(size: int) -> str:
    """16384 → 16k"""
    for unit, letter in ((GB, "g"), (MB, "m"), (KB, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_size(text: str) -> int:
    """16k → 16384"""
    units = {"k": KB, "m": MB, "g": GB}
    digits, unit = (text[:-1], units[text[-1].lower()]) if text[-1:].lower() in units else (text, 1)
    return int(digits) * unit
