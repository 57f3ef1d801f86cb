"""Wrong ways to speculate: the eleven that are known from the field, single lines of the code that runs changed as they
go wrong, numbers that are drawn twice; and what the enumeration makes of each."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType

import torch

from qualgate.engine import constraint, draft_blocks, draft_model
from qualgate.engine.constraint import GrammarMask
from qualgate.engine.speculation import accept, cascade, rules
from qualgate.engine.speculation.chance import Chance
from qualgate.engine.speculation.propose import Draft
from qualgate.engine.speculation.rules import Rule
from tests.verification.lossless.cells import LENGTH, LENGTH_WHOLE
from tests.verification.lossless.chances import Enumerated, total_variation
from tests.verification.lossless.constrained import Constrained, fresh_mask
from tests.verification.lossless.drafting import Drafting, Level, Resting, Wary
from tests.verification.lossless.models import Family, Tokens, families
from tests.verification.lossless.speculated import Speculated, Target

BOUND = 1e-12  # of total variation, where an answer has the target's law
Made = Callable[[Family], Speculated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """made: how answers are made of the models of a family, or AssertionError. at_once: numbers are drawn twice, so
    whole answers are enumerated. length: of an answer, 0 for the usual."""

    name: str
    made: Made
    at_once: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """total_variation: the largest over the families; refused: what the code or the loop itself said of it."""

    name: str
    total_variation: float = 0.0
    refused: str = ""

    killed: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "killed", self.total_variation > BOUND or bool(self.refused))


def judged(mutant: Mutant, seed: int) -> Found:
    """Over models of every kind; of two tokens where answers are enumerated at once."""
    far, refused = 0.0, ""
    length = mutant.length or (LENGTH_WHOLE if mutant.at_once else LENGTH)
    for family in families(2, seed)[:1] if mutant.at_once else families(3, seed):
        how = mutant.made(family)
        try:
            answers = how.whole_law(length)[0] if mutant.at_once else how.answers_law(length)[0]
            far = max(far, total_variation(answers, how.target.answers(length)))
        except (AssertionError, ValueError) as error:
            refused = refused or str(error)
    return Found(name=mutant.name, total_variation=far, refused=refused)


def rewritten(module: ModuleType, before: str, after: str, **names: object) -> ModuleType:
    """The module with this text, which stands in it once, replaced, beside the one that runs. names: what else it is to
    know. LookupError: the text is not there, or not once: the mutant is out of date."""
    source = inspect.getsource(module)
    if source.count(before) != 1:
        raise LookupError(f"{module.__name__}: {before!r} stands there {source.count(before)} times")
    found = ModuleType(f"{module.__name__}, rewritten")
    sys.modules[found.__name__] = found  # dataclasses look there
    try:
        exec(compile(source.replace(before, after), str(module.__file__), "exec"), found.__dict__)
    finally:
        del sys.modules[found.__name__]
    found.__dict__.update(names)
    return found


# -------------------------------------------------------------------------------------- what is made of a changed line


def of_model(family: Family, rule: Rule, drafts: Drafting | None = None) -> Speculated:
    """A model's drafts, or others, by this rule."""
    return Speculated(target=family.target, drafting=drafts or Level(family.drafts[0]), rule=rule)


def by_rule(before: str, after: str) -> Made:
    """Speculative sampling, this text of it replaced."""
    rule = rewritten(rules, before, after).speculative_sampling
    return lambda family: of_model(family, rule)


def by_one_hot(before: str, after: str) -> Made:
    """Likeliest tokens as drafts."""
    rule = rewritten(rules, before, after).speculative_sampling
    return lambda family: of_model(family, rule, Level(family.drafts[0], ""))


def by_block(before: str, after: str) -> Made:
    rule = rewritten(rules, before, after).block_verification
    return lambda family: of_model(family, rule)


def by_keys(before: str, after: str) -> Made:
    changed = rewritten(accept, before, after).accepted
    rule = rewritten(rules, "return accepted(draft, [", "return changed(draft, [", changed=changed).keyed
    return lambda family: replace(of_model(family, rule), tokens=2)


def by_cascade(before: str, after: str, inner: str = "speculative_sampling") -> Made:
    """Two levels, this text of what the upper one offers replaced."""
    drafted, rule = rewritten(cascade, before, after).drafted, rules.speculative_sampling
    return lambda family: of_model(
        family, rule, Level(family.drafts[0], inner, Level(family.drafts[1]), drafted=drafted)
    )


def by_passes(before: str, after: str) -> Made:
    """A draft model, this text of it replaced."""
    made = rewritten(draft_model, before, after).DraftModel
    return lambda family: of_model(family, rules.speculative_sampling, Level(family.drafts[0], made=made))


def by_blocks(before: str, after: str) -> Made:
    """A draft model that is not always asked, this text of its blocks replaced."""
    made = rewritten(draft_blocks, before, after).OwnBlocks
    return lambda family: of_model(family, rules.speculative_sampling, Resting(Level(family.drafts[0], blocks=made)))


def _by_drafts(drafted: Callable[..., Draft]) -> Made:
    return lambda family: of_model(family, rules.speculative_sampling, Level(family.drafts[0], drafted=drafted))


class _LastOfTheDraftsModel(Speculated):
    def behind(self, target: Target, said: Tokens, draft: Draft) -> torch.Tensor:
        assert isinstance(self.drafting, Level)
        found = super().behind(target, said, draft)
        if draft.tokens:
            found[-1] = self.drafting.model.after((*said, *draft.tokens))
        return found


def _of_the_drafts_model(family: Family) -> Speculated:
    drafting, rule = Level(family.drafts[0]), rules.speculative_sampling
    return _LastOfTheDraftsModel(target=family.target, drafting=drafting, rule=rule)


def _at_another_temperature(rule: str, own: torch.Tensor, below: Draft, chance: Chance, kind: str) -> Draft:
    got = cascade.drafted(rule, own ** (1 / 0.7), below, chance, kind)
    return replace(got, drawn_from=own[: len(got.tokens)])


def _likeliest(rule: str, own: torch.Tensor, below: Draft, chance: Chance, kind: str) -> Draft:
    return Draft((int(own[0].argmax()),), kind, 8, own[:1])


def _leaving_out(family: Family) -> Speculated:
    return of_model(family, rules.speculative_sampling, Wary(Level(family.drafts[0]), keeping=False))


