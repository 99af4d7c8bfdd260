"""Batch jobs over whole topics on Spark: archive, restore, resize, and the verification of their copies.

Each job has pure functions from DataFrame to DataFrame and one function that runs it. The commands are in cli/topics.
"""
