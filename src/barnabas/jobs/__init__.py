"""Jobs that read or write whole topics with Spark. The commands in `cli/topics` start them.

profile.py           reads a topic twice and returns its TopicProfile
range_summary.py     summary of one offset range, computed by a task
topic_profile.py     the figures of a profile, merged from the summaries     pure
profile_text.py      the figures and what they mean, in words                pure
profile_page.py      the profile as an HTML page with charts.py              pure
"""
