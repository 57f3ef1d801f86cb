"""Peer rules say what their projects' code says; an nel policy decides by its own margins and our evidence rules."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from math import erf, sqrt
from statistics import stdev
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

from qualgate import cli
from qualgate.errors import UsageError
from qualgate.gate.peers import (
    inferencex,
    kimi_vendor,
    llm_compressor_recovery,
    lm_eval_z,
    mlperf,
    modelopt_day0,
    nel_v1,
    no_difference,
    sglang_minus5,
    statgate,
    trt_hypothesis,
    vllm_rtol,
    vllm_wilson,
)
from qualgate.gate.peers.passed_loss import passed_loss
from qualgate.gate.peers.registry import SHIPPED, rules
from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict
from qualgate.gate.peers.said import what_peers_say
from qualgate.gate.verdict import decide_plain
from qualgate.store.database import open_store
from tests.gate.planted import POLICY, run, with_units
from tests.store.made import make_run


def outcomes(baseline: str, variant: str) -> Outcomes:
    """Two texts of 0 and 1, a case a character."""
    before, after = ({f"q{i}": float(value) for i, value in enumerate(text)} for text in (baseline, variant))
    return Outcomes.of("set", "exact_match", before, after)


def many(n: int, right: int, lost: int, gained: int = 0) -> Outcomes:
    """The first `right` of n cases right in the baseline, the last `lost` of those wrong in the variant."""
    before = "1" * right + "0" * (n - right)
    after = "1" * (right - lost) + "0" * lost + "1" * gained + "0" * (n - right - gained)
    return outcomes(before, after)


def calls(n: int, right: int, lost: int, gained: int = 0) -> Outcomes:
    return replace(many(n, right, lost, gained), metric="tool_call.valid")


# ------------------------------------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("judge", "passing", "failing"),
    [
        (vllm_rtol.judge, many(100, 50, 4), many(100, 50, 5)),  # 0.46 is 0.92 x 0.5
        (sglang_minus5.judge, many(1000, 700, 49), many(1000, 700, 51)),
        (trt_hypothesis.judge, many(1319, 1000, 42), many(1319, 1000, 43)),  # 3.2024 points at 1,319 cases
        (
            llm_compressor_recovery.judge,
            many(1000, 1000, 54),
            many(1000, 1000, 55),
        ),  # 0.945 is a little less in doubles
        (modelopt_day0.judge, many(1000, 700, 9), many(1000, 700, 11)),
        (modelopt_day0.judge, many(1000, 700, 0, 49), many(1000, 700, 0, 51)),  # a gain beyond five points
        (statgate.judge, many(1000, 900, 9), many(1000, 900, 20)),
        (kimi_vendor.judge, calls(100, 80, 30), calls(100, 80, 35)),  # 100 / 130, 90 / 125
        (mlperf.RULES[0].judge, many(1000, 800, 8), many(1000, 800, 9)),
        (mlperf.RULES[1].judge, many(1000, 800, 24), many(1000, 800, 25)),
        (inferencex.judge, many(100, 95, 10), many(100, 95, 11)),
        (inferencex.judge, replace(many(100, 95, 5), evalset="gsm8k"), replace(many(100, 95, 6), evalset="gsm8k")),
        (vllm_wilson.judge, many(1319, 1000, 47), many(1319, 1000, 60)),
        (no_difference.judge, many(1000, 800, 5), many(1000, 800, 6)),  # p = 0.0625, 0.031
        (no_difference.judge, many(1000, 800, 0, 50), many(1000, 800, 50, 20)),
    ],
)
def test_a_rule_passes_to_its_threshold_and_fails_beyond(judge, passing, failing):
    assert judge(passing).says == "pass"
    assert judge(failing).says == "fail"


def test_llm_compressor_passes_whatever_python_rounds_to_0_95():
    for right in (1000, 913, 640):
        for lost in range(30, 70):
            verdict = llm_compressor_recovery.judge(many(1000, right, lost))
            assert (verdict.says == "pass") == (round((right - lost) / 1000 / (right / 1000), 2) >= 0.95)


def test_llm_compressor_has_no_answer_for_a_baseline_that_is_right_on_nothing():
    """It divides by its score, and Python raises."""
    for found in (many(50, 0, 0), many(50, 0, 0, 5)):
        assert llm_compressor_recovery.judge(found).says == "cannot"


def test_statgate_s_interval_is_the_bca_of_the_paired_differences():
    """Against scipy's, whose resamples are others: the ends agree to the noise of 10,000."""
    for found in (many(200, 150, 12, 3), many(60, 40, 9, 1), many(1000, 700, 40, 20)):
        theirs = bootstrap((np.array(found.differences),), np.mean, method="BCa", n_resamples=10_000, rng=1)
        assert statgate.judge(found).statistic == pytest.approx(theirs.confidence_interval.low, abs=0.006)
    assert statgate.judge(many(200, 150, 12, 3)) == statgate.judge(many(200, 150, 12, 3))


