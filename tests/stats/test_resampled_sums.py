"""Ratios of sums against plain loops over the same draws, the linearised error, and simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualgate.stats.resampled_sums import DRAWS, SEED, Sums

COUNTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=80)


def looped(entries, draws: int) -> list[tuple[float, float]]:
    """(Σ numerator, Σ denominator) of each draw of clusters, one at a time."""
    labels = sorted({label for _, _, label in entries})
    generator = np.random.default_rng(SEED)
    found = []
    for row in generator.integers(0, len(labels), (draws, len(labels))):
        chosen = [labels[place] for place in row]
        members = [entry for label in chosen for entry in entries if entry[2] == label]
        found.append((sum(entry[0] for entry in members), sum(entry[1] for entry in members)))
    return found


@given(COUNTS)
@settings(max_examples=30, deadline=None)
def test_bounds_are_those_of_plain_loops_over_the_same_draws(entries):
    up, down, labels = (np.array(column) for column in zip(*entries, strict=True))
    sums = Sums.of({"up": up, "down": down}, labels, draws=60)
    found = sums.ratio("up", "down", 0.05, nothing="nothing")
    draws = looped(entries, 60)
    if not down.sum():
        assert (found.value, found.reason) == (None, "nothing")
        return
    assert found.value == pytest.approx(up.sum() / down.sum())
    if len(set(labels.tolist())) < 20:
        assert (found.lower, found.upper) == (None, None)
        assert "too few for bounds" in found.reason
    elif any(bottom == 0 for _, bottom in draws):
        assert (found.lower, found.reason) == (None, "seen in too few prompts for bounds")
    else:
        ratios = sorted(top / bottom for top, bottom in draws)
        assert found.lower == pytest.approx(ratios[int(0.05 * 59)])
        assert found.upper == pytest.approx(ratios[-1 - int(0.05 * 59)])


def test_the_order_of_entries_and_the_names_of_other_columns_change_nothing():
    drawn = np.random.default_rng(3)
    up, down, labels = drawn.poisson(3, 300), 1 + drawn.poisson(5, 300), drawn.integers(0, 90, 300)
    order = drawn.permutation(300)
    one = Sums.of({"up": up, "down": down}, labels)
    other = Sums.of({"z": down, "down": down[order], "up": up[order]}, labels[order])
    assert one.ratio("up", "down", 0.05, nothing="") == other.ratio("up", "down", 0.05, nothing="")
    assert len(one.drawn["up"]) == DRAWS >= 2000
    assert Sums.of({"up": [], "down": []}, []).ratio("up", "down", 0.05, nothing="no answer").reason == "no answer"


def test_a_share_of_all_or_none_is_no_surer_than_the_prompts_that_show_it_can_make_it():
    """Of 30 prompts 24 had any, each with ten: alike in all of them, so no resample has another."""
    down = np.repeat([10, 0], [24, 6])
    sums = Sums.of({"down": down, "none": 0 * down, "half": down / 2}, np.arange(30))
    whole, none, half = (sums.share(name, "down", 0.05, nothing="") for name in ("down", "none", "half"))
    assert (whole.value, whole.lower, whole.upper) == (1.0, pytest.approx(0.05 ** (1 / 24)), 1.0)
    assert (none.value, none.lower, none.upper) == (0.0, 0.0, pytest.approx(1 - 0.05 ** (1 / 24)))
    assert half == sums.ratio("half", "down", 0.05, nothing="")
