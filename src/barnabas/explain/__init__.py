"""Explanations: why a topic, partition, broker, group or cluster is not healthy, and what to do next.

    facts.py, group_facts.py   everything that is known about the cluster, in immutable Structs
    history_facts.py           times and causes, from the events of the history
    finding.py                 a problem: its cause, the brokers that are waited for, the time since when
    partitions.py …            rules: pure functions from facts to findings
    sentences.py, text.py      findings as sentences, with the next command

`cli/explain` gathers the facts. `topics describe`, `cluster health` and the lifecycle report use the same rules.
"""
