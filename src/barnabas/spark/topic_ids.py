"""Which topics a stream has read: a topic that comes back under the same name is not the one that was being read.

A running query keeps the ids in memory. Over restarts Spark keeps offsets and nothing else, and does not tell a Python
source where its checkpoint is; with `topicIdsLocation` the ids are kept there, one small file for each topic:

    {"id": "…", "before": {"id": "…", "offsets": {"orders": {"0": 17}}}}

Laws. An id is on the disk before an offset of its topic can be in the checkpoint. Where one topic took the place of
another and the query goes on (failOnDataLoss is false), `before` says what was read up to then: as long as a run begins
at those offsets, Spark has not yet planned a batch of the new topic, and the change is to be noticed again. Spark plans
no batch that ends where it began, so offsets other than those belong to the new one.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from barnabas.errors import ConfigError
from barnabas.spark.cache import move_into_place
from barnabas.spark.options import TOPIC_IDS
from barnabas.spark.planning import Offsets, json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was read under a topic's name before, and up to where the whole query had come."""

    topic_id: UUID
    offsets: dict[str, dict[str, int]]


class TopicIds:
    """The ids by topic. Without a directory they are forgotten with the process."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.ids: dict[str, UUID] = {}

    def recall(self, begin: Offsets) -> None:
        """What an earlier run read up to these offsets. Topics nobody wrote down are taken as they are found."""
        if self.directory is None:
            return
        offsets = json_of(begin)
        for topic in offsets:
            kept = self.read(topic)
            if kept is None:
                continue
            topic_id, before = kept
            if before is not None and before.offsets == offsets:
                topic_id = before.topic_id
            self.ids[topic] = topic_id

    def keep(self, topic: str, topic_id: UUID) -> None:
        self.ids[topic] = topic_id
        self.write(topic, {"id": str(topic_id)})

    def replace(self, topic: str, topic_id: UUID, begin: Offsets) -> None:
        """Another topic has taken the place of the one that was read up to `begin`."""
        before = {"id": str(self.ids[topic]), "offsets": json_of(begin)}
        self.ids[topic] = topic_id
        self.write(topic, {"id": str(topic_id), "before": before})

    # ---- files ----------------------------------------------------------------------------------------------------

    def read(self, topic: str) -> tuple[UUID, Before | None] | None:
        path = self.path(topic)
        try:
            kept = json.loads(path.read_bytes())
            before = kept.get("before")
            if before is not None:
                before = Before(topic_id=UUID(before["id"]), offsets=dict(before["offsets"]))
            return UUID(kept["id"]), before
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(path, error) from None
        except (ValueError, TypeError, AttributeError, KeyError):
            why = f"{path} is damaged; delete it to take the topic as it is now"
            raise ConfigError(TOPIC_IDS, why) from None

    def write(self, topic: str, content: dict[str, Any]) -> None:
        if self.directory is None:
            return
        path = self.path(topic)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.directory, prefix=f".{topic[:100]}.")
            with os.fdopen(handle, "w") as file:
                json.dump(content, file)
            move_into_place(Path(name), path)
        except OSError as error:
            raise unusable(path, error) from None

    def path(self, topic: str) -> Path:
        assert self.directory is not None
        return self.directory / f"{topic}.json"


def unusable(path: Path, error: OSError) -> ConfigError:
    why = f"{path} cannot be used: {error.strerror}; choose another directory"
    return ConfigError(TOPIC_IDS, why)
