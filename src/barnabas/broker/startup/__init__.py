"""Checks of the local logs at the start of a broker, before it registers."""
