"""Four arms from four files of score rows, whoever made them, and what is said of serving in their fields."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import QualgateError
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.intake.serving_rows import NOT_SAID, served, with_serving
from qualgate.pipeline.score_files import score_files
from qualgate.records import Attempt, RunEvidence, UnitEvidence, UnitKey
from qualgate.scoring import registry
from tests.gate.four import ARMS, NAMES, POLICY, alike, evidence
from tests.gate.four_arm.test_verdict import CHEAPER
from tests.tables import each_row

GATE_FILE = """\
version: 1
baseline: {model: ./not-here}
variants:
  int4: {model: ./nor-here}
  drafted: {model: ./nor-here}
  int4+drafted: {model: ./nor-here}
evalsets: [{name: code, cases: external}]
four_arm: {quantization: int4, speculation: drafted, both: int4+drafted}
prices: prices.yaml
gate:
  rules: [{metric: exact_match, max_drop: 0.05}]
"""


def rows(unit: UnitEvidence, leave: tuple[str, ...]) -> dict[str, object]:
    """One row of an answer, less what is to be left out."""
    attempt = unit.attempts[0]
    said = {
        "id": unit.key.case_id, "metric": "exact_match", "value": unit.values["exact_match"],
        "case_hash": unit.case_hash, "scorer": "exact_match/1", "finish_reason": "stop",
        "token_ids": np.frombuffer(unit.answer or b"", "<i4").tolist(),
        "tokens_sha256": sha256(unit.answer or b"").hexdigest(),
        "text_sha256": sha256(b"text " + (unit.answer or b"")).hexdigest(),
        "top2_gaps": np.frombuffer(unit.margins or b"", "<f8").tolist(),
        "ttft": unit.values["latency.ttft"], "tpot": unit.values["latency.tpot"], "e2e": unit.values["latency.e2e"],
        "batch": unit.job, "draft_proposed": unit.draft_proposed, "draft_accepted": unit.draft_accepted,
        "started": unit.began,
        "attempts": [{"outcome": "done", "prompt_tokens": attempt.prompt_tokens,
                      "output_tokens": attempt.output_tokens, "seconds": attempt.seconds}],
    }  # fmt: skip
    return {name: value for name, value in said.items() if name not in leave}


def judged(
    folder: Path, given: RunEvidence, *leave: str, gate: str = GATE_FILE, more: tuple[str, ...] = ()
) -> tuple[int, Any]:
    """What the command says of four files of this evidence."""
    (folder / "gate.yaml").write_text(gate)
    (folder / "prices.yaml").write_text('version: "2026-11"\ncurrency: EUR\ndevice_second: 1.0\nconcurrency: 1\n')
    for arm in (given.baseline, *given.variants):
        text = "".join(json.dumps({**rows(unit, leave), "model": arm.name}) + "\n" for unit in arm.units)
        (folder / f"{arm.name}.jsonl").write_text(text)
    files = [part for name in NAMES[1:] for part in ("--arm", f"{name}={folder / name}.jsonl")]
    asked = ["gate", str(folder / "gate.yaml"), "--baseline-scores", str(folder / "baseline.jsonl"), *files, *more]
    done = CliRunner().invoke(app, [*asked, "--json"])
    if not isinstance(done.exception, SystemExit | QualgateError | None):
        raise done.exception
    code = int(getattr(done.exception, "exit", done.exit_code))
    return code, json.loads(done.stdout) if code != 64 else str(done.exception)


def answer(body: dict) -> dict:
    return body["verdicts"][-1]["four_arm"]


def statuses(body: dict, step: str) -> dict[str, str]:
    return {one["arm"]: one["status"] for one in answer(body)["steps"] if one["step"] == step}


@pytest.mark.parametrize("flag", [(), ("--four-arm",)])
def test_four_files_are_decided_as_the_same_evidence_is(tmp_path, flag):
    given = evidence(alike(100), CHEAPER)
    code, body = judged(tmp_path, given, more=flag)
    direct = decide_four(given, replace(POLICY, four_arm=ARMS))
    assert [(one["variant"], one["word"]) for one in body["verdicts"]] == [(v.variant, v.word) for v in direct]
    told, own = answer(body), direct[-1].four_arm
    assert own is not None
    assert (told["choice"], told["why"], told["first"], code) == (own.choice, own.why, own.first, own.exit)
    assert [one["per_accepted"] for one in told["services"]] == [one.per_accepted for one in own.services]
    assert [(s["arm"], s["step"], s["status"], s["reason"]) for s in told["steps"]] == [
        (s.arm, s.step, s.status, s.reason) for s in own.steps
    ]


@pytest.mark.parametrize(
    ("leave", "how"),
    [
        (("token_ids", "top2_gaps"), "100 by digests of their tokens"),
        (("token_ids", "top2_gaps", "tokens_sha256"), "100 by digests of their texts, as no token ids were recorded"),
    ],
)
def test_parity_is_told_by_digests_where_there_are_no_tokens_and_says_so(tmp_path, leave, how):
    given = evidence(alike(100), CHEAPER)
    _, body = judged(tmp_path, given, *leave)
    assert statuses(body, "parity") == {"drafted": "proven", "int4+drafted": "proven"}
    assert all(how in one["reason"] for one in answer(body)["steps"] if one["step"] == "parity")
    other = {"drafted": [(*range(19), 7 if case == 3 else 100) for case in range(100)]}
    _, broken = judged(tmp_path, evidence(alike(100), CHEAPER, other), *leave)
    assert statuses(broken, "parity")["drafted"] == "broken"
    assert "code/c-0003" in next(one["reason"] for one in answer(broken)["steps"] if one["status"] == "broken")


@pytest.mark.parametrize(
    ("leave", "step", "why"),
    [
        (("token_ids", "top2_gaps", "tokens_sha256", "text_sha256"), "parity", "not recorded"),
        (("attempts",), "value", "not recorded"),
        (("batch",), "value", "which answers ran in one batch"),
        (("finish_reason",), "value", "whether they finished was not recorded"),
    ],
)
def test_what_no_row_says_is_unavailable_and_chooses_nothing(tmp_path, leave, step, why):
    code, body = judged(tmp_path, evidence(alike(100), CHEAPER), *leave)
    found = next(one for one in answer(body)["steps"] if (one["arm"], one["step"]) == ("int4+drafted", step))
    assert (found["status"], why in found["reason"]) == ("undecided", True), found
    if step == "value":
        assert code == 12
        assert answer(body)["choice"] == ""
        unknown = [one["per_accepted"] is None for one in answer(body)["services"]]
        assert unknown == [leave != ("batch",)] * 4, "what it cost is known, and not how sure that is"


COUNTS = ("draft_proposed", "draft_accepted")
DECLARED = "drafting: {drafted: {proposed: 4000, accepted: 1500}, int4+drafted: {proposed: 4000, accepted: 1500}}"


def test_files_that_do_not_say_what_was_drafted_choose_nothing_until_the_gate_file_declares_it(tmp_path):
    code, body = judged(tmp_path, evidence(alike(100), CHEAPER), *COUNTS)
    assert (code, answer(body)["choice"], statuses(body, "drafting")["drafted"]) == (12, "", "undecided")
    assert all(way in answer(body)["why"] for way in ("`draft_proposed`", "four_arm: {drafting: {drafted: {proposed"))
    told = GATE_FILE.replace("both: int4+drafted}", f"both: int4+drafted, {DECLARED}}}")
    code, body = judged(tmp_path, evidence(alike(100), CHEAPER), *COUNTS, gate=told)
    assert (code, answer(body)["choice"]) == (0, "int4+drafted")
    assert "declared in the gate file" in answer(body)["why"]


def test_a_time_that_is_not_said_meets_no_service_level(tmp_path):
    slo = GATE_FILE.replace("prices:", "slo: {tpot: 0.5}\nprices:")
    assert judged(tmp_path, evidence(alike(100), CHEAPER), gate=slo)[0] == 0
    for leave in (("tpot",), ("tpot", "token_ids", "top2_gaps", "attempts")):
        code, body = judged(tmp_path, evidence(alike(100), CHEAPER), *leave, gate=slo)
        assert (code, statuses(body, "slo")["int4"]) == (12, "undecided"), leave


def test_four_files_and_a_gate_file_that_names_other_arms_or_none_are_refused(tmp_path):
    given = evidence(alike(30), CHEAPER)
    none = GATE_FILE.replace("four_arm: {quantization: int4, speculation: drafted, both: int4+drafted}\n", "")
    code, error = judged(tmp_path, given, gate=none)
    assert (code, "names no four arms" in error) == (64, True), error
    judged(tmp_path, given)
    base = ["gate", str(tmp_path / "gate.yaml"), "--baseline-scores", str(tmp_path / "baseline.jsonl")]
    for more, why in (
        (["--variant-scores", str(tmp_path / "int4.jsonl")], "compares four arms"),
        (["--arm", f"int4={tmp_path / 'int4.jsonl'}"], "compares four arms"),
        (["--arm", "int4"], "NAME=FILE"),
        ([p for name in NAMES[1:] for p in ("--arm", f"{name}={tmp_path / 'int4.jsonl'}")], "for two arms"),
        ([p for name in ("int4", "drafted", "bth") for p in ("--arm", f"{name}=x")], "('bth' is none of them)"),
    ):
        done = CliRunner().invoke(app, [*base, *more])
        assert int(getattr(done.exception, "exit", done.exit_code)) == 64, more
        assert why in str(done.exception), (more, done.exception)


@each_row(
    "body",
    [
        {"token_ids": "1, 2"}, {"token_ids": [1, -1]}, {"token_ids": [True]}, {"token_ids": [2**31]}, {"tokens": -1},
        {"tokens": 3, "token_ids": [1, 2]}, {"top2_gaps": [0.1]}, {"token_ids": [1], "top2_gaps": [float("nan")]},
        {"token_ids": [1], "top2_gaps": [0.1, 0.2]}, {"ttft": -0.1}, {"e2e": float("nan")}, {"tpot": "fast"},
        {"max_gap": -1},
        {"text_sha256": "ab"}, {"token_ids": [1], "tokens_sha256": "0" * 64}, {"attempts": []}, {"attempts": {}},
        {"attempts": [{"outcome": "won"}]}, {"attempts": [{"outcome": "done", "seconds": -1}]},
        {"attempts": [{"outcome": "done", "output_tokens": 1.5}]}, {"attempts": [{"outcome": "failed", "cause": 3}]},
        {"draft_proposed": -1}, {"draft_proposed": 1.5}, {"draft_proposed": True}, {"draft_accepted": 2},
        {"draft_proposed": 3, "draft_accepted": 4}, {"draft_proposed": 3, "draft_accepted": -1},
    ],
)  # fmt: skip
def test_what_a_field_cannot_hold_is_refused(body):
    with pytest.raises(ValueError, match="`"):
        served(body)


def test_rows_of_one_answer_may_each_say_a_part_but_no_two_things():
    unit = UnitEvidence(key=UnitKey("a", "s", "c"), case_hash="h", status="done", values={"latency.e2e": 2.0})
    parts = [served({"tokens": 5}), NOT_SAID, served({"e2e": 2, "attempts": [{"outcome": "failed", "cause": "x"}]})]
    whole = with_serving(unit, parts)
    assert with_serving(unit, [served({"max_gap": 0.5})]).values["latency.max_gap"] == 0.5
    assert (whole.tokens, whole.values["latency.e2e"]) == (5, 2.0)
    assert whole.attempts == (Attempt(outcome="failed", cause="x"),)
    assert with_serving(unit, [NOT_SAID]).tokens is None
    for other in ({"tokens": 6}, {"e2e": 3.0}):
        with pytest.raises(ValueError, match=r"differ|two values"):
            with_serving(unit, [*parts, served(other)])


def test_scores_of_outputs_carry_what_serving_took_to_the_gate(tmp_path):
    (tmp_path / "cases.jsonl").write_text('{"id": "a", "messages": [], "answer": "x"}\n')
    tries = [{"outcome": "failed", "cause": "timeout"}, {"outcome": "done", "seconds": 0.5}]
    said = {"id": "a", "text": "x", "e2e": 0.5, "attempts": tries, "draft_proposed": 4, "draft_accepted": 3}
    (tmp_path / "outputs.jsonl").write_text(json.dumps(said) + "\n")
    (row,) = score_files(tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl", registry.find("exact_match")).rows
    body = row.as_json()
    assert (body["e2e"], body["attempts"], body["text_sha256"]) == (0.5, tries, sha256(b"x").hexdigest())
    assert (served(body).draft_proposed, served(body).draft_accepted) == (4, 3)
    assert served(body).attempts == (Attempt(outcome="failed", cause="timeout"), Attempt(outcome="done", seconds=0.5))
