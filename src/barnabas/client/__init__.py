"""Client of the Kafka protocol: connections, metadata, admin, producer and consumers.

    core.py                one connection without its socket: versions, correlation ids, frames       no I/O
    view.py                the client's view of brokers, topics and leaders                           no I/O
    partitioner.py         the partition of a record                                                  no I/O
    blocking.py            connections over blocking sockets
    cluster.py             bootstrap, one connection per broker, leader lookup, retries
    admin.py               producer.py      consumer.py      offsets.py                               for callers
    reassignment_admin.py                                                                             for callers
    connection.py          asynchronous connection from one broker to another
    group_assignors.py     partition assignors                                                        no I/O
    group_member.py        membership state, requests and responses                                   no I/O
    group_offsets.py       requests and responses for committed offsets                               no I/O
    group_coordinator.py   lookup of the group coordinator, and the connection to it
    group_consumer.py      group_admin.py                                                             for callers

The modules marked "for callers" are what the rest of Barnabas uses. Users of Barnabas get `barnabas.api` instead.

No object of this package is thread-safe.
"""
