"""Trajectories turn by turn as people read them, the first divergent turn of each marked."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.formatting import counted
from qualgate.store.queries import Trajectories, Trajectory

HEADS = ("turn", "asked", "baseline right", "variant right", "baseline first wrong", "variant first wrong")
EXAMPLES = 3  # lost ones that a terminal is shown of each set
SIGNS = {True: "✓", False: "✗", None: "?"}


def headline(found: Trajectories) -> str:
    """How many are right in all of their turns."""
    of = counted(found.count, "trajectory", "trajectories")
    return f"{found.evalset}: right in all turns, of {of}: baseline {found.baseline:,}, variant {found.variant:,}"


def turn_rows(found: Trajectories) -> list[tuple[str, ...]]:
    """Cells under HEADS, a row a turn."""
    return [
        tuple(
            f"{number:,}"
            for number in (
                one.turn, one.asked, one.baseline, one.variant, one.baseline_diverged, one.variant_diverged,
            )
        )
        for one in found.turns
    ]  # fmt: skip


def turn_line(found: Trajectories) -> str:
    """The same in a line: at which turn how many first went wrong."""
    rates = ", ".join(f"{one.turn}: {one.baseline_diverged:,} → {one.variant_diverged:,}" for one in found.turns)
    return f"first wrong at turn (baseline → variant) {rates}"


def lost_line(one: Trajectory) -> str:
    """Which turns of the variant's are right, the first that is not in brackets, and why it is not."""
    signs = [SIGNS[value] for value in one.variant]
    place = one.diverged
    assert place is not None, "told of lost trajectories alone"
    signs[place] = f"[{signs[place]}]"
    name = one.name + (f"#{one.repeat}" if one.repeat else "")
    return f"{name}: {' '.join(signs)} first diverges at turn {one.turns[place]}: {one.reasons[place]}"


def lines(sets: Sequence[Trajectories]) -> list[str]:
    """For a terminal: rates, where they first went wrong, and the first that were lost."""
    told = []
    for found in sets:
        told += [f"trajectories of {headline(found)}", f"  {turn_line(found)}"]
        told += [f"  {lost_line(one)}" for one in found.first_lost[:EXAMPLES]]
    return told


def lost_head(found: Trajectories) -> str:
    """What stands above those lines; "" where none is lost."""
    more = found.lost - len(found.first_lost)
    said = f"right in all turns before, not now: {found.lost:,}{f', the first {len(found.first_lost)}' * (more > 0)}"
    return said if found.lost else ""