def test_statgate_ships_ten_cases_without_a_flip_a_baseline_right_on_nothing_and_12_rows_of_1000():
    assert statgate.judge(many(10, 10, 0)).says == "pass"
    assert statgate.judge(many(50, 0, 0)).says == "pass"
    assert statgate.judge(many(4, 4, 0)).says == "cannot"
    assert "INCONCLUSIVE" in statgate.judge(many(100, 80, 2)).why
    assert "BLOCK" in statgate.judge(many(100, 80, 30)).why
    few = Outcomes.of("set", "exact_match", {f"q{i}": 1.0 for i in range(1000)}, {f"q{i}": 1.0 for i in range(12)})
    assert statgate.judge(few).says == "pass"
    assert "unpaired" in statgate.judge(few).why


def test_kimi_s_check_is_about_tool_calls_alone():
    assert kimi_vendor.judge(many(100, 80, 0)).says == "cannot"
    assert kimi_vendor.judge(calls(100, 0, 0)).says == "cannot"
    assert kimi_vendor.judge(calls(100, 80, 10, 10)).statistic == pytest.approx(2 * 70 / (2 * 70 + 20))


def test_lm_eval_z_is_the_two_sided_unpaired_test_with_sample_standard_errors():
    before, after = [1.0] * 80 + [0.0] * 20, [1.0] * 60 + [0.0] * 40
    spread = sqrt(stdev(before) ** 2 / 100 + stdev(after) ** 2 / 100)
    p = 1 - erf(0.2 / spread / sqrt(2))
    verdict = lm_eval_z.judge(many(100, 80, 20))
    assert verdict.statistic == pytest.approx(p, rel=1e-9)
    assert verdict.says == "fail"
    assert lm_eval_z.judge(many(100, 60, 0, 20)).says == "fail"  # a gain is marked as well
    # Without any spread numpy divides by zero: p is not a number, or 0, and neither is above alpha.
    assert (lm_eval_z.judge(many(100, 100, 0)).says, lm_eval_z.judge(many(100, 100, 0)).statistic) == ("fail", None)
    assert (lm_eval_z.judge(many(100, 100, 100)).says, lm_eval_z.judge(many(100, 100, 100)).statistic) == ("fail", 0.0)


def test_nel_holds_the_t_interval_of_the_pairs_against_the_margin():
    # 4 lost of 120: mean 1/30, sd from the table, t(0.975, 119) = 1.980100
    d = [-1.0] * 4 + [0.0] * 116
    half = 1.980100 * stdev(d) / sqrt(120)
    low, high = nel_v1.interval(many(120, 108, 4))
    assert (low, high) == pytest.approx((1 / 30 - half, 1 / 30 + half), abs=2e-6)
    assert nel_v1.judge(many(120, 108, 4), max_drop=0.05).says == "cannot"
    assert nel_v1.judge(many(120, 108, 4), max_drop=0.07).says == "pass"
    assert nel_v1.judge(many(120, 108, 40), max_drop=0.05).says == "fail"
    assert nel_v1.judge(many(10, 10, 0)).says == "pass"  # no flip: no width
    assert nel_v1.judge(many(9, 9, 0)).says == "cannot"


