"""Logger without output. The demo kills brokers, so librdkafka would log every lost connection."""

from __future__ import annotations

import logging

SILENT_LOGGER = logging.getLogger("demo.librdkafka")
SILENT_LOGGER.addHandler(logging.NullHandler())
SILENT_LOGGER.propagate = False
# The client of Barnabas warns of lost connections too.
logging.getLogger("barnabas").addHandler(logging.NullHandler())
