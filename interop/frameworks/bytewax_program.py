"""Bytewax: writes the existing records of one topic in upper case to another."""

import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow

servers = os.environ["SERVERS"].split(",")
flow = Dataflow("upper")
found = kafka.input("read", flow, brokers=servers, topics=["bytewax-in"], tail=False)
changed = op.map(
    "upper", found.oks, lambda record: KafkaSinkMessage(record.key, record.value.upper())
)
kafka.output("write", changed, brokers=servers, topic="bytewax-out")
