"""NEL's gate policy: read as NEL reads it, judged as it judges, decided by our tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from qualgate.errors import UsageError
from qualgate.gate.decide import Decided, decide, rules_before
from qualgate.gate.peers.nel_policy import NelBenchmark, NelPolicy, as_text, decide_by
from qualgate.gate.verdict import decide_plain
from qualgate.intake.nel_policy import read_nel_policy
from qualgate.records import Policy
from tests.gate.planted import POLICY, run, with_units, with_variant

DOCUMENTED = """
version: 1
defaults: {tier: supporting, metric: mean_reward, direction: higher_is_better, max_drop: 0.015}
benchmarks:
  code: {tier: critical, max_drop: 0.05}
  tools: {metric: pass@1, max_drop: 0.1}
  aime: {tier: advisory, max_relative_drop: 0.02, relative_guard_below: 0.20}
"""


def read(tmp_path, text: str) -> NelPolicy:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return read_nel_policy(path)


def test_a_policy_is_read_with_its_inheritance(tmp_path):
    policy = read(tmp_path, DOCUMENTED)
    assert policy.of("code") == NelBenchmark(tier="critical", max_drop=0.05, metric="mean_reward")
    assert policy.of("tools") == NelBenchmark(tier="supporting", max_drop=0.1, metric="pass@1")
    assert policy.of("not listed") == NelBenchmark(metric="mean_reward")
    assert policy.of("aime").relative_guard_below == 0.2
    assert read(tmp_path, "version: 1\n") == NelPolicy()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 2\n", "yaml:1: "),
        ("benchmarks: {a: {metric: mean_reward, max_dorp: 0.1}}\n", "max_dorp"),
        ("defaults: {max_drop: -0.1}\n", "max_drop"),
        ("defaults: {max_drop: .nan}\n", "max_drop"),
        ("defaults: {relative_guard_below: 2}\n", "relative_guard_below"),
        ("benchmarks: {a: {}}\n", "yaml:1: the nel policy requires a"),
        ("benchmarks:\n  a: {metric: bleu}\n", "yaml:2: .* requires a: .* it has bleu. Either is nel's word"),
        ("benchmarks:\n  a: {}\n  b: {}\n", "(?s)yaml:2: .* requires a: .*yaml:3: .* requires b: "),
        ("- a\n", "mapping"),
        ("", "empty"),
    ],
)
def test_what_nel_refuses_is_refused(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("version: '1'\nbenchmarks: {a: {metric: mean_reward, max_drop: 12e-2}}\n", 0.12),  # a word to YAML 1.1
        ("version: 1.0\nbenchmarks: {a: {metric: mean_reward, max_drop: '0.12'}}\n", 0.12),
        ("defaults: &d {metric: mean_reward, max_drop: .12}\nbenchmarks: {a: *d}\n", 0.12),
        ("defaults: &d {metric: mean_reward, max_drop: 1_0.5}\nbenchmarks: {a: {<<: *d, tier: critical}}\n", 10.5),
        ("benchmarks:\n  x: &x {metric: pass@1, max_drop: 0.5}\n  a:\n    <<: [*x]\n    max_drop: 0.12\n", 0.12),
        ("benchmarks: {a: {metric: mean_reward, max_drop: 0.5, max_drop: 0.12}}\n", 0.12),  # the last one counts
        ("benchmarks: {a: {metric: mean_reward, max_drop: .inf}}\n", float("inf")),
        ("benchmarks: {a: {metric: mean_reward, max_drop: yes}}\n", 1.0),
        ("benchmarks: {a: !!map {metric: mean_reward, max_drop: !!float 12e-2}}\n", 0.12),
    ],
)
def test_what_nel_reads_is_read_as_nel_reads_it(tmp_path, text, found):
    plain = yaml.safe_load(text)
    assert float(plain["benchmarks"]["a"]["max_drop"]) == found
    assert read(tmp_path, text).of("a").max_drop == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n"
                                                    for a, b in zip("abcde", "bcdef", strict=True)), "aliases"),
        ("a: &a {k: 1}\n" + "".join(f"{b}: &{b} {{<<: [{','.join(['*' + a] * 10)}]}}\n"
                                     for a, b in zip("abcdef", "bcdefg", strict=True)), "aliases"),
        ("benchmarks: &b {a: *b}\n", "without an end"),
        ("a: &a0 1\n" + "".join(f"k{n}: &a{n + 1} [*a{n}]\n" for n in range(3000)), "deeper"),
        ("[" * 5000, "deeper"),
        ("version: !!python/object/apply:os.system ['x']\n", "not YAML"),
        ("benchmarks: {? [1, 2] : x}\n", "not YAML"),
        ("version: 2001-99-99\n", "cannot be read"),
        ("version: " + "1" * 9000 + "\n", "cannot be read"),
        ("benchmarks: {1: {metric: mean_reward}}\n", "yaml:1: "),
        ("benchmarks: {a: null}\n", "yaml:1: "),
        ("version: 1\n---\nversion: 1\n", "not YAML"),
        ("defaults:\n  &d\n  metric: mean_reward\nbenchmarks:\n  a:\n    <<: *d\n    max_dorp: 1\n", "yaml:7: "),
    ],
)  # fmt: skip
def test_a_hostile_policy_is_refused_with_its_line_and_expands_to_nothing(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        read(tmp_path, text)


def everything(**given) -> NelPolicy:
    return NelPolicy(defaults=NelBenchmark(**{"metric": "mean_reward", "max_drop": 0.05} | given))


EMPTY = replace(with_units(with_variant(run(), units=()), "baseline", lambda units: ()), expected=())


@pytest.mark.parametrize(
    ("evidence", "nel", "exit", "why"),
    [
        (run(n=300), "GO", 0, ""),
        (run(n=300, lost=0.3), "NO-GO", 10, ""),
        (run(n=300, lost=0.05), "INCONCLUSIVE", 12, ""),
        (run(n=10, right=1.0), "GO", 12, "exact bound"),
        (with_units(run(), "variant", lambda units: units[:12]), "GO", 13, "missing"),
        (EMPTY, "GO", 13, "no unit was planned"),
    ],
    ids=["equal", "worse", "at the margin", "ten cases without a flip", "missing rows", "an empty folder"],
)
def test_clear_evidence_is_judged_alike_and_every_other_verdict_says_why(evidence, nel, exit, why):
    (verdict,), policy, (said,) = decide_by(everything(), evidence)
    assert (said.says, verdict.exit) == (nel, exit)
    assert (said.differences == ()) == (why == "")
    assert any(why in line for line in (*said.differences, ""))
    assert not why or f"nel would say {nel}" in said.differences[0]
    assert policy.alpha == 0.025  # nel's interval is 95 %, two-sided
    assert {rule.tier for rule in policy.rules} == {"critical"}


def test_a_required_benchmark_that_was_not_run_is_never_approved(tmp_path):
    policy = read(tmp_path, DOCUMENTED + "  gpqa: {max_drop: 0.01}\n")
    (verdict,), _, (said,) = decide_by(policy, run(n=300))
    assert (said.says, verdict.exit) == ("NO-GO", 12)
    assert verdict.reasons[0] == "gpqa is required by the nel policy and was not in the run"
    assert any("nel would say NO-GO" in reason for reason in verdict.reasons)


def test_evidence_that_is_too_old_stays_too_old_under_an_nel_policy():
    kept = Policy(rules=(), max_age=3600)
    evidence = replace(run(n=300), made_at="2026-11-01T00:00:00+00:00")
    for now, word in (("2026-11-01T00:30:00+00:00", "approve"), ("2026-11-01T02:00:00+00:00", "undecided")):
        assert decide_by(everything(), evidence, kept, now)[0][0].word == word


def test_a_stored_nel_policy_decides_again_as_it_did():
    first, policy, _ = decide_by(everything(max_relative_drop=0.02), run(n=300, lost=0.02))
    again = decide(run(n=300, lost=0.02), replace(policy, rules=(), alpha=0.05))
    assert (again.verdicts, again.policy, bool(again.nel)) == (first, policy, True)
    assert decide(run(), POLICY) == Decided(verdicts=decide_plain(run(), POLICY), policy=POLICY)


def test_before_a_run_an_nel_policy_is_known_but_for_its_guards():
    nel = replace(Policy(rules=()), nel=as_text(everything(max_relative_drop=0.02)))
    known = rules_before(nel, {"code": ("exact_match",), "tools": ("tool_call.valid", "exact_match")})
    assert [(r.evalset, r.metric, r.max_drop) for r in known.rules] == [
        ("code", "exact_match", 0.05),
        ("tools", "tool_call.valid", 0.05),
    ]
    assert rules_before(POLICY, {}) is POLICY


def test_a_policy_that_gates_nothing_goes_for_nel_and_approves_nothing_here():
    for gating in ({"tier": "advisory"}, {"max_drop": 1.0}, {"max_drop": float("inf")}):
        (verdict,), policy, (said,) = decide_by(everything(**gating), run(lost=0.9))
        assert (said.says, verdict.word, verdict.exit) == ("GO", "undecided", 12)
        assert "no critical rule" in verdict.reasons[0]
        assert any("nel would say GO" in reason for reason in verdict.reasons)
        assert decide(run(lost=0.9), replace(policy, rules=())).verdicts == (verdict,)


def test_a_margin_that_nothing_exceeds_is_taken_and_told_and_gates_nothing():
    nel = NelPolicy(defaults=NelBenchmark(metric="mean_reward", max_drop=0.05),
                    benchmarks={"code": NelBenchmark(metric="mean_reward", max_drop=2.0)})  # fmt: skip
    (verdict,), policy, _ = decide_by(nel, run(n=300))
    assert {rule.evalset: rule.tier for rule in policy.rules}["code"] == "advisory"
    assert any("code tolerates a loss of 2, which nothing exceeds" in reason for reason in verdict.reasons)


def test_a_margin_too_large_to_be_proven_is_undecided_and_a_loss_beyond_it_is_still_broken():
    (verdict,), _, (said,) = decide_by(everything(max_drop=0.5), run(n=300))
    assert (said.says, verdict.word) == ("GO", "undecided")
    assert decide_by(everything(max_drop=0.3), run(n=300, right=1.0, lost=0.9))[0][0].word == "block"


def test_a_relative_guard_needs_an_interval_here():
    """nel blocks on one net flip of few; here the guard is a margin like any other."""
    evidence = run(n=60, right=0.15, lost=1 / 60)
    (verdict,), policy, (said,) = decide_by(everything(max_relative_drop=0.02, relative_guard_below=0.2), evidence)
    assert said.says == "NO-GO"
    assert verdict.word == "undecided"
    assert all(rule.max_drop == pytest.approx(0.02 * 0.15) for rule in policy.rules)
    assert any("not the point estimate" in line for line in said.differences)
    assert any("relative guard" in reason for reason in verdict.reasons)


def test_a_tolerance_of_nothing_approves_a_proven_gain_alone():
    assert decide_by(everything(max_drop=0.0), run(n=300))[0][0].word == "undecided"
    assert decide_by(everything(max_drop=0.0), run(n=300, right=0.6, gained=0.2))[0][0].word == "approve"


def test_lower_is_better_and_pass_at_1_of_a_number_are_refused():
    with pytest.raises(UsageError, match="lower_is_better"):
        decide_by(everything(direction="lower_is_better"), run())
    numbers = replace(run(), metrics=dict.fromkeys(run().metrics, ("lm_eval.f1",)))
    with pytest.raises(UsageError, match="not right or wrong"):
        decide_by(everything(metric="pass@1"), numbers)


def test_a_set_of_several_metrics_is_gated_on_its_first_and_says_so():
    (verdict,), policy, _ = decide_by(everything(), run(n=300, lost={("tools", "tool_call.valid"): 0.5}))
    assert [(rule.evalset, rule.metric) for rule in policy.rules] == [("code", "exact_match"), ("tools", "exact_match")]
    assert any("not on tool_call.valid" in reason for reason in verdict.reasons)
