"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis gives an example 200 ms, which a busy machine exceeds in a pause of its own. A hang is caught by CI's limit.
settings.register_profile("qualgate", deadline=None)
settings.load_profile("qualgate")
