"""The mix of stop reasons, paired."""

from __future__ import annotations

from dataclasses import replace

from qualgate.gate.verdict import decide_plain
from tests.gate.planted import POLICY, run, with_units


def ended(evidence, arm: str, how):
    return with_units(evidence, arm, lambda units: (replace(u, finish_reason=how(i)) for i, u in enumerate(units)))


def test_every_pair_is_counted_by_how_both_answers_ended():
    evidence = ended(run(), "baseline", lambda i: "eos")
    evidence = ended(evidence, "variant", lambda i: "length" if i % 10 == 0 else "stop" if i == 5 else "eos")
    (verdict,) = decide_plain(evidence, POLICY)
    total = len(evidence.baseline.units)
    cut = len(range(0, total, 10))
    assert verdict.stop_reasons == {"eos": total - cut - 1, "eos → length": cut, "eos → stop": 1}
    assert list(verdict.stop_reasons.values()) == sorted(verdict.stop_reasons.values(), reverse=True)


def test_what_one_answer_lacks_is_not_guessed():
    evidence = ended(ended(run(), "baseline", lambda i: "eos"), "variant", lambda i: "eos" if i else "")
    assert decide_plain(evidence, POLICY)[0].stop_reasons == {}
