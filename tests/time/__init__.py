"""Measure what each test costs, and what it alone holds: `python -m tests.time`."""
