"""Score files held against two baselines, through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import Exit, QualgateError

GATE_FILE = """\
version: 1
baseline: {model: ./not-here}
variants:
  yesterday: {model: ./nor-here}
  int4: {model: ./nor-here}
evalsets: [{name: support, cases: external}]
gate:
  rules: [{metric: exact_match, max_drop: 0.05}]
  against:
    yesterday:
      rules: [{metric: exact_match, max_drop: 0.05}]
"""
WRONG = {"baseline": range(40), "yesterday": range(4, 44), "int4": range(2, 42)}  # each is right on 90 %
BETTER = {"yesterday": range(0)}  # than the variant, by 10 points
SOME = {"yesterday": range(30, 45)}  # by 6 points, which is too near to 5 to tell


def asked(
    folder: Path, wrong: dict[str, range] | None = None, *more: str, gate: str = GATE_FILE, arms: tuple[str, ...] = (),
    drop: str = "", **changes: Any,
) -> tuple[int, str]:  # fmt: skip
    """(exit code, output) of the command. drop: the arm that lacks c7; changes: of its row in yesterday's file."""
    (folder / "gate.yaml").write_text(gate)
    for arm, numbers in {**WRONG, **(wrong or {})}.items():
        rows = [{"id": f"c{case}", "metric": "exact_match", "value": int(case not in numbers), "case_hash": f"h{case}",
                 "scorer": "exact_match/1", "model": arm} for case in range(400)]  # fmt: skip
        rows[7] |= changes if arm == "yesterday" else {}
        rows = rows if arm != drop else [*rows[:7], *rows[8:]]
        (folder / f"{arm}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    files = [part for arm in arms or ("yesterday", "int4") for part in ("--arm", f"{arm}={folder / arm}.jsonl")]
    command = ["gate", str(folder / "gate.yaml"), "--baseline-scores", str(folder / "baseline.jsonl"), *files, *more]
    done = CliRunner().invoke(app, command)
    if not isinstance(done.exception, SystemExit | QualgateError | None):
        raise done.exception
    code = int(getattr(done.exception, "exit", done.exit_code))
    return code, str(done.exception) if code == Exit.USAGE else done.stdout


def test_a_variant_is_approved_only_by_the_rules_against_both(tmp_path):
    code, text = asked(tmp_path, None, "--json")
    (verdict,) = json.loads(text)["verdicts"]
    assert (code, verdict["variant"]) == (Exit.APPROVE, "int4")  # and none on yesterday
    assert verdict["reasons"][0] == "all 2 critical rules proven, against the baseline and yesterday"
    assert [(c["against"], c["status"], c["lost"]) for c in verdict["comparisons"]] == [
        ("", "proven", 2), ("yesterday", "proven", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("wrong", "word", "status"), [(BETTER, "block", "broken"), (SOME, "undecided", "undecided")])
def test_what_is_lost_against_one_baseline_alone_decides_and_is_named(tmp_path, wrong, word, status):
    code, text = asked(tmp_path, wrong, "--json")
    (verdict,) = json.loads(text)["verdicts"]
    assert (code, verdict["word"]) == (Exit[word.upper()], word)
    assert verdict["reasons"][0].startswith("against yesterday: exact_match [pooled]")
    assert [c["status"] for c in verdict["comparisons"]] == ["proven", status]
    assert verdict["cause"] == ""  # it is looked for beside the baseline


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"drop": "yesterday"}, Exit.INFRASTRUCTURE, "yesterday: 1 of 400 units missing: support/c7"),
        ({"status": "error"}, Exit.INFRASTRUCTURE, "yesterday: 1 of 400 units failed"),
        ({"case_hash": "other"}, Exit.UNDECIDED, "1 case is not the same version on both sides: support/c7"),
    ],
)
def test_a_baseline_that_is_not_whole_decides_nothing(tmp_path, changes, code, said):
    ended, text = asked(tmp_path, None, "--json", **changes)
    (verdict,) = json.loads(text)["verdicts"]
    assert ended == code
    assert verdict["reasons"][0].startswith(said)


def test_reports_keep_the_two_comparisons_of_one_rule_apart(tmp_path):
    _, text = asked(tmp_path, BETTER, "--format", "junit")
    cases = {case.get("name"): len(case) for case in ElementTree.fromstring(text).iter("testcase")}
    rule = "exact_match [pooled] max_drop 0.05"
    assert cases == {"verdict": 1, rule: 0, f"{rule} against yesterday": 1}
    _, text = asked(tmp_path, SOME, "--format", "sarif")
    (result,) = json.loads(text)["runs"][0]["results"]
    assert result["ruleId"] == f"{rule} against yesterday"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 11
    _, text = asked(tmp_path, BETTER, "--format", "every-eval")
    baseline, variant = map(json.loads, text.splitlines())
    assert len(baseline["evaluation_results"]) == 1
    assert variant["evaluation_results"][1]["evaluation_name"] == "against yesterday: exact_match [pooled]"
    assert "exact_match · against yesterday" in asked(tmp_path, BETTER, "--format", "html")[1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    yesterday:\n", "    yesterdy:\n", "no variant 'yesterdy'; did you mean 'yesterday'?"),
        ("    yesterday:\n", "    baseline:\n", "a variant cannot be called baseline"),
        ("  int4: {model: ./nor-here}\n", "", "every variant stands under `against`"),
        ("      rules: [{metric: exact_match, max_drop: 0.05}]", "      rules: []", "at least 1"),
        ("max_drop: 0.05}]\n", "max_drop: 0.05, tier: advisory}]\n", "nothing would be proven against it"),
        ("0.05}]\n  against", "0.05}]\n  stop: early\n  against", "`stop: early` settles a variant before"),
        ("gate:\n  rules: [{metric: exact_match, max_drop: 0.05}]\n", "gate:\n  nel_policy: n.yaml\n", "one baseline"),
        ("yesterday: {model", "yesterday: {arm: both, model", "`four_arm` chooses among arms by the baseline alone"),
        *(
            ("{metric: exact_match, max_drop: 0.05}", f"{{metric: {metric}, {bound}}}", f"{metric} is measured against")
            for metric, bound in (("drift.kl_mean", "max: 0.1"), ("parity.scores", "min: 0.9"),
                                  ("judge.win", "max_drop: 0.1"), ("memory.weights", "max_ratio: 1"))
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_second_baseline_is_refused(tmp_path, old, new, said):
    before, _, after = GATE_FILE.rpartition(old)
    code, text = asked(tmp_path, gate=before + new + after)
    assert code == Exit.USAGE
    assert said in text


def test_each_arm_comes_by_its_name_and_intake_knows_two(tmp_path):
    for arms in (("int4",), ("yesterday",)):
        assert "--arm yesterday=FILE --arm int4=FILE" in asked(tmp_path, arms=arms)[1]
    assert "names no four arms" in asked(tmp_path, None, "--four-arm")[1]
    paths = [str(tmp_path / name) for name in ("baseline.jsonl", "int4.jsonl", "gate.yaml")]
    assert "holds variants against yesterday too" in str(CliRunner().invoke(app, ["intake", *paths]).exception)
