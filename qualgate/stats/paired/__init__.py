"""Exact tests of two paired binary outcomes. `compare` is the interface: counts or scores in, both tests and bounds
out.

`region` has sets of tables and their probabilities; `estimated_p` and `minimax_region` order them.
"""
