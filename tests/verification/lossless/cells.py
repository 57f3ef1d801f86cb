"""Every lossless rule with everyone who drafts, at one, two and three levels, drawn and greedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qualgate.engine.speculation.rules import RULES
from qualgate.records.speculation import LOSSY
from tests.verification.lossless.chances import total_variation
from tests.verification.lossless.constrained import Constrained
from tests.verification.lossless.drafting import Drafting, Level, Resting, Wary, texts
from tests.verification.lossless.models import Family, families
from tests.verification.lossless.reading import Reading
from tests.verification.lossless.speculated import Rounds, Speculated, Target

LENGTH, LENGTH_WHOLE = 4, 3  # tokens of an answer; of one that is enumerated at once
LOSSLESS = tuple(rule for rule in RULES if rule not in LOSSY)
HEADS_ON = ("unlike", "cut")  # models for which heads draft: theirs are the same for all
CONSTRAINED_OF, CONSTRAINED = (
    "unlike",
    "unlike, constrained",
)  # models whose target is held to a constraint too, with these that draft
CONSTRAINED_BY = ("model", "n-gram", "model < model by speculative_sampling", "head")


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


def drafting(family: Family, *, drawn: bool = True) -> Mapping[str, Drafting]:
    """Everyone who drafts: models, each worse than the one before (a target's own weights are one), texts, and a head.
    drawn: whether the head draws."""
    first, second, _ = family.drafts
    one, two, three = map(Level, family.drafts)
    found: dict[str, Drafting] = {
        "model": one,
        "model, likeliest tokens": Level(first, ""),
        "model, ending with what is unlikely": Wary(one, keeping=True),
        "model, not always asked": Resting(one),
    }
    for rule in LOSSLESS:
        found[f"model < model by {rule}"] = Level(first, rule, two)
        found[f"model < model < model by {rule}"] = Level(first, rule, Level(second, rule, three, 1))
    found["model < likeliest tokens"] = Level(first, below=Level(second, ""))
    for name, one in texts(first.vocabulary).items():
        found[name] = one
        found[f"model < {name}"] = Level(first, below=one)
        found[f"model < model < {name}"] = Level(first, "block_verification", Level(second, below=one, tokens=1))
    if family.name in HEADS_ON:
        found["head"] = Reading(first.vocabulary, "speculative_sampling" if drawn else "")
    return found


def by_rounds(vocabulary: int, rules: Sequence[str], kind: int, seed: int) -> Iterator[Cell]:
    """By these rules everyone, on models of a kind (a place among `families`) that were drawn by this seed."""
    family = families(vocabulary, seed)[kind]
    for temperature in (0, 1):
        models = family if temperature else family.greedy()
        everyone = drafting(models, drawn=bool(temperature))
        for rule in rules:
            yield from _of_target(family.name, models.target, everyone, rule, temperature)
            if temperature and family.name == CONSTRAINED_OF:
                few = {name: one for name, one in everyone.items() if name in CONSTRAINED_BY}
                yield from _of_target(CONSTRAINED, Constrained(models.target), few, rule, temperature)


def _of_target(
    models: str, target: Target, everyone: Mapping[str, Drafting], rule: str, temperature: int
) -> Iterator[Cell]:
    expected, rounds = target.answers(LENGTH), Rounds()
    for name, drafts in everyone.items():
        found, accepted = speculated(target, drafts, rule, rounds).answers_law(LENGTH)
        yield Cell(
            rule=rule,
            drafting=name,
            models=models,
            vocabulary=target.vocabulary,
            temperature=temperature,
            total_variation=total_variation(found, expected),
            accepted=accepted,
        )


def at_once(rule: str, seed: int) -> Iterator[Cell]:
    """Of two tokens, whole answers enumerated at once, with the keys by which a run draws. Two levels where the rule is
    "keyed", by which every position draws: a third is one more of the same."""
    family = families(2, seed)[0]
    everyone = {name: one for name, one in drafting(family).items() if rule != "keyed" or name.count("<") < 2}
    few = {name: one for name, one in everyone.items() if name in CONSTRAINED_BY}
    for models, target, some in (
        (family.name, family.target, everyone),
        (CONSTRAINED, Constrained(family.target), few),
    ):
        expected = target.answers(LENGTH_WHOLE)
        for name, drafts in some.items():
            found, reused = speculated(target, drafts, rule).whole_law(LENGTH_WHOLE)
            yield Cell(
                rule=rule,
                drafting=name,
                models=models,
                vocabulary=2,
                temperature=1,
                total_variation=total_variation(found, expected),
                reused=reused,
            )


def speculated(target: Target, drafts: Drafting, rule: str, rounds: Rounds | None = None) -> Speculated:
    """By a rule of the product. Shorter drafts where all that the target might draw is enumerated."""
    tokens = 2 if rule == "keyed" else 3
    return Speculated(target=target, drafting=drafts, rule=RULES[rule], tokens=tokens, rounds=rounds or Rounds())
