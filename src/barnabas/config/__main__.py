"""Print docs/configuration.md: `python -m barnabas.config > docs/configuration.md`."""

import sys

from barnabas.config.page import page

sys.stdout.write(page())
