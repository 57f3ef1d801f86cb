"""Row `attacks.new`: attacks over verdicts and files, each through the command itself. None may approve, none crash.

Each starts from what approves, and takes away what the approval rests on, or from a variant that lost a third, and
hides it. They stand by what is attacked in `attacks/`, and repeat none of `faults/` or of `fail_closed_files`.

python -m tests.verification.verdicts.new_attacks     a line for each: group, name, exit code
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.verification.goals import DECISIONS
from tests.verification.verdicts.attacks import (
    of_files,
    of_four_arms,
    of_looks,
    of_policies,
    of_rows,
    of_sets,
    of_stores,
)
from tests.verification.verdicts.attacks.of_four_arms import four, losing_four
from tests.verification.verdicts.attacks.scene import Ask, Code, external, gated, losing, losing_external, sound

ID, LEAST, QUICK = "attacks.new", 100, 10
STARTS = {sound: 0, external: 0, four: 0, losing: 10, losing_external: 10, losing_four: 10}
ROOMS = (of_rows, of_files, of_sets, of_policies, of_four_arms, of_looks, of_stores)
REFUSALS = {10, 11, 12, 13, 14, 64}


def listed() -> Iterator[tuple[str, str, Ask]]:
    """(group, name, what asks the gate) of every attack."""
    for room in ROOMS:
        for group, attacks in room.GROUPS.items():
            yield from ((group, name, ask) for name, ask in attacks.items())


def outcomes(every: int = 1) -> list[tuple[str, str, Code]]:
    """(group, name, exit code or the name of what crashed) of every so-many-th attack."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scene"
        for start, code in STARTS.items():
            if (found := gated(start(), folder)) != code:
                raise AssertionError(
                    f"the {start.__name__} files that attacks start from exit with {found}, not {code}"
                )
        return [(group, name, ask(folder)) for group, name, ask in islice(listed(), 0, None, every)]


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: how often each exit code came out of each group, the goal's row). quick: every tenth, no proof."""
    found = outcomes(QUICK if quick else 1)
    row = DECISIONS.row(
        ID,
        {
            "tried": len(found),
            "approved": [f"{group}: {name}" for group, name, code in found if code == 0],
            "crashed": [f"{group}: {name}: {code}" for group, name, code in found if code not in (0, *REFUSALS)],
        },
        met=all(code in REFUSALS for _, _, code in found),
    )
    if row["met"] and len(found) < LEAST:
        row |= {"met": None, "reason": f"only {len(found)} were tried"}
    codes = Counter((group, str(code)) for group, _, code in found)
    return [{"of": ID, "group": group, "exit": code, "count": count} for (group, code), count in codes.items()], [row]


if __name__ == "__main__":
    for line in outcomes():
        print(*line, sep=" | ")
