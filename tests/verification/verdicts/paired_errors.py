"""Rows `errors` and `power`: how often the paired tests are wrong, and how much a better exact test could decide.

The errors of a rule are summed exactly (`exact_chances`). Rules on sets of their own are independent, so the whole
policy's block rate is exact too: Holm rejects something just when the least p-value is at most alpha / rules. Rules
that share cases (a pooled one over its sets, tags of a set) are drawn here, clustered cases in `clustered_errors`. The
power is held against other exact tests in `rival_tests`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.paired.region import Region
from tests.verification.verdicts.clustered_errors import CELLS, Cell, half_points, said, wrongly
from tests.verification.verdicts.exact_chances import (
    ALPHA,
    DISAGREEMENTS,
    EXACT_N,
    MARGINS,
    Rounds,
    approval_region,
    inside,
    not_the_gates,
    unblocked_region,
)
from tests.verification.verdicts.rival_tests import power

ROUNDING = 1e-7  # of a sum of 80,000 probabilities
LARGE_N = (500, 801, 1319, 2000, 4000, 8000, 12000)
EXTREME = (0.3, 1.0)  # nobody promised that the truth keeps to 15 %
LOSSES = (0.0, 0.01, 0.02, 0.05, 0.10)
RULES = (2, 4)
SPREAD = (0.01, 0.05, 0.15)  # disagreement beyond the loss
# Sets of a policy: (cases, margin) of each, and into how many tags the last one is divided, each with its margin.
POLICIES = (
    (((60, 0.03), (60, 0.03)), 0),
    (((300, 0.10), (300, 0.10)), 0),
    (((60, 0.10), (300, 0.03)), 2),
    (((100, 0.05), (200, 0.02), (400, 0.03)), 4),
)


def errors(quick: bool) -> tuple[Rounds, dict[str, Any], bool]:
    """(rounds, measured, met). quick: a handful of n, few draws."""
    generator = np.random.default_rng(6)
    sizes = (30, 100, 400, 801) if quick else (*range(30, EXACT_N + 1), *LARGE_N)
    rounds: Rounds = []
    for margin in MARGINS:
        for n in sizes:
            rounds.append(_exactly(n, margin))
            if n <= 2000 and (quick or n % 10 == 0):
                rounds[-1]["not_the_gates"] = not_the_gates(n, margin, generator)
    exact = len(rounds)
    draws = 400 if quick else 100_000
    spread = SPREAD[1:2] if quick else SPREAD
    rounds += [_sharing(*cell, more, draws, generator) for cell in POLICIES for more in spread]
    rounds += [wrongly(cell, 100 if quick else 4_000, generator) for cell in CELLS]
    refused = _few_clusters()
    measured = {
        "approve": max(one["approve"] for one in rounds[:exact]),
        "block": max(one["block"] for one in rounds[:exact]),
        "policy_block": max(one["policy_block"] for one in rounds[:exact]),
        "drawn_approve": max(one["approve"] for one in rounds[exact:]),
        "drawn_block": max(one["block"] for one in rounds[exact:]),
        "draws": sum(one["draws"] for one in rounds[exact:]),
        "cells": len(rounds),
        "not_the_gates": sum(one.get("not_the_gates", 0) for one in rounds),
        "few_clusters_undecided": refused,
    }
    met = (
        max(measured["approve"], measured["block"], measured["policy_block"]) <= ALPHA + ROUNDING
        and all(
            max(one["approve"], one["block"]) <= ALPHA + 3 * sqrt(ALPHA * (1 - ALPHA) / one["draws"])
            for one in rounds[exact:]
        )
        and not measured["not_the_gates"]
        and refused
    )
    return rounds, measured, met


def _exactly(n: int, margin: float) -> dict[str, Any]:
    """Largest chance of each error over disagreements and losses: false approval at losses from the margin up, false
    block from 0 to it, and that of any block of k rules on sets of their own, each at the margin."""
    approval, unblocked = approval_region(n, margin, ALPHA), unblocked_region(n, margin, ALPHA)
    beyond = [loss for loss in LOSSES if loss > margin]
    within = [loss for loss in LOSSES if loss < margin]
    policy = 0.0
    for rules in RULES:
        each = 1 - _smallest(unblocked_region(n, margin, ALPHA / rules), [margin])
        policy = max(policy, 1 - (1 - each) ** rules)
    return {
        "n": n,
        "margin": margin,
        "approve": max(inside(approval, loss, d) for loss, d in _truths([margin, *beyond[-1:]])),
        "block": 1 - _smallest(unblocked, [margin, *within[-1:], 0.0]),
        "policy_block": policy,
    }


def _smallest(region: Region, losses: list[float]) -> float:
    return min(inside(region, loss, d) for loss, d in _truths(losses))


def _truths(losses: list[float]) -> Iterator[tuple[float, float]]:
    """(loss, disagreement): no loss is larger than the disagreement."""
    for loss in losses:
        for disagreement in sorted({loss, *(d for d in (*DISAGREEMENTS, *EXTREME) if d > loss)}):
            yield loss, disagreement


def _sharing(
    sets: tuple[tuple[int, float], ...], tags: int, more: float, draws: int, generator: np.random.Generator
) -> dict[str, Any]:
    """A pooled rule, one a set, and one a tag of the last set. Every one at its margin: any block. With the first set
    alone at its margin: approval of all. more: disagreement beyond the loss. Holm rejects something just when one is
    rejected at alpha / rules."""

    def tables(n: int, loss: float) -> NDArray:
        share = np.array([loss + more / 2, more / 2])
        return generator.multinomial(n, [*share, 1 - share.sum()], draws)[:, :2]

    def rules(losses: list[float]) -> list[tuple[NDArray, int, float]]:
        """(tables, cases, margin) of every rule."""
        parts = [tables(n, loss) for (n, _), loss in zip(sets[:-1], losses[:-1], strict=True)]
        (n, margin), divided = sets[-1], max(tags, 1)
        tagged = [tables(n // divided, losses[-1]) for _ in range(divided)]
        parts.append(sum(tagged))  # type: ignore[arg-type]
        total = sum(cases for cases, _ in sets)
        pooled = sum(cases * allowed for cases, allowed in sets) / total
        found = [(part, *one) for part, one in zip(parts, sets, strict=True)] + [(sum(parts), total, pooled)]
        return found + [(part, n // divided, margin) for part in tagged if tags]  # type: ignore[return-value]

    worst = rules([margin for _, margin in sets])
    blocked = np.zeros(draws, bool)
    for table, n, margin in worst:
        blocked |= table[:, 1] < unblocked_region(n, margin, ALPHA / len(worst)).edge[table[:, 0]]
    approved = np.ones(draws, bool)
    for table, n, margin in rules([sets[0][1], *(0.0 for _ in sets[1:])]):
        approved &= table[:, 1] >= approval_region(n, margin, ALPHA).edge[table[:, 0]]
    return {
        "rules": len(worst), "sets": [list(one) for one in sets], "tags": tags, "more": more, "draws": draws,
        "approve": float(approved.mean()), "block": float(blocked.mean()),
    }  # fmt: skip


def _few_clusters() -> bool:
    """An identical variant is undecided with fewer passages than `MIN_CLUSTERS`, and approved with enough of them."""

    def word(count: int) -> str:
        cell = Cell(clusters=count, sizes=(10,), limit=0.15, noise=0.0, truth=half_points)
        right = np.arange(10 * count) % 10 > 0
        return said(cell, right, right, np.repeat(np.arange(count), 10))

    return word(60) == "approve" and all(word(count) == "undecided" for count in (2, 10, MIN_CLUSTERS - 1))


def measure(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """(rounds, rows `errors` and `power`)."""
    rounds, rows = [], []
    for id, measured_by, few in (
        ("errors", errors, "few n and few draws"),
        ("power", power, "few n and margins"),
    ):
        found, measured, met = measured_by(quick)
        rounds += [{"row": id, **one} for one in found]
        row = {"id": id, "measured": measured, "spread": None, "met": met}
        rows.append(row | {"met": None, "reason": few} if quick and met else row)
    return rounds, rows
