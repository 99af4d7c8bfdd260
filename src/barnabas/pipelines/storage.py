"""The storage directory of a pipeline: which pipeline owns it, which flows have checkpoints in it, and topic ids.

    pipeline.json                                             the name of the pipeline
    catalog/                                                  its tables (spark/catalog.py)
    _checkpoints/<catalog>/<database>/<table>/<flow>/<n>/     Spark's checkpoints
    topic-ids/<table>/<flow>/<topic>.json                     ids of topics that a flow reads (spark/topic_ids.py)

Only directories of this machine are checked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from barnabas.errors import ConfigError
from barnabas.pipelines.names import DEFAULT_NAMESPACE, Namespace
from barnabas.spark.cache import write_if_missing

OWNER_FILE = "pipeline.json"
CHECKPOINTS_DIRECTORY = "_checkpoints"
TOPIC_IDS_DIRECTORY = "topic-ids"


def claim_storage(directory: Path, name: str) -> None:
    """Write the name of the pipeline into its storage. Raises ConfigError if another pipeline owns the directory."""
    try:
        # spark-pipelines, which may have written the checkpoints, does not record the owner.
        if not (directory / CHECKPOINTS_DIRECTORY).exists():
            write_if_missing(directory / OWNER_FILE, json.dumps({"name": name}).encode())
    except OSError as error:
        raise ConfigError("storage", f"{directory}: {error.strerror}") from None
    check_owner(directory, name)


def check_owner(directory: Path, name: str) -> None:
    """Raise ConfigError if another pipeline owns the directory."""
    path = directory / OWNER_FILE
    try:
        owner = json.loads(path.read_bytes()).get("name")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError("storage", f"{directory}: {error.strerror}") from None
    except (ValueError, AttributeError):
        why = f"{path} is corrupt; delete it if {directory} belongs to the pipeline {name}"
        raise ConfigError("storage", why) from None
    if owner != name:
        why = f"{directory} belongs to the pipeline {owner}; choose another directory for {name}"
        raise ConfigError("storage", why)


def flows_with_checkpoints(
    directory: Path, namespace: Namespace = DEFAULT_NAMESPACE
) -> dict[str, list[str]]:
    """Return the short names of the tables that have checkpoints, and the flows that wrote them."""
    found: dict[str, list[str]] = {}
    for path in sorted((directory / CHECKPOINTS_DIRECTORY).glob("*/*/*/*/")):
        *table, flow = path.parts[-4:]
        found.setdefault(namespace.short_name(".".join(table)), []).append(flow)
    return found


def topics_with_ids(directory: Path) -> set[str]:
    """Return the topics that flows have read in earlier runs, as far as their ids are stored."""
    return {path.stem for path in (directory / TOPIC_IDS_DIRECTORY).rglob("*.json")}


def topic_ids_directory(
    storage: Path, target: str, flow: str | None = None, namespace: Namespace = DEFAULT_NAMESPACE
) -> Path:
    """Return the directory for the ids of the topics that a flow reads, or that all flows of a table read."""
    names = [target] if flow is None else [target, flow]
    return storage.joinpath(
        TOPIC_IDS_DIRECTORY, *(quote(namespace.short_name(name), "") for name in names)
    )


def forget_topic_ids(
    storage: Path, tables: Iterable[str], namespace: Namespace = DEFAULT_NAMESPACE
) -> None:
    """Remove the ids for tables that are computed again from the topics that exist now."""
    for table in tables:
        shutil.rmtree(topic_ids_directory(storage, table, namespace=namespace), ignore_errors=True)
