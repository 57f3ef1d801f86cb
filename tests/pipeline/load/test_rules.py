"""What is made of a load's rounds: limits, the sign test, and the exit code of the command."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from math import comb
from pathlib import Path

import pytest
from scipy.stats import binomtest

from qualgate.config import GateFile, load_gate_file
from qualgate.errors import Exit, UsageError
from qualgate.pipeline.load.counters import Counted
from qualgate.pipeline.load.definitions import QUALGATE
from qualgate.pipeline.load.rules import VALUES, check_rules, policy_sha256, rounds_needed, sign_test, verdicts
from qualgate.pipeline.load.run import Loaded
from qualgate.pipeline.load.schedule import Level
from qualgate.pipeline.load.sent import Sent, Stage
from qualgate.records import ArmSpec, Load, LoadRule, Slo
from qualgate.records.identity import sha256_text
from qualgate.records.load import LOAD_METRICS
from tests.command_line import qualgate
from tests.pipeline.load.conftest import answers
from tests.pipeline.load.test_run import at, gate_file

LEVELS = (Level(kind="concurrency", value=4), Level(kind="concurrency", value=16))
DROP = LoadRule(metric="throughput.answers", max_drop=0.05)


def stage(answered: int, *, failed: int = 0, ttft: float = 0.1) -> Stage:
    """So many answers in 10 s, as evenly as can be."""
    fine = Sent(prompt=0, due=0.0, began=0.0, ended=2 * ttft, how="answered", pieces=(ttft, 2 * ttft), tokens=2)
    bad = Sent(prompt=0, due=1.0, began=1.0, ended=2.0, how="failed", failures=("status 503",))
    sent = [bad] * failed
    for due in (number * 9 / answered for number in range(answered)):
        pieces = (due + ttft, due + 2 * ttft)
        sent.append(replace(fine, due=due, began=due, ended=pieces[-1], pieces=pieces))
    return Stage(start=0.0, opens=0.0, closes=10.0, end=10.0, sent=tuple(sent))


def loaded(rules, variant, baseline=None, levels=LEVELS[:1], counts=None) -> Loaded:
    """Of a variant's stages, of each level alike."""
    baseline = baseline or [stage(100)] * len(variant)
    told = {"baseline": [None] * len(variant), "v": counts or [None] * len(variant)}
    stages = {("baseline", level): tuple(baseline) for level in levels}
    stages |= {("v", level): tuple(variant) for level in levels}
    return Loaded(
        load=Load(rules=tuple(rules), rounds=len(variant)), seed=0, levels=levels,
        arms=(ArmSpec(name="baseline", model="m"), ArmSpec(name="v", model="m")), prompts=1, declarations={},
        stages=stages, counts={key: tuple(told[key[0]]) for key in stages},
    )  # fmt: skip


def said(found: Loaded, slo: Slo | None = None) -> str:
    [verdict] = verdicts(found, QUALGATE, slo, 0.05)
    return verdict.word


@pytest.mark.parametrize("of", [1, 5, 8, 20])
def test_the_sign_test_is_the_binomial_one(of):
    for found in range(of + 1):
        assert sign_test(found, of) == pytest.approx(binomtest(found, of, 0.5, alternative="greater").pvalue)
    assert sign_test(of, of) <= 0.05 or of < rounds_needed(0.05)


def test_a_server_at_the_limit_is_approved_and_blocked_at_most_as_often_as_alpha():
    """Every way that rounds can fall, each as likely as any: the least sound case."""
    rules = [DROP, LoadRule(metric="e2e.p95", max=10.0)]
    ways = Counter()
    for beyond in range(9):
        ways[said(loaded(rules, [stage(94)] * beyond + [stage(95)] * (8 - beyond)))] += comb(8, beyond)
    assert ways.total() == 256
    assert 0 < ways["block"] <= 0.05 * 256
    assert 0 < ways["approve"] <= 0.05 * 256


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        ([100] * 5, "approve"),
        ([95] * 5, "approve"),  # at the limit
        ([94] * 5, "block"),
        ([100] * 4 + [90], "undecided"),
        ([100] * 7 + [90], "approve"),
        ([100] * 4, "undecided"),  # too few to show anything
        ([90] * 4, "undecided"),
    ],
)
def test_rounds_decide_by_how_many_are_within(rounds, found):
    assert said(loaded([DROP], [stage(one) for one in rounds])) == found


def test_a_rule_holds_at_every_level_and_one_that_is_broken_blocks():
    both = loaded([DROP], [stage(100)] * 6, levels=LEVELS)
    assert said(both) == "approve"
    worse = replace(both, stages=both.stages | {("v", LEVELS[1]): (stage(80),) * 6})
    assert said(worse) == "block"
    unsure = replace(both, stages=both.stages | {("v", LEVELS[1]): (*(stage(80),) * 3, *(stage(100),) * 3)})
    assert said(unsure) == "undecided"


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (LoadRule(metric="throughput.tokens", min=15.0), stage(100), stage(60)),
        (LoadRule(metric="throughput.good", max_drop=0.1), stage(100), stage(100, ttft=0.3)),
        (LoadRule(metric="ttft.p95", max_increase=0.1), stage(50), stage(50, ttft=0.2)),
        (LoadRule(metric="tpot.p95", max=0.15), stage(50), stage(50, ttft=0.2)),
        (LoadRule(metric="e2e.p95", max=0.3), stage(50), stage(50, ttft=0.2)),
        (LoadRule(metric="failed.share", max=0.01), stage(100), stage(100, failed=5)),
    ],
    ids=lambda one: getattr(one, "metric", ""),
)
def test_each_metric_is_held_against_its_limit(rule, good, bad):
    slo = Slo(ttft=0.2)
    assert said(loaded([rule], [good] * 5), slo) == "approve"
    assert said(loaded([rule], [bad] * 5), slo) == "block"


