"""Barnabas: a streaming platform in Python that speaks the wire protocol of Apache Kafka."""
