"""A broker's access to the outside world: interfaces in ports.py, and their real implementations."""
