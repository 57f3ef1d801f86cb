"""Benchmarks of speed and cost: one a file, each a function `run(quick) -> dict` of the one shape

{"bench", "device", "versions", "rounds": [...], "goals": [{"id", "goal", "measured", "spread", "met"}]}

A goal that was not run has `met: null` and a reason. Machines are noisy: ratios of interleaved rounds are quoted.
"""
