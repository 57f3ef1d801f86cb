"""Show a table of a variant's cases with filters, search and sorting, and one of them side by side."""

from __future__ import annotations

from typing import Any

import streamlit as st

from qualgate.records import NOISE, Comparison, UnitKey
from qualgate.records.identity import canonical_json
from qualgate.store.labels import UNLABELLED, WORDS, CaseLabels, CaseOfRun, Label
from qualgate.store.queries import SHOWS, SORTS, CaseFilter, CaseKey, Compared, FlipCount, RunSummary
from qualgate.text.commands import again_command
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted
from qualgate_app import data
from qualgate_app.address import keep, parameter
from qualgate_app.faults import explained
from qualgate_app.text import escape
from qualgate_app.verdict.case import scores_text, show_case
from qualgate_app.verdict.labels import label_cell, show_label_form

SIZE = 8  # rows of the table
EVERY, ANY, NO_LABEL = "every case", "all", "unlabelled"
CLIPPED = 160  # characters of an answer in the table


def cases_query(comparison: Comparison, evalsets: set[str]) -> dict[str, str]:
    """Return the filters, as URL parameters, for the cases that a rule measured."""
    flips = comparison.lost is not None
    query = {"show": "lost", "metric": comparison.metric} if flips else {"show": EVERY, "sort": "KL"}
    kind, _, value = comparison.slice.partition(":")
    if comparison.slice in evalsets:
        query["set"] = comparison.slice
    elif kind in ("task", "tag") and ", " not in value:  # else a slice by two labels
        query["search"] = canonical_json(value)  # the form in the stored case
    return query


@st.fragment
def show_cases(run: RunSummary, variant: str, counts: tuple[FlipCount, ...]) -> None:
    """Show the cases matching the address and the filters, the worst of them open until another is chosen."""
    st.subheader("Cases", anchor="cases")
    with explained():
        case_filter, sort, word = _filters(run, counts)
        labels = data.labels(run.run_id, variant)
        keys = _with_label(data.case_keys(run.run_id, variant, case_filter, sort), word, labels)
        progress = _progress_text(data.flipped_answers(run.run_id, variant), labels)
        st.caption(f"{_count_text(run, case_filter, len(keys))} · {progress}")
        if not keys:
            return
        names = [key.name for key in keys]
        opened = _opened((run.run_id, variant, case_filter, sort, word))
        index = names.index(opened) if opened in names else 0
        first = index - index % SIZE
        page = keys[first : first + SIZE]
        pairs = data.compared(run.run_id, page)
        labelled = data.labels_of_cases(run.run_id, variant, page)
        _table(page, pairs, labelled, index - first)
        _page_buttons(names, index)
        key, pair = keys[index], pairs[index - first]
        with st.container():  # the form keeps its place on the page, however much is shown above it
            detail = data.case_detail(run.run_id, variant, key)
            again = again_command(run.run_id, variant, key.evalset, key.case_id, key.repeat, data.url())
            show_case(key, pair, detail, labelled.get(key.case, UNLABELLED), again)
        show_label_form(run.run_id, UnitKey(variant, *key.case), labels.get(key.case))


def _filters(run: RunSummary, counts: tuple[FlipCount, ...]) -> tuple[CaseFilter, Any, str]:
    """Show the filters and the order, kept in the page's address, and return the filter, the order and the label.
    counts: offers the metrics, and chooses the cases that got worse at first if there are any."""

    def chosen(label: str, options: list[str], index: int = 0) -> Any:
        return st.selectbox(
            label, options, index, key=label.lower(), format_func=visible, bind="query-params", width=160
        )

    with st.container(horizontal=True):
        show = chosen("Show", [EVERY, *SHOWS], int(any(count.lost for count in counts)))
        evalset = chosen("Set", [ANY, *(item.name for item in run.evalsets)])
        metric = chosen("Metric", [ANY, *dict.fromkeys(count.metric for count in counts)])
        word = chosen("Label", [ANY, NO_LABEL, *WORDS])
        sort = chosen("Sort", list(SORTS), SORTS.index("KL"))
        search = st.text_input("Search", key="search", bind="query-params", width=160, max_chars=400)
    return (
        CaseFilter(
            evalset=None if evalset == ANY else evalset,
            show=None if show == EVERY else show,
            metric=None if metric == ANY else metric,
            search=search or "",
        ),
        sort,
        word,
    )


