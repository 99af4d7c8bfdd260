"""Client of the Kafka protocol: connections, metadata, admin, producer and consumers.

    core.py                one connection without its socket: versions, correlation ids, frames       pure
    view.py                the client's view of brokers, topics and leaders                           pure
    blocking.py            connections over blocking sockets
    cluster.py             bootstrap, one connection per broker, leader lookup, retries
    admin.py               producer.py      consumer.py      offsets.py                               public clients
    connection.py          asynchronous connection between two brokers

    group_assignors.py     partition assignors                                                        pure
    group_member.py        membership state, requests and responses                                   pure
    group_offsets.py       requests and responses for committed offsets                               pure
    group_coordinator.py   finding the group coordinator, and the connection to it
    group_consumer.py      group_admin.py                                                             public clients

No object of this package is thread-safe.
"""
