"""librdkafka tells of every lost connection, and brokers of this process of every neighbour that died; here they are
the point."""

from __future__ import annotations

import logging

QUIET = logging.getLogger("demo.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
logging.getLogger("barnabas").addHandler(logging.NullHandler())
