"""Does stopping early save cases without lying? Rows `early.*` of the decisions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, sqrt
from typing import Any

import numpy as np

from qualgate.gate.decide import decide
from qualgate.gate.early import lay_out, order_digest, seeded_order
from qualgate.records import Case, EarlyStop, Policy, Rule, RunEvidence, Stopped, VerdictWord
from qualgate.stats.power import chance_to_block, pairs_to_approve
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.peeking import losses
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, Rounds

POWER = 0.95
# (margin, disagreement of an identical variant) → cases of the list that `stop: early` needs for this power, of an
# identical variant and of one that loses twice the margin: searched on 1,600 other paths of each cell.
LISTS = {
    (0.05, 0.01): (176, 504), (0.05, 0.02): (249, 617), (0.05, 0.05): (424, 836), (0.05, 0.1): (752, 1_196),
    (0.05, 0.15): (1_088, 1_604), (0.02, 0.01): (643, 1_596), (0.02, 0.02): (1_045, 2_143),
    (0.02, 0.05): (2_258, 3_372), (0.02, 0.1): (4_436, 5_596), (0.02, 0.15): (6_380, 8_055),
    (0.01, 0.01): (2_166, 4_429), (0.01, 0.02): (3_840, 6_710), (0.01, 0.05): (9_003, 11_531),
    (0.01, 0.1): (17_140, 21_344), (0.01, 0.15): (24_473, 29_455),
}  # fmt: skip
QUICK = ((0.05, 0.01), (0.05, 0.02))
BETWEEN = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # times the margin lost

Cell = dict[str, Any]


def measure(quick: bool) -> tuple[Rounds, Rounds]:
    return early(QUICK, 20_000) if quick else early(tuple(LISTS), 400_000)


def early(cells: Sequence[tuple[float, float]], drawn: int, seed: int = 3) -> tuple[Rounds, Rounds]:
    """`early.identical`, `early.twice`, `early.worst`: cases used, over those of the fixed exact test.

    The fixed test has as many cases as it takes for power .95 at the cell's truth, and the list is the shortest on
    which stopping early has it too. Truths between cost more: the third row, on the longer of the two lists. drawn:
    cases of a cell and truth, in as many runs as they make, at least 40 (8 of a truth between).
    """
    rounds: list[Cell] = []
    for row, beyond in (("early.identical", False), ("early.twice", True)):
        for at, (margin, flips) in enumerate(cells):
            fixed, units = fixed_pairs(margin, flips, beyond=beyond), LISTS[margin, flips][beyond]
            runs = List(units, margin).runs(flips, 2 * margin * beyond, max(40, drawn // units), [seed, at, beyond])
            used = np.array([seen for _, seen in runs]) / fixed
            power = np.mean([word == ("block" if beyond else "approve") for word, _ in runs])
            rounds.append({"of": row, "margin": margin, "disagreement": flips, "fixed": fixed, "list": units,
                           "runs": len(runs), "power": float(power), "saved": 1 - float(used.mean()),
                           "error": float(used.std() / sqrt(len(runs)))})  # fmt: skip
    saved = [_saved([one for one in rounds if one["of"] == row]) for row in ("early.identical", "early.twice")]
    between, worst = _worst(cells, drawn // 4, seed)
    return rounds + between, [*saved, worst]


def _saved(rounds: list[Cell]) -> Cell:
    """The goal is the mean over all cells. Of a few, that none saves a quarter at this power is enough to miss it."""
    saved, power, runs = (np.array([one[name] for one in rounds]) for name in ("saved", "power", "runs"))
    error = sqrt(sum(one["error"] ** 2 for one in rounds)) / len(rounds)
    measured = {
        "mean": float(saved.mean()), "least": float(saved.min()), "most": float(saved.max()),
        "of_all_cases": float(np.average(saved, weights=[one["fixed"] for one in rounds])),
        "power": float(power.mean()), "least_power": float(power.min()),
        "longer": float(np.mean([one["list"] / one["fixed"] for one in rounds])),
    }  # fmt: skip
    powerful = np.average(power, weights=runs) >= POWER - 3 * sqrt(POWER * (1 - POWER) / runs.sum())
    least, few = (0.4, None) if len(rounds) == len(LISTS) else (0.25, _few(rounds))
    met = bool(powerful and (saved.mean() if few is None else saved.max() + 3 * error) >= least)
    return DECISIONS.row(rounds[0]["of"], measured, spread=error, met=met, few=few)


def _few(rounds: list[Cell]) -> str:
    return f"{len(rounds)} of {len(LISTS)} cells, {min(one['runs'] for one in rounds)} runs of each or more"


def _worst(cells: Sequence[tuple[float, float]], drawn: int, seed: int) -> tuple[list[Cell], Cell]:
    """Truths between, on the cell's longer list: settled either way, or never."""
    rounds = []
    for margin, flips in (one for one in cells if one[1] in (0.02, 0.05, 0.10)):
        fixed, listed = fixed_pairs(margin, flips, beyond=False), List(max(LISTS[margin, flips]), margin)
        count = drawn // len(BETWEEN) // listed.looks[-1]
        for times in BETWEEN:
            runs = listed.runs(flips, times * margin, max(8, count), [seed, 99, len(rounds)])
            rounds.append({"margin": margin, "disagreement": flips, "loss": times * margin, "fixed": fixed,
                           "mean": float(np.mean([seen for _, seen in runs])) / fixed, "runs": len(runs),
                           "settled": float(np.mean([word != "undecided" for word, _ in runs]))})  # fmt: skip
    worst = max(rounds, key=lambda one: one["mean"])
    return rounds, DECISIONS.row("early.worst", worst, met=True)


