"""Every lossless rule with everyone who drafts, at one, two and three levels, drawn and greedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qualgate.records.speculation import LOSSY
from qualgate.speculation.rules import RULES
from tests.verification.lossless.chances import total_variation
from tests.verification.lossless.drafting import Drafting, Level, Wary, likeliest, texts
from tests.verification.lossless.models import Family, families
from tests.verification.lossless.speculated import Speculated

LENGTH, LENGTH_WHOLE = 4, 3  # tokens of an answer; of one that is enumerated at once
LOSSLESS = tuple(rule for rule in RULES if rule not in LOSSY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Answers by a rule and a way to draft. accepted: tokens of an answer that are drafts', in the mean; reused:
    whether any number was drawn twice, None where rounds were enumerated alone."""

    rule: str
    drafting: str
    models: str
    vocabulary: int
    temperature: int
    total_variation: float
    accepted: float | None = None
    reused: bool | None = None


def drafting(family: Family) -> Mapping[str, Drafting]:
    """Everyone who drafts: models, each worse than the one before, and texts."""
    first, second, third = family.drafts
    found: dict[str, Drafting] = {
        "model": Level(first),
        "model, likeliest tokens": likeliest(first),
        "model, ending with what is unlikely": Wary(Level(first), keeping=True),
    }
    for rule in LOSSLESS:
        found[f"model < model by {rule}"] = Level(first, rule, Level(second))
        found[f"model < model < model by {rule}"] = Level(first, rule, Level(second, rule, Level(third), 1))
    found["model < likeliest tokens"] = Level(first, below=likeliest(second))
    for name, one in texts(first.vocabulary).items():
        found[name] = one
        found[f"model < {name}"] = Level(first, below=one)
        found[f"model < model < {name}"] = Level(first, "block_verification", Level(second, below=one, tokens=1))
    return found


def by_rounds(rules: Mapping[str, int], seed: int) -> Iterator[Cell]:
    """All of them, on models of every kind that were drawn by this seed. rules: with the vocabulary of each."""
    for rule, vocabulary in rules.items():
        for family in families(vocabulary, seed):
            for temperature in (0, 1):
                models = family if temperature else family.greedy()
                expected = models.target.answers(LENGTH)
                for name, drafts in drafting(models).items():
                    found, accepted = speculated(models, drafts, rule).answers_law(LENGTH)
                    yield Cell(
                        rule=rule,
                        drafting=name,
                        models=family.name,
                        vocabulary=vocabulary,
                        temperature=temperature,
                        total_variation=total_variation(found, expected),
                        accepted=accepted,
                    )


def at_once(seed: int) -> Iterator[Cell]:
    """Of two tokens, whole answers enumerated at once, with the keys by which a run draws."""
    family = families(2, seed)[0]
    expected = family.target.answers(LENGTH_WHOLE)
    for rule in LOSSLESS:
        for name, drafts in drafting(family).items():
            found, reused = speculated(family, drafts, rule).whole_law(LENGTH_WHOLE)
            yield Cell(
                rule=rule,
                drafting=name,
                models=family.name,
                vocabulary=2,
                temperature=1,
                total_variation=total_variation(found, expected),
                reused=reused,
            )


def speculated(family: Family, drafts: Drafting, rule: str) -> Speculated:
    """By a rule of the product. Shorter drafts where all that the target might draw is enumerated."""
    return Speculated(target=family.target, drafting=drafts, rule=RULES[rule], tokens=2 if rule == "keyed" else 3)
