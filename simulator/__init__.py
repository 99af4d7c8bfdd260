"""Simulated implementations of the interfaces in barnabas/world/ports.py: a disk that loses unsynced data."""