def test_what_a_server_writes_for_nobody_is_known_or_approves_nothing():
    rule = LoadRule(metric="cancel.tokens", max=0)
    still, on = Counted(written=100, afterwards=0), Counted(written=100, afterwards=40)
    assert said(loaded([rule], [stage(10)] * 5, counts=[still] * 5)) == "approve"
    assert said(loaded([rule], [stage(10)] * 5, counts=[on] * 5)) == "block"
    assert said(loaded([rule], [stage(10)] * 5, counts=[None, *[still] * 7][:5])) == "undecided"
    assert said(loaded([rule], [stage(10)] * 6, counts=[None, *[on] * 5])) == "undecided"  # five of six show no breach
    [verdict] = verdicts(loaded([rule], [stage(10)] * 5, counts=[None] * 5), QUALGATE, None, 0.05)
    assert verdict.findings[0].because == "it is not known of 5 of 5 rounds"


def test_every_metric_has_its_words_and_its_value():
    assert list(VALUES) == list(LOAD_METRICS)


def unasked(folder: Path, load: str, **more: str) -> GateFile:
    """Of two arms of whose servers nobody is there."""
    arms = (f'{{endpoint: "http://127.0.0.1:1/v1", model: {name}}}' for name in ("m", "other"))
    return load_gate_file(gate_file(folder, *arms, load, **more))


RULES = "{concurrency: [2], seconds: 1, warmup: 0, cooldown: 0, rounds: 5, rules: [SAID]}"


@pytest.mark.parametrize(
    ("rule", "code", "said"),
    [
        ("{metric: failed.share, max: 0.5}", 0, "approve"),
        ("{metric: throughput.answers, min: 1000000}", 10, "block"),
        ("{metric: throughput.tokens, min: 1}", 12, "not known of 5 of 5 rounds"),
    ],
)
def test_the_command_ends_as_a_run_does(tmp_path, servers, rule, code, said):
    def without_counts(body):
        return replace(answers(body), body=answers(body).body.replace(b'"completion_tokens": 2', b'"x": 2'))

    for server in servers:
        server.otherwise = without_counts
    done = qualgate("load", str(gate_file(tmp_path, *map(at, servers), RULES.replace("SAID", rule))))
    assert done.returncode == code, done.stdout + done.stderr
    assert said in " ".join(done.stdout.split())
    [kept] = json.loads(qualgate("runs", str(tmp_path / "gate.yaml"), "--loads", "--json").stdout)
    assert kept["result"] == json.loads((tmp_path / "qualgate-reports" / "load.json").read_text())
    assert (kept["exit"], kept["gate"]) == (code, "gate.yaml")
    assert kept["gate_sha256"] == sha256_text((tmp_path / "gate.yaml").read_text())
    [finding] = kept["result"]["verdicts"][0]["findings"]
    assert len(finding["rounds"]) == 5


def test_where_a_load_cannot_be_kept_nothing_is_asked_and_without_rules_nothing_is_kept(tmp_path, servers):
    path = gate_file(tmp_path, *map(at, servers), RULES.replace("SAID", "{metric: failed.share, max: 0.5}"))
    (tmp_path / "qualgate.db").write_bytes(b"no database, but longer than the head of one" * 9)
    assert qualgate("load", str(path)).returncode not in (0, 10)
    assert servers[0].asked == servers[1].asked == []
    (tmp_path / "qualgate.db").unlink()
    assert qualgate("load", str(gate_file(tmp_path, *map(at, servers)))).returncode == Exit.APPROVE
    assert not (tmp_path / "qualgate.db").exists()


def test_what_its_words_depend_on_is_in_the_hash_of_the_policy(tmp_path):
    rule = RULES.replace("SAID", "{metric: e2e.p95, max: 1}")

    def of(load: str = rule, by: str = "qualgate", **more: str) -> str:
        return policy_sha256(unasked(tmp_path, load, **more), by)

    assert of() == of(workers="{count: 1}")
    others = [of(rule.replace("max: 1", "max: 2")), of(rule.replace("rounds: 5", "rounds: 6")), of(by="vllm"),
              of(slo="{ttft: 1}"), of(generation="{seed: 1}")]  # fmt: skip
    assert len({of(), *others}) == 6


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{metric: throughput, min: 1}", "unknown load metric 'throughput'"),
        ("{metric: throughput.answers, max: 1}", "needs one limit: `max_drop` or `min`"),
        ("{metric: throughput.answers, min: 1, max_drop: 0.1}", "needs one limit"),
        ("{metric: failed.share, max_increase: 0.1}", "needs one limit: `max`"),
        ("{metric: cancel.tokens, max: 0}", "add for example `cancel: 0.1`"),
        ("{metric: retry.share, max: 0}", "add for example `retries: 2`"),
        ("{metric: ttft.p95}", "needs one limit: `max_increase` or `max`"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_what_to_write(tmp_path, rule, said):
    with pytest.raises(UsageError, match=r"gate\.yaml:6") as error:
        unasked(tmp_path, RULES.replace("SAID", rule))
    assert said in str(error.value)


def test_rounds_that_can_show_nothing_are_told_and_goodness_needs_limits(tmp_path):
    few = RULES.replace("rounds: 5", "rounds: 3").replace("SAID", "{metric: e2e.p95, max: 1}")
    [line] = check_rules(unasked(tmp_path, few))
    assert "3 rounds can approve nothing at alpha 0.05; `rounds: 5` can" in line
    good = unasked(tmp_path, RULES.replace("SAID", "{metric: throughput.good, min: 1}"))
    with pytest.raises(UsageError, match="no limits say what is good"):
        list(check_rules(good))
