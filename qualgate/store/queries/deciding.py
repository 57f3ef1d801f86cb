"""The runs that decide something. Trials do not: no query takes one for the newest run, a night, or an earlier look."""

from __future__ import annotations

from sqlalchemy import not_

from qualgate.errors import UsageError
from qualgate.store.tables import runs

# The policy's text is our own sealed JSON, where quotes in values are escaped: only the key can match.
IS_TRIAL = runs.c.policy_json.contains('"trial":{', autoescape=True)
DECIDES = not_(IS_TRIAL)


def nothing_decided(url: str, newest: str | None) -> UsageError:
    """Return the error of a store without a run that decides. newest: its newest trial; None if it holds no run."""
    if newest is None:
        return UsageError(f"{url} holds no run yet. `qualgate run GATE_FILE` makes one.")
    return UsageError(
        f"{url} holds only trials, which decide nothing. `qualgate run GATE_FILE` makes a run; --run {newest} shows "
        "the newest trial."
    )
