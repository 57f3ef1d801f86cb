"""A four-arm answer in every format: which arm to serve, each step, interactions, costs, and the code of the choice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from qualgate.errors import Exit
from qualgate.gate.decide import exit_of
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.records import FourArm
from qualgate.report import plots
from qualgate.report.comparison_text import interaction_numbers
from qualgate.report.findings import FOUR_ARM, VERDICT, findings
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.formats.markdown import escaped
from qualgate.report.source import source_of, stored_source
from qualgate.report.summary import Report
from qualgate.report.unstored import report_of
from tests.gate.four import ARMS, POLICY, alike, evidence
from tests.gate.four_arm.test_verdict import CHEAPER, interacting
from tests.report.reading import ATTACK, checked_json, holds_no_attack, shown


def judged(cost: float = 4.0, n: int = 400, **changes: object) -> Report:
    """cost: of one answer by both, whose parts cost 8 and 7."""
    right = interacting(n) if "parity" in changes else alike(n)
    policy = replace(POLICY, four_arm=replace(ARMS, blocks=("BQSX", "XSQB"), **changes))
    given = evidence(right, CHEAPER | {"int4+drafted": cost})
    verdicts = decide_four(given, policy)
    made = report_of(given, verdicts, policy, ["b.jsonl", "q.jsonl", "s.jsonl", "both.jsonl"])
    assert made.exit == exit_of(verdicts)
    return made


@pytest.fixture(scope="module")
def both() -> Report:
    return judged()


@pytest.fixture(scope="module")
def single() -> Report:
    """Speculation alone is chosen; both is blocked, as it costs more."""
    return judged(7.5)


@pytest.fixture(scope="module")
def interaction() -> Report:
    return judged(parity="sampled", n=2500)


@pytest.fixture(scope="module")
def unknown() -> Report:
    """Fifteen cases choose nothing."""
    return judged(n=15)


def answer(report: Report) -> FourArm:
    assert report.four_arm is not None
    return report.four_arm


def with_answer(report: Report, changed: FourArm) -> Report:
    *others, last = report.run.verdicts
    verdicts = (*others, replace(last, verdict=replace(last.verdict, four_arm=changed)))
    return replace(report, run=replace(report.run, verdicts=verdicts))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", ["both", "single", "interaction", "unknown"])
def test_every_format_names_the_choice_and_why(form: str, case: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(case)
    text, said = shown(report, form), answer(report)
    assert said.why in text
    assert (said.choice or "not known yet") in text or form == "json"


def test_the_code_of_the_report_is_that_of_the_choice(
    both: Report, single: Report, unknown: Report, interaction: Report
) -> None:
    assert (both.exit, single.exit) == (Exit.APPROVE, Exit.APPROVE)
    assert [one.word for one in single.verdicts] == ["approve", "approve", "block"]
    assert unknown.exit == Exit.UNDECIDED
    bodies = [checked_json(one) for one in (both, interaction, single, unknown)]
    assert [(one["exit"], one["choice"]) for one in bodies[2:]] == [(0, "drafted"), (Exit.UNDECIDED, "")]


@pytest.mark.parametrize("form", ["html", "markdown", "github"])
def test_steps_interactions_costs_and_advice_are_there_to_be_read(form: str, single: Report) -> None:
    text, said = shown(single, form), answer(single)
    assert all(step.reason in text for step in said.steps)
    assert all(f"{one.per_accepted:.4g}" in text for one in said.services)
    for one in said.interactions:
        assert one.metric in text
        assert one.lower is not None
        assert f"[{100 * one.lower:+.2f}" in text or one.metric == "cost_per_accepted_answer"
    assert "BQSX XSQB" in text
    assert said.first_why in text


def test_a_page_draws_an_interval_for_each_interaction(interaction: Report) -> None:
    text = rendered(interaction, "html")
    drawn = text[text.index("<figcaption>Interaction") : text.index("What serving")]
    assert drawn.count('<svg class="row"') == len(answer(interaction).interactions) == 2
    assert 'class="mark broken"' in drawn, "the one that was found"
    assert drawn.count('<svg class="ticks"') == 2, "one scale for points, one for costs"


def bar(drawn: str, number: int) -> tuple[float, float]:
    """From where to where the interval of a row reaches, in per cent of the width."""
    row = drawn.split('<svg class="row"')[number + 1]
    left, right = re.findall(r'class="bar \w+" x1="([\d.]+)%" y1="15" x2="([\d.]+)%"', row)[0]
    return float(left), float(right)


def test_intervals_of_one_unit_share_a_scale_and_a_far_one_is_marked_at_the_edge(interaction: Report) -> None:
    one = replace(answer(interaction).interactions[0], metric="exact_match", estimate=0.0, found=False)
    small, wide, far, none = (
        replace(one, lower=-low, upper=high) for low, high in ((0.02, 0.02), (0.04, 0.04), (1.5, 0.02), (2.0, 2.0))
    )
    picture = plots.interactions((small, wide, far, none))
    assert picture is not None
    drawn = picture.html
    assert drawn.count('<svg class="ticks"') == 1
    (a, b), (c, d) = bar(drawn, 0), bar(drawn, 1)
    assert d - c == pytest.approx(2 * (b - a), abs=0.1)
    assert bar(drawn, 2)[0] == 0.0
    assert "◂ −150" in drawn
    assert "too few cases" in drawn
    assert "200" not in drawn
    assert drawn.count('<svg class="row"') == 3


def test_an_interaction_of_costs_is_told_as_finely_as_it_is_drawn(interaction: Report) -> None:
    one = replace(answer(interaction).interactions[0], lower=-0.0092, upper=0.0148, estimate=0.0031, found=False)
    said = interaction_numbers(replace(one, metric="cost_per_accepted_answer"))
    assert said.startswith("+0.0031 [-0.0092, +0.0148] (log ratio")
    assert interaction_numbers(replace(one, metric="exact_match")).startswith("+0.31 [-0.92, +1.48] (points")
    assert said.endswith("not proven")


def test_what_the_other_arms_did_not_pass_fails_no_suite_once_one_is_chosen(
    single: Report, unknown: Report, interaction: Report
) -> None:
    for report, bad in ((single, False), (interaction, False), (unknown, True)):
        root = ElementTree.fromstring(rendered(report, "junit"))
        assert any(int(suite.get(kind, "")) for suite in root for kind in ("failures", "errors")) is bad
        suite = root[0]
        assert suite.get("name") == "four arms"
        assert len(suite.findall("testcase")) == 1 + len(answer(report).steps) + len(answer(report).interactions)
    assert {one.level for one in findings(single)} == {"note"}
    assert "error" not in {one.level for one in findings(interaction)}
    assert findings(unknown)[0].level == "warning"


def test_a_choice_of_the_baseline_fails_the_job(both: Report) -> None:
    none = with_answer(both, replace(answer(both), choice="baseline", exit=int(Exit.BLOCK), why="none is worth it"))
    assert none.exit == Exit.BLOCK
    assert ElementTree.fromstring(rendered(none, "junit"))[0].get("failures") == "1"
    (first, *_) = findings(none)
    assert (first.level, first.rule) == ("error", FOUR_ARM)


def test_the_choice_has_one_fingerprint_whatever_it_is(both: Report, single: Report) -> None:
    marks = [[one.fingerprint for one in findings(report) if not one.slice and one.rule == FOUR_ARM]
             for report in (both, single)]  # fmt: skip
    assert marks[0] == marks[1]
    assert len(marks[0]) == 1


SECTION = """\
version: 1
variants:
  int4:
    quantize: int4
  drafted: {model: ./m}
  int4+drafted: {quantize: int4}
