"""The Python API of Barnabas: Client, Producer, Consumer, GroupConsumer and Admin. Import them from `barnabas`.

    connection.py        the connection that the classes share; close, and use after close
    client.py            Client, which creates the others
    settings.py          values of keyword settings, keys, values and headers                         no I/O
    producer.py          Producer and Delivery
    partition_reader.py  poll, iteration, seek and positions, for both consumers
    consumer.py          Consumer: assigned partitions, without a group
    group_consumer.py    GroupConsumer: a member of a consumer group
    admin.py             Admin: topics, partitions, configs, groups and offsets

These classes are a thin layer over `barnabas.client`, which the command line and Spark use. Their settings have Kafka's
names. Their attributes with an underscore, and all other modules of Barnabas, may change in any release.

No object of this package is thread-safe.
"""
