"""Commands that read the history of state changes."""
