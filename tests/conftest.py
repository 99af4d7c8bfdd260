"""What holds for every test."""

from __future__ import annotations

import signal

from tests.spark_archive import trained_spark
from tests.zookeeper import chroot, shared_zookeeper

__all__ = ("chroot", "shared_zookeeper", "trained_spark")  # fixtures for all

# A shell that starts this run in the background has it ignore interruptions, and every process started here would too;
# some of them are to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