four_arm: {quantization: int4, speculation: drafted, both: int4+drafted}
gate:
  rules:
    - {metric: exact_match, max_drop: 0.05}
"""


@pytest.mark.parametrize(
    ("text", "arms", "blocked"),
    [
        (SECTION, 7, 6),
        (SECTION.replace("four_arm:", "# four_arm:"), 6, 6),  # each variant says its own
        ("a: [", None, None), ("- 1", None, None), ("variants: [int4]", None, None), ("", None, None),
    ],
)  # fmt: skip
def test_findings_of_four_arms_stand_where_the_gate_file_names_them(text, arms, blocked, single: Report) -> None:
    source = replace(stored_source(text, single.policy), path="gates/gate.yaml")
    report = replace(single, source=source)
    lines = {(one.rule, one.title.partition(":")[0]): one.line for one in findings(report)}
    assert lines == {(FOUR_ARM, "four arms"): arms, (VERDICT, "int4+drafted"): blocked}
    entries = json.loads(rendered(report, "gitlab"))
    assert {entry["check_name"]: entry["location"]["lines"]["begin"] for entry in entries} == {
        FOUR_ARM: arms or 1, VERDICT: blocked or 1,
    }  # fmt: skip
    results = json.loads(rendered(report, "sarif"))["runs"][0]["results"]
    assert {one["ruleId"]: one["locations"][0]["physicalLocation"].get("region") for one in results} == {
        rule: {"startLine": line} if line else None for rule, line in ((FOUR_ARM, arms), (VERDICT, blocked))
    }
    at = f",line={arms}" if arms else ""
    assert f"::notice file=gates/gate.yaml{at},title=four arms" in rendered(report, "annotations")


def test_a_gate_file_on_the_disk_gives_the_same_lines(tmp_path, single: Report) -> None:
    (tmp_path / "gate.yaml").write_text(SECTION)
    found, stored = source_of(tmp_path / "gate.yaml", single.policy), stored_source(SECTION, single.policy)
    assert (found.variants, found.arms, found.path) == (stored.variants, 7, "gate.yaml")
    gone = source_of(tmp_path / "gone.yaml", single.policy)
    assert (gone.arms, gone.variant("int4"), gone.path) == (None, None, "gone.yaml")


def test_a_choice_that_is_for_a_person_to_see_is_green_nowhere() -> None:
    given = evidence(alike(), CHEAPER)
    verdicts = decide_four(given, replace(POLICY, review="always"))
    report = report_of(given, verdicts, POLICY, list("bqsx"))
    assert report.exit == exit_of(verdicts) == Exit.REVIEW
    assert ElementTree.fromstring(rendered(report, "junit"))[0].get("errors") == "1"
    assert findings(report)[0].level == "warning"
    assert '<span class="chip name review">' in rendered(report, "html")


@pytest.mark.parametrize("form", FORMATS)
def test_an_attack_in_an_arms_name_or_a_reason_is_only_text(form: str, both: Report) -> None:
    said = answer(both)
    bad = replace(
        said,
        choice=ATTACK,
        why=ATTACK,
        first_why=ATTACK,
        steps=tuple(replace(step, arm=ATTACK, reason=ATTACK) for step in said.steps),
        interactions=tuple(replace(one, metric=ATTACK, slice=ATTACK, found=True) for one in said.interactions),
        services=tuple(replace(one, arm=ATTACK, prices=ATTACK, unavailable=(ATTACK,)) for one in said.services),
        blocks=(ATTACK,),
    )
    holds_no_attack(with_answer(both, bad), form)


def test_the_lines_at_the_end_of_a_run_say_which_arm_to_serve(single: Report) -> None:
    assert single.lines()[-1].startswith("four arms: drafted: ")


@pytest.mark.parametrize("form", ["html", "markdown", "github"])
def test_the_choice_stands_before_the_three_verdicts(both, form):
    text = rendered(both, form)
    why = answer(both).why if form == "html" else escaped(answer(both).why)
    assert text.index(why) < text.index('<a class="card' if form == "html" else "| variant | verdict |")


@pytest.mark.parametrize("choice", ["both", "single", "unknown"])
def test_the_card_of_the_chosen_arm_alone_leads_with_why(request, choice):
    report = request.getfixturevalue(choice)
    cards = rendered(report, "html").split('<a class="card ')[1:]
    chosen = answer(report).choice
    for verdict, card in zip(report.verdicts, cards, strict=True):
        said = card.partition("</a>")[0]
        assert ("<b>Chosen</b>" in said) == (verdict.variant == chosen)
        if verdict.variant == chosen:
            assert said.index(answer(report).why[:20]) < said.index(verdict.reasons[0][:20])
