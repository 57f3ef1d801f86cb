"""Scripted judges with planted tastes: which are named, whom a verdict may rest on, and what control is worth.

Answers are texts with a worth that only a judge's script can read, of drawn length and format. People prefer the
answer that is worth more; a judge does too, misled by what was planted. The whole way of a reply is walked: request,
both orders, form, floor, styles balanced, exact test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from scipy.stats import binom, binomtest

from qualgate.gate.comparisons.judged import measure_judged
from qualgate.gate.comparisons.result import Measured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.judged import agreement, below_floor, biases
from qualgate.gate.rules import Slice
from qualgate.records import Judge, Judged, JudgedArm, JudgedLabel, Rule, UnitEvidence, UnitKey
from qualgate.scoring.preference.asking import request
from qualgate.scoring.preference.reading import judged
from qualgate.stats.paired.compare import compare_pairs
from tests.judges import Scripted, judge_at, says

ALPHA, MARGIN, FLOOR = 0.05, 0.10, 0.7
LABELS, PAIRS = 200, 300
STYLES = tuple((longer, marked) for longer in (-1, 0, 1) for marked in (-1, 0, 1))
WORTH = re.compile(r"\(([-0-9.]+)\)")


def worth(text: str) -> float:
    """What an answer is worth, as its text says to who knows where to look."""
    return float(WORTH.search(text)[1]) if WORTH.search(text) else 0.0


FAIR = Scripted(worth=worth, noise=0.2)
BIASED = {  # what is planted → the judge; strong enough to mislead, not so strong that it never agrees with people
    "position": replace(FAIR, first=0.6),
    "position, last": replace(FAIR, first=-0.6),
    "length": replace(FAIR, longer=0.6),
    "length, shorter": replace(FAIR, longer=-0.6),
    "format": replace(FAIR, formatted=0.6),
    "format, less": replace(FAIR, formatted=-0.6),
}
USELESS = {  # judges that a verdict must never rest on
    "guesses": lambda body: says(Random(str(body)).choice("AB")),
    "always first": lambda body: says("A"),
    "always a tie": lambda body: says("tie"),
    "by length alone": Scripted(worth=len),
    "out of its form": lambda body: "A is better",
    "half out of its form": lambda body: FAIR(body) if Random(str(body)).random() < 0.5 else "both have merits",
}


def answer(draw: Random, value: float, size: int, marked: bool) -> str:
    words = " ".join(draw.choice(("so", "it", "may", "well", "be", "then")) for _ in range(size))
    return f"({value:.4f}) {words}" + (" **thus** so" if marked else " thusly so")


def texts(draw: Random, lead: float, style: tuple[int, int]) -> tuple[str, str]:
    """Two answers, the second worth `lead` more and of that style beside the first."""
    base = draw.gauss(0, 1)
    sizes = {-1: (60, 30), 0: (40, 40), 1: (30, 60)}[style[0]]
    marks = {-1: (True, False), 0: (False, False), 1: (False, True)}[style[1]]
    return tuple(  # type: ignore[return-value]
        answer(draw, value, size, marked) for value, size, marked in zip((base, base + lead), sizes, marks, strict=True)
    )


def compared(judge: Any, by: Judge, question: str, first: str, second: str) -> Judged:
    """What the judge says in both orders, by requests and replies."""
    said = [judge(request(by, question, *pair)) for pair in ((first, second), (second, first))]
    return judged(first, second, said)


def labels(judge: Any, draw: Random, count: int = LABELS) -> Iterator[JudgedLabel]:
    """A sample whose styles say nothing of what people prefer."""
    for number in range(count):
        first, second = texts(draw, draw.gauss(0, 1.5), draw.choice(STYLES))
        lead = worth(second) - worth(first)
        preferred = 0.5 if abs(lead) < 0.1 else float(lead > 0)
        found = compared(judge, judge_at(), f"q{number}", first, second)
        yield JudgedLabel(preferred=preferred, question=f"q{number}", judged=found)


def measured(arm: JudgedArm) -> Measured:
    """A rule on all of an arm's pairs."""
    rule = Rule(metric="judge.win", max_drop=MARGIN)
    units = [UnitEvidence(key=UnitKey("v", *key), case_hash="", status="done") for key in arm.pairs]
    pairs = [Pair(baseline=unit, variant=unit, cluster=number) for number, unit in enumerate(units)]
    return measure_judged(Slice(rule=rule, name="pooled", evalsets=("s",)), pairs, arm, ALPHA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of how many worlds were made: named a bias, believed the judge, approved, blocked; and the last two without
    control of style."""

    worlds: int
    named: dict[str, int]
    believed: int
    approved: int
    blocked: int
    plainly_approved: int
    plainly_blocked: int


def rates(
    judge: Any,
    worlds: int,
    seed: str,
    lead: float = 0.0,
    spread: float = 1.0,
    styles: Sequence[tuple[int, int]] = STYLES,
) -> Rates:
    """Worlds of labels and pairs; the variant's answers are worth `lead` more on average, `spread` either way, in these
    styles."""
    named: dict[str, int] = {}
    counts = [0] * 5
    for number in range(worlds):
        draw = Random(f"{seed} {number}")
        pairs = {("s", f"c{at}", 0): compared(judge, judge_at(), f"c{at}",
                                              *texts(draw, draw.gauss(lead, spread), draw.choice(styles)))
                 for at in range(PAIRS)}  # fmt: skip
        arm = JudgedArm(judge="j", floor=FLOOR, pairs=pairs, labels=tuple(labels(judge, draw)))
        for bias in biases(arm):
            named[bias.name] = named.get(bias.name, 0) + 1
        found, wins = measured(arm), [one.win for one in pairs.values()]
        plain = compare_pairs(wins.count(0.0), wins.count(1.0), PAIRS, 2 * MARGIN, ALPHA)
        each = (
            not below_floor(arm, ALPHA),
            found.p_within <= ALPHA and not found.obstacle,
            (1.0 if found.comparison.p_broken is None else found.comparison.p_broken) <= ALPHA,
            plain.p_within <= ALPHA,
            plain.p_beyond <= ALPHA,
        )
        counts = [total + one for total, one in zip(counts, each, strict=True)]
    believed, approved, blocked, plainly_approved, plainly_blocked = counts
    return Rates(worlds=worlds, named=named, believed=believed, approved=approved, blocked=blocked,
                 plainly_approved=plainly_approved, plainly_blocked=plainly_blocked)  # fmt: skip


def no_more_than(count: int, worlds: int, rate: float = ALPHA) -> bool:
    """Whether so many of these worlds agree with at most that rate; a sound rate fails in one of 10,000."""
    return bool(binomtest(count, worlds, rate, alternative="greater").pvalue > 1e-4)


def errors(draws: int, pairs: int = 150, taste: float = 0.15) -> tuple[int, int, int]:
    """How often an arm that loses just the margin is approved, and blocked, of so many draws: a judge's taste adds to
    what it prefers, and two thirds of the variant's answers are of the style that it likes."""
    sample = tuple(JudgedLabel(preferred=1.0, question=str(at), judged=Judged(win=1.0, places=("B", "A")))
                   for at in range(30))  # fmt: skip
    approved = blocked = 0
    for number in range(draws):
        draw, found = Random(f"margin {number}"), {}
        for at in range(pairs):
            liked = draw.choices((1, 0, -1), (4, 1, 1))[0]
            won, tied = 0.3 - MARGIN + taste * liked, 0.4  # half of the ties: 0.5 - MARGIN where nothing is liked
            drawn = draw.random()
            win = 1.0 if drawn < won else 0.5 if drawn < won + tied else 0.0
            found["s", f"c{at}", number] = Judged(win=win, places=("tie", "tie"), style=(liked, 0))
        told = measured(JudgedArm(judge="j", floor=FLOOR, pairs=found, labels=sample))
        approved += told.p_within <= ALPHA and not told.obstacle
        blocked += (told.comparison.p_broken or 0.0) <= ALPHA
    return approved, blocked, draws


def at_the_floor(count: int) -> float:
    """P(a judge is believed) whose true agreement is just its floor, of so many labels: exact."""
    right = Judged(win=1.0, places=("B", "A"))
    passing = []
    for same in range(count + 1):
        sample = tuple(
            JudgedLabel(preferred=1.0, question=str(at), judged=right if at < same else replace(right, win=0.0))
            for at in range(count)
        )
        arm = JudgedArm(judge="j", floor=FLOOR, labels=sample)
        found = agreement(arm, ALPHA)
        assert found is not None, "there are decided labels"
        passing.append(not below_floor(arm, ALPHA))
    return float(sum(binom.pmf(same, count, FLOOR) for same, passes in enumerate(passing) if passes))


def proof(quick: bool) -> tuple[dict[str, Any], bool]:
    """What came of all of it, and whether it is as it must be."""
    worlds = 4 if quick else 40
    fair = rates(FAIR, worlds, "fair")
    worse = rates(FAIR, worlds, "worse", lead=-1.0)
    found = {name: rates(judge, worlds, name) for name, judge in BIASED.items()}
    useless = {name: rates(judge, max(worlds // 4, 2), name) for name, judge in USELESS.items()}
    longer = [style for style in STYLES if style[0] == 1] * 5 + list(STYLES)
    shorter = [style for style in STYLES if style[0] == -1] * 5 + list(STYLES)
    verbose = rates(BIASED["length"], worlds, "verbose", lead=-0.25, spread=0.4, styles=longer)  # worse, and longer
    terse = rates(BIASED["length"], worlds, "terse", spread=0.4, styles=shorter)  # as good, and shorter
    at_margin = errors(20 if quick else 400)
    floors = {count: at_the_floor(count) for count in (20, 50, 120)}
    held = {
        "fair is believed": fair.believed == worlds,
        "fair is not named": no_more_than(sum(fair.named.values()), worlds),
        "equal arms are not blocked": no_more_than(fair.blocked, worlds),
        "a worse arm is blocked": worse.blocked >= 0.95 * worlds and worse.approved == 0,
        "every bias is named": all(one.named.get(name.partition(",")[0], 0) == worlds for name, one in found.items()),
        "useless judges decide nothing": all(
            one.believed + one.approved + one.blocked == 0 for one in useless.values()
        ),
        "the floor is enforced": max(floors.values()) <= ALPHA,
        "errors at the margin": no_more_than(at_margin[0], at_margin[2]) and no_more_than(at_margin[1], at_margin[2]),
        "longer and worse is not approved": no_more_than(verbose.approved, worlds),
        "shorter and as good is not blocked": no_more_than(terse.blocked, worlds),
    }
    row = {
        "worlds": worlds,
        "held": held,
        "fair": {"approved": fair.approved, "blocked": fair.blocked, "named": fair.named},
        "worse": {"approved": worse.approved, "blocked": worse.blocked},
        "named": {name: one.named for name, one in found.items()},
        "believed though useless": {name: one.believed for name, one in useless.items()},
        "believed at the floor": floors,
        "approved, blocked at the margin": at_margin,
        "verbose": {"approved": verbose.approved, "blocked": verbose.blocked, "approved without control":
                    verbose.plainly_approved, "blocked without control": verbose.plainly_blocked},
        "terse": {"approved": terse.approved, "blocked": terse.blocked, "blocked without control":
                  terse.plainly_blocked},
    }  # fmt: skip
    return row, all(held.values())
