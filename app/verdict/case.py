"""Show one case: the prompt, both answers side by side, and the scores."""

from __future__ import annotations

import streamlit as st

from qualgate.report.html_blocks import table_html
from qualgate.store.labels import CaseLabels
from qualgate.store.queries import Answer, CaseDetail, CaseKey, Compared
from qualgate.store.queries.case_text import prompt_text, reference_text
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted, ms_text, score_text
from qualgate_app.text import diff, escape, plain_block


def scores_text(case: Compared) -> str:
    """Render the change of each score as HTML."""
    return "<br>".join(f"{escape(name)} {_moved(*pair)}" for name, pair in case.scores.items())


def _moved(before: float | None, after: float | None) -> str:
    text = f"{score_text(before)} → {score_text(after)}"
    return f"<b>{text}</b>" if before != after else text


def show_case(key: CaseKey, compared: Compared, detail: CaseDetail, labels: CaseLabels, again: str) -> None:
    """Show one case in full, with its labels and with differences between the answers marked. again: the command that
    answers it again."""
    st.html(f"<b>{escape(key.name)}</b>{' · changes in the A/A arm too' if key.noisy else ''}")
    for line in labels.lines(compared.variant):
        st.html(f'<div class="qg-long">{escape(line)}</div>')
    prompt, reference = st.columns(2)
    with prompt:
        st.html(f'<div class="quiet">prompt</div>{plain_block(prompt_text(detail.body))}')
    with reference:
        st.html(f'<div class="quiet">reference</div>{plain_block(reference_text(detail.body))}')
    baseline_html, variant_html = diff(detail.baseline.text, detail.variant.text)
    columns = st.columns(2)
    for column, name, answer, block in (
        (columns[0], "baseline", detail.baseline, baseline_html),
        (columns[1], "variant", detail.variant, variant_html),
    ):
        with column:
            st.html(f'<div class="quiet">{name} · {_measured(answer)}</div>{block}')
    if detail.variant.first_divergence is not None:
        margin = detail.variant.margin_at_divergence
        sure = "" if margin is None else f", chosen with a margin of {margin:.2f} over the runner-up (logits)"
        st.caption(f"The answers part at token {detail.variant.first_divergence}{sure}.")
    scorers = {score.metric: score.scorer for score in detail.variant.scores}
    rows = [
        [escape(name), *map(score_text, pair), escape(compared.reasons.get(name, "")), escape(scorers.get(name, ""))]
        for name, pair in compared.scores.items()
    ]
    st.html(table_html(["metric", "baseline", "variant", "why", "scorer"], rows))
    st.caption("Answer this case again with both arms, and compare token by token:")
    st.code(visible(again), language=None, wrap_lines=True)


def _measured(answer: Answer) -> str:
    return f"{counted(len(answer.token_ids), 'token')} · {escape(answer.finish_reason or '')} · {ms_text(answer.e2e)}"
