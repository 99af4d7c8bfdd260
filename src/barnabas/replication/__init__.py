"""Copies of one partition."""
