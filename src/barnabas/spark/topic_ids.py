"""The ids of the topics that a stream reads. They reveal that a topic was deleted and recreated with the same name.

A running query keeps the ids in memory. Spark's checkpoint cannot hold them, because it stores only offsets. With the
option `topicIdsLocation`, the ids are stored in that directory, one small file per topic:

    {"id": "…", "before": {"id": "…", "offsets": {"orders": {"0": 17}}}}

An id is written to disk before an offset of its topic can be in the checkpoint.

If a topic was recreated and the query continues (failOnDataLoss is false), `before` holds the id of the old topic and
the offsets of the query at that time. If a later run starts at exactly these offsets, they are still offsets of the old
topic, and the run must detect the change again. When the query has other offsets, `before` is deleted: these belong to
the new topic, and may later reach the old offsets again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.errors import ConfigError
from barnabas.spark.cache import replace_file
from barnabas.spark.options import TOPIC_IDS_LOCATION
from barnabas.spark.planning import Offsets, offsets_to_json

JsonOffsets = dict[str, dict[str, int]]


class StoredId(NamedTuple):
    """The content of a file."""

    topic_id: UUID
    before_id: UUID
    before_offsets: JsonOffsets | None


class TopicIds:
    """Topic ids by name. Without a directory they are kept in memory only. File errors raise ConfigError."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.ids: dict[str, UUID] = {}
        self.before: dict[str, JsonOffsets] = {}
        """The offsets in `before`, by recreated topic."""

    def load(self, begin: Offsets) -> None:
        """Load the ids that an earlier run stored. `begin` are the start offsets of this run."""
        if self.directory is None:
            return
        offsets = offsets_to_json(begin)
        for topic in offsets:
            stored = self.read(topic)
            if stored is None:
                continue
            self.ids[topic] = stored.topic_id
            if stored.before_offsets == offsets:
                self.ids[topic] = stored.before_id
            elif stored.before_offsets is not None:
                self.save(topic, stored.topic_id)

    def save(self, topic: str, topic_id: UUID) -> None:
        """Store the id of a topic."""
        self.ids[topic] = topic_id
        self.write(topic, {"id": str(topic_id)})

    def replace(self, topic: str, topic_id: UUID, begin: Offsets) -> None:
        """Store the id of a recreated topic. `begin` are the current offsets of the query."""
        offsets = self.before[topic] = offsets_to_json(begin)
        before = {"id": str(self.ids[topic]), "offsets": offsets}
        self.ids[topic] = topic_id
        self.write(topic, {"id": str(topic_id), "before": before})

    def forget_before(self, begin: Offsets) -> None:
        """Delete `before` of the recreated topics that a batch has read since."""
        offsets = offsets_to_json(begin)
        for topic in [topic for topic, before in self.before.items() if before != offsets]:
            del self.before[topic]
            self.save(topic, self.ids[topic])

    # ---- files ----------------------------------------------------------------------------------------------------

    def read(self, topic: str) -> StoredId | None:
        path = self.path(topic)
        try:
            stored = json.loads(path.read_bytes())
            topic_id, before = UUID(stored["id"]), stored.get("before")
            if before is None:
                return StoredId(topic_id, topic_id, None)
            return StoredId(topic_id, UUID(before["id"]), dict(before["offsets"]))
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
