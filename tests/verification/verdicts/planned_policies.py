"""The policies by which the planner is measured: documented ones, drawn ones, and ones of every kind of rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.records import Policy, Rule
from tests.verification.verdicts.simulated_verdicts import with_whole_questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A policy on its sets, with the truth that both the planner and the simulation are told."""

    name: str
    sets: tuple[PlannedSet, ...]
    policy: Policy
    assumed: Assumed


SEEDED = 250  # policies at the planner's own cases
PLAIN = 36  # of the first so many no rule is on tags, tasks, answers taken together or a relative loss


def policies(count: int = 50, seed: int = 11) -> list[Case]:
    """Documented ones, drawn ones to `PLAIN`, then one of every kind of rule, and drawn mixtures of these."""
    plain, mixed = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    found = _documented()
    while len(found) < PLAIN:
        found.append(_drawn_policy(f"drawn {len(found)}", plain))
    found += _of_every_kind()
    while len(found) < count:
        found.append(_drawn_mixture(f"mixture {len(found)}", mixed))
    return found[:count]


def _documented() -> list[Case]:
    """Of a peer's tutorial: sizes and disagreement as in its benchmarks."""
    named = {"mmlu_pro": (12_032, 0.08), "gpqa": (198, 0.10), "gsm8k": (1_319, 0.05), "aime": (30, 0.15),
             "humaneval": (164, 0.06)}  # fmt: skip

    def of(name: str, chosen: tuple[str, ...], *rules: Rule) -> Case:
        sets = tuple(PlannedSet(name=one, metrics=("exact_match",), cases=named[one][0]) for one in chosen)
        flips = {("exact_match", one): named[one][1] for one in chosen}
        return Case(name=name, sets=sets, policy=Policy(rules=rules), assumed=Assumed(disagreement=flips,
                    default_baseline=0.755))  # fmt: skip

    each = Rule(metric="exact_match", scope="evalset", max_drop=0.01)
    suite = ("mmlu_pro", "gpqa", "gsm8k", "aime")
    return [
        of("suite at 1 point each", suite, each),
        of("suite, supporting small sets", suite, Rule(metric="exact_match", evalset="mmlu_pro", max_drop=0.01),
           Rule(metric="exact_match", evalset="gpqa", max_drop=0.01, tier="supporting")),
        of("MMLU-Pro at 1 point", ("mmlu_pro",), each),
        of("GSM8K at 1 point", ("gsm8k",), each),
        of("GPQA at 1 point", ("gpqa",), each),
        of("HumanEval at 1 point", ("humaneval",), each),
        of("suite pooled at 1 point", suite, Rule(metric="exact_match", max_drop=0.01)),
    ]  # fmt: skip


def _pick(generator: np.random.Generator, *choices: Any) -> Any:
    return choices[generator.integers(len(choices))]


