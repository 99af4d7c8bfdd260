"""Plans for moving replicas between brokers. Without I/O; the same input gives the same plan.

layout.py      brokers and partitions as they are, and the load of each broker
draft.py       an assignment under construction
balance.py     spread replicas, bytes and leaders evenly with few moves
goals.py       given brokers, added broker, drained broker, balance, replication factor
plan.py        the new replicas of partitions: checks, bytes to copy, duration, batches
json_file.py   Kafka's JSON format for reassignments
throttles.py   settings that limit the copies, and which of them can be removed
"""
