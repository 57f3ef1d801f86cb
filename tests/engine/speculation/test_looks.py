from __future__ import annotations

from qualgate.engine.speculation.looks import ALLOWED, MOST, TRIED, Looks

PASS, LOOK = 200e-6, 50e-6  # s


def looked(looks: Looks, times: int, saves: float) -> float:
    """The share of all seconds that looks took, beyond what they saved."""
    took = passes = saved = 0.0
    for _ in range(times):
        looks.look(LOOK)
        took += LOOK
        gone = 1 + looks.rests(PASS)
        looks.passes += gone * PASS
        passes += gone * PASS
        looks.saved += saves
        saved += saves
    return (took - saved) / (took + passes)


def test_looks_that_find_nothing_take_little_more_than_they_may():
    looks = Looks()
    looked(looks, TRIED, 0.0)
    assert 0.8 * ALLOWED < looked(looks, 500, 0.0) < 1.2 * ALLOWED


def test_looks_that_save_more_than_they_take_are_never_left_out():
    looks = Looks()
    looked(looks, 500, 2 * LOOK)
    assert looks.rests(PASS) == 0


def test_what_was_saved_long_ago_pays_for_no_looks():
    looks = Looks()
    looked(looks, 500, 10 * LOOK)
    looked(looks, 300, 0.0)
    assert looked(looks, 100, 0.0) < 1.2 * ALLOWED


def test_beside_a_large_models_pass_no_look_counts_and_none_waits_for_ever():
    large = Looks(took=1.0, looks=TRIED)
    assert large.rests(0.0) == 0, "nothing is known of passes yet"
    assert large.rests(1e-6) == MOST
    assert Looks(took=30e-6, passes=5e-3, looks=TRIED).rests(5e-3) == 0
