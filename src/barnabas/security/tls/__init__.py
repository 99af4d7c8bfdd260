"""TLS: key stores and trust stores, contexts of servers and clients, names in certificates."""
