"""Single lines of the code that runs, changed as they go wrong: one off, stale, rounded, drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qualgate.engine import constraint, draft_blocks, draft_model
from qualgate.engine.constraint import GrammarMask
from qualgate.speculation import accept, chance, rules
from tests.verification.lossless.cells import LENGTH
from tests.verification.lossless.chances import Enumerated
from tests.verification.lossless.constrained import Constrained, fresh_mask
from tests.verification.lossless.drafting import Level, Resting
from tests.verification.lossless.known_mutants import by_cascade, by_rule
from tests.verification.lossless.models import Family
from tests.verification.lossless.mutants import Mutant, of_model
from tests.verification.lossless.numbers import told_otherwise
from tests.verification.lossless.rewritten import rewritten
from tests.verification.lossless.speculated import Speculated


def _block(before: str, after: str) -> Callable[[Family], Speculated]:
    rule = rewritten(rules, before, after).block_verification
    return lambda family: of_model(family, rule)


def _one_hot(before: str, after: str) -> Callable[[Family], Speculated]:
    rule = rewritten(rules, before, after).speculative_sampling
    return lambda family: of_model(family, rule, Level(family.drafts[0], ""))


def _accepted(before: str, after: str) -> Callable[[Family], Speculated]:
    changed = rewritten(accept, before, after).accepted
    rule = rewritten(rules, "return accepted(draft, [", "return changed(draft, [", changed=changed).keyed
    return lambda family: replace(of_model(family, rule), tokens=2)


_BEHIND_ALL = "    return _said(draft, len(draft), target[-1], chance)\n\n\ndef _ratio"

BY_ROUNDS = (
    Mutant(
        name="one row off behind a draft that is accepted whole",
        made=by_rule(_BEHIND_ALL, _BEHIND_ALL.replace("target[-1]", "target[max(0, len(draft) - 1)]")),
    ),
    Mutant(
        name="the residual is of q of the token before",
        made=by_rule("left.sub_(drawn_from[place])", "left.sub_(drawn_from[max(0, place - 1)])"),
    ),
    Mutant(name="the residual is |p - q|", made=by_rule(".clamp_(min=0.0)", ".abs_()")),
    Mutant(
        name="p / q in half precision",
        made=by_rule("    return p / q", "    return (torch.tensor(p).half() / torch.tensor(q).half()).item()"),
    ),
    Mutant(
        name="a one-hot draft's token may be drawn when it was rejected",
        made=_one_hot("        left[draft[place]] = 0.0\n", ""),
    ),
    Mutant(
        name="block: shares of prefixes may exceed 1",
        made=_block("min(1.0, shares[-1] * _ratio(target, draft, drawn_from, place))",
                    "shares[-1] * _ratio(target, draft, drawn_from, place)"),
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
)  # fmt: skip


# --------------------------------------------------------------------------------- numbers that are drawn twice


class _EveryRoundTheSame(Enumerated):
    def next_key(self) -> tuple[int, ...]:
        _, _, _, *behind = super().next_key()
        return tuple(behind)


def _numbered(chance: type[Enumerated]) -> Callable[[Family], Speculated]:
    return lambda family: Speculated(
        target=family.target, drafting=Level(family.drafts[0]), rule=rules.speculative_sampling, chance=chance
    )


def draft_model_of(before: str, after: str) -> Callable[[Family], Speculated]:
    """Drafts by a draft model, this text of which was replaced."""
    made = rewritten(draft_model, before, after).DraftModel
    return lambda family: of_model(family, rules.speculative_sampling, Level(family.drafts[0], made=made))


def draft_blocks_of(before: str, after: str) -> Callable[[Family], Speculated]:
    """Drafts by a draft model that is not always asked, this text of its blocks replaced."""
    made = rewritten(draft_blocks, before, after).OwnBlocks
    return lambda family: of_model(family, rules.speculative_sampling, Resting(Level(family.drafts[0], blocks=made)))


def mask_of(made: type[GrammarMask]) -> Callable[[Family], Speculated]:
    """Answers held to a constraint by this mask."""
    return lambda family: Speculated(
        target=Constrained(family.target, lambda vocabulary: fresh_mask(vocabulary, made)),
        drafting=Level(family.drafts[0]),
        rule=rules.speculative_sampling,
    )


def mask_not_rewound() -> type[GrammarMask]:
    """Whose state stays behind what was rejected."""
    before = "if same < len(self._read) and not self._matcher.rollback(len(self._read) - same):"
    return rewritten(constraint, before, "if False:").GrammarMask


AT_ONCE = (
    Mutant(name="every round draws the same numbers", made=_numbered(_EveryRoundTheSame), at_once=True),
    Mutant(
        name="a draft model does not tell its passes' numbers from its asker's",
        made=draft_model_of(
            "ruling.drafted(row.index, (*row.round, len(row.said)), below", "ruling.drafted(row.index, row.round, below"
        ),
        at_once=True,
    ),
    Mutant(
        name="stale draft cache: what was rejected stays among a draft model's keys and values",
        made=draft_blocks_of("del row.kept[min(agreed(row.kept, row.text), len(row.text) - 1) :]",
                             "del row.kept[len(row.text) - 1 :]"),
        at_once=True,
        length=LENGTH,
    ),
    Mutant(
        name="mask not rewound: a constraint's state stays behind a draft that was rejected",
        made=mask_of(mask_not_rewound()),
        at_once=True,
    ),
)  # fmt: skip


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
