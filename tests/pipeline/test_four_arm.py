"""`--four-arm` through the command line: blocks, a verdict, and the same one again from the store.

Our own engine refuses such a run, as it does not speculate; one that drafts is put in its place.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

from qualgate.pipeline.four_arm import williams_blocks
from tests.command_line import qualgate
from tests.drafting_engine import drafting
from tests.gated_model import make_workspace

GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  int8: {quantize: {method: int8, group_size: 32}, arm: quantization}
  drafted: {model: ./model, dtype: float32, arm: speculation}
  both: {quantize: {method: int8, group_size: 32}, arm: both}
evalsets: [./echo.yaml]
gate:
  rules: [{metric: exact_match, max_drop: 0.15}, {metric: stability.rerun, min: 0.5, tier: advisory}]
  noise_floor: true
slo: {e2e: 1000}
prices: prices.yaml
four_arm: {seed: 5, tool_share: 0.75}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1}
"""
PRICES = 'version: "7"\ncurrency: EUR\noutput_token: 0.001\ndevice_second: 0.5\nconcurrency: 5\n'


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, dict]:
    """A workspace that `run --four-arm` has been through, and what it said."""
    folder = tmp_path_factory.mktemp("four")
    make_workspace(folder, cases=24, tokens=6)
    (folder / "gate.yaml").write_text(GATE_FILE)
    (folder / "prices.yaml").write_text(PRICES)
    with drafting("drafted", "both"):
        done = qualgate("run", "gate.yaml", "--four-arm", "--json", cwd=folder)
    assert done.returncode in (0, 10, 12), done.stderr
    body = json.loads(done.stdout)
    assert body["verdicts"][-1]["four_arm"]["exit"] == done.returncode
    return folder, body


def test_a_run_of_four_arms_keeps_parity_and_stores_its_blocks(ran):
    _, body = ran
    answer = body["verdicts"][-1]["four_arm"]
    parity = {step["arm"]: step["status"] for step in answer["steps"] if step["step"] == "parity"}
    assert parity == {"drafted": "proven", "both": "proven"}
    assert answer["blocks"] == list(williams_blocks(len(answer["blocks"]), 5))
    assert len(answer["blocks"]) >= 8
    assert answer["first"] == "neither"
    assert [one["prices"] for one in answer["services"]] == ["EUR, version 7"] * 4
    assert all(one["cost"] > 0 for one in answer["services"])


def test_the_baseline_is_run_against_itself_after_the_blocks_and_is_none_of_the_arms(ran):
    _, body = ran
    assert [arm["name"] for arm in body["arms"]] == ["baseline", "int8", "drafted", "both", "baseline@aa"]
    assert {(arm["done"], arm["expected"]) for arm in body["arms"]} == {(24, 24)}
    for verdict in body["verdicts"]:
        rerun = verdict["comparisons"][-1]
        assert (rerun["metric"], rerun["n"]) == ("stability.rerun", 24)
        assert rerun["status"] in ("proven", "broken")
        assert any(line.startswith("noise floor, lost / gained") for line in verdict["reasons"])


