"""`barnabas reassign`: the group of commands."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

reassign = LazyGroup(
    "reassign",
    help="Move replicas between brokers: plan, run, follow and cancel.",
    modules={
        "plan": "barnabas.cli.reassign.plan:plan_reassignment",
        "run": "barnabas.cli.reassign.run:run_reassignment",
        "status": "barnabas.cli.reassign.status:reassignment_status",
        "cancel": "barnabas.cli.reassign.cancel:cancel_reassignments",
    },
)
