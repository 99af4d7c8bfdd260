"""The storage directory of a pipeline: which pipeline owns it, and which flows have checkpoints in it.

    pipeline.json                                             the name of the pipeline
    catalog/                                                  its tables (spark/catalog.py)
    _checkpoints/<catalog>/<database>/<table>/<flow>/<n>/     Spark's checkpoints

Only directories of this machine are checked.
"""

from __future__ import annotations

import json
from pathlib import Path

from barnabas.errors import ConfigError
from barnabas.spark.cache import write_if_missing

OWNER_FILE = "pipeline.json"
CHECKPOINTS_DIRECTORY = "_checkpoints"


def claim_storage(directory: Path, name: str) -> None:
    """Write the name of the pipeline into its storage. Raises ConfigError if another pipeline owns the directory."""
    path = directory / OWNER_FILE
    try:
        if not path.exists() and (directory / CHECKPOINTS_DIRECTORY).exists():
            return  # written by spark-pipelines, which does not record the owner
        owner = json.loads(
            write_if_missing(path, json.dumps({"name": name}).encode()).read_bytes()
        ).get("name")
    except OSError as error:
        raise ConfigError("storage", f"{directory}: {error.strerror}") from None
    except (ValueError, AttributeError):
        why = f"{path} is corrupt; delete it if {directory} belongs to the pipeline {name}"
        raise ConfigError("storage", why) from None
    if owner != name:
        why = f"{directory} belongs to the pipeline {owner}; choose another directory for {name}"
        raise ConfigError("storage", why)


def flows_with_checkpoints(
    directory: Path, catalog: str | None, database: str | None
) -> dict[str, list[str]]:
    """Return the tables that have checkpoints, and the flows that wrote them."""
    root = (
        directory / CHECKPOINTS_DIRECTORY / (catalog or "spark_catalog") / (database or "default")
    )
    if not root.is_dir():
        return {}
    return {
        table.name.lower(): sorted(flow.name for flow in table.iterdir() if flow.is_dir())
        for table in sorted(root.iterdir())
        if table.is_dir()
    }