def test_the_store_alone_gives_the_same_verdict_and_feedback_shows_its_coverage(ran):
    folder, body = ran
    again = qualgate("gate", "--store", "sqlite:///qualgate.db", "--json", cwd=folder)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]
    event = {"arm": "int8", "evalset": "echo", "run": body["run"], "corrected": True}
    events = [event | {"case_id": f"echo-{number:03d}"} for number in range(11)]
    (folder / "said.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    (folder / "heard.yaml").write_text(GATE_FILE.replace("four_arm:", "feedback: said.jsonl\nfour_arm:"))
    heard = json.loads(qualgate("gate", "heard.yaml", "--four-arm", "--json", cwd=folder).stdout)
    services = {one["arm"]: one for one in heard["verdicts"][-1]["four_arm"]["services"]}
    assert (services["int8"]["feedback"], services["int8"]["correction_rate"]) == (11, 1.0)
    assert services["int8"]["refused"]["corrected"] + services["int8"]["accepted"] <= 24
    assert (services["drafted"]["feedback"], services["drafted"]["correction_rate"]) == (0, None)
    assert heard["verdicts"][-1]["four_arm"]["blocks"] == body["verdicts"][-1]["four_arm"]["blocks"]
    told = qualgate("gate", "heard.yaml", "--four-arm", cwd=folder).stdout
    assert " of 11 heard on" in told
    assert "100.0 % of 11" in told


@pytest.mark.parametrize(
    ("named", "flags"), [(True, ()), (True, ("--four-arm",)), (False, ()), (None, ()), (None, ("--four-arm",))]
)
def test_no_way_of_asking_again_judges_four_arms_one_by_one(ran, named, flags):
    folder, _ = ran
    # Each arm by itself keeps every rule; that none answers in a microsecond is a step of the four arms alone.
    text = GATE_FILE.replace("slo: {e2e: 1000}", "slo: {e2e: 0.000001}")
    text = text if named else re.sub(r", arm: \w+|four_arm: .*\n", "", text)
    (folder / "again.yaml").write_text(text)
    asked = ("--store", "sqlite:///qualgate.db") if named is None else ("again.yaml",)
    done = qualgate("gate", *asked, *flags, cwd=folder)
    told = json.loads(qualgate("report", *asked, "--json", cwd=folder).stdout)
    assert told["exit"] == done.returncode
    assert told["verdicts"][-1]["four_arm"]["exit"] == done.returncode
    assert (done.returncode == 10) == (named is not None), done.stdout  # the run's own policy gives them 1,000 s


UNNAMED = re.sub(r", arm: \w+|four_arm: .*\n", "", GATE_FILE)
TOLD = GATE_FILE.replace("four_arm: {", "four_arm: {drafting: {both: {proposed: 9, accepted: 4}}, ")


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (GATE_FILE, ("gate", "asked.yaml", "--nel-policy", "nel.yaml"), "compares four arms"),
        (UNNAMED.replace("  rules:", "  stop: early\n  rules:"), ("gate", "asked.yaml"), "stop: early"),
        (TOLD, ("gate", "asked.yaml"), "which counts by itself"),
        (TOLD, ("plan", "asked.yaml"), "qualgate counts the drafts of every answer"),
        (GATE_FILE, ("run", "asked.yaml", "--blame"), "names none"),
    ],
)
def test_what_cannot_be_judged_as_four_arms_is_refused_rather_than_judged_otherwise(ran, text, words, said):
    folder, _ = ran
    (folder / "nel.yaml").write_text("defaults: {metric: mean_reward, max_drop: 0.1, tier: critical}\n")
    (folder / "asked.yaml").write_text(text)
    with drafting("drafted", "both") if words[0] == "plan" else nullcontext():
        done = qualgate(*words, cwd=folder)
    assert (done.returncode, said in done.stderr) == (64, True), done.stderr


def test_a_plan_needs_no_flag_either(ran):
    folder, _ = ran
    with drafting("drafted", "both"):
        assert "value of the four arms" in qualgate("plan", "gate.yaml", cwd=folder).stdout


@pytest.mark.parametrize("command", [("plan",), ("run",), ("run", "--four-arm")])
def test_an_arm_that_nobody_drafts_for_is_named_before_anything_is_generated(ran, command):
    folder, _ = ran
    done = qualgate(*command, "gate.yaml", cwd=folder)
    assert done.returncode == 64
    assert "drafted and both should speculate by `four_arm` and have no draft" in done.stderr
    assert "--baseline-scores baseline.jsonl --arm int8=int8.jsonl --arm drafted=drafted.jsonl" in done.stderr
    with drafting("drafted"):
        assert "gate.yaml: both should speculate" in qualgate(*command, "gate.yaml", cwd=folder).stderr


def test_what_an_engine_drafted_is_stored_told_and_not_taken_from_the_baselines_answers(ran):
    folder, body = ran
    steps = body["verdicts"][-1]["four_arm"]["steps"]
    told = {step["arm"]: step["reason"] for step in steps if step["step"] == "drafting"}
    with sqlite3.connect(folder / "qualgate.db") as connection:
        stored = connection.execute(
            "select arm, sum(proposed), sum(accepted), count(*) from draft_steps join units using (unit_id) "
            "where position > 0 group by arm"
        ).fetchall()
    assert told == {
        arm: f"drafted {proposed:,} tokens, {accepted:,} accepted ({accepted / proposed:.1%}), in {passes:,} passes"
        for arm, proposed, accepted, passes in stored
    }
    assert set(told) == {"drafted", "both"}
    spoken = {one["variant"]: one["speculated"] for one in body["verdicts"]}
    assert spoken["int8"] is None
    assert (spoken["drafted"]["gain"]["against"], spoken["both"]["gain"]["against"]) == ("baseline", "int8")
    assert spoken["both"]["gain"]["same_weights"] is True


def test_each_arm_is_as_often_in_each_place_and_after_each_other():
    blocks = williams_blocks(8, 3)
    assert all(sorted(block) == list("BQSX") for block in blocks)
    assert Counter((place, arm) for block in blocks for place, arm in enumerate(block)) == {
        (place, arm): 2 for place in range(4) for arm in "BQSX"
    }
    after = Counter(pair for block in blocks[:4] for pair in pairwise(block))
    assert set(after.values()) == {1}
    assert len(after) == 12
    assert williams_blocks(8, 3) == blocks != williams_blocks(8, 4)
