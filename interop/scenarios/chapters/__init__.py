"""One file per family of questions."""
