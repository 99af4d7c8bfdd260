"""`barnabas pipeline`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

pipeline = LazyGroup(
    "pipeline",
    help="Create, check, run and stop pipelines: Spark Declarative Pipelines with topics as tables.",
    modules={
        "init": "barnabas.cli.pipelines.init:init_pipeline",
        "run": "barnabas.cli.pipelines.run:run_pipeline_command",
        "dry-run": "barnabas.cli.pipelines.dry_run:dry_run",
        "status": "barnabas.cli.pipelines.status:status",
        "stop": "barnabas.cli.pipelines.stop:stop_pipeline",
        "replay-dead-letters": "barnabas.cli.pipelines.replay_dead_letters:replay_dead_letters",
    },
)
