"""Loads: results of `load.rules` for servers with many concurrent users, and one load in numbers."""

from __future__ import annotations

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.address import keep, parameter
from qualgate_app.paging import link_loads, page_of, turn
from qualgate_app.text import chip, escape, table, when

from qualgate.escaping import visible
from qualgate.formatting import counted
from qualgate.report import load_tables
from qualgate.report.load_tables import Body, Table
from qualgate.report.nights import word
from qualgate.store.loads import StoredLoad

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
        (when(load.created_at), load_tables.levels_line(load.body), counted(load.body["load"]["rounds"], "round"))
    )
    variants = "".join(
        f'<li><div class="qg-long">{chip(verdict["verdict"])} &nbsp;<b>{escape(verdict["variant"])}</b> '
        f'<span class="qg-quiet">{escape(load_tables.causes_line(verdict))}</span></div></li>'
        for verdict in load.body["verdicts"]
    )
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        st.html(
            f'<div class="qg-long">{chip(word(load.exit))} &nbsp;<b>{escape(load.gate_name)}</b> '
            f'<span class="qg-quiet">{escape(about)}</span></div><ul class="qg-reasons">{variants}</ul>',
            width="stretch",
        )
        link_loads("Open", load=load.load_id)


def show_one(load: StoredLoad) -> None:
    """Show one load: each rule's result, and the measurements behind it."""
    body = load.body
    link_loads("All loads")
    st.html(
        f'<div class="qg-title">{escape(load.gate_name)} {chip(word(load.exit))}</div>'
        f'<div class="qg-quiet">{when(load.created_at)} · {escape(load.load_id)} · '
        f"{escape(load_tables.measured_line(body))}</div>"
    )
    st.caption("How servers bear many users. It says nothing of what they answer, so it approves no run.")
    st.subheader("Rules", anchor="rules")
    for verdict in body["verdicts"]:
        show_verdict(verdict)
    st.subheader("Throughput and latency", anchor="latency")
    charts.show(load_tables.load_picture(body), "the tables below in a picture")
    show_table(load_tables.throughput_table(body))
    show_table(load_tables.times_table(body))
    st.caption(load_tables.READING)
    if body["load"]["rounds"] > 1:
        st.caption(load_tables.BY_ROUND)
    st.html("".join(f'<div class="qg-quiet">{escape(note)}</div>' for note in body["notes"]))
    with st.expander("Servers"):
        st.html(table(("arm", "declared"), [list(map(escape, cells)) for cells in body["declared"].items()]))
    with st.expander("Gate file"):
        st.code(visible(load.gate_file), language=None, wrap_lines=True)
        st.caption(f"rules, limits and levels {load.policy_sha256[:16]}…")


def show_verdict(verdict: Body) -> None:
    """Show one variant's verdict and its rules."""
    st.html(
        f'<div class="qg-name" role="heading" aria-level="4"><b>{escape(verdict["variant"])}</b> '
        f"&nbsp;{chip(verdict['verdict'])}&nbsp; under load</div>"
    )
    show_table(load_tables.rules_table(verdict))


def show_table(content: Table) -> None:
    """Show a table with escaped cells, and verdict words as labels."""

    def cell(head: str, text: str) -> str:
        if head == "verdict":
            return chip(text)
        form = {"rule": "qg-whole", "why": "qg-wide"}.get(head)
        return f'<span class="{form}">{escape(text)}</span>' if form else escape(text)

    rows = ([cell(head, text) for head, text in zip(content.heads, row, strict=True)] for row in content.rows)
    st.html(table([escape(head) for head in content.heads], rows, numbers=content.numbers))


wanted, of = parameter("load"), parameter("gate")
keep(load=wanted, gate=of)
if wanted:
    show_one(data.load(wanted))
else:
    show_list(of)
