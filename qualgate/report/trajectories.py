"""Trajectories turn by turn, the first divergent turn of each lost one in brackets."""

from __future__ import annotations

from collections.abc import Iterable

from qualgate.report.blocks import Lines, Note, Section, Table
from qualgate.store.queries import Trajectories, Trajectory
from qualgate.text.numbers import counted

HEADS = ("turn", "asked", "baseline right", "variant right", "baseline first wrong", "variant first wrong")
EXAMPLES = 3  # lost trajectories shown per evalset on a terminal
SIGNS = {True: "✓", False: "✗", None: "?"}


def trajectory_sections(sets: Iterable[Trajectories]) -> list[Section]:
    """Return a section for each evalset: rates turn by turn, then the lost trajectories."""
    return [_section(results) for results in sets]


def _section(results: Trajectories) -> Section:
    total = f"right in all turns, of {counted(results.count, 'trajectory', 'trajectories')}"
    rows = tuple(
        tuple(
            f"{number:,}"
            for number in (
                turn.turn, turn.asked, turn.baseline, turn.variant, turn.baseline_diverged, turn.variant_diverged,
            )
        )
        for turn in results.turns
    )  # fmt: skip
    shown = len(results.first_lost)
    first = f", the first {shown}" if results.lost > shown else ""
    lost = (
        Note(f"right in all turns before, not now: {results.lost:,}{first}"),
        Lines(tuple(map(lost_line, results.first_lost)), most=EXAMPLES),
    )
    return Section(
        f"Trajectories of {results.evalset}",
        (
            Note(f"{total}: baseline {results.baseline:,}, variant {results.variant:,}"),
            Table(heads=HEADS, rows=rows, numbers=range(6)),
            *(lost if results.lost else ()),
        ),
    )


def lost_line(trajectory: Trajectory) -> str:
    """Return which turns of the variant are right, the first wrong one in brackets, and its reason."""
    signs = [SIGNS[value] for value in trajectory.variant]
    first_wrong = trajectory.diverged
    assert first_wrong is not None, "told of lost trajectories alone"
    signs[first_wrong] = f"[{signs[first_wrong]}]"
    name = trajectory.name + (f"#{trajectory.repeat}" if trajectory.repeat else "")
    turn, reason = trajectory.turns[first_wrong], trajectory.reasons[first_wrong]
    return f"{name}: {' '.join(signs)} first diverges at turn {turn}: {reason}"
