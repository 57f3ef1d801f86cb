"""How many tokens a model is to draft (γ), and for which rows: from what drafts cost and how they fared.

Before its first draft a row's text is read once more, which pays where its answer is still long. Where a draft tells
how surely it drew a token, it is decided after each whether the row goes on. Where nothing pays, few rows are tried now
and then, and seldom if drafts would not pay even if all were right: so what does not pay costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from qualgate.speculation.acceptance import Acceptance, Fate, prior
from qualgate.speculation.control import Costs, PassCost
from qualgate.speculation.looks import Looks
from qualgate.speculation.plan import Balance, Plan, Prices, best_plan, faster, prices, saved, shares_of
from qualgate.speculation.remaining import Remaining
from qualgate.speculation.text import MOST_MATCHED

TRIAL = 2  # tokens
TRIED = 2  # rows of a trial
TRIALS = 0.005  # of all seconds that trials may take
SELDOM = 0.2  # of these, where drafts would not pay even if all were right
BEGINNING = 3  # tokens of the first drafts; each token whose fate was seen lets the next be one longer
BELIEVED = 12  # tokens whose fate was seen before it is believed that drafts do not pay
SURE = 24  # tokens whose fate was seen before more rows than TRIED are drafted for
AHEAD = 8  # tokens of a pass, by which it is guessed how many an answer takes still
DOUBT = 3.0  # times the reading of a text must be saved before that
RIGHT = 0.98  # the chance of a token, as well as one may hope
MEMORY = 0.9  # what is known of reading, and of the last drafts, counts so much at the next
UNSEEN = PassCost(fixed=3e-4, sequence=3e-5, row=3e-5)  # of the draft, beside `control.UNSEEN` of its target
RESTS, MOST_RESTS = 15, 480  # passes without a look, once nobody paid
LOOKS = 0.01  # of all seconds that looks may take which find nobody
FEW = 8  # tokens of a row that are read beside a step of the draft; more are a text that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """A row that may be drafted for. most: tokens of its draft; unread: tokens to be read before it; remaining: that
    its answer is expected to have still; fate: what became of its drafts so far."""

    row: int
    most: int
    unread: int
    remaining: float
    task: str = ""
    fate: Fate | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """sequences: that share a pass; waits: whether others wait for their places."""

    sequences: int
    waits: bool = True


@dataclass(slots=True)
class _Going:
    """A row's draft as it is made. chances: that its tokens are accepted, as far as they were foreseen; reached: that
    each token so far is, with all before it."""

    task: str
    fate: Fate | None
    chances: Sequence[float]
    reached: list[float] = field(default_factory=list)

    @property
    def next(self) -> float:
        """The chance that one more token is accepted."""
        place = len(self.reached)
        last = self.reached[-1] if self.reached else 1.0
        return last * self.chances[min(place, len(self.chances) - 1)]


class Lengths:
    """γ of the drafts of one proposer. acceptance, target: what is learned of its drafts and of its target's passes."""

    def __init__(self, kind: str, acceptance: Acceptance, target: Costs) -> None:
        self.kind, self.because = kind, ""
        self.draft = Costs(UNSEEN)
        self._acceptance, self._target = acceptance, target
        self._reading = 0.0  # seconds, of a token of a text; 0: none was read
        self._a_step = 1.0  # tokens that a step gives a row
        self._spent = self._tried = 0.0  # seconds
        self._trial = False
        self.hopeless = False  # it would not pay if all were accepted
        self._least: dict[int, int] = {}  # tokens that are drafted to learn of them
        self._proposed, self._accepted = 0.0, 0.0  # of the last drafts
        self._going: dict[int, _Going] = {}
        self._now: Balance | None = None  # of the pass that is drafted for, as far as it is

    def seed(self, steps: Mapping[int, float], reading: float) -> None:
        """What was timed before: seconds of steps over so many rows, and of a token of a text."""
        for rows, seconds in steps.items():
            self.draft.observe(rows, rows, seconds)
        self._reading = reading

    def plan(self, rows: Sequence[Prospect], batch: Batch) -> tuple[Plan, float]:
        """Who is drafted for, and how far, nobody where it does not pay; how many times as soon the batch is expected
        to be over by it."""
        tested = self._acceptance.tested(self.kind)
        chances = {one.row: self._ahead(one, min(one.most, BEGINNING + tested)) for one in rows}
        shares = self._shares(rows, chances, batch)
        found = self._admitted(rows, chances, shares)
        gain = faster(found, self._prices, batch.sequences, shares) if found.drafted else 1.0
        self._least, self._trial = {}, False
        if tested < SURE and found.drafted:
            few = sorted((one for one in rows if one.row in found.drafted), key=lambda one: one.unread)[:TRIED]
            self._least = found.drafted = {one.row: found.drafted[one.row] for one in few}
        return found, gain

    def trial(self, rows: Sequence[Prospect], batch: Batch) -> Plan:
        """Few tokens of few rows to see whether drafts pay by now, where there were trials few enough. To be asked
        where `plan` has nobody; says why in `because`."""
        price, plan, seldom = self._prices, Plan({}, {}, {}), 1.0
        if not self._target.now.seconds(1, 1) > 0:
            return plan
        right = {one.row: [RIGHT] * one.most for one in rows}
        shares = self._shares(rows, right, batch)
        self.hopeless = not best_plan(right, price, shares).drafted
        if self.hopeless:
            plain = price.once + price.row * batch.sequences
            step, row = (price.step + price.drafted * len(rows)) / plain, price.verified / plain
            self.because = f"it would not pay if all were accepted: a step takes {step:.2f} passes, a row {row:.2f}"
            seldom = SELDOM  # of costs, too, something is learned
        elif not self._admitted(rows, right, shares).drafted:
            self.because = "texts to be read take longer than drafts would save"
        elif self._proposed:
            self.because = f"{self._proposed:.2g} proposed, {self._accepted:.2g} accepted"
        else:
            self.because = "it is not expected to pay"
        few = sorted(rows, key=lambda one: one.unread)[:TRIED]
        verified = TRIAL * price.verified * len(few)
        extra = TRIAL * (price.step + price.drafted * len(few)) + self._reading * sum(map(_text, few))
        if self._tried + extra + verified <= seldom * TRIALS * self._spent:
            self._least = plan.drafted = {one.row: min(TRIAL, one.most) for one in few}
            self._trial, self._tried = True, self._tried + verified
        return plan

    def begin(self, plan: Plan, rows: Sequence[Prospect], batch: Batch) -> None:
        """Drafts of this plan are made now."""
        mine = [one for one in rows if one.row in plan.drafted]
        self._going = {one.row: _Going(one.task, one.fate, self._ahead(one, one.most)) for one in mine}
        shares = self._shares(rows, {one.row: self._ahead(one, 1) for one in rows}, batch)
        self._now = Balance(self._prices, shares, self._prices.once)

    def goes_on(self, said: Mapping[int, Sequence[float]], able: Collection[int]) -> set[int]:
        """The rows that draft on, of those that are able to. said: of each row in the last step the margins of what it
        drafted."""
        now, going = self._now, self._going
        assert now is not None, "a draft goes on that did not begin"
        for row, margins in said.items():
            one = going[row]
            for margin in margins:
                before = one.reached[-1] if one.reached else 1.0
                one.reached.append(before * self._acceptance.sure(self.kind, margin, one.task, one.fate))
                now.add(row, one.reached[-1])
        now.once += now.price.step * self._a_step * bool(said)
        if self._least:
            return {row for row in able if len(going[row].reached) < self._least[row]}
        return set(now.chosen({row: going[row].next for row in able}))

    def offered(self, row: int, tokens: int) -> int:
        """How many of a row's drafted tokens are worth being verified."""
        one, now = self._going.get(row), self._now
        if one is None or now is None or self._least:
            return tokens
        while 0 < tokens <= len(one.reached) and now.saves(row, one.reached[tokens - 1]) < now.price.verified:
            tokens -= 1
        return tokens

    def stepped(self, texts: int, rows: int, read: int, tokens: int, seconds: float) -> None:
        """A step of the draft over so many rows of so many texts took so long. read: tokens of texts that were read
        beside; tokens: that it gave."""
        self._spent += seconds
        if self._trial:
            self._tried += seconds
        if read:
            reading = max(0.0, seconds - self.draft.now.seconds(texts, texts)) / read
            self._reading = MEMORY * self._reading + (1 - MEMORY) * reading if self._reading else reading
            return
        self.draft.observe(texts, rows, seconds)
        self._a_step = MEMORY * self._a_step + (1 - MEMORY) * max(1.0, tokens / texts)

    def passed(self, seconds: float) -> None:
        """A pass of the target took so long."""
        self._spent += seconds

    def fared(self, proposed: int, accepted: int) -> None:
        """So many tokens of a draft were verified, and so many were accepted."""
        memory = MEMORY if self._proposed else 0.0
        self._proposed = memory * self._proposed + (1 - memory) * proposed
        self._accepted = memory * self._accepted + (1 - memory) * accepted

    @property
    def _prices(self) -> Prices:
        return prices(self._target.now, self.draft.now, self._a_step)

    def _ahead(self, one: Prospect, tokens: int) -> list[float]:
        """Chances of the next tokens; until some were seen, as before any was."""
        if self._acceptance.tested(self.kind) < BELIEVED:
            return prior(MOST_MATCHED, tokens)
        return self._acceptance.ahead(self.kind, MOST_MATCHED, tokens, one.task, one.fate)

    def _shares(
        self, rows: Sequence[Prospect], chances: Mapping[int, Sequence[float]], batch: Batch
    ) -> dict[int, float]:
        passes = {}
        for one in rows:
            chance = min(chances[one.row][0], RIGHT) if chances[one.row] else 0.0
            passes[one.row] = one.remaining * (1 - chance) / (1 - chance**AHEAD)
        return shares_of(passes, batch.sequences, waits=batch.waits)

    def _admitted(
        self, rows: Sequence[Prospect], chances: Mapping[int, Sequence[float]], shares: Mapping[int, float]
    ) -> Plan:
        """The best plan of those rows that save more than the reading of their texts takes."""
        price, left = self._prices, dict(chances)
        reading = self._reading * (1.0 if self._acceptance.tested(self.kind) >= SURE else DOUBT)
        while True:
            plan = best_plan(left, price, shares)
            out = {
                one.row
                for one in rows
                if one.row in plan.drafted
                and _text(one) * reading > one.remaining * saved(plan, one.row, price, shares)
            }
            if not out:
                return plan
            left = {row: own for row, own in left.items() if row not in out}


def _text(one: Prospect) -> int:
    """Tokens to be read that do not ride in a step."""
    return one.unread if one.unread > FEW else 0


@dataclass(slots=True)
class Rest:
    """left: passes without a look at who might draft, while so many texts share them; next: passes of the next rest;
    gone: passes of rests whose seconds nobody has counted."""

    left: int = 0
    going: int = 0
    next: int = RESTS
    gone: int = 0


class Learned:
    """What a verifier knows of its passes and of the drafts that it is offered: of one run, or of one after another."""

    def __init__(self) -> None:
        self.costs, self.acceptance, self.remaining, self.rest = Costs(), Acceptance(), Remaining(), Rest()
        self.looks = Looks()
        self._lengths: dict[str, Lengths] = {}

    def seed(self, passes: Mapping[tuple[int, int], float]) -> None:
        """What was timed before: seconds of the verifier's passes by (sequences, rows)."""
        for (sequences, rows), seconds in passes.items():
            self.costs.observe(sequences, rows, seconds)

    def lengths(self, kind: str) -> Lengths:
        """Of the drafts of one proposer that runs a model."""
        if kind not in self._lengths:
            self._lengths[kind] = Lengths(kind, self.acceptance, self.costs)
        return self._lengths[kind]
