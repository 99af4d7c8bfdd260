"""`barnabas reassign`: move replicas between brokers. The plans come from barnabas/reassignment.

plan.py  run.py  status.py  cancel.py      the commands
goal_options.py     the options that name a goal, and the plan for it
cluster_layout.py   the layout of a cluster: metadata, log sizes, reassignments in progress
picture.py          a plan as text: bars before and after, bytes, duration
execution.py        start a plan, wait until it is complete, remove the throttle
copying.py          progress of the copies
throttling.py       set, show and remove throttles
draining.py         `barnabas brokers drain` and `brokers decommission`
"""
