"""The SQL condition for trials, which do not count as the newest run or as judged before."""

from __future__ import annotations

from qualgate.store.tables import runs

# The policy's text is our own sealed JSON, where quotes in values are escaped: only the key can match.
IS_TRIAL = runs.c.policy_json.contains('"trial":{', autoescape=True)
