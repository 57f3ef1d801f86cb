"""Commands of qualgate that a page or a report names, to be copied."""

from __future__ import annotations

import shlex


def again_command(run_id: str, variant: str, evalset: str, case_id: str, repeat: int = 0, store: str = "") -> str:
    """Return the command that answers a stored case again. store: its address; "": the one that the command looks for
    by default."""
    options = ["--variant", variant, "--evalset", evalset]
    options += ["--repeat", str(repeat)] if repeat else []
    options += ["--store", store] if store else []
    if case_id.startswith("-"):
        return shlex.join(["qualgate", "again", *options, "--", run_id, case_id])
    return shlex.join(["qualgate", "again", run_id, case_id, *options])
