"""Benchmark `lossless`: answers by speculation have the law of the target's own, by every rule that says so.

Small models are enumerated through the functions that run, every way that chances may fall; what is wrong with one line
of them, or with how they are used, has to show. What the engine itself draws is held against the law of its model.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from qualgate.engine.speculation.rules import RULES
from qualgate.records.speculation import LOSSY
from tests.benchmarks.shape import told
from tests.verification.goals import LOSSLESS
from tests.verification.lossless import cells
from tests.verification.lossless.cells import Cell
from tests.verification.lossless.engine_runs import Fit, drawn, fits, keys_reused
from tests.verification.lossless.fits import ALARM
from tests.verification.lossless.mutants import BOUND, CHANGED, KNOWN, Found, Mutant, judged, of_model
from tests.verification.lossless.ways import WAYS, Way
from tests.verification.lossless.wrong_engines import WRONG

VOCABULARIES = {3: ("keyed",), 4: ("speculative_sampling", "block_verification")}  # of rules that are enumerated by it
SEED = 1
QUICK = 0.4  # of the engine's answers; all of engines that are wrong
SEEN = 1e-3  # of total variation, where a rule changes the distribution
SECONDS = 60

Job = Callable[[], Any]
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # rows, rounds


@dataclass(frozen=True, slots=True)
class Part:
    """jobs: what any process may do; rows: of what came of them, in their order."""

    jobs: Sequence[Job]
    rows: Callable[[Sequence[Any]], Rows]


def run(quick: bool) -> dict[str, Any]:
    """All of it, by a process a core. quick: fewer of the engine's answers, and all that is enumerated."""
    began, processor = time.perf_counter(), _processor_seconds()
    parts = [enumerated(), engines(QUICK if quick else 1.0), mutated()]
    found = iter(list(side_by_side([job for part in parts for job in part.jobs])))
    (exact, drawn_by, wrong) = (part.rows(list(islice(found, len(part.jobs)))) for part in parts)
    seconds = time.perf_counter() - began
    few = f"{QUICK:.0%} of the engine's answers" if quick else None
    last = LOSSLESS.row("lossless.seconds", seconds, met=seconds < SECONDS, few=few, by_chance=True)
    last |= {"processor_seconds": _processor_seconds() - processor}  # fewer than cores x seconds: others were at work
    told_in_order = (exact, wrong, drawn_by)
    return LOSSLESS.result(
        rounds=[one for _, rounds in told_in_order for one in rounds],
        rows=[*(row for rows, _ in told_in_order for row in rows), last],
    )


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def side_by_side(jobs: Sequence[Job]) -> Iterator[Any]:
    """What comes of each, in their order."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, multiprocessing.get_context("fork"), torch.set_num_threads, (1,)) as pool:
        found = [pool.submit(job) for job in jobs]
        for one in told("lossless", found, lambda one: f"job {found.index(one) + 1}"):
            yield one.result()


def enumerated() -> Part:
    """Every lossless rule with everyone who drafts, by rounds and at once."""
    by_rounds = [
        partial(_cells_by_rounds, vocabulary, rules, kind)
        for vocabulary, rules in VOCABULARIES.items()
        for kind in range(len(cells.families(vocabulary, SEED)))
    ]
    at_once = [partial(_cells_at_once, rule) for rule in cells.LOSSLESS]

    def rows(found: Sequence[list[Cell]]) -> Rows:
        rounds = [one for some in found[: len(by_rounds)] for one in some]
        whole = [one for some in found[len(by_rounds) :] for one in some]
        farthest, least = max(one.total_variation for one in rounds), _least_accepted(rounds)
        covered = {one.rule for one in rounds} == RULES.keys() - LOSSY
        at_once_farthest, reused = max(one.total_variation for one in whole), sum(one.reused is True for one in whole)
        met = at_once_farthest <= BOUND and not reused
        made = [
            LOSSLESS.row("lossless.by_rounds", farthest, met=farthest <= BOUND and least > 0 and covered)
            | {"cells": len(rounds), "least_accepted": least},
            LOSSLESS.row("lossless.at_once", at_once_farthest, met=met) | {"cells": len(whole), "reused": reused},
        ]
        return made, [asdict(one) for one in (*rounds, *whole)]

    return Part([*by_rounds, *at_once], rows)


def _cells_by_rounds(vocabulary: int, rules: Sequence[str], kind: int) -> list[Cell]:
    return list(cells.by_rounds(vocabulary, rules, kind, SEED))


def _cells_at_once(rule: str) -> list[Cell]:
    return list(cells.at_once(rule, SEED))


def _least_accepted(cells: Iterable[Cell]) -> float:
    """Tokens of drafts in an answer, where they are fewest, of each rule and way to draft on the models that suit it
    best: what never accepts anything shows nothing."""
    best: dict[tuple[str, str], float] = defaultdict(float)
    for one in cells:
        best[one.rule, one.drafting] = max(best[one.rule, one.drafting], one.accepted or 0.0)
    return min(best.values())


def mutated() -> Part:
    """What is wrong is found."""

    def rows(found: Sequence[list[Found]]) -> Rows:
        known, changed, lossy = found
        found_known, found_changed = sum(one.killed for one in known), sum(one.killed for one in changed)
        least = min(one.total_variation for one in lossy)
        made = [
            LOSSLESS.row("lossless.known_mutants", found_known, met=found_known == len(known) == 11),
            LOSSLESS.row("lossless.code_mutants", found_changed, met=found_changed == len(changed) >= 10)
            | {"mutants": len(changed)},
            LOSSLESS.row("lossless.lossy_rules", least, met=least > SEEN) | {"rules": len(lossy)},
        ]
        return made, [asdict(one) for one in (*known, *changed, *lossy)]

    return Part([_known, _changed, _lossy], rows)


def _known() -> list[Found]:
    return [judged(Mutant(name=name, made=made), SEED) for name, made in KNOWN.items()]


def _changed() -> list[Found]:
    return [judged(one, SEED) for one in CHANGED]


def _lossy() -> list[Found]:
    rules = [Mutant(name=name, made=partial(of_model, rule=RULES[name])) for name in sorted(LOSSY)]
    return [judged(one, SEED) for one in rules]


def engines(share: float) -> Part:
    """What the engine draws, in this share of each way's answers, and engines that are wrong."""

    def rows(found: Sequence[Any]) -> Rows:
        sound = [one for some, _ in found[: len(WAYS)] for one in some]
        reused = sum(count for _, count in found[: len(WAYS)])
        controls = list(zip(WRONG, found[len(WAYS) :], strict=True))
        limit = ALARM / len(sound)
        worst, caught = min(one.bound for one in sound), sum(one.bound <= limit for _, one in controls)
        made = [
            LOSSLESS.row("lossless.engine", worst, met=worst > limit and not reused)
            | {"fits": len(sound), "limit": limit, "reused": reused},
            LOSSLESS.row("lossless.wrong_engines", caught, met=caught == len(controls)) | {"engines": len(controls)},
        ]
        return made, [*map(asdict, sound), *(asdict(one) | {"wrong": name} for name, one in controls)]

    return Part([*(partial(_drawn, way, share) for way in WAYS), *(partial(_worst_of, name) for name in WRONG)], rows)


def _drawn(way: Way, share: float) -> tuple[list[Fit], int]:
    """How they fit, and how many numbers were drawn twice."""
    with keys_reused() as keys:
        found = drawn(way, round(share * way.answers), SEED)
    return fits(found, way), len(keys)


def _worst_of(name: str) -> Fit:
    wrong = WRONG[name]
    with wrong.planted():
        found = drawn(wrong.way, wrong.way.answers, SEED)
    return min(fits(found, wrong.way), key=lambda one: one.bound)
