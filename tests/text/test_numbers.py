"""What a number looks like wherever it is shown."""

from __future__ import annotations

from dataclasses import replace

from qualgate.records import Comparison
from qualgate.report.comparison_text import bounds_text, difference_text, flips_text, value_text
from qualgate.text.numbers import counted, ms_text, size_text

DROP = Comparison(rule="r", metric="exact_match", slice="s", tier="critical", status="broken", n=9)


def test_values_are_shown_in_their_units() -> None:
    pairs = (("exact_match", 0.5), ("latency.e2e", 0.02), ("drift.kl_mean", 0.0012), ("exact_match", None))
    assert [value_text(*pair) for pair in pairs] == ["50.0 %", "20.0 ms", "0.0012", "–"]
    assert value_text("a metric of a later version", 0.5) == "0.5"
    assert (ms_text(0.0123), ms_text(None)) == ("12.3 ms", "–")
    assert (size_text(2**20), size_text(3 * 2**30)) == ("1.00 MiB", "3.00 GiB")


def test_what_was_not_measured_is_a_dash() -> None:
    assert {difference_text(DROP), bounds_text(DROP), flips_text(DROP)} == {"–"}


def test_a_quality_difference_and_its_bounds_are_in_points() -> None:
    measured = replace(DROP, difference=-0.05, lower=-0.1, upper=0.01, lost=3, gained=1)
    assert (difference_text(measured), bounds_text(measured)) == ("-5.0", "[-10.0, +1.0]")
    assert flips_text(measured) == "3 / 1"


def test_drift_is_bounded_in_its_unit_and_latency_as_a_ratio_of_times() -> None:
    """The ratio of two times is no time."""
    nats = replace(DROP, metric="drift.kl_mean", lower=0.001, upper=None)
    share = replace(DROP, metric="drift.top1_agreement", lower=0.97, upper=0.99)
    ratio = replace(DROP, metric="latency.tpot", lower=0.98, upper=1.0412)
    assert [bounds_text(one) for one in (nats, share, ratio)] == ["[0.001, …]", "[97.0 %, 99.0 %]", "[0.98, 1.041] x"]


def test_one_is_one_and_everything_else_is_many() -> None:
    assert [counted(n, "case") for n in (0, 1, 2, 2_800)] == ["0 cases", "1 case", "2 cases", "2,800 cases"]
    assert [counted(n, "entry", "entries") for n in (1, 3)] == ["1 entry", "3 entries"]
    assert counted(1, "case is", "cases are") == "1 case is"
