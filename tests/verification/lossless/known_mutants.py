"""The eleven wrong ways to speculate that are known from the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from qualgate.speculation import cascade, rules
from qualgate.speculation.chance import Chance
from qualgate.speculation.propose import Draft
from tests.verification.lossless.drafting import Level, Wary
from tests.verification.lossless.models import Family, Tokens
from tests.verification.lossless.mutants import Mutant, of_model
from tests.verification.lossless.rewritten import rewritten
from tests.verification.lossless.speculated import Speculated, Target


def by_rule(before: str, after: str) -> Callable[[Family], Speculated]:
    """Speculative sampling, this text of it replaced."""
    rule = rewritten(rules, before, after).speculative_sampling
    return lambda family: of_model(family, rule)


def by_cascade(before: str, after: str, inner: str = "speculative_sampling") -> Callable[[Family], Speculated]:
    """Two levels, this text of what the upper one offers replaced."""
    drafted = rewritten(cascade, before, after).drafted
    return lambda family: of_model(
        family,
        rules.speculative_sampling,
        Level(family.drafts[0], inner, Level(family.drafts[1]), drafted=drafted),
    )


def _by_drafts(drafted: Callable[..., Draft]) -> Callable[[Family], Speculated]:
    return lambda family: of_model(family, rules.speculative_sampling, Level(family.drafts[0], drafted=drafted))


class _LastOfTheDraftsModel(Speculated):
    def behind(self, target: Target, said: Tokens, draft: Draft) -> torch.Tensor:
        assert isinstance(self.drafting, Level)
        found = super().behind(target, said, draft)
        if draft.tokens:
            found[-1] = self.drafting.model.after((*said, *draft.tokens))
        return found


def _at_another_temperature(rule: str, own: torch.Tensor, below: Draft, chance: Chance, kind: str) -> Draft:
    got = cascade.drafted(rule, own ** (1 / 0.7), below, chance, kind)
    return replace(got, drawn_from=own[: len(got.tokens)])


def _likeliest(rule: str, own: torch.Tensor, below: Draft, chance: Chance, kind: str) -> Draft:
    return Draft((int(own[0].argmax()),), kind, 8, own[:1])


KNOWN = {
    "M1": Mutant(
        name="where a token is rejected, one is drawn of p and not of the residual",
        made=by_rule("left if bool(left.any()) else target[place], chance)", "target[place], chance)"),
    ),
    "M2": Mutant(name="accepted with p, not with p / q", made=by_rule("    return p / q", "    return p")),
    "M3": Mutant(
        name="accepted where it is the likeliest, at temperature 1",
        made=by_rule(
            "not chance.accepts(_ratio(target, draft, drawn_from, place) / lenience)",
            "draft[place] != int(target[place].argmax())",
        ),
    ),
    "M4": Mutant(
        name="behind a draft that is accepted whole, a token is drawn of the draft's model",
        made=lambda family: _LastOfTheDraftsModel(
            target=family.target, drafting=Level(family.drafts[0]), rule=rules.speculative_sampling
        ),
    ),
    "M5": Mutant(name="typical acceptance", made=lambda family: of_model(family, rules.typical)),
    "M6": Mutant(name="lenience 0.8", made=lambda family: of_model(family, rules.lenient)),
    "M7": Mutant(name="drafts drawn at temperature 0.7, judged by q at 1", made=_by_drafts(_at_another_temperature)),
    "M8": Mutant(name="likeliest tokens as drafts, judged by q", made=_by_drafts(_likeliest)),
    "M9": Mutant(
        name="a drawn token of low probability is left out",
        made=lambda family: of_model(family, rules.speculative_sampling, Wary(Level(family.drafts[0]), keeping=False)),
    ),
    "M10": Mutant(
        name="the outer level judges by q of the inner draft",
        made=by_cascade(
            "own[: len(got.tokens)]",
            "(own if below.drawn_from is None else torch.cat([below.drawn_from, own[-1:]]))[: len(got.tokens)]",
        ),
    ),
    "M11": Mutant(
        name="the token that corrects an inner draft is thrown away",
        made=by_cascade(
            "got = RULES[rule](own, below.tokens, below.drawn_from, chance)",
            "got = RULES[rule](own, below.tokens, below.drawn_from, chance)\n"
            "    if 0 < got.count < len(below.tokens):\n"
            "        return Draft(got.tokens[: got.count], kind, 8, own[: got.count])",
        ),
    ),
}
