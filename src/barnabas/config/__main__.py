"""Print docs/configuration.md: `python -m barnabas.config > docs/configuration.md`."""

import sys

from barnabas.config.page import configuration_page

sys.stdout.write(configuration_page())
