"""Honest users' odd inputs: enough of them, each its own, none refused."""

from __future__ import annotations

import pytest

from tests.verification.verdicts import legitimate
from tests.verification.verdicts.legitimate import LEAST, QUICK, listed, measure, outcomes


def refused(found) -> list:
    return [one for one in found if one[1] != one[2]]


def test_there_are_enough_inputs_and_none_is_listed_twice():
    names = [name for name, _, _ in listed()]
    assert len(names) == len(set(names)) >= LEAST
    assert {code for _, code, _ in listed()} == {0, 10, 12}


def test_a_slice_of_them_is_judged():
    assert refused(outcomes(QUICK)) == []


@pytest.mark.proof
def test_every_one_is_judged():
    assert refused(outcomes()) == []


def test_one_that_is_refused_is_not_met(monkeypatch):
    fine = [("fine", 0, lambda folder: 0)] * LEAST
    for code, met in ((0, True), (64, False), (13, False), (12, False)):
        given = [*fine, ("odd", 0, lambda folder, code=code: code)]
        monkeypatch.setattr(legitimate, "listed", lambda given=given: given)
        _, [row] = measure(quick=False)
        assert row["met"] is met
