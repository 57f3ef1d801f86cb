"""Shares of `make verify`: no room and no proof is left out, and a landing runs what it changed."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.house.rooms import ALLOWED
from tests.verification import PROOFS, landing
from tests.verification.__main__ import Slice
from tests.verification.shares import EVERYTHING, SHARES, share_in_turn, share_of, shares_of

ROOT = Path(__file__).resolve().parents[2]
NOT_TESTS = {"verification", "__pycache__"}  # a share names folders inside verification one by one


def test_every_room_is_in_one_share():
    rooms = [name for share in SHARES.values() for name in share.rooms]
    assert sorted(rooms) == sorted(ALLOWED)


def test_every_test_is_in_one_share():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert [path for path in files if share_of(path) is None] == []
    places = [place for share in SHARES.values() for place in share.tests]
    assert len(places) == len(set(places))
    assert [place for place in places if not (ROOT / "tests" / place).exists()] == []


def test_every_proof_of_the_command_is_in_one_share():
    assert sorted(name for share in SHARES.values() for name in share.slices) == sorted(PROOFS)


@pytest.mark.parametrize(
    ("changed", "shares"),
    [
        (["qualgate/gate/rules.py"], ["gate"]),
        (["qualgate/run.py", "app/views/runs.py"], ["store", "pages"]),
        (["qualgate/pipeline/load/rules.py", "qualgate/pipeline/plan.py"], ["served", "store"]),
        (["kernels/qualgate_kernels/cpu/c/int4.c"], ["kernels"]),
        (["tests/verification/lossless/cells.py"], ["engine"]),
        (["docs/rules.md", "CHANGELOG.md"], []),
        (["docs/rules.md", "constraints.txt"], list(SHARES)),
    ],
)
def test_a_landing_runs_the_shares_of_the_rooms_that_it_changed(changed, shares):
    assert shares_of(changed) == shares


def test_what_a_slow_machine_does_not_reach_is_another_one_each_day():
    covered = [Slice(proof="gate", rows=(str(number),)) for number in range(60)]
    days = [landing.in_turn(covered, (), date(2026, 11, 28) + timedelta(days=number)) for number in range(8)]
    assert all(sorted(day, key=str) == sorted(covered, key=str) for day in days)
    assert {str(one) for day in days for one in day[:20]} == set(map(str, covered))
    assert landing.in_turn(covered, [str(covered[7])], date(2026, 11, 28))[0] == covered[7]
    assert landing.hold_before(covered[0], 0.0) is None


def test_files_that_everything_stands_on_are_there():
    assert [path for path in EVERYTHING if not (ROOT / path).exists()] == []


def test_each_share_has_its_turn_within_as_many_days_as_there_are_shares():
    days = [date(2026, 11, 28) + timedelta(days=number) for number in range(len(SHARES))]
    assert {share_in_turn(day) for day in days} == set(SHARES)


def test_where_the_history_does_not_say_what_changed_every_share_runs(monkeypatch):
    monkeypatch.setattr(landing, "base", lambda: "")
    assert list(landing.chosen_shares(False, [])) == list(SHARES)
    assert landing.chosen_shares(False, ["gate"]) == {"gate": "named"}
    with pytest.raises(SystemExit, match="no share 'gat'"):
        landing.chosen_shares(False, ["gat"])


def test_a_proof_that_failed_stays_until_it_passes(monkeypatch, tmp_path):
    monkeypatch.setattr(landing, "FAILING", tmp_path / "failing.txt")
    landing.keep_failures(["tests/a.py::one", "served: power"], [])
    landing.keep_failures([], ["tests/b.py::two"])
    assert landing.known_failures() == ["served: power", "tests/a.py::one"]
    landing.keep_failures(["served: power"], ["tests/a.py::one"])
    assert landing.known_failures() == ["served: power"]
    landing.keep_failures([], ["served: power"])
    assert landing.known_failures() == []
    assert not (tmp_path / "failing.txt").exists()
