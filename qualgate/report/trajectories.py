"""Text on trajectories turn by turn, the first divergent turn of each marked."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.formatting import counted
from qualgate.store.queries import Trajectories, Trajectory

HEADS = ("turn", "asked", "baseline right", "variant right", "baseline first wrong", "variant first wrong")
EXAMPLES = 3  # lost trajectories shown per evalset on a terminal
SIGNS = {True: "✓", False: "✗", None: "?"}


def headline(results: Trajectories) -> str:
    """Return how many trajectories are right in all of their turns."""
    total = f"{results.evalset}: right in all turns, of {counted(results.count, 'trajectory', 'trajectories')}"
    return f"{total}: baseline {results.baseline:,}, variant {results.variant:,}"


def turn_rows(results: Trajectories) -> list[tuple[str, ...]]:
    """Return the cells under HEADS, one row per turn."""
    return [
        tuple(
            f"{number:,}"
            for number in (
                turn.turn, turn.asked, turn.baseline, turn.variant, turn.baseline_diverged, turn.variant_diverged,
            )
        )
        for turn in results.turns
    ]  # fmt: skip


def turn_line(results: Trajectories) -> str:
    """Return one line on how many trajectories first went wrong at each turn."""
    rates = ", ".join(f"{turn.turn}: {turn.baseline_diverged:,} → {turn.variant_diverged:,}" for turn in results.turns)
    return f"first wrong at turn (baseline → variant) {rates}"


def lost_line(trajectory: Trajectory) -> str:
    """Return which turns of the variant are right, the first wrong one in brackets, and its reason."""
    signs = [SIGNS[value] for value in trajectory.variant]
    first_wrong = trajectory.diverged
    assert first_wrong is not None, "told of lost trajectories alone"
    signs[first_wrong] = f"[{signs[first_wrong]}]"
    name = trajectory.name + (f"#{trajectory.repeat}" if trajectory.repeat else "")
    turn, reason = trajectory.turns[first_wrong], trajectory.reasons[first_wrong]
    return f"{name}: {' '.join(signs)} first diverges at turn {turn}: {reason}"


def lines(sets: Sequence[Trajectories]) -> list[str]:
    """Return lines for a terminal: rates, the turns of first errors, and the first lost trajectories."""
    text_lines = []
    for results in sets:
        text_lines += [f"trajectories of {headline(results)}", f"  {turn_line(results)}"]
        text_lines += [f"  {lost_line(trajectory)}" for trajectory in results.first_lost[:EXAMPLES]]
    return text_lines


def lost_head(results: Trajectories) -> str:
    """Return the heading of the lost trajectories; "" if there are none."""
    shown = len(results.first_lost)
    first = f", the first {shown}" if results.lost > shown else ""
    return f"right in all turns before, not now: {results.lost:,}{first}" if results.lost else ""
