"""The drafts that are verified: who makes them, how much of each, and what passes and drafts teach of that. At whatever
level: a target verifies drafts as a draft model does that has a draft of its own.

Of a cascade whose lengths are chosen as it runs, each level may also draft for the verifier itself: pass by pass it is
whoever is expected to gain most, so that levels that do not pay are left out. Where nobody pays, passes go by before
that is looked at again; ever more of them where nobody would if all were accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from qualgate.speculation.acceptance import Fate
from qualgate.speculation.control import window
from qualgate.speculation.lengths import FEW, LOOKS, MOST_RESTS, RESTS, Batch, Learned, Lengths, Prospect
from qualgate.speculation.ngram import Ngram
from qualgate.speculation.plan import Plan
from qualgate.speculation.propose import NO_DRAFT, Asked, Draft, Proposer, Stepwise
from qualgate.speculation.steps import Drafts, Step, step

MOST = 32  # tokens of a draft
BACK = 4  # tokens of a known answer that are said before a request is believed to have come back to it


@dataclass(slots=True, eq=False)
class _Row:
    """What is known of a row. read: of who drafted for it, the tokens that it had said when they last did."""

    task: str
    fate: Fate = field(default_factory=Fate)
    read: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Offer:
    """Drafts that one proposer would make. gain: how many times as fast as plain passes these are expected to be.
    drafts: those that cost nothing, which are made already; windows: as much of each as pays."""

    proposer: Proposer
    gain: float
    plan: Plan | None = None
    rows: Sequence[Prospect] = ()
    drafts: dict[int, Draft] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)


class Drafting:
    """The drafts of one run, at one level."""

    def __init__(self, drafts: Drafts, clock: Callable[[], float] = perf_counter) -> None:
        self._proposer, self._tokens, self._steps = drafts.proposer, drafts.tokens, drafts.steps
        self._instead, self._tasks = drafts.instead, drafts.tasks
        self._learned, self._clock = drafts.learned or Learned(), clock
        self._drafts: dict[int, Draft] = {}
        self._rows: dict[int, _Row] = {}
        self._back = set[int]()
        self._rest = self._learned.rest
        self._over = 0  # rows that ended
        self._said: dict[int, int] = {}  # tokens of each row, where γ is chosen
        self._counted: dict[int, int] = {}  # of these, those that `remaining` was told
        self._told = drafts.rests
        self.resting = False  # nothing is drafted in this pass, nor learned of it
        self.untold: dict[int, int] = {}  # of rows, from which position on nobody said what: a token a pass
        self._pass, self._sequences = -1, 0  # the one that is under way, and how many texts share it
        self._resting_with = 0  # texts that shared the passes of which nobody said what

    def rests(self, going: int) -> bool:
        """Whether nothing is drafted in the next pass, which `going` texts share, as was found before."""
        told, rest = self._told, self._rest
        told.passes += 1
        self.resting = rest.left > 0 and going == rest.going
        if self.resting:
            self._resting_with = going
            told.because = told.because or self.because
            told.rested += 1
            rest.left -= 1
            rest.gone += 1
            return True
        if not going:  # prompts are read, which tells nothing of what is shared next
            return False
        if going != rest.going:
            rest.next = RESTS
        rest.left = 0
        return False

    def draft(self, asked: Sequence[Asked], going: int) -> dict[int, Sequence[int]]:
        """What is to be verified for rows that may be drafted for, by row, in a pass that `going` texts share."""
        self._drafts = {}
        if not asked:
            return {}
        if self._tokens:
            if isinstance(self._proposer, Stepwise):
                self._proposer.course = None
            drafts = self._proposer.propose(_cut(asked, self._tokens))
            self._drafts = {one.row: draft for one, draft in zip(asked, drafts, strict=True) if draft.tokens}
            return {row: draft.tokens for row, draft in self._drafts.items()}
        if self._looks_alone:
            return self._looked_up(asked, going)
        if not self._instead and not self._proposer.runs_model:
            return self._verified(self._found(self._proposer, asked, going))
        began = self._clock()
        self._said.update((one.row, len(one.said)) for one in asked)
        self._count()
        proposers = (self._proposer, *self._instead)
        offers = [(self._made if one.runs_model else self._found)(one, asked, going) for one in proposers]
        best = max(offers, key=lambda one: one.gain)
        if best.gain <= 1.0:
            best = self._trial(offers, going)
            if best is None or best.plan is None:
                self._told.rested += 1
                self._told.because = self._learned.lengths(self._proposer.name).because
        if best is None:
            self._looked(going, self._clock() - began)
            return {}
        self._rest.next = RESTS
        if best.plan is not None:
            return self._draft_by(best, best.plan, asked, going)
        return self._verified(best)

    def begins(self, sequences: int) -> None:
        """A pass that so many texts share begins."""
        self._pass += 1
        self._sequences = sequences

    def offered(self, row: int, tokens: int) -> Draft:
        """Of a row's draft so many tokens, with what they were drawn from."""
        return self._drafts.get(row, NO_DRAFT).cut(tokens)

    def said(
        self,
        row: int,
        position: int,
        offered: int,
        tokens: Sequence[int],
        agreed: int,
        overlaps: Sequence[float] = (),
    ) -> bool:
        """What a row says from `position` of its answer on, where `offered` tokens of its draft were verified and the
        first `agreed` of them are what it says; whether it came back to a known answer so, for the first time.
        overlaps: see `steps.step`."""
        draft = self._drafts.pop(row, NO_DRAFT) if self._drafts else NO_DRAFT
        self._plain_until(row, position)
        if not self._tokens:
            self._said[row] = position + len(tokens)
        if not draft.tokens:
            if self._steps is not None:
                self._steps.append(Step(row, position, 0, 0, 0, 0, "", self._pass, self._sequences))
            return False
        if self._steps is not None:
            one = step(row, position, draft, offered, agreed, len(tokens), overlaps)
            self._steps.append(one._replace(pass_number=self._pass, sequences=self._sequences))
        here = self._row(row)
        if draft.kind in here.read:  # what it drafted, it has read
            here.read[draft.kind] = position + agreed
        self._learned.acceptance.observe(draft, tokens, here.task, here.fate)
        if offered:
            self._learned.lengths(draft.kind).fared(offered, agreed)
            cost = self._learned.costs.now
            self._learned.looks.saved += agreed * cost.token(self._sequences) - offered * cost.row
        back = draft.kind in ("baseline", "sibling") and tuple(tokens[:BACK]) == draft.tokens[:BACK]
        if not back or len(tokens) < BACK or row in self._back:
            return False
        self._back.add(row)
        return True

    def _plain_until(self, row: int, position: int) -> None:
        """Steps of passes that rested. One by one as they went by, they would take what a pass may at most."""
        first = self.untold.pop(row, position)
        if self._steps is not None and first < position:
            shared = self._resting_with
            self._steps += [Step(row, at, 0, 0, 0, 0, "", None, shared) for at in range(first, position)]

    def ended(self, row: int, said: int = 0) -> None:
        """A row says nothing more; said: its tokens, for passes that are `untold`."""
        self._over += 1
        if row in self.untold:
            self._plain_until(row, said)
            self._said[row] = said
        self._rows.pop(row, None)
        if tokens := self._said.get(row):
            self._count()
            self._learned.remaining.ended(self._task(row), tokens)
        self._said.pop(row, None)
        self._counted.pop(row, None)
        for one in (self._proposer, *self._instead):
            one.ended(row)

    def passed(self, sequences: int, rows: int, seconds: float) -> None:
        """A pass is over that read no prompt: that would tell nothing of what decoding costs. While it rests, one pass
        of many tells enough."""
        if self.resting:
            return
        costs, rest, began = self._learned.costs, self._rest, self._clock()
        costs.observe(sequences, rows, seconds)
        if self._tokens:
            return
        rested = rest.gone * costs.now.seconds(rest.going, rest.going)
        if self._looks_alone:
            looks = self._learned.looks
            looks.passes += rested + seconds
            looks.took += self._clock() - began
        elif self._proposer.runs_model:
            self._learned.lengths(self._proposer.name).passed(rested + seconds)
        rest.gone = 0

    @property
    def because(self) -> str:
        """Why nothing is drafted where a model was to draft; "" where it drafts, or nothing was decided."""
        return self._learned.lengths(self._proposer.name).because if self._rest.left else ""

    @property
    def _looks_alone(self) -> bool:
        """Whether γ is chosen of what is looked up alone, in texts that may hold nothing of use."""
        return isinstance(self._proposer, Ngram) and not (self._tokens or self._instead)

    def _looked_up(self, asked: Sequence[Asked], going: int) -> dict[int, Sequence[int]]:
        """What was found, as much as pays of it; and whether the next passes go without a look."""
        began, looks, rest = self._clock(), self._learned.looks, self._rest
        found = self._verified(self._found(self._proposer, asked, going))
        looks.look(self._clock() - began)
        rest.left, rest.going = looks.rests(self._learned.costs.now.seconds(going, going)), going
        if rest.left:
            self._learned.lengths(self._proposer.name).because = "to look for drafts takes longer than they save"
        return found

    def _batch(self, going: int) -> Batch:
        return Batch(going, waits=len(self._tasks) > self._over + going)

    def _verified(self, offer: _Offer) -> dict[int, Sequence[int]]:
        self._drafts = offer.drafts
        return {row: draft.tokens[: offer.windows[row]] for row, draft in offer.drafts.items()}

    def _row(self, row: int) -> _Row:
        found = self._rows.get(row)
        if found is None:
            found = self._rows[row] = _Row(self._task(row))
        return found

    def _task(self, row: int) -> str:
        return self._tasks[row] if self._tasks else ""

    def _count(self) -> None:
        """What was said since this was last done. After every pass it would take longer than such counts are worth."""
        for row, said in self._said.items():
            before = self._counted.get(row, 0)
            if said > before:
                self._learned.remaining.said(self._task(row), before, said - before)
                self._counted[row] = said

    def _made(self, proposer: Proposer, asked: Sequence[Asked], going: int) -> _Offer:
        """Of a model: what it would draft."""
        lengths, remaining = self._learned.lengths(proposer.name), self._learned.remaining
        reads, rows = not isinstance(proposer, Stepwise) or proposer.reads, []
        for one in asked:
            row = self._row(one.row)
            before = row.read.get(proposer.name, -len(one.prompt))
            rows.append(
                Prospect(
                    row=one.row,
                    most=min(one.most, MOST),
                    unread=len(one.said) - before if reads else 1,
                    remaining=remaining.tokens(row.task, len(one.said), one.most),
                    task=row.task,
                    fate=row.fate,
                )
            )
        plan, gain = lengths.plan(rows, self._batch(going))
        return _Offer(proposer, gain if plan.drafted else 0.0, plan, rows)

    def _found(self, proposer: Proposer, asked: Sequence[Asked], going: int) -> _Offer:
        """Of who looks up: what it found, as much as pays of it."""
        acceptance, cost = self._learned.acceptance, self._learned.costs.now
        found = zip(asked, proposer.propose(_cut(asked, MOST)), strict=True)
        offer = _Offer(proposer, 0.0, None, (), {one.row: draft for one, draft in found if draft.tokens})
        tokens, drafted = float(going), 0
        for row, draft in offer.drafts.items():
            here = self._row(row)
            chances = acceptance.chances(draft, here.task, here.fate)
            count = offer.windows[row] = window(chances, cost, going)
            tokens, drafted = tokens + _accepted(chances[:count]), drafted + count
        if drafted:
            offer.gain = tokens * cost.token(going) / cost.seconds(going, going + drafted)
        return offer

    def _trial(self, offers: Sequence[_Offer], going: int) -> _Offer | None:
        """Whose drafts are tried though they are not expected to pay; None and a rest where nobody's are."""
        looked = [one for one in offers if one.plan is None]
        for one in offers:
            if one.plan is None:
                continue
            one.plan = self._learned.lengths(one.proposer.name).trial(one.rows, self._batch(going))
            if one.plan.drafted:
                return one
        if looked:  # what was found is judged by what is said in its place
            return replace(looked[0], windows=dict.fromkeys(looked[0].drafts, 0))
        rest = self._rest
        rest.left, rest.going = rest.next, going
        if all(self._learned.lengths(one.proposer.name).hopeless for one in offers):
            rest.next = min(2 * rest.next, MOST_RESTS)
        return None

    def _looked(self, going: int, seconds: float) -> None:
        """Nobody drafts: the next look waits until this one, which took so long, was a small share of all seconds."""
        a_pass = LOOKS * self._learned.costs.now.seconds(going, going)
        self._rest.left = max(self._rest.left, min(MOST_RESTS, int(seconds / a_pass))) if a_pass else self._rest.left

    def _draft_by(self, offer: _Offer, plan: Plan, asked: Sequence[Asked], going: int) -> dict[int, Sequence[int]]:
        proposer, lengths = offer.proposer, self._learned.lengths(offer.proposer.name)
        stepwise = isinstance(proposer, Stepwise) and proposer.tells
        if isinstance(proposer, Stepwise):
            proposer.course = lengths if stepwise else None
        mine = [
            replace(one, most=min(one.most, MOST) if stepwise else plan.drafted[one.row])
            for one in asked
            if one.row in plan.drafted
        ]
        lengths.begin(plan, offer.rows, self._batch(going))
        before = self._clock()
        drafts = proposer.propose(mine)
        if not stepwise:
            self._timed(lengths, mine, drafts, self._clock() - before)
        for one in mine:
            self._row(one.row).read[proposer.name] = len(one.said)
        self._drafts = {one.row: draft for one, draft in zip(mine, drafts, strict=True) if draft.tokens}
        return {row: draft.tokens[: lengths.offered(row, len(draft.tokens))] for row, draft in self._drafts.items()}

    def _timed(self, lengths: Lengths, asked: Sequence[Asked], drafts: Sequence[Draft], seconds: float) -> None:
        """What a proposer took that does not tell its steps."""
        steps, texts = max((len(draft.tokens) for draft in drafts), default=0), len(asked)
        unread = (len(one.said) - self._row(one.row).read.get(lengths.kind, -len(one.prompt)) for one in asked)
        if read := sum(tokens for tokens in unread if tokens > MOST + FEW):
            others = (steps - 1) * lengths.draft.now.seconds(texts, texts)
            lengths.stepped(texts, texts, read, texts, max(0.0, seconds - others))
        elif steps:
            lengths.stepped(texts, texts, 0, texts, seconds / steps)


def _cut(asked: Sequence[Asked], most: int) -> list[Asked]:
    return [one if one.most <= most else replace(one, most=most) for one in asked]


def _accepted(chances: Sequence[float]) -> float:
    """Tokens that are expected to be."""
    reached, tokens = 1.0, 0.0
    for chance in chances:
        reached *= chance
        tokens += reached
    return tokens
