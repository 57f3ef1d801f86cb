"""A report says what is stored, the same bytes each time, and what a model wrote is only ever text in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.gate.verdict import decide_plain
from qualgate.report.formats import rendered, write_report
from qualgate.report.formats.markdown import escaped, report_as_markdown
from qualgate.report.summary import FLIPS_SHOWN, Report, load_report
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.report.reading import holding, hostile, printed
from tests.store.made import make_plan, make_run


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('report') / 'q.db'}"
    with open_store(url) as store:
        make_run(store, make_plan(cases=40, wrong={"int8": 0.0, "int2-g32": 0.22}))
    return url


@pytest.fixture(scope="module")
def report(url: str) -> Report:
    return load_report(url)


def without_fences(text: str) -> str:
    return re.sub(r"^(`{3,})text\n.*?^\1\n", "", text, flags=re.DOTALL | re.MULTILINE)


def test_every_verdict_arm_rule_and_flip_is_in_the_markdown(report: Report) -> None:
    text = rendered(report, "markdown")
    for verdict in report.verdicts:
        assert f"## {verdict.variant}: {verdict.word}" in text
        assert f"- {escaped(verdict.reasons[0])}" in text
        assert all(f"| {escaped(comparison.rule)} |" in text for comparison in verdict.comparisons)
    assert all(f"| {arm.name} | " in text for arm in report.run.arms)
    assert len(report.flips["int2-g32"]) == min(report.lost["int2-g32"], FLIPS_SHOWN) > 5
    cases = [(flip.evalset, flip.case_id) for flip in report.flips["int2-g32"]]
    assert len(set(cases)) == len(cases), "each case once, however many of its scores changed"
    assert report.lost["int2-g32"] < sum(count.lost for count in report.flip_counts["int2-g32"])
    assert all(f"**{escaped(f'{flip.evalset}/{flip.case_id}')}**" in text for flip in report.flips["int2-g32"])


@pytest.mark.parametrize("show", [lambda report: printed(report), lambda r: rendered(r, "markdown"),
                                  lambda r: rendered(r, "html")])  # fmt: skip
def test_every_report_names_the_tensors_that_no_answer_rests_on(report: Report, show) -> None:
    arm, *others = report.run.arms
    said = "baseline: 3 tensors of its files left out"
    held = replace(
        report, run=replace(report.run, arms=(replace(arm, footprint=holding(arm, "mtp.fc.weight")), *others))
    )
    assert said not in show(report)
    text = " ".join(show(held).split())
    assert said in text
    assert "mtp.fc.weight (3)" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [({"alpha": 0.2}, "rules given later"), ({"nel": '{"version": 1}'}, "NeMo Evaluator policy given later")],
)
def test_verdicts_by_other_rules_than_the_runs_own_say_so_in_every_report(tmp_path, change, said) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=20))
        assert load_report(url).decided_otherwise == ""
        policy = replace(runs.policy(store, run_id), **change)
        runs.add_verdicts(store, run_id, decide_plain(runs.evidence(store, run_id), policy), policy)
    report = load_report(url)
    assert said in report.decided_otherwise
    for text in (printed(report), *(rendered(report, form) for form in ("markdown", "html", "github"))):
        assert said in " ".join(text.split())


def test_the_same_store_gives_the_same_bytes(url: str, report: Report, tmp_path: Path) -> None:
    first, second = (write_report(load_report(url, report.run.run_id), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert json.loads(first[0].read_text())["run"] == report.run.run_id


def test_hostile_text_in_the_markdown_is_only_text(report: Report) -> None:
    whole = report_as_markdown(hostile(report))
    assert "\x1b" not in whole
    assert "\u202e" not in whole
    text = without_fences(whole)
    assert "# out" not in text, "a fence was closed by the answer in it"
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    headings = [line for line in text.splitlines() if line.startswith("#")]
    variants = [f"## {escaped(v.variant)}" for v in hostile(report).verdicts]
    ours = ("# qualgate", "## What was judged", *variants, "### Rules", "### Drift (ranks and warns)")
    assert sum(line.startswith("## ") for line in headings) == 1 + len(variants)
    assert all(line.startswith(ours) for line in headings)
    assert "<" not in text
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(|https?://|www\.", text)
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert set(columns) == {4, 9, 10}


def test_hostile_text_on_the_terminal_stays_on_its_line(report: Report) -> None:
    attacked = hostile(report)
    assert len(attacked.lines()) == len(attacked.verdicts)
    for text in (*attacked.lines(), printed(attacked)):
        assert not re.search("[\x1b\r\u202e]", text)
    assert not any("\n" in line for line in attacked.lines())
    assert not re.search(r"^\W*(# approved|\| int2)", printed(attacked), re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, 1.5 (of 3)", "plain words, 1.5 (of 3)"),
        ("exact_match [code]", r"exact\_match \[code\]"),
        ("a\n\n# b\t c ", r"a \# b c"),
        ("- item", r"\- item"),
        ("1 < 2 & 3", "1 &lt; 2 &amp; 3"),
        ("a|b\\|c", r"a\|b\\\|c"),
        ("see http://e and www.e", r"see http\://e and www\.e"),
    ],
)
def test_what_markdown_would_read_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown
