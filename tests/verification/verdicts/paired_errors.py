"""Rows `errors` and `aa.block_rate`: how often a verdict is wrong, by the gate's one door.

The words on unclustered cases are asked table by table, and their chances summed exactly (`tables`), for one rule and
for rules on sets of their own alike: Holm rejects something just when the least p-value is at most alpha / rules.
Policies whose rules share cases (a pooled one over its sets, tags of a set) and clustered cases (`clustered_errors`)
are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import sqrt
from typing import Any

import numpy as np

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.clustered_errors import CELLS, few_clusters_undecided, wrongly
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, Rounds, Words, rate

ROUNDING = 1e-7  # of a sum of some hundred probabilities
MARGINS = (0.01, 0.02, 0.03, 0.05, 0.10)
DISAGREEMENTS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15)
EXTREME = (0.3, 1.0)  # nobody promised that the truth keeps to 15 %
MOST_EXTREME_N = 200
LOSSES = (0.0, 0.01, 0.02, 0.05, 0.10)
RULES = (2, 4)
SIZES = (30, 31, 45, 60, 97, 100, 141, 164, 200, 290, 400, 401, 801)
LARGE = ((1319, 0.01), (1319, 0.02), (2500, 0.01), (4000, 0.01))  # n, margin; at disagreements of 5 % and less
QUICK = ((30, 0.10), (100, 0.05), (200, 0.02), (400, 0.05), (801, 0.01))
AA = ((100, 0.05, 0.02), (400, 0.05, 0.02), (400, 0.15, 0.02), (1319, 0.05, 0.01))  # cases, disagreement, max_drop
# Sets of a policy: (cases, margin) of each, and into how many tags the last one is divided, each with its margin.
POLICIES = (
    (((60, 0.03), (60, 0.03)), 0),
    (((300, 0.10), (300, 0.10)), 0),
    (((60, 0.10), (300, 0.03)), 2),
    (((100, 0.05), (200, 0.02), (400, 0.03)), 4),
)
SPREAD = (0.01, 0.05, 0.15)  # disagreement beyond the loss


def errors(quick: bool) -> tuple[Rounds, dict[str, Any]]:
    """(rounds, row). quick: a handful of n, few draws."""
    generator = np.random.default_rng(6)
    cells = QUICK if quick else [*((n, margin) for n in SIZES for margin in MARGINS), *LARGE]
    exact: Rounds = [_exactly(n, margin) for n, margin in cells]
    draws = 60 if quick else 500
    spread = SPREAD[1:2] if quick else SPREAD
    drawn = [_sharing(*cell, more, draws, generator) for cell in POLICIES[:: 3 if quick else 1] for more in spread]
    drawn += [wrongly(cell, draws // 2 if quick else draws, generator) for cell in CELLS]
    measured = {
        "approve": max(cell["approve"] for cell in exact),
        "block": max(cell["block"] for cell in exact),
        "policy_block": max(cell["policy_block"] for cell in exact),
        "drawn_approve": max(cell["approve"] for cell in drawn),
        "drawn_block": max(cell["block"] for cell in drawn),
        "draws": sum(cell["draws"] for cell in drawn),
        "tables": sum(cell["tables"] for cell in exact),
        "cells": len(exact) + len(drawn),
        "few_clusters_undecided": few_clusters_undecided(),
    }
    met = (
        max(measured["approve"], measured["block"], measured["policy_block"]) <= ALPHA + ROUNDING
        and all(max(cell["approve"], cell["block"]) <= ALPHA + 3 * cell["error"] for cell in drawn)
        and measured["few_clusters_undecided"]
    )
    few = f"{draws} of a policy, {draws // 2} of clusters; the {len(exact)} exact cells hold" if quick else None
    return exact + drawn, DECISIONS.row("errors", measured, met=met, few=few)


def _exactly(n: int, margin: float) -> dict[str, Any]:
    """Largest chance of each error over disagreements and losses: false approval at losses from the margin up, false
    block from 0 to it, and that of any block of k rules on sets of their own, each at the margin."""
    words = Words(n, margin)
    beyond, within = [loss for loss in LOSSES if loss > margin], [loss for loss in LOSSES if loss < margin]
    policy, tables = 0.0, 0
    for rules in RULES if n <= MOST_EXTREME_N else ():
        strict = Words(n, margin, ALPHA / rules)
        each = _largest(strict.blocks, _truths(n, [margin]))
        policy, tables = max(policy, 1 - (1 - each) ** rules), tables + len(strict.words)
    return {
        "n": n,
        "margin": margin,
        "approve": _largest(words.approves, _truths(n, [margin, *beyond[-1:]])),
        "block": _largest(words.blocks, _truths(n, [margin, *within[-1:], 0.0])),
        "policy_block": policy,
        "tables": tables + len(words.words),
    }


def _largest(chance: Callable[[float, float], float], truths: Iterable[tuple[float, float]]) -> float:
    return max((chance(*truth) for truth in truths), default=0.0)


def _truths(n: int, losses: list[float]) -> Iterator[tuple[float, float]]:
    """(loss, disagreement): no loss is larger than the disagreement."""
    some = [d for d in (*DISAGREEMENTS, *EXTREME) if d <= (1.0 if n <= MOST_EXTREME_N else 0.15 if n <= 801 else 0.05)]
    for loss in losses:
        yield from ((loss, disagreement) for disagreement in some if disagreement >= loss)


def _sharing(
    sets: tuple[tuple[int, float], ...], tags: int, more: float, draws: int, generator: np.random.Generator
) -> dict[str, Any]:
    """A pooled rule, one a set, and one a tag of the last set. Every one at its margin: any block. With the first set
    alone at its margin: approval. more: disagreement beyond the loss."""
    names, sizes, margins = [f"s{at}" for at in range(len(sets))], *map(list, zip(*sets, strict=True))
    marks = {
        (name, f"{at:05}"): (f"tag:t{at * tags // size}",) if tags and name == names[-1] else ()
        for name, size in zip(names, sizes, strict=True)
        for at in range(size)
    }
    cases = Cases(dict(zip(names, sizes, strict=True)), labels=marks)
    rules = [Rule(metric=METRIC, max_drop=float(np.dot(sizes, margins)) / sum(sizes))]
    rules += [Rule(metric=METRIC, evalset=name, max_drop=limit) for name, limit in zip(names, margins, strict=True)]
    rules += [Rule(metric=METRIC, evalset=names[-1], where=f"tag:t{at}", max_drop=margins[-1]) for at in range(tags)]
    policy = Policy(rules=tuple(rules), alpha=ALPHA)

    def wrong(losses: list[float], word: str) -> float:
        def draw() -> tuple[bool, Callable[[], bool]]:
            u = generator.random(sum(sizes))
            lost, gained = u < np.repeat(losses, sizes) + more / 2, u > 1 - more / 2
            kept = (1.0 * lost - gained)[: sizes[0]].mean() < margins[0]
            evidence = cases.evidence(~gained, ~lost)
            return word == "block" or kept, lambda: decide(evidence, policy).verdicts[0].word == word

        return rate(draws, draw)

    return {
        "rules": len(rules), "sets": [list(one) for one in sets], "tags": tags, "more": more, "draws": draws,
        "approve": wrong([margins[0], *(0.0 for _ in sets[1:])], "approve"), "block": wrong(margins, "block"),
        "error": sqrt(ALPHA * (1 - ALPHA) / draws),
    }  # fmt: skip


def aa() -> tuple[Rounds, dict[str, Any]]:
    """(rounds, row): the baseline held against itself is blocked; flips fall both ways alike."""
    rounds = [{"n": n, "max_drop": m, "disagreement": d, "blocked": Words(n, m).blocks(0.0, d)} for n, d, m in AA]
    worst = max(cell["blocked"] for cell in rounds)
    return rounds, DECISIONS.row("aa.block_rate", worst, met=worst <= ALPHA + ROUNDING)


def measure(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """(rounds, rows `errors` and `aa.block_rate`)."""
    found = [errors(quick), aa()]
    return [{"row": row["id"], **one} for rounds, row in found for one in rounds], [row for _, row in found]
