"""Commands of qualgate that a page or a report names, to be copied."""

from __future__ import annotations

import shlex


def again_command(run_id: str, variant: str, evalset: str, case_id: str, repeat: int = 0, store: str = "") -> str:
    """Return the command that answers a stored case again. store: its address; "": the one that the command looks for
    by default."""
    words = ["qualgate", "again", "--variant", variant, "--evalset", evalset]
    words += ["--repeat", str(repeat)] if repeat else []
    words += ["--store", store] if store else []
    return shlex.join([*words, *(["--"] if case_id.startswith("-") else []), run_id, case_id])
