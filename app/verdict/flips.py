"""The answers that changed between right and wrong, one at a time."""

from __future__ import annotations

from typing import Any

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.address import asked
from qualgate_app.verdict.case import show_case

from qualgate.escaping import visible
from qualgate.records import NOISE
from qualgate.report import plots
from qualgate.store.queries import FlipCount, RunSummary

DIRECTIONS = {"right → wrong": "lost", "wrong → right": "gained"}


def show_flips(run: RunSummary, variant: str, counts: tuple[FlipCount, ...]) -> None:
    """How many there are by set, and the one that the address and the filters ask for."""
    st.subheader("Flips", anchor="flips")
    picture = plots.flips(counts)
    if picture is None:
        st.caption("No answer changed between right and wrong.")
        return
    if any(arm.name.endswith(NOISE) for arm in run.arms):
        st.caption(
            "What the baseline changes against itself (the A/A arm) says little, and comes last in each direction."
        )
    charts.show(picture, "right → wrong and wrong → right by set")
    chosen = st.columns(3)
    metrics = ["all", *dict.fromkeys(one.metric for one in counts)]
    sets = ["all", *dict.fromkeys(one.evalset for one in counts)]
    way = chosen[0].selectbox(
        "Direction", [*DIRECTIONS, "both"], key="direction", bind="query-params", on_change=_first_flip
    )
    metric = chosen[1].selectbox("Metric", metrics, key="metric", bind="query-params", on_change=_first_flip)
    evalset = chosen[2].selectbox(
        "Set", sets, key="set", format_func=visible, bind="query-params", on_change=_first_flip
    )
    direction: Any = DIRECTIONS.get(way)
    fits = [one for one in counts if metric in ("all", one.metric) and evalset in ("all", one.evalset)]
    if metric == "all":  # then each case is shown once, whichever of its scores changed
        of = tuple(dict.fromkeys((one.metric, None if evalset == "all" else evalset) for one in fits))
        moved = data.flipped_cases(run.run_id, variant, of)
        total = sum(count for way, count in moved.items() if direction in (None, way))
    else:
        total = sum((direction != "gained") * one.lost + (direction != "lost") * one.gained for one in fits)
    if not total:
        st.caption("None with these filters.")
        return
    wanted = asked("flip")
    at = min(max(int(wanted) if wanted.isdecimal() else 1, 1), total)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Previous", shortcut="k", disabled=at == 1, on_click=_show_flip, args=(at - 1,))
        st.button("Next", shortcut="j", disabled=at == total, on_click=_show_flip, args=(at + 1,))
        st.caption(f"{at} of {total}")
    only = (None if metric == "all" else metric, None if evalset == "all" else evalset, direction)
    found = data.flips(run.run_id, variant, *only, limit=1, offset=at - 1)
    if found:
        show_case(found[0], data.case_detail(run.run_id, variant, found[0]))


def _show_flip(number: int) -> None:
    st.query_params["flip"] = str(number)


def _first_flip() -> None:
    st.query_params.pop("flip", None)
