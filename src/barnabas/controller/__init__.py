"""One broker in charge: what becomes of partitions and replicas when brokers and topics come and go."""
