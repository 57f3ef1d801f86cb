"""One variant: may it ship, why, what changed, how sure, and the form that records what a person decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.text import (
    chip,
    diff,
    escape,
    label,
    overrules,
    plain_block,
    table,
    when,
)

from qualgate.errors import UsageError
from qualgate.formatting import bounds_text, counted, difference_text, flips_text, ms_text, size_text, value_text
from qualgate.records import NOISE, ArmService, Verdict
from qualgate.report import plots
from qualgate.report.arms import SERVICE_HEADS, interaction_text, service_notes, service_row, step_rows
from qualgate.store.decisions import Action
from qualgate.store.queries import Answer, CaseDetail, Flip, FlipCount, RunSummary, StoredVerdict

LONGEST_NAME = 200  # as the store's columns
DIRECTIONS = {"right → wrong": "lost", "wrong → right": "gained"}
MEANING = {
    "approve": "Every critical rule is proven: the loss is smaller than what the policy allows.",
    "block": "A loss beyond what the policy allows is proven.",
    "review": "The critical rules are proven; the policy asks for a person.",
    "undecided": "The evidence can neither prove nor exclude a loss beyond what the policy allows. Not a pass.",
    "invalid": "The run is incomplete or its evidence is damaged. It says nothing about the variant.",
}


def show() -> None:
    run = data.run_summary(_asked("run") or data.latest_run())
    names = [arm.name for arm in run.arms[1:] if "@" not in arm.name]
    variant = _asked("variant") or names[0]
    if variant not in names:
        raise UsageError(f"run {run.run_id} has no variant {variant!r}. It has: {', '.join(names)}.")
    _switch(run, names, variant)
    found = run.verdict(variant)
    if found is None:
        st.html(f'<div class="qg-title">{escape(variant)} {chip(None)}</div>')
        _progress(run)
        return
    _header(run, found)
    counts = data.flip_counts(run.run_id, variant)
    left, right = st.columns([5, 3], gap="large")
    with left:
        _why(found.verdict)
        _sizes(run, variant, counts)
    with right:
        _decision(run, found)
    _four_arms(run)
    _rules(found)
    if found.verdict.word != "invalid":  # its evidence is nothing to draw
        _flips(run, variant, counts)
    _more(run, found)


def _asked(name: str) -> str:
    """What the address asks for: anybody's text, so never longer than a name in the store can be."""
    return st.query_params.get(name, "")[:LONGEST_NAME]


def _switch(run: RunSummary, names: list[str], variant: str) -> None:
    """The run's other variants, one click away."""
    with st.container(horizontal=True):
        for name in names:
            st.page_link(
                "views/verdict.py",
                label=label(name),
                icon=":material/radio_button_checked:" if name == variant else ":material/radio_button_unchecked:",
                query_params={"run": run.run_id, "variant": name},
            )


def _progress(run: RunSummary) -> None:
    done, expected = sum(arm.done for arm in run.arms), sum(arm.expected for arm in run.arms)
    st.info(
        f"There is no verdict yet: {done:,} of {counted(expected, 'answer')} are in. If the run was interrupted, "
        "running the same command again resumes it.",
        icon=":material/hourglass_top:",
    )


def _header(run: RunSummary, found: StoredVerdict) -> None:
    sets = ", ".join(f"{item.name} {item.version} ({item.size})" for item in run.evalsets)
    st.html(
        f'<div class="qg-title">{escape(found.verdict.variant)} {chip(found.verdict.word)}</div>'
        f'<div class="qg-quiet">{when(run.created_at)} · run {escape(run.run_id)} · {escape(sets)}</div>'
    )


def _why(verdict: Verdict) -> None:
    first, *rest = verdict.reasons or ("no reason was recorded",)
    items = "".join(f"<li>{escape(reason)}</li>" for reason in rest)
    st.html(
        f'<div class="qg-reason">{escape(first)}</div><div class="qg-quiet">{MEANING.get(verdict.word, "")}</div>'
        f'<ul class="qg-reasons">{items}</ul>'
    )


# ----------------------------------------------------------------------------------------------- a person's decision


