"""Names of tables and flows. Pure.

Spark adds the catalog and the database of the pipeline to a name without them. So a name has several spellings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def name_parts(name: str) -> list[str]:
    """Return the parts of a name in lower case, without backquotes: Spark ignores case.

    >>> name_parts("Shop.`eu.orders`")
    ['shop', 'eu.orders']
    """
    return [
        (found[1] or found[2] or "").replace("``", "`").lower() for found in PART.finditer(name)
    ]


@dataclass(frozen=True, slots=True)
class Namespace:
    """The catalog and the database that Spark adds to names without them."""

    catalog: str = "spark_catalog"
    database: str = "default"

    def short_name(self, name: str) -> str:
        """Return the name in lower case, without backquotes, and without this catalog and database.

        >>> Namespace(database="shop").short_name("spark_catalog.shop.`web-orders`")
        'web-orders'
        >>> Namespace(database="shop").short_name("default.users")
        'default.users'
        """
        parts = name_parts(name)
        if len(parts) > 2 and parts[0] != self.catalog.lower():
            return ".".join(parts)
        if len(parts) > 2:
            parts = parts[1:]
        if len(parts) > 1 and parts[0] == self.database.lower():
            parts = parts[1:]
        return ".".join(parts)


DEFAULT_NAMESPACE = Namespace()
"""The namespace of a pipeline file that names none."""
