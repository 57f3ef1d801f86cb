"""Decide which drafts to verify: who makes them, how many tokens of each, and what can be learned from passes and
drafts. This holds at every level: a target verifies drafts as a draft model does that has a draft of its own.

In a cascade with adaptive lengths each level may also draft for the verifier itself: each pass uses the proposer with
the highest expected gain, so levels that do not pay are skipped. If none pays, drafting rests for some passes; longer
each time if none would pay even with every token accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from qualgate.engine.speculation.acceptance import Fate
from qualgate.engine.speculation.control import window
from qualgate.engine.speculation.lengths import FEW, LOOKS, MOST_RESTS, RESTS, Batch, Learned, Lengths, Prospect
from qualgate.engine.speculation.ngram import Ngram
from qualgate.engine.speculation.plan import Plan
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest, Proposer, Stepwise
from qualgate.engine.speculation.steps import Drafts, Step, step

MOST = 32  # tokens of a draft
BACK = 4  # tokens of a known answer that must match before a request counts as rejoined


@dataclass(slots=True, eq=False)
class _Row:
    """What is known of a row. read: for each proposer, the number of generated tokens when it last drafted."""

    task: str
    fate: Fate = field(default_factory=Fate)
    read: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Offer:
    """Drafts that one proposer would make. gain: expected speed relative to plain passes. drafts: already made, if
    free; windows: tokens of each worth verifying."""

    proposer: Proposer
    gain: float
    plan: Plan | None = None
    rows: Sequence[Prospect] = ()
    drafts: dict[int, Draft] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)


class Drafting:
    """The drafts of one run, at one level."""

    def __init__(self, drafts: Drafts, clock: Callable[[], float] = perf_counter) -> None:
        """Draft for one run. clock: seconds, for the costs of passes and drafts."""
        self._proposer, self._tokens, self._steps = drafts.proposer, drafts.tokens, drafts.steps
        self._instead, self._tasks = drafts.instead, drafts.tasks
        self._learned, self._clock = drafts.learned or Learned(), clock
        self._drafts: dict[int, Draft] = {}
        self._rows: dict[int, _Row] = {}
        self._back = set[int]()
        self._rest = self._learned.rest
        self._over = 0  # rows that ended
        self._lengths: dict[int, int] = {}  # generated tokens of each row, if γ is adaptive
        self._counted: dict[int, int] = {}  # of these, tokens that `remaining` has counted
        self._rests = drafts.rests
        self.resting = False  # nothing is drafted in this pass, nor learned from it
        self.untold: dict[int, int] = {}  # row → first position without a recorded step
        self._pass, self._sequences = -1, 0  # number of the current pass, and its sequences
        self._resting_with = 0  # sequences in the passes without recorded steps

    def rests(self, sequences: int) -> bool:
        """Return whether drafting rests in the next pass, which `sequences` texts share."""
        counts, rest = self._rests, self._rest
        counts.passes += 1
        self.resting = rest.left > 0 and sequences == rest.going
        if self.resting:
            self._resting_with = sequences
            counts.because = counts.because or self.because
            counts.rested += 1
            rest.left -= 1
            rest.gone += 1
            return True
        if not sequences:  # prompts are read, which tells nothing of what is shared next
            return False
        if sequences != rest.going:
            rest.next = RESTS
        rest.left = 0
        return False

    def draft(self, requests: Sequence[DraftRequest], sequences: int) -> dict[int, Sequence[int]]:
        """Return the draft tokens to verify, by row, in a pass that `sequences` texts share."""
        self._drafts = {}
        if not requests:
            return {}
        if self._tokens:
            if isinstance(self._proposer, Stepwise):
                self._proposer.course = None
            drafts = self._proposer.propose(_cut(requests, self._tokens))
            self._drafts = {request.row: draft for request, draft in zip(requests, drafts, strict=True) if draft.tokens}
            return {row: draft.tokens for row, draft in self._drafts.items()}
        if self._looks_alone:
            return self._looked_up(requests, sequences)
        if not self._instead and not self._proposer.runs_model:
            return self._verified(self._found(self._proposer, requests, sequences))
        began = self._clock()
        self._lengths.update((request.row, len(request.generated)) for request in requests)
        self._count()
        proposers = (self._proposer, *self._instead)
        offers = [
            (self._made if proposer.runs_model else self._found)(proposer, requests, sequences)
            for proposer in proposers
        ]
        best = max(offers, key=lambda offer: offer.gain)
        if best.gain <= 1.0:
            best = self._probe(offers, sequences)
            if best is None or best.plan is None:
                self._rests.rested += 1
                self._rests.because = self._learned.lengths(self._proposer.name).because
        if best is None:
            self._looked(sequences, self._clock() - began)
            return {}
        self._rest.next = RESTS
        if best.plan is not None:
            return self._draft_by(best, best.plan, requests, sequences)
        return self._verified(best)

    def begins(self, sequences: int) -> None:
        """Note the start of a pass that so many texts share."""
        self._pass += 1
        self._sequences = sequences

    def offered(self, row: int, tokens: int) -> Draft:
        """Return the first tokens of a row's draft, with the distributions that they were drawn from."""
        return self._drafts.get(row, NO_DRAFT).cut(tokens)

    def record(
        self,
        row: int,
        position: int,
        offered: int,
        tokens: Sequence[int],
        agreed: int,
        overlaps: Sequence[float] = (),
    ) -> bool:
        """Record a row's new tokens from `position` of its answer on, when `offered` tokens of its draft were verified
        and the first `agreed` accepted. Return whether the row joined a known answer again, for the first time.
        overlaps: see `steps.step`."""
        draft = self._drafts.pop(row, NO_DRAFT) if self._drafts else NO_DRAFT
        self._plain_until(row, position)
        if not self._tokens:
            self._lengths[row] = position + len(tokens)
        if not draft.tokens:
            if self._steps is not None:
                self._steps.append(Step(row, position, 0, 0, 0, 0, "", self._pass, self._sequences))
            return False
        if self._steps is not None:
            outcome = step(row, position, draft, offered, agreed, len(tokens), overlaps)
            self._steps.append(outcome._replace(pass_number=self._pass, sequences=self._sequences))
        row_state = self._row(row)
        if draft.kind in row_state.read:  # what it drafted, it has read
            row_state.read[draft.kind] = position + agreed
        self._learned.acceptance.observe(draft, tokens, row_state.task, row_state.fate)
        if offered:
            self._learned.lengths(draft.kind).fared(offered, agreed)
            cost = self._learned.costs.now
            self._learned.looks.saved += agreed * cost.token(self._sequences) - offered * cost.row
        rejoins = draft.kind in ("baseline", "sibling") and tuple(tokens[:BACK]) == draft.tokens[:BACK]
        if not rejoins or len(tokens) < BACK or row in self._back:
            return False
        self._back.add(row)
        return True

    def _plain_until(self, row: int, position: int) -> None:
        """Record the plain steps of passes that rested, all at once: one by one they would cost too much per pass."""
        start = self.untold.pop(row, position)
        if self._steps is not None and start < position:
            shared = self._resting_with
            self._steps += [
                Step(row, plain_position, 0, 0, 0, 0, "", None, shared) for plain_position in range(start, position)
            ]

    def ended(self, row: int, length: int = 0) -> None:
        """Forget a row that has ended. length: its generated tokens, for passes in `untold`."""
        self._over += 1
        if row in self.untold:
            self._plain_until(row, length)
            self._lengths[row] = length
        self._rows.pop(row, None)
        if tokens := self._lengths.get(row):
            self._count()
            self._learned.remaining.ended(self._task(row), tokens)
        self._lengths.pop(row, None)
        self._counted.pop(row, None)
        for proposer in (self._proposer, *self._instead):
            proposer.ended(row)

    def passed(self, sequences: int, rows: int, seconds: float) -> None:
        """Learn from a pass that read no prompt: prompts tell nothing about decoding costs. While drafting rests, one
        pass of many is enough."""
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
        """Why a model drafts nothing at present; "" if it drafts, or nothing was decided."""
        return self._learned.lengths(self._proposer.name).because if self._rest.left else ""

    @property
    def _looks_alone(self) -> bool:
        """Whether drafts are only looked up, with adaptive γ: the texts may hold nothing useful."""
        return isinstance(self._proposer, Ngram) and not (self._tokens or self._instead)

    def _looked_up(self, requests: Sequence[DraftRequest], sequences: int) -> dict[int, Sequence[int]]:
        """Return the drafts that were looked up, as far as they pay, and set how many passes rest next."""
        began, looks, rest = self._clock(), self._learned.looks, self._rest
        drafts = self._verified(self._found(self._proposer, requests, sequences))
        looks.look(self._clock() - began)
        rest.left, rest.going = looks.rests(self._learned.costs.now.seconds(sequences, sequences)), sequences
        if rest.left:
            self._learned.lengths(self._proposer.name).because = "to look for drafts takes longer than they save"
        return drafts

    def _batch(self, sequences: int) -> Batch:
        return Batch(sequences, waits=len(self._tasks) > self._over + sequences)

    def _verified(self, offer: _Offer) -> dict[int, Sequence[int]]:
        self._drafts = offer.drafts
        return {row: draft.tokens[: offer.windows[row]] for row, draft in offer.drafts.items()}

    def _row(self, row: int) -> _Row:
        entry = self._rows.get(row)
        if entry is None:
            entry = self._rows[row] = _Row(self._task(row))
        return entry

    def _task(self, row: int) -> str:
        return self._tasks[row] if self._tasks else ""

    def _count(self) -> None:
        """Count the tokens since the last call. Counting after every pass would cost more than it is worth."""
        for row, length in self._lengths.items():
            before = self._counted.get(row, 0)
            if length > before:
                self._learned.remaining.observe(self._task(row), before, length - before)
                self._counted[row] = length

    def _made(self, proposer: Proposer, requests: Sequence[DraftRequest], sequences: int) -> _Offer:
        """Return what a draft model would draft."""
        lengths, remaining = self._learned.lengths(proposer.name), self._learned.remaining
        reads, rows = not isinstance(proposer, Stepwise) or proposer.reads, []
        for request in requests:
            row = self._row(request.row)
            before = row.read.get(proposer.name, -len(request.prompt))
            rows.append(
                Prospect(
                    row=request.row,
                    most=min(request.most, MOST),
                    unread=len(request.generated) - before if reads else 1,
                    remaining=remaining.tokens(row.task, len(request.generated), request.most),
                    task=row.task,
                    fate=row.fate,
                )
            )
        plan, gain = lengths.plan(rows, self._batch(sequences))
        return _Offer(proposer, gain if plan.drafted else 0.0, plan, rows)

    def _found(self, proposer: Proposer, requests: Sequence[DraftRequest], sequences: int) -> _Offer:
        """Return what a lookup found, as far as it pays."""
        acceptance, cost = self._learned.acceptance, self._learned.costs.now
        pairs = zip(requests, proposer.propose(_cut(requests, MOST)), strict=True)
        offer = _Offer(proposer, 0.0, None, (), {request.row: draft for request, draft in pairs if draft.tokens})
        tokens, drafted = float(sequences), 0
        for row, draft in offer.drafts.items():
            row_state = self._row(row)
            chances = acceptance.chances(draft, row_state.task, row_state.fate)
            count = offer.windows[row] = window(chances, cost, sequences)
            tokens, drafted = tokens + _accepted(chances[:count]), drafted + count
        if drafted:
            offer.gain = tokens * cost.token(sequences) / cost.seconds(sequences, sequences + drafted)
        return offer

    def _probe(self, offers: Sequence[_Offer], sequences: int) -> _Offer | None:
        """Return an offer to try although it is not expected to pay; None, and a rest, if there is none."""
        looked = [offer for offer in offers if offer.plan is None]
        for candidate in offers:
            if candidate.plan is None:
                continue
            candidate.plan = self._learned.lengths(candidate.proposer.name).probe(
                candidate.rows, self._batch(sequences)
            )
            if candidate.plan.drafted:
                return candidate
        if looked:  # what was found is judged by what is said in its place
            return replace(looked[0], windows=dict.fromkeys(looked[0].drafts, 0))
        rest = self._rest
        rest.left, rest.going = rest.next, sequences
        if all(self._learned.lengths(offer.proposer.name).hopeless for offer in offers):
            rest.next = min(2 * rest.next, MOST_RESTS)
        return None

    def _looked(self, sequences: int, seconds: float) -> None:
        """Rest until this look, which took `seconds`, is a small share of all time."""
        a_pass = LOOKS * self._learned.costs.now.seconds(sequences, sequences)
        self._rest.left = max(self._rest.left, min(MOST_RESTS, int(seconds / a_pass))) if a_pass else self._rest.left

    def _draft_by(
        self, offer: _Offer, plan: Plan, requests: Sequence[DraftRequest], sequences: int
    ) -> dict[int, Sequence[int]]:
        """Draft by a proposer as planned, and return the drafts to verify, by row.

        A proposer that reports its steps may draft up to MOST tokens and is stopped step by step. Of others the whole
        draft is timed.
        """
        proposer, lengths = offer.proposer, self._learned.lengths(offer.proposer.name)
        stepwise = isinstance(proposer, Stepwise) and proposer.tells
        if isinstance(proposer, Stepwise):
            proposer.course = lengths if stepwise else None
        own_requests = [
            replace(request, most=min(request.most, MOST) if stepwise else plan.drafted[request.row])
            for request in requests
            if request.row in plan.drafted
        ]
        lengths.begin(plan, offer.rows, self._batch(sequences))
        before = self._clock()
        drafts = proposer.propose(own_requests)
        if not stepwise:
            self._timed(lengths, own_requests, drafts, self._clock() - before)
        for request in own_requests:
            self._row(request.row).read[proposer.name] = len(request.generated)
        self._drafts = {request.row: draft for request, draft in zip(own_requests, drafts, strict=True) if draft.tokens}
        return {row: draft.tokens[: lengths.offered(row, len(draft.tokens))] for row, draft in self._drafts.items()}

    def _timed(
        self, lengths: Lengths, requests: Sequence[DraftRequest], drafts: Sequence[Draft], seconds: float
    ) -> None:
        """Learn the time of a proposer that does not report its steps."""
        steps, texts = max((len(draft.tokens) for draft in drafts), default=0), len(requests)
        unread = (
            len(request.generated) - self._row(request.row).read.get(lengths.kind, -len(request.prompt))
            for request in requests
        )
        if unread_tokens := sum(tokens for tokens in unread if tokens > MOST + FEW):
            later_steps = (steps - 1) * lengths.draft.now.seconds(texts, texts)
            lengths.stepped(texts, texts, unread_tokens, texts, max(0.0, seconds - later_steps))
        elif steps:
            lengths.stepped(texts, texts, 0, texts, seconds / steps)


def _cut(requests: Sequence[DraftRequest], most: int) -> list[DraftRequest]:
    """Return the requests with their limits lowered to `most`."""
    return [request if request.most <= most else replace(request, most=most) for request in requests]


def _accepted(chances: Sequence[float]) -> float:
    """Return the expected number of accepted tokens."""
    reached, tokens = 1.0, 0.0
    for chance in chances:
        reached *= chance
        tokens += reached
    return tokens
