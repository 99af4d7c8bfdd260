"""Jobs over whole topics on Spark: profile, archive, restore, resize, and the verification of copies.

Each job has pure functions from DataFrame to DataFrame and one function that runs it. The commands are in cli/topics.

resize.py            copies a topic to one with another number of partitions, in one pass (copy_pass.py)
swap.py              the same in passes until the topic does not grow any more, then moves its groups (moved_groups.py)
profile.py           reads a topic twice and returns its TopicProfile
range_summary.py     summary of one offset range, computed by a task
topic_profile.py     the figures of a profile, merged from the summaries     pure
profile_text.py      the figures and what they mean, in words                pure
profile_page.py      the profile as an HTML page with charts.py              pure
"""
