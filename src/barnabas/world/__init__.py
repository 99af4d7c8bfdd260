"""The doors to the world: the only folder that touches time, sockets, files and threads."""