_ACCEPTED = "accepted = RULES[rule](own, below.tokens, below.drawn_from, chance)"
KNOWN = {
    "where a token is rejected, one is drawn of p and not of the residual": by_rule(
        "residual if bool(residual.any()) else target[index], chance)", "target[index], chance)"
    ),
    "accepted with p, not with p / q": by_rule("    return p / q", "    return p"),
    "accepted where it is the likeliest, at temperature 1": by_rule(
        "not chance.accepts(_ratio(target, draft, drawn_from, index) / lenience)",
        "draft[index] != int(target[index].argmax())",
    ),
    "behind a draft that is accepted whole, a token is drawn of the draft's model": _of_the_drafts_model,
    "typical acceptance": partial(of_model, rule=rules.typical),
    "lenience 0.8": partial(of_model, rule=rules.lenient),
    "drafts drawn at temperature 0.7, judged by q at 1": _by_drafts(_at_another_temperature),
    "likeliest tokens as drafts, judged by q": _by_drafts(_likeliest),
    "a drawn token of low probability is left out": _leaving_out,
    "the outer level judges by q of the inner draft": by_cascade(
        "own[: len(accepted.tokens)]",
        "(own if below.drawn_from is None else torch.cat([below.drawn_from, own[-1:]]))[: len(accepted.tokens)]",
    ),
    "the token that corrects an inner draft is thrown away": by_cascade(
        _ACCEPTED,
        f"{_ACCEPTED}\n    if 0 < accepted.count < len(below.tokens):\n"
        "        return Draft(accepted.tokens[: accepted.count], kind, 8, own[: accepted.count])",
    ),
}
_BEHIND_ALL = "    return _said(draft, len(draft), target[-1], chance)\n\n\ndef _ratio"
_SHARE = "shares[-1] * _ratio(target, draft, drawn_from, index)"
_RESIDUAL = "residual = _residual(target, draft, drawn_from, count, "
BY_ROUNDS = {
    "one row off behind a draft that is accepted whole": by_rule(
        _BEHIND_ALL, _BEHIND_ALL.replace("target[-1]", "target[max(0, len(draft) - 1)]")
    ),
    "the residual is of q of the token before": by_rule(
        "residual.sub_(drawn_from[index])", "residual.sub_(drawn_from[max(0, index - 1)])"
    ),
    "the residual is |p - q|": by_rule(".clamp_(min=0.0)", ".abs_()"),
    "p / q in half precision": by_rule(
        "    return p / q", "    return (torch.tensor(p).half() / torch.tensor(q).half()).item()"
    ),
    "a one-hot draft's token may be drawn when it was rejected": by_one_hot(
        "        residual[draft[index]] = 0.0\n", ""
    ),
    "block: shares of prefixes may exceed 1": by_block(f"min(1.0, {_SHARE})", _SHARE),
    "block: the residual of a whole share": by_block(f"{_RESIDUAL}shares[count])", f"{_RESIDUAL}1.0)"),
    "block: a prefix is accepted by its share": by_block(
        "chance.accepts(mass / (mass + refused))", "chance.accepts(shares[count])"
    ),
    "a level's rows are one off": by_cascade("own[: len(accepted.tokens)]", "own.roll(1, 0)[: len(accepted.tokens)]"),
    "a level drafts by a rule that changes the distribution": by_cascade(
        "if RULES[rule] not in _OF_THEIR_MODEL:", "if False:", "typical"
    ),
    "keyed: the draft's token is said where the target's own is another": by_keys(
        "tokens.append(token)", "tokens.append(draft[index] if index < len(draft) else token)"
    ),
}


class _EveryRoundTheSame(Enumerated):
    def next_key(self) -> tuple[int, ...]:
        _, _, _, *behind = super().next_key()
        return tuple(behind)


def _numbered(family: Family) -> Speculated:
    return replace(of_model(family, rules.speculative_sampling), chance=_EveryRoundTheSame)


def mask_not_rewound() -> type[GrammarMask]:
    """Whose state stays behind what was rejected."""
    before = "if shared < len(self._read) and not self._matcher.rollback(len(self._read) - shared):"
    return rewritten(constraint, before, "if False:").GrammarMask


def _masked(family: Family) -> Speculated:
    target = Constrained(family.target, lambda vocabulary: fresh_mask(vocabulary, mask_not_rewound()))
    return Speculated(target=target, drafting=Level(family.drafts[0]), rule=rules.speculative_sampling)


_DRAFTED = "ruling.drafted(row.index, "
AT_ONCE = {
    "every round draws the same numbers": _numbered,
    "a draft model does not tell its passes' numbers from its asker's": by_passes(
        f"{_DRAFTED}(*row.round, len(row.drafted)), lower_draft", f"{_DRAFTED}row.round, lower_draft"
    ),
    "what was rejected stays among a draft model's keys and values": by_blocks(
        "del row.cached[min(agreed(row.cached, row.text), len(row.text) - 1) :]", "del row.cached[len(row.text) - 1 :]"
    ),
    "a constraint's state stays behind a draft that was rejected": _masked,
}
CHANGED = [
    *(Mutant(name=name, made=made) for name, made in BY_ROUNDS.items()),
    *(Mutant(name=name, made=made, at_once=True, length=LENGTH) for name, made in AT_ONCE.items()),
]
