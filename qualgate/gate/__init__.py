"""The verdict: evidence is checked, rules become comparisons, comparisons become one word and an exit code.

`decide.decide` is the only entry point for a verdict.
"""