def _drawn_policy(name: str, generator: np.random.Generator) -> Case:
    pick = partial(_pick, generator)
    sets, flips = [], {}
    for index in range(pick(1, 1, 2, 3, 5)):
        cases = pick(60, 164, 198, 400, 400, 500, 800, 1_319, 2_500)
        metrics = pick(("exact_match",), ("exact_match",), ("exact_match", "json.valid"))
        clustered = generator.random() < 0.12
        clusters = (pick(2, 4),) * (min(cases, 500) // 4) if clustered else ()
        sets.append(PlannedSet(name=f"set{index}", metrics=metrics, cases=sum(clusters) or cases, clusters=clusters))
        for metric in metrics:
            flips[metric, f"set{index}"] = pick(0.01, 0.02, 0.05, 0.05, 0.08, 0.10, 0.15)
    margin = pick(0.01, 0.02, 0.02, 0.03, 0.05)
    rules = [Rule(metric="exact_match", max_drop=margin)]
    if len(sets) > 1 and generator.random() < 0.7:
        rules.append(Rule(metric="exact_match", scope="evalset", max_drop=pick(margin, 0.05, 0.08)))
    if any("json.valid" in one.metrics for one in sets):
        rules.append(Rule(metric="json.valid", max_drop=pick(0.02, 0.05), tier=pick("critical", "supporting")))
    return Case(name=name, sets=tuple(sets), policy=Policy(rules=tuple(rules)),
                assumed=Assumed(disagreement=flips, default_baseline=pick(0.6, 0.755, 0.9)))  # fmt: skip


# --------------------------------------------------------------------------------------- tags, repeats, relative losses

METRIC = "exact_match"
Marks = tuple[str, ...]


def _shares(marks: Mapping[str, int], generator: np.random.Generator) -> tuple[Marks, ...]:
    """One mark for each question, so many of each, in any order."""
    return tuple((str(one),) for one in generator.permutation(np.repeat(list(marks), list(marks.values()))))


def _joined(*columns: tuple[Marks, ...]) -> tuple[Marks, ...]:
    return tuple(tuple(mark for marks in row for mark in marks) for row in zip(*columns, strict=True))


def _of(
    name: str,
    sets: Sequence[PlannedSet],
    rules: Sequence[Rule],
    *,
    flips: Mapping[str, float],
    right: Mapping[str, float] | None = None,
) -> Case:
    """flips, right: by metric or by set; what neither names has 5 % and 75.5 %."""

    def by_set(told: Mapping[str, float]) -> dict[tuple[str, str], float]:
        return {(METRIC, one.name): told[part] for one in sets for part in (METRIC, one.name) if part in told}

    told = Assumed(disagreement=by_set(flips), baseline=by_set(right or {}), default_disagreement=0.05,
                   default_baseline=0.755)  # fmt: skip
    return Case(name=name, sets=tuple(sets), policy=Policy(rules=tuple(rules)),
                assumed=with_whole_questions(sets, told, METRIC))  # fmt: skip


def _of_every_kind() -> list[Case]:
    generator = np.random.default_rng(5)
    shares, rule = partial(_shares, generator=generator), partial(Rule, metric=METRIC)

    def one(name: str, cases: int, **more) -> PlannedSet:
        return PlannedSet(name=name, metrics=(METRIC,), cases=cases, **more)

    languages = shares({"tag:lang:en": 700, "tag:lang:de": 300, "tag:lang:fr": 120, "tag:lang:cy": 30})
    passages = tuple(int(size) for size in generator.choice((1, 2, 3, 5, 8), 180))
    of_passages = shares({"tag:hard": sum(passages) // 3, "tag:easy": sum(passages) - sum(passages) // 3})
    sums, words = {"task:add": 300, "task:mul": 200, "task:div": 40}, {"task:spell": 250, "task:rhyme": 90}
    hard = shares({"tag:hard": 400, "tag:easy": 140})
    return [
        _of("tags of unequal size", [one("tickets", cases=1_150, labels=languages)],
            [rule(max_drop=0.02), rule(scope="tag:lang", max_drop=0.1)], flips={METRIC: 0.04}),
        _of("small tag, supporting", [one("tickets", cases=1_150, labels=languages), one("other", cases=400)],
            [rule(max_drop=0.02), rule(where="tag:lang:cy", max_drop=0.15, tier="supporting"),
             rule(where="tag:lang:fr", max_drop=0.05, tier="supporting")], flips={"tickets": 0.05, "other": 0.08}),
        _of("each task of two sets", [one("sums", cases=540, labels=shares(sums)),
                                      one("words", cases=340, labels=shares(words))],
            [rule(scope="task", max_drop=0.08), rule(max_drop=0.03)], flips={"sums": 0.03, "words": 0.06},
            right={"sums": 0.9, "words": 0.7}),
        _of("each task, hard cases alone", [one("sums", cases=540, labels=_joined(shares(sums), hard))],
            [rule(max_drop=0.05), rule(where="tag:hard", scope="task", max_drop=0.08)], flips={METRIC: 0.04}),
        _of("passages across tags", [one("reading", cases=sum(passages), clusters=passages, labels=of_passages)],
            [rule(max_drop=0.04), rule(where="tag:hard", max_drop=0.08),
             rule(where="tag:easy", max_drop=0.05, tier="supporting")], flips={METRIC: 0.05}),
        _of("4 answers, pass@4 and pass^4", [one("maths", cases=400, repeats=4)],
            [rule(max_drop=0.03), rule(repeats="any", max_drop=0.04),
             rule(repeats="all", max_drop=0.06, tier="supporting")],
            flips={METRIC: 0.10}),
        _of("8 answers to passages, by tag", [one("reading", cases=sum(passages), clusters=passages, repeats=8,
                                                  labels=of_passages)],
            [rule(max_drop=0.04), rule(scope="tag:hard", max_drop=0.05, tier="supporting")], flips={METRIC: 0.12}),
        _of("relative loss, pooled", [one("gsm8k", cases=1_319), one("gpqa", cases=198)],
            [rule(max_relative_drop=0.03)], flips={"gsm8k": 0.04, "gpqa": 0.1}, right={"gsm8k": 0.9, "gpqa": 0.45}),
        _of("relative loss, each set", [one("gsm8k", cases=800), one("gpqa", cases=300), one("aime", cases=60)],
            [rule(max_relative_drop=0.15, scope="evalset"), rule(max_drop=0.03)],
            flips={"gsm8k": 0.04, "gpqa": 0.08, "aime": 0.1}, right={"gsm8k": 0.9, "gpqa": 0.6, "aime": 0.7}),
        _of("relative loss, passages and any of 2", [one("reading", cases=sum(passages), clusters=passages, repeats=2),
                                                     one("plain", cases=300, repeats=2)],
            [rule(max_relative_drop=0.06), rule(max_relative_drop=0.08, repeats="any", evalset="reading")],
            flips={METRIC: 0.06}, right={METRIC: 0.7}),
    ]  # fmt: skip


def _drawn_mixture(name: str, generator: np.random.Generator) -> Case:
    """Rules on labels, answers taken together and relative losses beside plain ones, over sets of any kind."""
    pick = partial(_pick, generator)
    repeats, sets = pick(1, 1, 2, 4, 6), []
    for index in range(pick(1, 2, 2, 3, 3)):
        clusters = tuple(int(size) for size in generator.choice((1, 2, 4, 6), pick(60, 100))) * pick(0, 0, 1)
        cases = sum(clusters) or pick(120, 250, 400, 800)
        kinds, tasks = ("tag:kind:a", "tag:kind:b", "tag:kind:c"), ("task:x", "task:y")
        labels = tuple((str(generator.choice(kinds, p=(0.7, 0.22, 0.08))), str(generator.choice(tasks, p=(0.6, 0.4))))
                       for _ in range(cases))  # fmt: skip
        sets.append(PlannedSet(name=f"set{index}", metrics=(METRIC,), cases=cases, clusters=clusters, repeats=repeats,
                               labels=labels))  # fmt: skip
    rules = [
        pick(Rule(metric=METRIC, max_drop=pick(0.03, 0.05)), Rule(metric=METRIC, max_relative_drop=pick(0.04, 0.07))),
        Rule(metric=METRIC, max_drop=pick(0.08, 0.1), scope=pick("tag:kind", "task"), where=pick(None, None, "task:x"),
             tier=pick("critical", "supporting")),
        pick(Rule(metric=METRIC, max_relative_drop=pick(0.1, 0.15), scope="evalset"),
             Rule(metric=METRIC, max_relative_drop=pick(0.1, 0.15), where="tag:kind:a"),
             Rule(metric=METRIC, max_drop=pick(0.08, 0.1), where="tag:kind:b")),
    ]  # fmt: skip
    if repeats > 1:
        rules.append(Rule(metric=METRIC, repeats=pick("any", "all"), max_drop=pick(0.05, 0.08),
                          tier=pick("critical", "supporting")))  # fmt: skip
    told = {f"set{index}": pick(0.02, 0.04, 0.06, 0.1) for index in range(len(sets))}
    return _of(name, sets, rules, flips=told, right={METRIC: pick(0.6, 0.755, 0.9)})


def seeded(count: int = SEEDED, seed: int = 17) -> list[Case]:
    """The first of them are the same for every count."""
    generator = np.random.default_rng(seed)
    return [_drawn_seeded(f"seeded {number}", generator) for number in range(count)]


def _drawn_seeded(name: str, generator: np.random.Generator) -> Case:
    pick = partial(_pick, generator)
    sets, flips = [], {}
    for index in range(pick(1, 1, 2)):
        one = f"set{index}"
        clusters = (pick(3, 4, 6, 8, 12),) * pick(24, 40, 60, 80) if generator.random() < 0.5 else ()
        cases = sum(clusters) or pick(60, 100, 164, 198, 300, 400)
        sets.append(PlannedSet(name=one, metrics=(METRIC,), cases=cases, clusters=clusters))
        flips[METRIC, one] = pick(0.01, 0.02, 0.05, 0.05, 0.08)
    margin = pick(0.03, 0.05, 0.05, 0.08, 0.10)
    rules = [Rule(metric=METRIC, max_drop=margin)]
    if len(sets) > 1:
        rules.append(Rule(metric=METRIC, scope="evalset", max_drop=pick(0.08, 0.10)))
    assumed = Assumed(disagreement=flips, default_baseline=pick(0.7, 0.8, 0.9))
    return Case(name=name, sets=tuple(sets), policy=Policy(rules=tuple(rules)), assumed=assumed)
