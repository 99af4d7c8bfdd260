"""`python -m barnabas.metrics`: print docs/metrics.md."""

import sys

from barnabas.metrics.page import metrics_document

sys.stdout.write(metrics_document())