def _decision(run: RunSummary, found: StoredVerdict) -> None:
    with st.container(border=True):
        for made in found.decisions:
            about_this = made.verdict_sha256 == found.sha256
            old = "" if about_this else " · about an earlier verdict"
            if about_this and overrules(made.action, found.verdict.word):
                old += " · <b>overrules the gate</b>"
            st.html(
                f"{chip(made.action)} by <b>{escape(made.name)}</b>"
                f'<div>{escape(made.reason)}</div><div class="qg-quiet">{when(made.created_at)}{old} · '
                f"<code>{escape(made.hash[:12])}</code></div>"
            )
        st.markdown("**Decide again**" if found.decision else "**Your decision**")
        word = found.verdict.word
        if word == "invalid":
            st.caption("An invalid run cannot be approved. Run it again.")
        elif word == "block":
            st.caption("The gate says block; approving would overrule it.")
        elif word == "undecided":
            st.caption("The gate could not decide; approving would overrule it.")
        # A click runs this page anew; what the person saw is what the run before it showed.
        this = f"{run.run_id} {found.verdict.variant}"
        verdict_seen, decision_seen = st.session_state.get(f"shown {this}", ("", None))
        newest = found.decisions[-1].hash if found.decisions else None
        st.session_state[f"shown {this}"] = (found.sha256, newest)
        with st.form(f"decide {this}", border=False, enter_to_submit=False):
            name = st.text_input("Name", value=st.session_state.get("reviewer", ""), key="decide_name", max_chars=200)
            reason = st.text_area("Reason", key="decide_reason", height=80, max_chars=4000)
            approve, block = st.columns(2)
            approved = approve.form_submit_button("Approve", width="stretch", disabled=word == "invalid")
            blocked = block.form_submit_button("Block", width="stretch")
        if approved or blocked:
            action: Action = "approve" if approved else "block"
            try:
                data.decide(
                    run.run_id, found.verdict.variant, action, name or "", reason or "", verdict_seen, decision_seen
                )
            except UsageError as error:
                st.error("Nothing was recorded.", icon=":material/error:")
                st.text(str(error))
            else:
                st.session_state.reviewer = name
                st.toast("Recorded.", icon=":material/check:")
                st.rerun()


# ------------------------------------------------------------------------------------------------- what was measured


def _sizes(run: RunSummary, variant: str, counts: tuple[FlipCount, ...]) -> None:
    baseline, arm = run.arms[0], next(arm for arm in run.arms if arm.name == variant)
    size, full = arm.footprint, baseline.footprint
    # What ships: the baseline is held in float32 while it runs, whatever its weights' dtype.
    ratio = full.bytes_on_disk / size.bytes_on_disk if size and full and size.bytes_on_disk else None
    against = (
        None
        if ratio is None
        else "same size"
        if ratio == 1
        else f"{ratio:.1f}× smaller"
        if ratio > 1
        else f"{1 / ratio:.1f}× larger"
    )
    cells = st.columns(4)
    help = "scores of every metric; one answer may count under several"
    on_disk = size_text(size.bytes_on_disk) if size else "–"
    cells[0].metric("Weights on disk", on_disk, against, delta_color="off", delta_arrow="off")
    held = "in memory; what is not quantized is held in float32 while it runs"
    cells[1].metric("Bits a weight", f"{size.effective_bits:.2f}" if size else "–", help=held)
    cells[2].metric("Right → wrong", sum(one.lost for one in counts), help=help)
    cells[3].metric("Wrong → right", sum(one.gained for one in counts), help=help)


STEPS = {"parity": "parity", "quality": "quality", "slo": "SLO", "value": "value"}


def _four_arms(run: RunSummary) -> None:
    """Of a four-arm run, on the page of each of its arms: which one to serve and how far each came."""
    answer = next((one.verdict.four_arm for one in run.verdicts if one.verdict.four_arm is not None), None)
    if answer is None:
        return
    st.subheader("Which arm to serve", anchor="arms")
    st.html(
        f'<div class="qg-reason"><b>{escape(answer.choice or "not known yet")}</b></div>'
        f'<div class="qg-quiet">{escape(answer.why)}</div>'
    )
    rows = []
    for arm, steps in step_rows(answer):
        taken = (steps.get(name) for name in STEPS)
        cells = (f'{chip(one.status)}<div class="qg-quiet">{escape(one.reason)}</div>' if one else "–" for one in taken)
        rows.append((escape(arm), *cells))
    if rows:
        st.html(table(["arm", *STEPS.values()], rows))
    found = [
        f'<div class="qg-quiet">interaction · {escape(interaction_text(one))}</div>' for one in answer.interactions
    ]
    if found:
        st.html("".join(found))
    _services(answer.services)
    st.html(f"<b>Try first: {escape(answer.first)}</b><div class='qg-quiet'>{escape(answer.first_why)}</div>")


def _services(services: Sequence[ArmService]) -> None:
    if services:
        st.html(table(SERVICE_HEADS, [[escape(cell) for cell in service_row(one)] for one in services], numbers=(1, 3)))
        st.html("".join(f'<div class="qg-quiet">{escape(line)}</div>' for line in service_notes(services)))


def _rules(found: StoredVerdict) -> None:
    comparisons = found.verdict.comparisons
    if not comparisons:
        return
    st.subheader("Rules", anchor="rules")
    for heading, picture in plots.margins(comparisons, found.policy):
        st.caption(heading)
        charts.show(picture, "the table below in a picture")
    level = f"{100 * (1 - found.policy.alpha):.0f}"
    st.html(
        table(
            [
                "",
                "rule",
                "slice",
                "tier",
                "n",
                "baseline",
                "variant",
                "difference",
                f"{level} % bounds",
                "lost / gained",
            ],
            [
                (
                    chip(one.status),
                    escape(one.rule),
                    escape(one.slice),
                    escape(one.tier),
                    f"{one.n:,}",
                    value_text(one.metric, one.baseline),
                    value_text(one.metric, one.variant),
                    difference_text(one),
                    bounds_text(one),
                    flips_text(one),
                )
                for one in comparisons
            ],
            numbers=range(4, 10),
        )
    )
    st.caption("Differences of rates are in points. Each bound is one-sided at the level shown.")
    _services(found.verdict.services)


