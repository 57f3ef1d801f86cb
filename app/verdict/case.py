"""One case: both answers side by side, what was asked, and what the scorers say."""

from __future__ import annotations

import streamlit as st
from qualgate_app.text import diff, escape, plain_block, table

from qualgate.formatting import counted, ms_text, prompt_text, reference_text
from qualgate.store.queries import Answer, CaseDetail, Flip


def show_case(flip: Flip, detail: CaseDetail) -> None:
    """All of one flip; what only one answer has is marked."""
    moved = "right → wrong" if flip.direction == "lost" else "wrong → right"
    moved += " · changes in the A/A arm too" if flip.noisy else ""
    st.html(
        f"<b>{escape(flip.evalset)} / {escape(flip.case_name)}</b> · {escape(flip.metric)} · {moved}"
        f'<div class="qg-quiet qg-long">{escape(flip.reason)}</div>'
    )
    left, right = diff(detail.baseline.text, detail.variant.text)
    columns = st.columns(2)
    for column, name, answer, shown in (
        (columns[0], "baseline", detail.baseline, left),
        (columns[1], "variant", detail.variant, right),
    ):
        with column:
            st.html(f'<div class="qg-quiet">{name} · {_measured(answer)}</div>{shown}')
    if detail.variant.first_divergence is not None:
        margin = detail.variant.margin_at_divergence
        sure = "" if margin is None else f", chosen with a margin of {margin:.2f} over the runner-up (logits)"
        st.caption(f"The answers part at token {detail.variant.first_divergence}{sure}.")
    prompt, reference = st.columns(2)
    with prompt:
        st.html(f'<div class="qg-quiet">prompt</div>{plain_block(prompt_text(detail.body))}')
    with reference:
        st.html(f'<div class="qg-quiet">reference</div>{plain_block(reference_text(detail.body))}')
    st.html(
        table(
            ["arm", "metric", "value", "why", "scorer"],
            [
                (
                    name,
                    escape(one.metric),
                    "–" if one.value is None else f"{one.value:g}",
                    escape(one.reason),
                    escape(one.scorer),
                )
                for name, answer in (("baseline", detail.baseline), ("variant", detail.variant))
                for one in answer.scores
            ],
        )
    )


def _measured(answer: Answer) -> str:
    if answer.status != "done":
        why = {
            "error": f"could not be run: {escape(answer.error)}",
            "settled": "not asked: the verdict was settled before",
        }
        return why.get(answer.status, "not run yet")
    return f"{counted(len(answer.token_ids), 'token')} · {escape(answer.finish_reason or '')} · {ms_text(answer.e2e)}"
