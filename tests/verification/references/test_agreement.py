"""Slices of the fuzzing against references: they agree, and a scorer that differs is found."""

from __future__ import annotations

import json
import random

import pytest

from qualgate.scoring import filters, overlap
from qualgate.scoring.ifeval import INSTRUCTIONS
from tests.verification.references import filters_fuzz, ifeval_fuzz, match_rules
from tests.verification.references.agreement import NoReference, Tally, made


def agreed(differential, count: int) -> Tally:
    try:
        return differential(count, 3)
    except NoReference as why:
        pytest.skip(str(why))


def test_a_tally_agrees_only_when_everything_asked_is_the_same():
    tally = Tally()
    assert not tally.agree  # nothing was asked
    tally.take("x", True, True, "a")
    assert (tally.agree, tally.share, tally.true["x"]) == (True, 1.0, 1)
    tally.take("x", "1", "2", "the text")
    assert (tally.agree, tally.share) == (False, 0.5)
    assert tally.differences == ["x: theirs '1', ours '2': ('the text',)"]
    assert json.loads(json.dumps(tally.as_row()))["asked"] == {"x": 2}


def test_made_answers_are_seeded_and_of_every_kind():
    texts = [made(random.Random(seed)) for seed in range(2_000)]
    assert texts[:200] == [made(random.Random(seed)) for seed in range(200)]
    assert "" in texts
    together = "".join(texts)
    assert all(piece in together for piece in ("#### ", "(A)", "1,234", "\u0661", "\u202e", "\0", "\ud800", "\n"))


@pytest.mark.parametrize("differential", [filters_fuzz.differential, match_rules.differential])
def test_scorers_agree_with_their_references(differential):
    tally = agreed(differential, 150)
    assert (tally.agree, tally.differences) == (True, [])
    assert 0.02 < tally.true.total() / tally.asked.total() < 0.9  # neither side says one thing only


def test_ifeval_agrees_with_lm_evals_checkers():
    tally = agreed(ifeval_fuzz.differential, 100)
    assert (tally.agree, tally.differences) == (True, [])
    assert {name.rpartition(": ")[0] for name in tally.asked} == set(INSTRUCTIONS)


def test_a_filter_a_comparison_or_an_f1_that_differs_is_found(monkeypatch):
    monkeypatch.setitem(filters.FILTERS, "strict-match", filters._regex(r"####\s*(\-?[0-9\.\,]+)"))
    monkeypatch.setattr(filters_fuzz, "compared", lambda text, gsm8k: text)
    monkeypatch.setattr(overlap, "_squad_tokens", str.split)
    tally = agreed(filters_fuzz.differential, 60)
    assert {name for name in tally.asked if tally.same[name] < tally.asked[name]} >= {"strict-match", "exact_match"}
    tally = agreed(match_rules.differential, 60)
    assert tally.same["f1"] < tally.asked["f1"]
