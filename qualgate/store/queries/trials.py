"""Which runs are trials: whoever asks for the newest run, or for what was judged before, does not mean one."""

from __future__ import annotations

from qualgate.store.tables import runs

# The policy's text is our own JSON and sealed: a quote inside a value is escaped there, so only the key reads so.
IS_TRIAL = runs.c.policy_json.contains('"trial":{', autoescape=True)
