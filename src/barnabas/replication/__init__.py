"""Replication of partitions: leaders, followers, the ISR and fetchers."""
