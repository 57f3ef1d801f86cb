"""The section on speculation in every format: what the verdict says, its alerts, and advice that can be pasted."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields, replace
from io import StringIO

import pytest
from rich.console import Console

from docs.formulas import SPECULATION
from qualgate.gate.decide import decide
from qualgate.records import (
    DraftLevel,
    DraftSource,
    Gain,
    Generation,
    QuantizeRecipe,
    Rate,
    Speculated,
    Speculation,
)
from qualgate.records.speculated import BatchGain
from qualgate.report import plots, screen
from qualgate.report.blocks import Table
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.speculation import advice, headline, share_text, speculation_sections, terms
from qualgate.report.summary import Report
from qualgate.report.terminal import print_report
from qualgate.report.unstored import report_of
from qualgate.stats.speedup import crossover
from tests.gate.comparisons.test_speculation import speculating
from tests.gate.four import POLICY
from tests.report.reading import ATTACK, Page, cells, checked_json, holds_no_attack, shown

SPEC = Speculation(
    draft=DraftSource(
        kind="quantize",
        quantize=QuantizeRecipe(method="mxfp4", group_size=32),
        under=Speculation(draft=DraftSource(kind="ngram"), tokens=2),
    ),
    tokens=5,
)
COSTS = {"speculation.draft_cost.1": 0.1, "speculation.draft_cost.2": 0.001, "speculation.verify_cost.6": 1.2}


def judged(chances=(0.95, 0.9, 0.9, 0.9, 0.9), facts=None) -> Report:
    """Four arms of our own engine, of which two draft on two levels."""
    given = speculating(n=120, chances=chances, under=(0.5, 0.4))
    arms = []
    for arm in given.variants:
        drafts = any(unit.draft_steps for unit in arm.units)
        first = [[step for step in unit.draft_steps if step.level == 1] for unit in arm.units]
        units = tuple(
            replace(
                unit,
                draft_proposed=sum(step.proposed for step in steps) if drafts else None,
                draft_accepted=sum(step.accepted for step in steps) if drafts else None,
            )
            for unit, steps in zip(arm.units, first, strict=True)
        )
        spec = SPEC if drafts else None
        arms.append(
            replace(
                arm, units=units, speculation=spec, generation=Generation(engine="packed"),
                facts=COSTS if facts is None and drafts else facts or {},
            )
        )  # fmt: skip
    given = replace(
        given, baseline=replace(given.baseline, generation=Generation(engine="packed")), variants=tuple(arms)
    )
    verdicts = decide(given, POLICY).verdicts
    return report_of(given, verdicts, POLICY, list("bqsx"))


@pytest.fixture(scope="module")
def report() -> Report:
    return judged()


@pytest.fixture(scope="module")
def wasted() -> Report:
    return judged((0.3, 0.3, 0.3, 0.3, 0.3), facts={})


def found(report: Report, variant: str = "drafted") -> Speculated:
    said = next(one.speculated for one in report.verdicts if one.variant == variant)
    assert said is not None
    return said


def printed(report: Report, monkeypatch: pytest.MonkeyPatch, columns: int) -> str:
    out = StringIO()
    monkeypatch.setattr(screen, "console", lambda: Console(width=columns, file=out))
    print_report(report)
    return out.getvalue()


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_a_report_has_every_number_of_every_level_place_and_task(form: str, report: Report) -> None:
    text = shown(report, form)
    for verdict in report.verdicts[1:]:
        assert verdict.speculated is not None
        assert headline(verdict.speculated) in text
        assert len(verdict.speculated.levels) == 2
        for cell in cells(speculation_sections(verdict)):
            assert cell in text, cell
    assert text.count("mxfp4 draft < ngram, 5 tokens: ") >= 2


def test_a_terminal_says_it_in_lines_and_flags_stay_on_one(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = printed(report, monkeypatch, screen.WIDTH_WITHOUT_SCREEN)
    for verdict in report.verdicts[1:]:
        assert all(cell in text for cell in cells(speculation_sections(verdict)))
    assert sum(line.strip().startswith("Speculation: ") for line in text.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "120")
    narrow = printed(report, monkeypatch, 120)
    assert re.search(r"^ +--speculative-config '\{.*\}'$", narrow, re.MULTILINE), "what is to be pasted is on one line"


def test_the_json_has_the_record_itself_and_keeps_the_schema(report: Report, wasted: Report) -> None:
    for one in (report, wasted):
        body = checked_json(one)
        said = {verdict["variant"]: verdict["speculated"] for verdict in body["verdicts"]}
        assert said["int4"] is None
        assert said["drafted"]["levels"][0]["accepted"] == found(one).levels[0].accepted
        assert (said["drafted"]["seed"], said["drafted"]["draws"] >= 2000) == (found(one).seed, True)
        assert said["drafted"]["spec"]["draft"]["under"]["draft"]["kind"] == "ngram"


def test_an_arm_that_did_not_draft_has_no_section(report: Report) -> None:
    (int4, *_), text = report.verdicts, rendered(report, "markdown")
    assert int4.speculated is None
    of_int4 = text[text.index("## int4: ") : text.index("## drafted: ")]
    assert "Speculation" not in of_int4
    assert text.count("### Speculation") == 2


@pytest.mark.parametrize("form", ["html", "markdown", "github", "json"])
def test_an_alert_is_told_in_every_format_with_its_cause(form: str, wasted: Report) -> None:
    (alert,) = found(wasted).alerts
    assert "proposed, 0.4" in alert
    assert "its first token is already rejected in" in alert
    text = shown(wasted, form)
    assert alert in text
    assert form != "html" or "How to serve it" in text


def test_wasted_drafts_get_no_flags_unless_shorter_ones_are_predicted_to_pay(wasted: Report) -> None:
    said = found(wasted)
    assert advice(said).peers == ()
    assert advice(said).sentence == f"Do not serve it as it is: {said.alerts[0]}."
    shorter = replace(said, gain=replace(said.gain, best_tokens=1, best=1.2))
    assert len(advice(shorter).peers) == 2
    never = replace(said, gain=replace(said.gain, best_tokens=0, best=1.0))
    assert advice(never).sentence.startswith("Decode without it")
    nothing = replace(said.levels[0], accepted=0)
    assert "no token of it was accepted" in advice(replace(said, levels=(nothing,))).sentence


def test_a_level_at_which_nobody_drafted_is_called_by_who_was_to(report: Report) -> None:
    said = found(report)
    assert said.spec is not None
    idle = tuple(replace(one, proposer="") for one in said.levels)
    for spec, names in ((said.spec, list(said.spec.names[: len(idle)])), (None, ["–"] * len(idle))):
        verdict = replace(report.verdicts[1], speculated=replace(said, spec=spec, levels=idle))
        ((levels, *_),) = ([block for block in section.blocks if isinstance(block, Table)]
                           for section in speculation_sections(verdict))  # fmt: skip
        assert [row[1] for row in levels.rows] == names


def test_the_advice_names_method_length_and_both_gains(report: Report) -> None:
    said = found(report)
    gain = said.gain
    assert gain.best_tokens is not None
    assert gain.best is not None
    measured = gain.measured
    assert advice(said).sentence == (
        f"mxfp4 draft < ngram, {gain.best_tokens} tokens a draft (γ): gain predicted {gain.best:.2f} times for one "
        f"sequence at a time, measured {measured.value:.2f} times ({measured.lower:.2f} to "
        f"{measured.upper:.2f}) at 4.9 a draft."
    )
    assert advice(said).made_by == "qualgate quantize MODEL --method mxfp4 --out DRAFT"
    unknown = replace(said, gain=replace(gain, best=None, best_tokens=None))
    assert "5 tokens a draft (γ): gain not predicted" in advice(unknown).sentence
    assert advice(replace(unknown, spec=None)).peers == ()


def test_a_cascade_whose_model_left_the_drafting_to_n_grams_is_advised_as_n_grams(report: Report) -> None:
    said = found(report)
    gain = replace(said.gain, best_by="ngram", best_tokens=3)
    advised = advice(replace(said, gain=gain))
    assert advised.sentence.startswith("ngram, 3 tokens a draft (γ): gain predicted")
    assert advised.made_by == ""
    assert all("ngram" in peer.flags.lower() for peer in advised.peers)
    assert advice(replace(said, gain=replace(gain, best_by=""))).sentence.startswith("mxfp4 draft < ngram, 3 tokens")


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_what_is_to_be_pasted_reads_as_the_shell_would_read_it(form: str, report: Report) -> None:
    text = rendered(report, form)
    if form == "html":
        blocks = [words for words in Page(text).text if words.startswith(("--spec", "qualgate quantize"))]
    else:
        blocks = re.findall(r"```text\n((?:--spec|qualgate quantize).*)\n```", text)
    assert len(blocks) == 6
    for flags in blocks:
        first, *others = shlex.split(flags)
        if first == "--speculative-config":
            assert json.loads(others[0]) == {
                "method": "draft_model", "num_speculative_tokens": found(report).gain.best_tokens, "model": "DRAFT",
            }  # fmt: skip


def test_a_prediction_that_misses_what_was_measured_says_by_how_much(report: Report) -> None:
    said = found(report)
    value = said.gain.measured.value
    assert value is not None
    for factor, told in ((1.5, "50% over what was measured"), (0.5, "50% under what was measured"), (1.05, "")):
        shown = dict(terms(replace(said, gain=replace(said.gain, predicted=factor * value))))
        (line,) = (one for term, one in shown.items() if term.startswith("gain predicted"))
        assert line.endswith(told or "times")
    other = replace(said.gain, predicted=None, predicted_reason="c was not measured")
    assert (
        "gain predicted for one sequence at a time, S = τ / (v(γ + 1) + γ c)",
        "not known: c was not measured",
    ) in terms(replace(said, gain=other))


def test_how_often_drafts_rested_and_why_is_told_and_drafts_that_were_never_made_are_not_called_rejected(
    report: Report,
) -> None:
    said = found(report)
    assert "drafts rested" not in dict(terms(said)), "nobody counted it"
    why = "it would not pay if all were accepted: a step takes 0.71 passes, a row 0.03"
    rested = replace(said, rested=Rate(numerator=910, denominator=1000, value=0.91), because=why)
    assert dict(terms(rested))["drafts rested"] == f"in 91.0 % of 1,000 passes: {why}"
    never = replace(said, rested=Rate(numerator=0, denominator=1000, value=0.0))
    assert dict(terms(never))["drafts rested"] == "in 0.0 % of 1,000 passes"
    nothing = replace(rested, levels=(replace(said.levels[0], proposed=0, accepted=0),))
    assert advice(nothing).sentence == f"Decode without it: nothing was drafted: {why}."
    assert advice(nothing).peers == ()


def test_the_longest_waits_between_tokens_stand_beside_each_other(report: Report) -> None:
    said, name = found(report), "longest wait between tokens, p95 of answers, against baseline"
    assert dict(terms(said))[name] == "no wait between tokens was recorded"
    gaps = Rate(numerator=0.08, denominator=0.05, value=1.6, lower=1.5, upper=1.75)
    assert dict(terms(replace(said, gaps=gaps)))[name] == "0.08 s for 0.05 s, 1.60 times (1.50 to 1.75)"
    bare = replace(gaps, lower=None, upper=None, reason="20 groups of batches, 82 needed")
    assert dict(terms(replace(said, gaps=bare)))[name].endswith("(no bounds: 20 groups of batches, 82 needed)")


def test_gains_by_batch_and_where_they_end_are_told(report: Report) -> None:
    said, name = found(report), "S(b), the gain predicted by sequences side by side"
    assert name not in dict(terms(said)), "no batch was timed"
    for gains, told in (
        ({1: 2.0, 4: 1.4, 16: 0.8}, "1: 2.00, 4: 1.40, 16: 0.80; from 11 of up to 16 on it does not pay"),
        ({1: 1.06, 4: 0.44, 16: 0.2}, "1: 1.06, 4: 0.44, 16: 0.20; from 2 of up to 16 on it does not pay"),
        ({1: 2.0, 4: 1.4}, "1: 2.00, 4: 1.40; it pays at all of these"),
        ({1: 1.0, 4: 0.9}, "1: 1.00, 4: 0.90; it does not pay at any of these"),
        ({1: 0.99, 4: 0.65, 16: 1.12}, "1: 0.99, 4: 0.65, 16: 1.12; of these it pays at 16"),
        ({1: 0.9, 4: 1.2, 16: 0.8}, "1: 0.90, 4: 1.20, 16: 0.80; of these it pays at 4"),
    ):
        batches = tuple(BatchGain(sequences=count, predicted=gain) for count, gain in gains.items())
        shown = terms(replace(said, gain=replace(said.gain, by_batch=batches, crossover=crossover(gains))))
        assert dict(shown)[name] == told


def test_a_rate_without_bounds_or_value_says_so() -> None:
    assert share_text(Rate(numerator=1, denominator=2, value=0.5, lower=0.4, upper=0.625)) == "50.0 % [40.0, 62.5]"
    assert share_text(Rate(numerator=1, denominator=2, value=0.5, reason="few")) == "50.0 %"
    assert (
        share_text(Rate(numerator=0, denominator=0, value=None, reason="nothing was proposed"))
        == "nothing was proposed"
    )


def test_the_picture_has_a_row_a_place_whose_bar_and_mark_are_the_two_shares(report: Report) -> None:
    level = found(report).levels[0]
    picture = plots.acceptance(level.positions)
    assert picture is not None
    rows = picture.html.split('<svg class="row"')[1:]
    assert len(rows) == len(level.positions) == 5
    for one, row in zip(level.positions, rows, strict=True):
        assert one.unconditional.value is not None
        assert one.conditional.value is not None
        assert float(re.findall(r'class="kept" x="0.00%" y="6" width="([\d.]+)%"', row)[0]) == pytest.approx(
            100 * one.unconditional.value, abs=0.006
        )
        assert float(re.findall(r'class="mark undecided" x="([\d.]+)%"', row)[0]) == pytest.approx(
            100 * one.conditional.value, abs=0.006
        )
    untested = replace(level.positions[0], conditional=replace(level.positions[0].conditional, value=None))
    alone = plots.acceptance([untested])
    assert alone is not None
    assert "mark" not in alone.html
    assert plots.acceptance(()) is None


@pytest.mark.parametrize("form", FORMATS)
def test_an_attack_in_a_proposer_a_task_or_a_folder_is_only_text(form: str, report: Report) -> None:
    said = found(report)
    level = replace(said.levels[0], proposer=ATTACK, rejection={ATTACK: said.levels[0].rejection["mail"]})
    draft = DraftSource(kind="model", model=ATTACK)
    bad = replace(
        said, levels=(level, level), alerts=(ATTACK,), spec=Speculation(draft=draft, tokens=3),
        gain=replace(said.gain, against=ATTACK, predicted=None, predicted_reason=ATTACK),
    )  # fmt: skip
    stored = tuple(
        replace(one, verdict=replace(one.verdict, speculated=bad)) if one.verdict.variant == "drafted" else one
        for one in report.run.verdicts
    )
    holds_no_attack(replace(report, run=replace(report.run, verdicts=stored)), form)


def test_the_documented_numbers_are_those_of_the_record() -> None:
    known = {one.name for kind in (Speculated, DraftLevel) for one in fields(kind)}
    known |= {f"gain.{one.name}" for one in fields(Gain)} | {"positions.unconditional", "positions.conditional"}
    assert {one.name for one in SPECULATION} <= known
