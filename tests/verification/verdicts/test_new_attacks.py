"""The attacks themselves: enough of them, each its own, from what they are called; none gets through."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.verification.verdicts import new_attacks
from tests.verification.verdicts.attacks.of_files import with_times
from tests.verification.verdicts.attacks.scene import gated, losing, lost_ids, sound, without
from tests.verification.verdicts.new_attacks import LEAST, QUICK, REFUSALS, listed, measure, outcomes


def through(found) -> list:
    return [one for one in found if one[-1] not in REFUSALS]


def test_there_are_enough_attacks_and_none_is_listed_twice():
    names = [(group, name) for group, name, _ in listed()]
    assert len(names) == len(set(names)) >= LEAST


def test_a_slice_of_the_attacks_is_refused():
    found = outcomes(QUICK)
    assert len(found) >= 50
    assert through(found) == []
    assert len({code for *_, code in found}) > 3, "refused for one reason, they tell of one defence"


@pytest.mark.proof
def test_every_attack_is_refused():
    found = outcomes()
    assert through(found) == []
    assert Counter(code for *_, code in found)[64] < len(found)


def test_an_attack_that_gets_through_or_crashes_is_not_met(monkeypatch):
    sought = [("ids", "fine", lambda folder: 12)] * LEAST
    for code, met in ((14, True), (0, False), ("KeyError: 'x'", False), (1, False)):
        given = [*sought, ("ids", "new", lambda folder, code=code: code)]
        monkeypatch.setattr(new_attacks, "listed", lambda given=given: iter(given))
        _, [row] = measure(quick=False)
        assert row["met"] is met
    monkeypatch.setattr(new_attacks, "listed", lambda: iter(sought[:5]))
    assert measure(quick=False)[1][0]["met"] is None, "five are too few"


def test_what_is_hidden_is_what_was_lost(tmp_path):
    scene = losing()
    assert len(lost_ids(scene)) > 50
    without(lost_ids(scene))(scene)
    scene.cases = [case for case in scene.cases or [] if case["id"] not in lost_ids(losing())]
    assert gated(scene, tmp_path / "scene") == 0, "without them, the rest would approve"
    with_times(timed := sound())
    assert gated(timed, tmp_path / "scene") == 0
