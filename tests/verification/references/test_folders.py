"""A part of the proof `folders`, drawn by the day: no folder is approved that a server reads otherwise."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from tests.verification.references import folders
from tests.verification.references.edited_folders.made import FORMATS

TODAY = datetime.now(UTC).date().toordinal()


def test_the_folders_are_as_many_as_the_goal_asks():
    names = [case.name for case in folders.CASES]
    assert len(names) == len(set(names)) >= 150
    assert {case.format for case in folders.CASES} == set(FORMATS)
    assert {case.kind for case in folders.CASES} == set(range(1, 12))


@pytest.mark.proof
def test_folders_with_a_fault_are_refused_or_told_by_its_cause():
    tally = folders.edited(random.Random(TODAY).sample(folders.CASES, 40))
    assert [one.case.name for one in tally.approved] == []
    assert tally.share >= 0.9, tally.as_row()["wrong"]


@pytest.mark.proof
def test_random_edits_are_neither_silent_nor_a_traceback():
    found = folders.mutated(150, folders.SEED)  # other draws meet kinds that are open, see LISTED
    assert found.holds, [fault for fault in found.faults if fault[0] in ("silent", "traceback")]
