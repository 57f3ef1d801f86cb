"""Loads: what `load.rules` said of servers that many users asked at once, and one load by its numbers."""

from __future__ import annotations

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.address import asked, keep
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
    """All loads, or those of a gate file's name, the newest first."""
    st.header("Loads")
    name = f"loads {gate}" if gate else "loads"
    found, page, total = data.loads(PAGE, page_of(name), gate or None)
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
    for one in found:
        show_line(one)
    turn(name, page, total, PAGE)


def show_line(one: StoredLoad) -> None:
    """How it ended, and each variant's word with why."""
    about = " · ".join(
        (when(one.created_at), load_tables.levels_line(one.body), counted(one.body["load"]["rounds"], "round"))
    )
    variants = "".join(
        f'<li><div class="qg-long">{chip(verdict["verdict"])} &nbsp;<b>{escape(verdict["variant"])}</b> '
        f'<span class="qg-quiet">{escape(load_tables.causes_line(verdict))}</span></div></li>'
        for verdict in one.body["verdicts"]
    )
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        st.html(
            f'<div class="qg-long">{chip(word(one.exit))} &nbsp;<b>{escape(one.gate_name)}</b> '
            f'<span class="qg-quiet">{escape(about)}</span></div><ul class="qg-reasons">{variants}</ul>',
            width="stretch",
        )
        link_loads("Open", load=one.load_id)


def show_one(one: StoredLoad) -> None:
    """What each rule said, and what it rests on."""
    body = one.body
    link_loads("All loads")
    st.html(
        f'<div class="qg-title">{escape(one.gate_name)} {chip(word(one.exit))}</div>'
        f'<div class="qg-quiet">{when(one.created_at)} · {escape(one.load_id)} · '
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
        st.html(table(("arm", "declared"), [[escape(arm), escape(told)] for arm, told in body["declared"].items()]))
    with st.expander("Gate file"):
        st.code(visible(one.gate_file), language=None, wrap_lines=True)
        st.caption(f"rules, limits and levels {one.policy_sha256[:16]}…")


def show_verdict(verdict: Body) -> None:
    """One variant's word and its rules."""
    st.html(
        f'<div class="qg-name" role="heading" aria-level="4"><b>{escape(verdict["variant"])}</b> '
        f"&nbsp;{chip(verdict['verdict'])}&nbsp; under load</div>"
    )
    show_table(load_tables.rules_table(verdict))


def show_table(found: Table) -> None:
    """Its cells as text; the word of a verdict as a label."""

    def cell(head: str, said: str) -> str:
        if head == "verdict":
            return chip(said)
        form = {"rule": "qg-whole", "why": "qg-wide"}.get(head)
        return f'<span class="{form}">{escape(said)}</span>' if form else escape(said)

    rows = ([cell(head, said) for head, said in zip(found.heads, row, strict=True)] for row in found.rows)
    st.html(table([escape(head) for head in found.heads], rows, numbers=found.numbers))


wanted, of = asked("load"), asked("gate")
keep(load=wanted, gate=of)
if wanted:
    show_one(data.load(wanted))
else:
    show_list(of)
