"""librdkafka tells of every lost connection; here they are the point."""

from __future__ import annotations

import logging

QUIET = logging.getLogger("demo.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
