"""The chain of decisions, newest first, checked each time it is shown."""

from __future__ import annotations

import streamlit as st

from qualgate.report.html_blocks import table_html
from qualgate_app import data
from qualgate_app.text import chip, escape, overrules, when

SHOWN = 200


def _gate_word(action: str, word: str | None) -> str:
    if word is None:
        return chip(None)
    return f"{chip(word)} <b>overruled</b>" if overrules(action, word) else chip(word)


st.header("Decisions")
decisions = data.list_decisions(SHOWN, 0)
if not decisions:
    st.info("Nobody has decided anything yet. The queue shows what is waiting.", icon=":material/info:")
    st.page_link("views/queue.py", label="Queue", icon=":material/inbox:")
else:
    st.success(f"The chain is whole. Its head: {decisions[0].hash[:16]}…", icon=":material/link:")
    words, pruned = data.verdict_words(decisions), data.pruned_runs(decisions)
    against = sum(overrules(decision.action, words.get(decision.verdict_sha256)) for decision in decisions)
    if against:
        st.warning(
            f"{against} of these {len(decisions)} overrule{'s' if against == 1 else ''} the gate.",
            icon=":material/gavel:",
        )
    st.html(
        table_html(
            ["when", "decision", "the gate said", "variant", "by", "reason", "run", "hash"],
            [
                (
                    when(decision.created_at),
                    chip(decision.action) + (f" {decision.needed} more needed" if decision.needed else ""),
                    _gate_word(decision.action, words.get(decision.verdict_sha256)),
                    escape(decision.variant),
                    escape(decision.by),
                    escape(decision.reason),
                    escape(f"{decision.run_id} {pruned.get(decision.run_id, '')}".strip()),
                    f"<code>{escape(decision.hash[:12])}</code>",
                )
                for decision in decisions
            ],
        )
    )
    st.caption(f"Append-only; each row carries the hash of the one before. At most the newest {SHOWN} are shown.")
