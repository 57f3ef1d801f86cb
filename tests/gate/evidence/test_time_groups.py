"""One turn is one observation: batches of both arms that ran next to each other, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.evidence.time_groups import timed_together
from qualgate.records import UnitEvidence, UnitKey

BATCHES, ROWS = 60, 4
CASES = np.arange(BATCHES * ROWS)


def arm(name: str, began, size: int = ROWS) -> list[UnitEvidence]:
    """began: number of a batch → when it did."""
    return [
        UnitEvidence(
            key=UnitKey(name, "s", f"{case}"), case_hash="", status="done", job=case // size, began=began(case // size)
        )
        for case in CASES.tolist()
    ]


def groups(*arms: list[UnitEvidence], clusters=CASES) -> tuple[int, str]:
    together, why = timed_together(clusters, *arms)
    return len(set(together.tolist())), why


def turn(first: bool):
    """The baseline is first in some turns and the variant in others."""
    return lambda batch: 10.0 * batch + (5.0 if first == (batch * 7 % 5 < 2) else 0.0)


def resumed() -> list[list[UnitEvidence]]:
    """In the middle of a turn."""
    late = [replace(u, began=u.began + 1e6) if (u.job, u.began) > (30, 0) else u for u in arm("b", turn(False))]
    return [[replace(u, began=u.began + 1e6) if u.job > 30 else u for u in arm("a", turn(True))], late]


@pytest.mark.parametrize(
    ("arms", "turns"),
    [
        ([arm("a", turn(True)), arm("b", turn(False))], BATCHES),
        ([arm("a", float), arm("b", float)], BATCHES),
        ([[replace(unit, began=None) for unit in arm("a", float)]], BATCHES),
        ([arm("a", lambda batch: 10.0 * batch), arm("b", lambda batch: 20.0 * batch + 5, size=2 * ROWS)], BATCHES // 2),
        (resumed(), BATCHES),
    ],
    ids=["whoever is first", "at the same moment", "an arm by itself", "batches of other sizes", "resumed"],
)
def test_a_turn_is_one_observation(arms, turns):
    assert groups(*arms) == (turns, "")


@pytest.mark.parametrize(("block", "turns"), [(10, 6), (60, 1), (20, 3)])
def test_blocks_of_batches_are_one_observation_each(block, turns):
    """In six blocks, 18 % of slower variants were approved where the machine's speed lasts for 20 batches."""

    def began(first: int):
        return lambda batch: float(batch + block * (batch // block + first))

    found, why = groups(arm("a", began(0)), arm("b", began(1)))
    assert found == turns
    assert why == (
        f"60 batches of each arm ran in {turns} turn{'s' * (turns > 1)}, too few to tell a slow arm from a slow moment "
        "(20 needed): let the arms take turns batch by batch"
    )


def test_without_the_order_nothing_is_told_and_the_field_to_write_is_named():
    known = arm("a", turn(True))
    _, why = groups(known, [replace(unit, began=None) for unit in arm("b", turn(False))])
    assert "not recorded for 240 of 480 answers: run again, or say `started` in score rows" in why


def test_a_cluster_in_two_turns_joins_these_two_alone():
    clusters = CASES.copy()
    clusters[-1] = clusters[0]
    assert groups(arm("a", turn(True)), arm("b", turn(False)), clusters=clusters) == (BATCHES - 1, "")
