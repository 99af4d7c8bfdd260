"""Fixtures and settings for all tests."""

from __future__ import annotations

import signal

from tests.spark_archive import trained_spark
from tests.zookeeper import chroot, shared_zookeeper

__all__ = ("chroot", "shared_zookeeper", "trained_spark")  # fixtures for all

# A shell that starts this run in the background makes it ignore SIGINT. Processes started here would inherit that, but
# some tests interrupt them.
signal.signal(signal.SIGINT, signal.default_int_handler)
