"""Commands that show brokers, and commands that run them."""
