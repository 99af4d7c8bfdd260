"""Metrics of a broker in Prometheus' text format: declarations, histograms, exposition and the HTTP server."""
