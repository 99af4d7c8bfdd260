"""Builds and checks of a release: `python -m release` (`make release`)."""
