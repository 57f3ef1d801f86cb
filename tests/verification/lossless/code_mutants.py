"""Single lines of the code that runs, changed as they go wrong: one off, stale, rounded, drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

from qualgate.speculation import accept, chance, rules
from qualgate.speculation.propose import NO_DRAFT, Draft
from tests.verification.lossless.chances import Enumerated
from tests.verification.lossless.drafting import Laws, Level, likeliest
from tests.verification.lossless.known_mutants import by_cascade, by_rule
from tests.verification.lossless.models import Family, Model, Tokens
from tests.verification.lossless.mutants import Mutant, of_model
from tests.verification.lossless.numbers import told_otherwise
from tests.verification.lossless.rewritten import rewritten
from tests.verification.lossless.speculated import Speculated


def _block(before: str, after: str) -> Callable[[Family], Speculated]:
    rule = rewritten(rules, before, after).block_verification
    return lambda family: of_model(family, rule)


def _one_hot(before: str, after: str) -> Callable[[Family], Speculated]:
    rule = rewritten(rules, before, after).speculative_sampling
    return lambda family: of_model(family, rule, likeliest(family.drafts[0]))


def _accepted(before: str, after: str) -> Callable[[Family], Speculated]:
    changed = rewritten(accept, before, after).accepted
    rule = rewritten(rules, "return accepted(draft, [", "return changed(draft, [", changed=changed).keyed
    return lambda family: replace(of_model(family, rule), tokens=2)


_BEHIND_ALL = "    return _said(draft, len(draft), target[-1], chance)\n\n\ndef _ratio"
_BEHIND_BLOCK = "        return _said(draft, len(draft), target[-1], chance)\n    for count"

BY_ROUNDS = (
    Mutant(
        name="one row off behind a draft that is accepted whole",
        made=by_rule(_BEHIND_ALL, _BEHIND_ALL.replace("target[-1]", "target[max(0, len(draft) - 1)]")),
    ),
    Mutant(
        name="nothing is said behind a draft that is accepted whole",
        made=by_rule(_BEHIND_ALL, "    return Accepted(len(draft), tuple(draft), False)\n\n\ndef _ratio"),
    ),
    Mutant(
        name="accepted by q of the token before",
        made=by_rule("q = drawn_from[place, draft", "q = drawn_from[max(0, place - 1), draft"),
    ),
    Mutant(
        name="the residual is of q of the token before",
        made=by_rule("left.sub_(drawn_from[place])", "left.sub_(drawn_from[max(0, place - 1)])"),
    ),
    Mutant(
        name="the residual is of p of the token behind",
        made=by_rule("left = target[place] * share", "left = target[place + 1] * share"),
    ),
    Mutant(name="the residual is |p - q|", made=by_rule(".clamp_(min=0.0)", ".abs_()")),
    Mutant(
        name="the residual is not made to add up to 1",
        made=by_rule(
            "left if bool(left.any()) else target[place], chance)",
            "torch.cat([left[:-1], 1.0 - left[:-1].sum(0, keepdim=True)]), chance)",
        ),
    ),
    Mutant(
        name="p / q in float32",
        made=by_rule("    return p / q", "    return (torch.tensor(p).float() / torch.tensor(q).float()).item()"),
    ),
    Mutant(
        name="p / q in half precision",
        made=by_rule("    return p / q", "    return (torch.tensor(p).half() / torch.tensor(q).half()).item()"),
    ),
    Mutant(name="q / p", made=by_rule("    return p / q", "    return q / p if p else 0.0")),
    Mutant(
        name="a one-hot draft's token may be drawn when it was rejected",
        made=_one_hot("        left[draft[place]] = 0.0\n", ""),
    ),
    Mutant(
        name="a one-hot draft's token is judged by another row",
        made=_one_hot("p = target[place, draft[place]]", "p = target[max(0, place - 1), draft[place]]"),
    ),
    Mutant(
        name="block: shares of prefixes may exceed 1",
        made=_block("min(1.0, shares[-1] * _ratio(target, draft, drawn_from, place))",
                    "shares[-1] * _ratio(target, draft, drawn_from, place)"),
    ),
    Mutant(
        name="block: every token's share is its own",
        made=_block("shares[-1] * _ratio(", "_ratio("),
    ),
    Mutant(
        name="block: the residual of a whole share",
        made=_block("left = _left(target, draft, drawn_from, count, shares[count])",
                    "left = _left(target, draft, drawn_from, count, 1.0)"),
    ),
    Mutant(
        name="block: a prefix is accepted by its share",
        made=_block("chance.accepts(mass / (mass + refused))", "chance.accepts(shares[count])"),
    ),
    Mutant(
        name="block: one row off behind a draft that is accepted whole",
        made=_block(_BEHIND_BLOCK, _BEHIND_BLOCK.replace("target[-1]", "target[max(0, len(draft) - 1)]")),
    ),
    Mutant(
        name="a level's rows are one off",
        made=by_cascade("own[: len(got.tokens)]", "own.roll(1, 0)[: len(got.tokens)]"),
    ),
    Mutant(
        name="a level drafts by a rule that changes the distribution",
        made=by_cascade("if RULES[rule] not in _OF_THEIR_MODEL:", "if False:", "typical"),
    ),
    Mutant(
        name="keyed: the draft's token is said where the target's own is another",
        made=_accepted("tokens.append(own)", "tokens.append(draft[place] if place < len(draft) else own)"),
    ),
    Mutant(
        name="keyed: the token that parts from the draft counts as accepted",
        made=_accepted("return Accepted(place + agrees,", "return Accepted(place + 1,"),
    ),
)  # fmt: skip


# --------------------------------------------------------------------------------- numbers that are drawn twice


class _NoRound(Speculated):
    def round_of(self, chance: Enumerated, said: Tokens) -> Enumerated:
        return chance.within(0)


class _OneNumber(Enumerated):
    def next_key(self) -> tuple[int, ...]:
        return self.round


class _OneNumberARound(Speculated):
    def round_of(self, chance: Enumerated, said: Tokens) -> Enumerated:
        return _OneNumber(seed=0, case=0, round=(len(said),), numbers=chance.numbers)


class _NoLevels(Enumerated):
    def within(self, *call: int) -> Self:
        return replace(self)


class _DraftsByTheNumbersThatJudge(Speculated):
    def round_of(self, chance: Enumerated, said: Tokens) -> Enumerated:
        return _NoLevels(seed=0, case=0, round=(len(said),), numbers=chance.numbers)


class DraftsByPosition(Level):
    """Every token is drawn by the number of its position, in whatever round."""

    def draft(self, said: Tokens, most: int, chance: Enumerated) -> Draft:
        text = said
        for _ in range(most):
            text = (*text, replace(chance, round=(-1, len(text))).token(self.model.after(text)))
        if text == said:
            return NO_DRAFT
        return Draft(text[len(said) :], "by position", 8, self.model.behind(said, text[len(said) : -1]))


class _AnswerOfAnotherArm:
    """What another arm says to the same case, by the same numbers, is the draft."""

    by_last = False

    def __init__(self, model: Model) -> None:
        self.model = model

    def draft(self, said: Tokens, most: int, chance: Enumerated) -> Draft:
        text: Tokens = ()
        while len(text) < len(said) + most:
            text = (*text, replace(chance, round=(len(text),)).token(self.model.after(text)))
        return Draft(text[len(said) :], "baseline") if most else NO_DRAFT

    def drafts(self, said: Tokens, most: int) -> Laws:
        raise NotImplementedError


def _drawing(how: type[Speculated]) -> Callable[[Family], Speculated]:
    return lambda family: how(target=family.target, drafting=Level(family.drafts[0]), rule=rules.speculative_sampling)


AT_ONCE = (
    Mutant(name="every round draws the same numbers", made=_drawing(_NoRound), at_once=True),
    Mutant(name="a round draws one number", made=_drawing(_OneNumberARound), at_once=True),
    Mutant(
        name="a draft is drawn by the numbers that judge it", made=_drawing(_DraftsByTheNumbersThatJudge), at_once=True
    ),
    Mutant(
        name="block: drafts are drawn by position, whatever the round",
        made=lambda family: of_model(family, rules.block_verification, DraftsByPosition(family.drafts[0])),
        at_once=True,
    ),
    Mutant(
        name="the draft is another arm's answer, drawn by the same numbers",
        made=lambda family: of_model(family, rules.speculative_sampling, _AnswerOfAnotherArm(family.drafts[0])),
        at_once=True,
    ),
)


# ------------------------------------------------------------------------------------------- a run's own numbers

NUMBERS = {
    "accepted with probability 0": ("self.uniform() < probability", "self.uniform() <= probability"),
    "a token of weight 0 is drawn": ("right=True", "right=False"),
    "weights are taken to add up to 1": ("below = whole * torch.tensor", "below = torch.tensor"),
    "a round's draws share a number": ("self._drawn += 1", "self._drawn += 0"),
    "levels share their numbers": ("round=(*self.round, *call)", "round=self.round"),
    "rounds share their numbers": ("self.case, *self.round, self._drawn", "self.case, self._drawn"),
    "cases share their numbers": ("(self.seed, self.case, *", "(self.seed, *"),
    "numbers reach one half only": (">> 11", ">> 12"),
    "running sums in float32": ("sums = weights.cumsum(-1)", "sums = weights.float().cumsum(-1).double()"),
}
"""Of `chance`: name → text, and what it is replaced with."""


def numbers_mutants() -> dict[str, str]:
    """Name → how a mutant of `chance` tells otherwise than it should, "" where nothing was seen."""
    return {name: told_otherwise(rewritten(chance, *change)) for name, change in NUMBERS.items()}
