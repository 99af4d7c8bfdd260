"""`barnabas topics`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

topics = LazyGroup(
    "topics",
    help="Create, list, describe, explain, profile, alter, copy, trim and delete topics, and show their history.",
    modules={
        "alter": "barnabas.cli.topics.alter:alter_topic",
        "archive": "barnabas.cli.topics.archive:archive_topic",
        "copy": "barnabas.cli.topics.copy:copy_topic",
        "create": "barnabas.cli.topics.create:create_topic",
        "delete": "barnabas.cli.topics.delete:delete",
        "describe": "barnabas.cli.topics.describe:describe_topics",
        "explain": "barnabas.cli.explain.commands:explain_topic_command",
        "list": "barnabas.cli.topics.list:list_topics",
        "mirror": "barnabas.cli.topics.mirror:mirror_topics",
        "offsets": "barnabas.cli.topics.offsets:topic_offsets",
        "profile": "barnabas.cli.topics.profile:profile_topic",
        "resize": "barnabas.cli.topics.resize:resize_topic",
        "restore": "barnabas.cli.topics.restore:restore_topic",
        "trim": "barnabas.cli.topics.trim:trim_topic",
        "history": "barnabas.cli.history.history:history",
    },
)
