"""Benchmark `lossless`: answers by speculation have the law of the target's own, by every rule that says so.

Small models are enumerated through the functions that run, every way that chances may fall; what is wrong with one line
of them, or with how they are used, has to show. What the engine itself draws is held against the law of its model.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch

from qualgate.bench.shape import told
from qualgate.records.speculation import LOSSY
from qualgate.speculation import chance
from qualgate.speculation.rules import RULES
from tests.verification.goals import LOSSLESS
from tests.verification.lossless.cells import Cell, at_once, by_rounds
from tests.verification.lossless.code_mutants import AT_ONCE, BY_ROUNDS, numbers_mutants
from tests.verification.lossless.engine_runs import WAYS, Fit, drawn, fits, keys_reused
from tests.verification.lossless.fits import ALARM
from tests.verification.lossless.known_mutants import KNOWN
from tests.verification.lossless.mutants import BOUND, Found, Mutant, judged, of_model
from tests.verification.lossless.numbers import told_otherwise
from tests.verification.lossless.wrong_engines import WRONG, Wrong

VOCABULARIES = {"keyed": 3, "speculative_sampling": 4, "block_verification": 4}
SEED = 1
ANSWERS, ANSWERS_QUICK, ANSWERS_OF_WRONG = 1500, 500, 2500  # in each way
SEEN = 1e-3  # of total variation, where a rule changes the distribution
SECONDS = 60

Part = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # rows, rounds


def run(quick: bool) -> dict[str, Any]:
    """All of it: some 45 seconds of one core. quick: a third of the engine's answers, and all that is enumerated."""
    before, threads = time.process_time(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        parts = [
            part(ANSWERS_QUICK if quick else ANSWERS) for part in told("lossless", PARTS, lambda one: one.__name__)
        ]
    finally:
        torch.set_num_threads(threads)
    seconds = time.process_time() - before
    unmet_because = "a third of the engine's answers (--quick)" if quick else None
    last = LOSSLESS.row("lossless.seconds", seconds, met=seconds < SECONDS, unmet_because=unmet_because)
    return LOSSLESS.result(
        rounds=[one for _, rounds in parts for one in rounds], rows=[*(row for rows, _ in parts for row in rows), last]
    )


def enumerated(answers: int) -> Part:
    """Every lossless rule with everyone who drafts, by rounds and at once; the numbers that a run draws."""
    rounds, whole, otherwise = list(by_rounds(VOCABULARIES, SEED)), list(at_once(SEED)), told_otherwise(chance)
    farthest, least = max(one.total_variation for one in rounds), _least_accepted(rounds)
    covered = {one.rule for one in rounds} == RULES.keys() - LOSSY
    at_once_farthest, reused = max(one.total_variation for one in whole), sum(one.reused is not False for one in whole)
    met = at_once_farthest <= BOUND and not reused
    rows = [
        LOSSLESS.row("lossless.by_rounds", farthest, met=farthest <= BOUND and least > 0 and covered)
        | {"cells": len(rounds), "least_accepted": least},
        LOSSLESS.row("lossless.at_once", at_once_farthest, met=met) | {"cells": len(whole), "reused": reused},
        LOSSLESS.row("lossless.numbers", otherwise, met=not otherwise),
    ]
    return rows, [asdict(one) for one in (*rounds, *whole)]


def _least_accepted(cells: Iterable[Cell]) -> float:
    """Tokens of drafts in an answer, where they are fewest, of each rule and way to draft on the models that suit it
    best: what never accepts anything shows nothing."""
    best: dict[tuple[str, str], float] = defaultdict(float)
    for one in cells:
        best[one.rule, one.drafting] = max(best[one.rule, one.drafting], one.accepted or 0.0)
    return min(best.values())


def mutated(answers: int) -> Part:
    """What is wrong is found."""
    known = {name: judged(one, SEED) for name, one in KNOWN.items()}
    changed = [judged(one, SEED) for one in (*BY_ROUNDS, *AT_ONCE)]
    changed += [Found(name=f"numbers: {name}", refused=how) for name, how in numbers_mutants().items()]
    lossy = [_judged_rule(name) for name in sorted(LOSSY)]
    found_known, found = sum(one.killed for one in known.values()), sum(one.killed for one in changed)
    least = min(one.total_variation for one in lossy)
    rows = [
        LOSSLESS.row("lossless.known_mutants", found_known, met=found_known == len(known) == 11),
        LOSSLESS.row("lossless.code_mutants", found, met=found == len(changed) >= 10) | {"mutants": len(changed)},
        LOSSLESS.row("lossless.lossy_rules", least, met=least > SEEN) | {"rules": len(lossy)},
    ]
    return rows, [
        *(asdict(one) | {"known_as": name} for name, one in known.items()),
        *map(asdict, (*changed, *lossy)),
    ]


def _judged_rule(name: str) -> Found:
    return judged(Mutant(name=name, made=lambda family: of_model(family, RULES[name])), SEED)


def engines(answers: int) -> Part:
    """What the engine draws, in how many answers, and engines that are wrong."""
    sound, reused = [], 0
    for way in WAYS:
        with keys_reused() as keys:
            found = drawn(way, answers, SEED)
        sound += fits(found, way)
        reused += len(keys)
    limit = ALARM / len(sound)
    worst = min(one.bound for one in sound)
    controls = [(name, _worst_of(one)) for name, one in WRONG.items()]
    caught = sum(one.bound <= limit for _, one in controls)
    rows = [
        LOSSLESS.row("lossless.engine", worst, met=worst > limit and not reused)
        | {"fits": len(sound), "limit": limit, "reused": reused},
        LOSSLESS.row("lossless.wrong_engines", caught, met=caught == len(controls)),
    ]
    return rows, [*map(asdict, sound), *(asdict(one) | {"wrong": name} for name, one in controls)]


def _worst_of(wrong: Wrong) -> Fit:
    with wrong.planted():
        found = drawn(wrong.way, ANSWERS_OF_WRONG, SEED)
    return min(fits(found, wrong.way), key=lambda one: one.bound)


PARTS = (enumerated, mutated, engines)
