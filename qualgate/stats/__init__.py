"""Statistics of paired comparisons: plain arrays and counts in, frozen results out, no records of qualgate.

Only numpy and scipy.special are imported: scipy.stats alone would cost the command line a second.
"""