def _with_label(keys: tuple[CaseKey, ...], word: str, labels: dict[CaseOfRun, Label]) -> tuple[CaseKey, ...]:
    """Return the cases whose answer has this label of the filter."""
    if word == ANY:
        return keys
    words = {case: label.label for case, label in labels.items()}
    return tuple(key for key in keys if words.get(key.case, NO_LABEL) == word)


def _progress_text(flips: frozenset[CaseOfRun], labels: dict[CaseOfRun, Label]) -> str:
    return f"{len(flips & labels.keys()):,} of {counted(len(flips), 'flip')} labelled"


def _count_text(run: RunSummary, case_filter: CaseFilter, count: int) -> str:
    """Return how many cases match, with a note on the A/A arm where changed cases are listed and the run has one."""
    text = counted(count, "case") + ("" if count else " with these filters")
    if case_filter.show in ("lost", "gained") and any(arm.name.endswith(NOISE) for arm in run.arms):
        text += ". What the baseline changes against itself (the A/A arm) says little, and comes last"
    return text


HEADS = ("case", "baseline", "variant", "scores", "KL", "tokens", "first difference", "label")


def _table(
    keys: tuple[CaseKey, ...], pairs: tuple[Compared, ...], labelled: dict[CaseOfRun, CaseLabels], opened: int
) -> None:
    """Show a page of cases, each with a button that opens it. opened: index on this page of the open one."""
    st.html(f'<div class="qg-case qg-heads">{"".join(f"<div>{head}</div>" for head in HEADS)}</div>')
    for index, (key, compared) in enumerate(zip(keys, pairs, strict=True)):
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            st.html(_row(key, compared, labelled.get(key.case, UNLABELLED)), width="stretch")
            st.button("Open", key=f"open {index}", disabled=index == opened, on_click=_open, args=(key.name,))


def _row(key: CaseKey, compared: Compared, labels: CaseLabels) -> str:
    """Return the row of one case as HTML; each cell carries its column's name for narrow screens."""
    cells = (
        f"<b>{escape(key.name)}</b>",
        f'<div class="qg-clip">{escape(compared.baseline[:CLIPPED])}</div>',
        f'<div class="qg-clip">{escape(compared.variant[:CLIPPED])}</div>',
        scores_text(compared),
        "–" if key.kl is None else f"{key.kl:.3g}",
        f"{key.tokens[0]} → {key.tokens[1]}",
        "–" if compared.first_divergence is None else f"token {compared.first_divergence}",
        label_cell(labels),
    )
    named = (f'<div data-name="{head}"><div>{cell}</div></div>' for head, cell in zip(HEADS, cells, strict=True))
    return f'<div class="qg-case">{"".join(named)}</div>'


def _page_buttons(names: list[str], index: int) -> None:
    """Show the buttons to the neighbouring cases and pages. names: all matching cases. index: of the open one."""
    last, page = len(names) - 1, index - index % SIZE
    with st.container(horizontal=True, vertical_alignment="center"):
        for text, shortcut, to in (
            ("Previous", "k", index - 1),
            ("Next", "j", index + 1),
            ("Page before", None, page - SIZE),
            ("Page after", None, page + SIZE),
        ):
            name = names[to] if 0 <= to <= last else ""
            st.button(text, shortcut=shortcut, disabled=not name, on_click=_open, args=(name,))
        st.caption(f"{index + 1:,} of {len(names):,}")


def _open(name: str) -> None:
    st.query_params["case"] = name


def _opened(filters: tuple[object, ...]) -> str:
    """Return the case in the address; changed filters start at their first case."""
    if st.session_state.get("cases", filters) != filters:
        st.query_params.pop("case", None)
    st.session_state.cases = filters
    keep(case=parameter("case"))
    return parameter("case")
