"""Talking to a broker, from the bytes up.

    core.py       one conversation: versions, correlation ids, frames          pure
    view.py       what is known of brokers, topics and leaders                 pure
    blocking.py   a plain socket: the only real door in this package
    cluster.py    the way in, a connection per broker, leaders, retries
    admin.py      producer.py      consumer.py      offsets.py                 what one comes for

None of it may be shared between threads.
"""
