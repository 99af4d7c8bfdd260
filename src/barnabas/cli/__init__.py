"""The command line: nouns are files, verbs are functions."""
