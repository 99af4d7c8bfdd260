"""Replacements for the interfaces of barnabas.world, with a disk that loses unsynced data."""
