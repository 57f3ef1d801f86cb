"""The verdict: evidence is checked, rules become comparisons, comparisons become one word and an exit code.

`decide.decide` is the one door: whoever wants a verdict asks there.
"""
