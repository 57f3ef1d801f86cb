"""Page through long lists, and link between pages."""

from __future__ import annotations

import streamlit as st


def page_of(name: str) -> int:
    """Return the reader's current page of the list `name`, from 0."""
    return st.session_state.get(f"{name}_page", 0)


def turn(name: str, page: int, total: int, size: int, buttons: tuple[str, str] = ("Newer", "Older")) -> None:
    """Show buttons to the pages before and after `page`, if there is more than one. buttons: their labels."""
    if total <= size:
        return
    last = (total - 1) // size
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(buttons[0], disabled=page == 0):
            st.session_state[f"{name}_page"] = page - 1
            st.rerun()
        st.caption(f"page {page + 1} of {last + 1}")
        if st.button(buttons[1], disabled=page >= last):
            st.session_state[f"{name}_page"] = page + 1
            st.rerun()


def link(label: str, run_id: str, variant: str) -> None:
    """Link to the verdict on a variant."""
    st.page_link(
        "views/verdict.py",
        label=label,
        icon=":material/arrow_forward:",
        query_params={"run": run_id, "variant": variant},
    )


def link_nights(run_id: str) -> None:
    """Link to the trend of the nights up to a run."""
    st.page_link("views/nights.py", label="Trend", icon=":material/trending_down:", query_params={"run": run_id})


def link_loads(label: str, **query: str) -> None:
    """Link to all loads, to those of a `gate` file by its name, or to one `load` by its id."""
    st.page_link("views/loads.py", label=label, icon=":material/speed:", query_params=query)


def no_run() -> None:
    """Show how to make a first run."""
    st.info("This store holds no run yet. Make one, then come back:", icon=":material/info:")
    st.code("qualgate run gate.yaml", language=None)
