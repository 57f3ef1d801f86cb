"""The overhead's row judges what it measured, and says so where it could not measure."""

from __future__ import annotations

from itertools import cycle

from qualgate.sandbox import Sandbox, Tier
from tests.verification.escapes import sandbox as bench
from tests.verification.escapes.overhead import Pair

NOWHERE = Sandbox(tier=Tier(name="A", bwrap="/bin/false"))


def pairs(monkeypatch, *given: Pair) -> None:
    endless = cycle(given)
    monkeypatch.setattr(bench, "overhead", lambda sandbox: next(endless))


def test_overhead_is_the_median_of_the_pairs_that_found_the_machine_quiet(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    pairs(monkeypatch, Pair(wall=0.020, busy=1.0), Pair(wall=0.500, busy=2.0), Pair(wall=0.030, busy=1.2))
    row = bench._overhead_row(NOWHERE, 10, None)
    assert (row["measured"], row["met"], row["spread"]) == (25.0, True, [20, 30])
    pairs(monkeypatch, Pair(wall=0.041, busy=1.0))
    assert bench._overhead_row(NOWHERE, 10, None)["met"] is False


def test_a_machine_that_is_never_quiet_fails_no_healthy_sandbox(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    pairs(monkeypatch, Pair(wall=0.500, busy=2.0))
    row = bench._overhead_row(NOWHERE, 10, None)
    assert row["met"] is None
    assert row["reason"] == "0 of 100 pairs found the machine quiet, 10 are needed"
