"""Benchmark `lossless` on little: what is planted in a rule misses its goal."""

from __future__ import annotations

from qualgate.engine.speculation import rules
from tests.verification.lossless import cells, lossless
from tests.verification.lossless.mutants import rewritten


def test_a_rule_that_is_wrong_misses_its_goal(monkeypatch):
    """Models of one kind and two tokens, and few ways to draft."""
    whole, everyone = cells.families, cells.drafting
    monkeypatch.setattr(cells, "families", lambda *how: whole(*how)[:1])
    monkeypatch.setattr(cells, "drafting", lambda family, **how: dict(list(everyone(family, **how).items())[:5]))
    monkeypatch.setattr(lossless, "VOCABULARIES", {2: cells.LOSSLESS})
    changed = rewritten(rules, "min(1.0, shares[-1] * _ratio(", "(shares[-1] * _ratio(")
    monkeypatch.setattr(cells, "RULES", {**rules.RULES, "block_verification": changed.block_verification})
    part = lossless.enumerated()
    rows = {row["id"]: row for row in part.rows([job() for job in part.jobs])[0]}
    assert rows["lossless.by_rounds"]["met"] is False
    assert rows["lossless.by_rounds"]["measured"] > 1e-3
    assert rows["lossless.at_once"]["met"] is False
