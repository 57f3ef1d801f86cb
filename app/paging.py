"""Page through long lists, and link between pages."""

from __future__ import annotations

import streamlit as st
from qualgate_app.address import parameter


def page_of(name: str) -> int:
    """Return the page of the list `name` in the address, from 0."""
    number = parameter(f"{name}_page")
    return max(0, int(number) - 1) if number.isascii() and number.isdigit() and len(number) < 10 else 0


def turn(name: str, page: int, total: int, size: int, buttons: tuple[str, str] = ("Newer", "Older")) -> None:
    """Show buttons to the pages before and after `page`, if there is more than one. buttons: their labels."""
    if total <= size:
        return
    last = (total - 1) // size
    with st.container(horizontal=True, vertical_alignment="center"):
        for text, to, shown in ((buttons[0], page - 1, page > 0), (buttons[1], page + 1, page < last)):
            st.button(text, disabled=not shown, on_click=_turn_to, args=(name, to))
        st.caption(f"page {page + 1} of {last + 1}")


def _turn_to(name: str, page: int) -> None:
    st.query_params[f"{name}_page"] = str(page + 1)


def link(label: str, run_id: str, variant: str, **query: str) -> None:
    """Link to the verdict on a variant. query: more of its address, such as the case."""
    st.page_link(
        "views/verdict.py",
        label=label,
        icon=":material/arrow_forward:",
        query_params={"run": run_id, "variant": variant, **query},
    )


def link_nights(run_id: str) -> None:
    """Link to the trend of the nights up to a run."""
    st.page_link("views/nights.py", label="Trend", icon=":material/trending_down:", query_params={"run": run_id})


def link_compare(before: str, after: str) -> None:
    """Link to the comparison of two runs; `before` "": with the last run of the same gate file."""
    query = {"before": before, "after": after} if before else {"after": after}
    st.page_link("views/compare.py", label="Compare", icon=":material/compare_arrows:", query_params=query)


def link_loads(label: str, **query: str) -> None:
    """Link to all loads, to those of a `gate` file by its name, or to one `load` by its id."""
    st.page_link("views/loads.py", label=label, icon=":material/speed:", query_params=query)


def no_run() -> None:
    """Show how to make a first run."""
    st.info("This store holds no run yet. Make one, then come back:", icon=":material/info:")
    st.code("qualgate run gate.yaml", language=None)
