"""Talking to a broker, from the bytes up.

    core.py       one conversation: versions, correlation ids, frames          pure
    view.py       what is known of brokers, topics and leaders                 pure
    blocking.py   a plain socket: the only real door in this package
    cluster.py    the way in, a connection per broker, leaders, retries
    admin.py      producer.py      consumer.py      offsets.py                 what one comes for

    group_assignors.py     who of a group reads which partitions               pure
    group_member.py        a member's standing, question and answer            pure
    group_offsets.py       committed offsets, in requests and answers          pure
    group_coordinator.py   the broker that looks after a group
    group_consumer.py      group_admin.py                                      what one comes for

None of it may be shared between threads.
"""
