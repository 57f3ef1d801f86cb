"""Exact tests of two paired binary outcomes. `compare` is the face: counts or scores in, both tests and bounds out.

`region` holds tables of outcomes and how likely they are, `estimated_p` and `minimax_region` order them.
"""