# ---------------------------------------------------------------------------------------------------------- the flips


def _flips(run: RunSummary, variant: str, counts: tuple[FlipCount, ...]) -> None:
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
    evalset = chosen[2].selectbox("Set", sets, key="set", bind="query-params", on_change=_first_flip)
    direction: Any = DIRECTIONS.get(way)
    fits = [one for one in counts if metric in ("all", one.metric) and evalset in ("all", one.evalset)]
    total = sum((direction != "gained") * one.lost + (direction != "lost") * one.gained for one in fits)
    if not total:
        st.caption("None with these filters.")
        return
    asked = _asked("flip")
    at = min(max(int(asked) if asked.isdecimal() else 1, 1), total)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Previous", shortcut="k", disabled=at == 1, on_click=_show_flip, args=(at - 1,))
        st.button("Next", shortcut="j", disabled=at == total, on_click=_show_flip, args=(at + 1,))
        st.caption(f"{at} of {total}")
    only = (None if metric == "all" else metric, None if evalset == "all" else evalset, direction)
    found = data.flips(run.run_id, variant, *only, limit=1, offset=at - 1)
    if found:
        _case(found[0], data.case_detail(run.run_id, variant, found[0]))


def _show_flip(number: int) -> None:
    st.query_params["flip"] = str(number)


def _first_flip() -> None:
    st.query_params.pop("flip", None)


def _case(flip: Flip, detail: CaseDetail) -> None:
    moved = "right → wrong" if flip.direction == "lost" else "wrong → right"
    moved += " · changes in the A/A arm too" if flip.noisy else ""
    st.html(
        f"<b>{escape(flip.evalset)} / {escape(flip.case_name)}</b> · {escape(flip.metric)} · {moved}"
        f'<div class="qg-quiet">{escape(flip.reason)}</div>'
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
        st.html(f'<div class="qg-quiet">prompt</div>{plain_block(_prompt(detail.body))}')
    with reference:
        st.html(f'<div class="qg-quiet">reference</div>{plain_block(_reference(detail.body))}')
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


def _prompt(body: dict[str, Any]) -> str:
    if "prompt" in body:
        return str(body["prompt"])
    turns = [f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in body.get("messages", ())]
    tools = [f"tool: {json.dumps(tool.get('function', tool), ensure_ascii=False)}" for tool in body.get("tools", ())]
    return "\n\n".join([*turns, *tools])


def _reference(body: dict[str, Any]) -> str:
    if "answer" in body:
        return str(body["answer"])
    rest = {name: body[name] for name in ("expected_calls", "schema", "tests") if name in body}
    return json.dumps(rest, indent=2, ensure_ascii=False)


# ----------------------------------------------------------------------------------------------------------- the rest


def _more(run: RunSummary, found: StoredVerdict) -> None:
    variant = found.verdict.variant
    points = () if found.verdict.word == "invalid" else data.drift_by_position(run.run_id, variant)
    picture = plots.drift(points)
    if picture is not None:
        st.subheader("Drift by position", anchor="drift")
        st.caption(f"{plots.DRIFT_CAPTION}.")
        st.caption("Teacher forcing on the baseline's own tokens. Drift ranks and warns; it never approves.")
        charts.show(picture, "mean KL at each token position")
    with st.expander("Arms and identities"):
        st.html(
            table(
                [
                    "arm",
                    "weights",
                    "kernel",
                    "on disk",
                    "model",
                    "done",
                    "errors",
                    "weights sha256",
                    "tokenizer",
                    "template",
                ],
                [
                    (
                        escape(arm.name),
                        escape(arm.weights),
                        escape(", ".join(arm.kernels) or "–"),
                        size_text(arm.footprint.bytes_on_disk) if arm.footprint else "–",
                        escape(arm.spec.model),
                        f"{arm.done:,} / {arm.expected:,}",
                        f"{arm.errors:,}",
                        *(
                            f"<code>{escape(value[:12])}</code>"
                            for value in (arm.planned.weights, arm.planned.tokenizer, arm.planned.template)
                        ),
                    )
                    for arm in run.arms
                ],
                numbers=(3, 5, 6),
            )
        )
        engines = "; ".join(dict.fromkeys(arm.planned.engine for arm in run.arms))
        st.html(f'<span class="qg-quiet">engine: {escape(engines)}</span>')
    with st.expander("Gate file"):
        if found.policy != run.policy:
            st.markdown("**This verdict was made by another policy than that of the run's gate file.** Its rules:")
            tiers = [f"{rule.id} · {rule.tier}" for rule in found.policy.rules]
            st.code("\n".join([*tiers, f"alpha {found.policy.alpha:g} · review {found.policy.review}"]), language=None)
            st.caption("The run's gate file:")
        st.code(run.gate_file, language="yaml")
        st.caption(f"verdict {found.sha256[:16]}… of {when(found.created_at)} · policy {found.policy_sha256[:16]}…")


show()