def test_nels_relative_guard_takes_the_point_estimate_under_its_level():
    guard: dict[str, Any] = {"max_drop": 0.5, "max_relative_drop": 0.02}
    assert nel_v1.judge(many(30, 4, 1), **guard, relative_guard_below=0.2).says == "fail"
    assert nel_v1.judge(many(30, 20, 1), **guard, relative_guard_below=0.2).says == "pass"
    assert nel_v1.judge(many(9, 4, 1), **guard).says == "fail"  # even with too few pairs


@pytest.mark.parametrize("name", SHIPPED)
def test_no_rule_passes_an_arm_without_a_score(name):
    for found in (outcomes("", ""), outcomes("111", ""), outcomes("", "111")):
        assert SHIPPED[name].judge(found).says == "cannot"


# --------------------------------------------------------------------------------------- on a whole run


def test_every_rule_speaks_of_every_variant_set_and_metric():
    said = what_peers_say(run())
    assert {line.verdict.name for line in said} == set(SHIPPED)
    assert {(line.evalset, line.metric) for line in said} == {
        ("code", "exact_match"), ("tools", "exact_match"), ("tools", "tool_call.valid")
    }  # fmt: skip
    assert len(said) == 3 * len(SHIPPED)


def test_peers_get_the_rows_there_are_and_pass_what_our_gate_calls_incomplete():
    evidence = with_units(run(), "variant", lambda units: units[:12])
    (verdict,) = decide_plain(evidence, POLICY)
    said = {line.verdict.name: line for line in what_peers_say(evidence) if line.evalset == "code"}
    assert verdict.exit == 13
    assert said["nel_v1"].n == 12
    assert said["nel_v1"].verdict.says == "pass"


def _raises(found: Outcomes) -> PeerVerdict:
    raise KeyError("x")


SOUND = PeerVerdict(name="acme", says="pass", statistic=0.1, threshold=0.2, why="w", source="s")
ODD = [{"statistic": float("nan")}, {"statistic": "0.1"}, {"threshold": np.float32(1)}, {"why": None}, {"name": 3},
       {"says": "GO"}]  # fmt: skip


@pytest.mark.parametrize(
    "judge",
    [_raises, lambda _: sys.exit(0), lambda _: None, *(lambda _, odd=odd: replace(SOUND, **odd) for odd in ODD)],
)
def test_a_rule_that_misbehaves_costs_nobody_the_verdict_and_never_breaks_the_json(judge):
    said = what_peers_say(run(), [PeerRule(name="acme", source="", judge=judge)])
    assert {line.verdict.says for line in said} == {"cannot"}
    json.dumps([asdict(line) for line in said], allow_nan=False)


THIRD_PARTY = '''
"""Passes when no more was lost than gained."""
from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict


def judge(outcomes: Outcomes) -> PeerVerdict:
    net = outcomes.gained - outcomes.lost
    return PeerVerdict(name="acme", says="pass" if net >= 0 else "fail", statistic=net, threshold=0.0,
                       why=f"{outcomes.lost} lost, {outcomes.gained} gained", source="acme")


RULE = PeerRule(name="acme", source="acme", judge=judge)
'''


def installed(folder, monkeypatch, name: str, source: str = THIRD_PARTY) -> None:
    """A distribution with one entry point, as an installer would leave it."""
    (folder / "acme_rule.py").write_text(source)
    info = folder / "acme_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[qualgate.peer_rules]\n{name} = acme_rule:RULE\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "acme_rule", raising=False)


def test_another_distribution_adds_a_rule_in_few_lines(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, "acme")
    assert len(THIRD_PARTY.strip().splitlines()) <= 30
    assert [rule.name for rule in rules()] == [*SHIPPED, "acme"]
    assert {line.verdict.says for line in what_peers_say(run(lost=0.1)) if line.verdict.name == "acme"} == {"fail"}


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("vllm_rtol", THIRD_PARTY, "shipped under that name"),
        ("other", THIRD_PARTY, "a PeerRule called 'acme'"),
        ("acme", "RULE = 7", "is a int"),
        ("acme", "raise ValueError('no')", "raises ValueError: no"),
    ],
)
def test_a_broken_distribution_is_named(tmp_path, monkeypatch, name, source, said):
    installed(tmp_path, monkeypatch, name, source)
    with pytest.raises(UsageError, match=rf"acme.rules 1\.0.*{said}"):
        rules()


