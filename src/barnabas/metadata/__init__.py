"""Cluster metadata: its znodes, the registry client, and the metadata cache of a broker."""
