"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis gives an example 200 ms; a busy machine's own pauses are longer.
settings.register_profile("qualgate", deadline=None)
settings.load_profile("qualgate")
