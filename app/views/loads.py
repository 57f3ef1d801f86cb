"""Loads: results of `load.rules` for servers with many concurrent users, and one load in numbers."""

from __future__ import annotations

import streamlit as st

from qualgate.report import load_sections
from qualgate.report.nights import word
from qualgate.store.loads import StoredLoad
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted
from qualgate_app import data
from qualgate_app.address import keep, parameter
from qualgate_app.blocks import show_sections
from qualgate_app.paging import link_loads, page_of, turn
from qualgate_app.text import chip, escape, when

PAGE = 20


def show_list(gate: str) -> None:
    """Show all loads, or those of a gate file's name, the newest first."""
    st.header("Loads")
    name = f"loads {gate}" if gate else "loads"
    loads, page, total = data.loads(PAGE, page_of(name), gate or None)
    if gate:
        st.html(f'<div class="qg-long">{counted(total, "load")} of <b>{escape(gate)}</b></div>')
        link_loads("All loads")
    elif not total:
        st.info(
            "This store holds no load that rules judged. With `load.rules` in a gate file of served arms, one is kept "
            "by:",
            icon=":material/info:",
        )
        st.code("qualgate load gate.yaml", language=None)
    for load in loads:
        show_line(load)
    turn(name, page, total, PAGE)


def show_line(load: StoredLoad) -> None:
    """Show a load's result, and each variant's verdict with its causes."""
    about = " · ".join(
        (when(load.created_at), load_sections.levels_line(load.body), counted(load.body["load"]["rounds"], "round"))
    )
    variants = "".join(
        f'<li><div class="qg-long">{chip(verdict["verdict"])} &nbsp;<b>{escape(verdict["variant"])}</b> '
        f'<span class="quiet">{escape(load_sections.causes_line(verdict))}</span></div></li>'
        for verdict in load.body["verdicts"]
    )
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        st.html(
            f'<div class="qg-long">{chip(word(load.exit))} &nbsp;<b>{escape(load.gate_name)}</b> '
            f'<span class="quiet">{escape(about)}</span></div><ul class="qg-reasons">{variants}</ul>',
            width="stretch",
        )
        link_loads("Open", load=load.load_id)


def show_one(load: StoredLoad) -> None:
    """Show one load: each rule's result, and the measurements behind it."""
    body = load.body
    link_loads("All loads")
    st.html(
        f'<div class="qg-title">{escape(load.gate_name)} {chip(word(load.exit))}</div>'
        f'<div class="quiet">{when(load.created_at)} · {escape(load.load_id)} · '
        f"{escape(load_sections.measured_line(body))}</div>"
    )
    st.caption("How servers bear many users. It says nothing of what they answer, so it approves no run.")
    show_sections([*load_sections.rules_sections(body), load_sections.measured_section(body)])
    with st.expander("Servers"):
        show_sections([load_sections.servers_section(body)])
    with st.expander("Gate file"):
        st.code(visible(load.gate_file), language=None, wrap_lines=True)
        st.caption(f"rules, limits and levels {load.policy_sha256[:16]}…")


wanted, of = parameter("load"), parameter("gate")
keep(load=wanted, gate=of)
if wanted:
    show_one(data.load(wanted))
else:
    show_list(of)
