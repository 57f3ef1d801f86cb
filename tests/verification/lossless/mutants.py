"""A wrong way to speculate, and what the enumeration makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from qualgate.speculation.rules import Rule
from tests.verification.lossless.cells import LENGTH, LENGTH_WHOLE
from tests.verification.lossless.chances import total_variation
from tests.verification.lossless.drafting import Drafting, Level
from tests.verification.lossless.fits import answers_to_find
from tests.verification.lossless.models import Family, families
from tests.verification.lossless.speculated import Speculated

BOUND = 1e-12  # of total variation, where an answer has the target's law


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """made: how answers are made of the models of a family, or AssertionError. at_once: numbers are drawn twice, so
    whole answers are enumerated. length: of an answer, 0 for the usual."""

    name: str
    made: Callable[[Family], Speculated]
    at_once: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """total_variation: the largest over the families; answers: as many would have to be drawn there until a chi-square
    test of them finds it; refused: what the code or the loop itself said of it."""

    name: str
    total_variation: float = 0.0
    answers: float | None = None
    refused: str = ""

    killed: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "killed", self.total_variation > BOUND or bool(self.refused))


def judged(mutant: Mutant, seed: int) -> Found:
    """Over models of every kind; of two tokens where answers are enumerated at once."""
    found = Found(name=mutant.name)
    of = families(2, seed)[:1] if mutant.at_once else families(3, seed)
    length = mutant.length or (LENGTH_WHOLE if mutant.at_once else LENGTH)
    for family in of:
        how = mutant.made(family)
        expected = how.target.answers(length)
        try:
            answers = how.whole_law(length)[0] if mutant.at_once else how.answers_law(length)[0]
        except (AssertionError, ValueError) as error:
            found = Found(
                name=mutant.name,
                total_variation=found.total_variation,
                answers=found.answers,
                refused=found.refused or str(error),
            )
            continue
        far = total_variation(answers, expected)
        if far > found.total_variation:
            needed = answers_to_find(answers, expected)
            found = Found(name=mutant.name, total_variation=far, answers=needed, refused=found.refused)
    return found


def of_model(family: Family, rule: Rule, drafts: Drafting | None = None) -> Speculated:
    """A model's drafts, or others, by this rule."""
    return Speculated(target=family.target, drafting=drafts or Level(family.drafts[0]), rule=rule)