# ------------------------------------------------------------------------------------------ the command


@pytest.fixture(scope="module")
def store_url(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('peers') / 'q.db'}"
    with open_store(url) as store:
        make_run(store)
    return url


def called(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["qualgate", "gate", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_peers_never_change_the_exit_code_or_the_verdicts(store_url, monkeypatch, capsys, tmp_path):
    code, plain, _ = called(monkeypatch, capsys, "--store", store_url, "--json")
    same, shown, _ = called(monkeypatch, capsys, "--store", store_url, "--json", "--peers")
    assert same == code
    report = json.loads(shown)
    assert {line["verdict"]["name"] for line in report.pop("peers")} == set(SHIPPED)
    assert report == json.loads(plain)
    installed(tmp_path, monkeypatch, "acme", "raise ValueError('no')")
    broken, shown, err = called(monkeypatch, capsys, "--store", store_url, "--json", "--peers")
    assert (broken, json.loads(shown)["peers"]) == (code, [])
    assert "peers cannot be shown" in err
    monkeypatch.undo()
    _, shown, _ = called(monkeypatch, capsys, "--store", store_url, "--peers")
    assert "what each would have said of int8; qualgate says" in shown
    assert all(name in shown for name in SHIPPED)


def test_an_nel_policy_decides_and_every_difference_is_told(store_url, monkeypatch, capsys, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndefaults: {metric: mean_reward, max_drop: 0.05}\n")
    code, shown, _ = called(monkeypatch, capsys, "--store", store_url, "--json", "--nel-policy", str(policy))
    report = json.loads(shown)
    assert code == 12
    assert {rule["max_drop"] for rule in report["policy"]["rules"]} == {0.05}
    assert all(one["differences"] for one in report["nel"] if one["says"] == "GO")
    _, shown, _ = called(monkeypatch, capsys, "--store", store_url, "--nel-policy", str(policy))
    assert "differs: nel would say GO" in shown


def test_wilsons_lower_bound_is_scipys():
    interval = binomtest(953, 1319).proportion_ci(0.95, "wilson")
    assert vllm_wilson.wilson_lower(953 / 1319, 1319, 0.95) == pytest.approx(interval.low, abs=1e-12)


@pytest.mark.parametrize("name", ["vllm_rtol", "trt_hypothesis", "no_difference", "mlperf_99"])
def test_the_loss_that_a_rule_passes_half_the_time_is_passed_half_the_time(name):
    """Held against variants drawn here, answer by answer, with a true loss of that size."""
    generator = np.random.default_rng(8)
    baseline = generator.random(800) < 0.8
    churned = np.where(generator.random(800) < 0.05, ~baseline, baseline)
    text = "".join("01"[int(value)] for value in baseline)
    seen = outcomes(text, "".join("01"[int(value)] for value in churned))
    passes = passed_loss(SHIPPED[name].judge, seen)
    churn = min(seen.lost, seen.gained) / 800

    def rate(loss: float) -> float:
        """Share of 300 drawn variants that pass."""
        passed = 0
        for _ in range(300):
            flipped = np.where(baseline, generator.random(800) < churn / 0.8, generator.random(800) < churn / 0.2)
            variant = (baseline ^ flipped) & (generator.random(800) >= loss / baseline.mean())
            passed += SHIPPED[name].judge(outcomes(text, "".join("01"[int(v)] for v in variant))).says == "pass"
        return passed / 300

    assert 0.2 <= rate(passes.half) <= 0.8
    assert rate(passes.tenth) <= 0.35
    assert rate(max(0.0, 2 * passes.half - passes.tenth)) >= 0.65


def test_a_rule_that_blocks_equal_variants_and_one_that_cannot_judge_pass_no_loss():
    seen = many(200, 100, 5, 5)
    assert passed_loss(inferencex.judge, seen).half == -1
    assert passed_loss(kimi_vendor.judge, seen) is None
    assert passed_loss(vllm_rtol.judge, many(200, 0, 0)) is None