class List:
    """A closed list of so many cases, planned to stop early, and drawn runs of it."""

    def __init__(self, units: int, margin: float) -> None:
        self.cases = Cases({"drawn": units})
        listed = [Case(evalset=name, body={"id": case}) for name, case in self.cases.ids]
        policy = Policy(rules=(Rule(metric=METRIC, max_drop=margin),), alpha=ALPHA, stop=EarlyStop(seed=0))
        stop, _ = lay_out(policy, listed)
        self.policy, self.looks, self.order = (
            replace(policy, stop=stop),
            stop.looks,
            order_digest(seeded_order(listed, 0)),
        )

    def runs(self, flips: float, loss: float, count: int, stream: list[int]) -> list[tuple[str, int]]:
        """Of each run the word that settled it, or "undecided", and the cases that were seen then."""
        drawn = losses(np.random.default_rng(stream), (count, self.looks[-1]), flips / 2 + loss, flips / 2)
        return [self._settled(x) for x in drawn]

    def _settled(self, x: np.ndarray) -> tuple[str, int]:
        """The first look of which `decide` lets a record stand that says generation stopped there.

        Once settled stays settled, so that look is found by bisection.
        """
        evidence = self.cases.evidence(x >= 0, x <= 0)
        word = decide(evidence, self.policy).verdicts[0].word
        if word == "undecided":
            return word, self.looks[-1]
        first = bisect_left(self.looks[:-1], True, key=lambda at: self._stands(evidence, word, at))
        return word, self.looks[first]

    def _stands(self, evidence: RunEvidence, word: VerdictWord, at: int) -> bool:
        record = Stopped(look=self.looks.index(at) + 1, seen=at, word=word, order=self.order, policy=self.policy)
        stopped = replace(evidence, variants=(replace(evidence.variants[0], stopped=record),))
        return decide(stopped, self.policy).verdicts[0].word == word


@lru_cache(maxsize=128)
def fixed_pairs(margin: float, flips: float, *, beyond: bool) -> int:
    """Pairs that the fixed exact test needs for power .95: an identical variant proven, or twice the margin broken."""
    if not beyond:
        found = pairs_to_approve(margin, flips, POWER, ALPHA)
        assert found is not None
        return found
    low, high = 1, ceil(25 * (flips + 2 * margin) / margin**2)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        reached = chance_to_block(middle, margin, flips + 2 * margin, -2 * margin, ALPHA) >= POWER
        low, high = (low, middle) if reached else (middle, high)
    return high
