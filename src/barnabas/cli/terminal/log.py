"""Log lines on standard error."""

from __future__ import annotations

import logging

from barnabas.log_lines import PrintableFormatter


def log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
