"""The ids of the topics that a stream reads. They reveal that a topic was deleted and recreated with the same name.

A running query keeps the ids in memory. Spark's checkpoint cannot hold them, because it stores only offsets. With the
option `topicIdsLocation`, the ids are stored in that directory, one small file per topic:

    {"id": "…", "before": {"id": "…", "offsets": {"orders": {"0": 17}}}}

An id is written to disk before an offset of its topic can be in the checkpoint.

If a topic was recreated and the query continues (failOnDataLoss is false), `before` holds the id of the old topic and
the offsets of the query at that time. If a later run starts at exactly these offsets, they are still offsets of the old
topic, and the run must detect the change again. Any other start offsets belong to the new topic.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from barnabas.errors import ConfigError
from barnabas.spark.cache import replace_file
from barnabas.spark.options import TOPIC_IDS_LOCATION
from barnabas.spark.planning import Offsets, offsets_to_json


class TopicIds:
    """Topic ids by name. Without a directory they are kept in memory only. File errors raise ConfigError."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.ids: dict[str, UUID] = {}

    def load(self, begin: Offsets) -> None:
        """Load the ids that an earlier run stored. `begin` are the start offsets of this run."""
        if self.directory is None:
            return
        offsets = offsets_to_json(begin)
        for topic in offsets:
            topic_id = self.read(topic, offsets)
            if topic_id is not None:
                self.ids[topic] = topic_id

    def save(self, topic: str, topic_id: UUID) -> None:
        """Store the id of a topic that had none."""
        self.ids[topic] = topic_id
        self.write(topic, {"id": str(topic_id)})

    def replace(self, topic: str, topic_id: UUID, begin: Offsets) -> None:
        """Store the id of a recreated topic. `begin` are the current offsets of the query."""
        before = {"id": str(self.ids[topic]), "offsets": offsets_to_json(begin)}
        self.ids[topic] = topic_id
        self.write(topic, {"id": str(topic_id), "before": before})

    # ---- files ----------------------------------------------------------------------------------------------------

    def read(self, topic: str, offsets: dict[str, dict[str, int]]) -> UUID | None:
        """Return the stored id, or None. It is the id in `before` if its offsets equal `offsets`."""
        path = self.path(topic)
        try:
            stored = json.loads(path.read_bytes())
            topic_id, before = UUID(stored["id"]), stored.get("before")
            if before is None:
                return topic_id
            before_id = UUID(before["id"])
            return before_id if dict(before["offsets"]) == offsets else topic_id
        except FileNotFoundError:
            return None
        except OSError as error:
            raise directory_error(path, error) from None
        except (ValueError, TypeError, AttributeError, KeyError):
            why = f"{path} is corrupt; delete it to continue with the current topic"
            raise ConfigError(TOPIC_IDS_LOCATION, why) from None

    def write(self, topic: str, content: dict[str, Any]) -> None:
        if self.directory is None:
            return
        path = self.path(topic)
        try:
            replace_file(path, json.dumps(content).encode())
        except OSError as error:
            raise directory_error(path, error) from None

    def path(self, topic: str) -> Path:
        assert self.directory is not None
        return self.directory / f"{topic}.json"


def directory_error(path: Path, error: OSError) -> ConfigError:
    why = f"{path} cannot be used: {error.strerror}; choose another directory"
    return ConfigError(TOPIC_IDS_LOCATION, why)
