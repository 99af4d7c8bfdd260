"""Talking to a broker."""
