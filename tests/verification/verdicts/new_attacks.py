"""Row `attacks.new`: attacks over verdicts, files and stores, each by the command itself. None may approve or crash.

Each starts from what approves, and takes away what the approval rests on, or from a variant that lost a third, and
hides it. They stand by what is attacked in `attacks/`.

python -m tests.verification.verdicts.new_attacks     a line for each: group, name, exit code
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.verification.verdicts.attacks import (
    of_copies,
    of_coverage,
    of_files,
    of_four_arms,
    of_labels,
    of_looks,
    of_policies,
    of_rows,
    of_sets,
    of_stores,
)
from tests.verification.verdicts.attacks.of_coverage import HIDDEN
from tests.verification.verdicts.attacks.of_files import with_times
from tests.verification.verdicts.attacks.of_four_arms import four, losing_four
from tests.verification.verdicts.attacks.of_policies import by_nel
from tests.verification.verdicts.attacks.scene import external, gated, losing, losing_external, sound
from tests.verification.verdicts.attempts import Attempt, outcomes, row_of

ID, LEAST, QUICK = "attacks.new", 1000, 20
STARTS = {sound: 0, external: 0, four: 0, losing: 10, losing_external: 10, losing_four: 10}
ROOMS = (of_rows, of_files, of_sets, of_policies, of_four_arms, of_looks, of_stores, of_coverage, of_labels, of_copies)


def listed() -> list[Attempt]:
    """Every attack."""
    groups = [one for room in ROOMS for one in room.GROUPS.items()]
    return [Attempt(group=group, name=name, ask=ask) for group, attacks in groups for name, ask in attacks.items()]


def check_starts() -> None:
    """What attacks start from exits as it is called; its times and an nel policy take no approval away, and what hides
    a loss from the rules hides it."""
    with tempfile.TemporaryDirectory() as name:
        for start, code in STARTS.items():
            assert gated(start(), Path(name) / "scene") == code, f"{start.__name__} exits otherwise"
        for more in (with_times, by_nel()):
            more(scene := sound())
            assert gated(scene, Path(name) / "scene") == 0
        for hide in HIDDEN.values():  # by the rules alone these would pass
            hide(scene := losing_external())
            scene.gate["gate"]["uncounted"] = "allow"
            assert gated(scene, Path(name) / "scene") == 0


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds, the goal's row). quick: every twentieth, which is no proof."""
    check_starts()
    rounds, row = row_of(ID, outcomes(listed()[:: QUICK if quick else 1]), LEAST)
    return rounds, [row]


if __name__ == "__main__":
    for one, code in outcomes(listed()):
        print(one.group, one.name, code, sep=" | ")
