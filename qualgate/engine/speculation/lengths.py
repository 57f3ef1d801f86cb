"""Choose how many tokens a model drafts (γ), and for which rows, from the cost of drafts and their acceptance.

Before its first draft a row's text is read once more, which pays if its answer is still long. If a draft reports
margins, each token decides whether the row goes on. If nothing pays, a few rows are tried now and then, rarely if
drafts would not pay even when all are accepted: so useless drafting costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from qualgate.engine.speculation.acceptance import Acceptance, Fate, prior
from qualgate.engine.speculation.control import Costs, PassCost
from qualgate.engine.speculation.looks import Looks
from qualgate.engine.speculation.plan import Balance, Plan, Prices, best_plan, faster, prices, saved, shares_of
from qualgate.engine.speculation.remaining import Remaining
from qualgate.engine.speculation.text import MOST_MATCHED

PROBE_TOKENS = 2  # tokens
PROBE_ROWS = 2  # rows of a probe
PROBE_SHARE = 0.005  # of all seconds that probes may take
SELDOM = 0.2  # of these, where drafts would not pay even if all were right
BEGINNING = 3  # tokens of the first drafts; each token whose fate was seen lets the next be one longer
BELIEVED = 12  # tokens whose fate was seen before it is believed that drafts do not pay
SURE = 24  # tokens whose fate was seen before more rows than PROBE_ROWS are drafted for
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
    """A row that may be drafted for. most: tokens of its draft; unread: tokens to read before it; remaining: expected
    tokens of its answer; fate: what became of its drafts so far."""

    row: int
    most: int
    unread: int
    remaining: float
    task: str = ""
    fate: Fate | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A pass. sequences: that share it; waits: whether others wait for their places."""

    sequences: int
    waits: bool = True


@dataclass(slots=True)
class _Going:
    """A row's draft in progress. chances: predicted acceptance of its tokens; reached: the chance that each token so
    far is accepted, with all before it."""

    task: str
    fate: Fate | None
    chances: Sequence[float]
    reached: list[float] = field(default_factory=list)

    @property
    def next(self) -> float:
        """Return the chance that one more token is accepted, with all before it."""
        place = len(self.reached)
        last = self.reached[-1] if self.reached else 1.0
        return last * self.chances[min(place, len(self.chances) - 1)]


class Lengths:
    """γ for the drafts of one proposer. acceptance, target: what is learned of its drafts and of its target's
    passes."""

    def __init__(self, kind: str, acceptance: Acceptance, target: Costs) -> None:
        """Start without knowledge. kind: the drafts'; target: the costs of the target's passes."""
        self.kind, self.because = kind, ""
        self.draft = Costs(UNSEEN)
        self._acceptance, self._target = acceptance, target
        self._reading = 0.0  # seconds, of a token of a text; 0: none was read
        self._a_step = 1.0  # tokens that a step gives a row
        self._spent = self._probed = 0.0  # seconds
        self._probing = False
        self.hopeless = False  # it would not pay if all were accepted
        self._least: dict[int, int] = {}  # tokens that are drafted to learn of them
        self._proposed, self._accepted = 0.0, 0.0  # of the last drafts
        self._going: dict[int, _Going] = {}
        self._now: Balance | None = None  # of the pass that is drafted for, as far as it is

    def seed(self, steps: Mapping[int, float], reading: float) -> None:
        """Start from timings: seconds of steps by rows, and of reading a token of a text."""
        for rows, seconds in steps.items():
            self.draft.observe(rows, rows, seconds)
        self._reading = reading

    def plan(self, rows: Sequence[Prospect], batch: Batch) -> tuple[Plan, float]:
        """Return how far to draft for which rows, none if it does not pay; and the expected speed-up of the batch."""
        tested = self._acceptance.tested(self.kind)
        chances = {prospect.row: self._ahead(prospect, min(prospect.most, BEGINNING + tested)) for prospect in rows}
        shares = self._shares(rows, chances, batch)
        best = self._admitted(rows, chances, shares)
        gain = faster(best, self._prices, batch.sequences, shares) if best.drafted else 1.0
        self._least, self._probing = {}, False
        if tested < SURE and best.drafted:
            few = sorted(
                (prospect for prospect in rows if prospect.row in best.drafted), key=lambda prospect: prospect.unread
            )[:PROBE_ROWS]
            self._least = best.drafted = {prospect.row: best.drafted[prospect.row] for prospect in few}
        return best, gain

    def probe(self, rows: Sequence[Prospect], batch: Batch) -> Plan:
        """Return a plan of few tokens for few rows to test whether drafts pay, if there were few probes so far. Call it
        if `plan` has no rows; `because` then gives the reason."""
        price, plan, seldom = self._prices, Plan({}, {}, {}), 1.0
        if not self._target.now.seconds(1, 1) > 0:
            return plan
        right = {prospect.row: [RIGHT] * prospect.most for prospect in rows}
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
        few = sorted(rows, key=lambda prospect: prospect.unread)[:PROBE_ROWS]
        verified = PROBE_TOKENS * price.verified * len(few)
        extra = PROBE_TOKENS * (price.step + price.drafted * len(few)) + self._reading * sum(map(_text, few))
        if self._probed + extra + verified <= seldom * PROBE_SHARE * self._spent:
            self._least = plan.drafted = {prospect.row: min(PROBE_TOKENS, prospect.most) for prospect in few}
            self._probing, self._probed = True, self._probed + verified
        return plan

    def begin(self, plan: Plan, rows: Sequence[Prospect], batch: Batch) -> None:
        """Start the drafts of this plan."""
        drafted_for = [prospect for prospect in rows if prospect.row in plan.drafted]
        self._going = {
            prospect.row: _Going(prospect.task, prospect.fate, self._ahead(prospect, prospect.most))
            for prospect in drafted_for
        }
        shares = self._shares(rows, {prospect.row: self._ahead(prospect, 1) for prospect in rows}, batch)
        self._now = Balance(self._prices, shares, self._prices.once)

    def goes_on(self, margins_by_row: Mapping[int, Sequence[float]], able: Collection[int]) -> set[int]:
        """Return the rows that draft on, of those that can. margins_by_row: of each row's tokens in the last step."""
        balance, progress_by_row = self._now, self._going
        assert balance is not None, "a draft goes on that did not begin"
        for row, margins in margins_by_row.items():
            progress = progress_by_row[row]
            for margin in margins:
                before = progress.reached[-1] if progress.reached else 1.0
                progress.reached.append(before * self._acceptance.sure(self.kind, margin, progress.task, progress.fate))
                balance.add(row, progress.reached[-1])
        balance.once += balance.price.step * self._a_step * bool(margins_by_row)
        if self._least:
            return {row for row in able if len(progress_by_row[row].reached) < self._least[row]}
        return set(balance.chosen({row: progress_by_row[row].next for row in able}))

    def offered(self, row: int, tokens: int) -> int:
        """Return how many of a row's drafted tokens are worth verifying."""
        progress, balance = self._going.get(row), self._now
        if progress is None or balance is None or self._least:
            return tokens
        while (
            0 < tokens <= len(progress.reached)
            and balance.saves(row, progress.reached[tokens - 1]) < balance.price.verified
        ):
            tokens -= 1
        return tokens

    def stepped(self, texts: int, rows: int, read: int, tokens: int, seconds: float) -> None:
        """Learn the time of a draft step. read: tokens of texts read in it; tokens: that it drafted."""
        self._spent += seconds
        if self._probing:
            self._probed += seconds
        if read:
            reading = max(0.0, seconds - self.draft.now.seconds(texts, texts)) / read
            self._reading = MEMORY * self._reading + (1 - MEMORY) * reading if self._reading else reading
            return
        self.draft.observe(texts, rows, seconds)
        self._a_step = MEMORY * self._a_step + (1 - MEMORY) * max(1.0, tokens / texts)

    def passed(self, seconds: float) -> None:
        """Learn the time of a pass of the target."""
        self._spent += seconds

    def fared(self, proposed: int, accepted: int) -> None:
        """Count verified and accepted tokens of a draft."""
        memory = MEMORY if self._proposed else 0.0
        self._proposed = memory * self._proposed + (1 - memory) * proposed
        self._accepted = memory * self._accepted + (1 - memory) * accepted

    @property
    def _prices(self) -> Prices:
        return prices(self._target.now, self.draft.now, self._a_step)

    def _ahead(self, prospect: Prospect, tokens: int) -> list[float]:
        """Return the chances of the next tokens; the prior until enough were observed."""
        if self._acceptance.tested(self.kind) < BELIEVED:
            return prior(MOST_MATCHED, tokens)
        return self._acceptance.ahead(self.kind, MOST_MATCHED, tokens, prospect.task, prospect.fate)

    def _shares(
        self, rows: Sequence[Prospect], chances: Mapping[int, Sequence[float]], batch: Batch
    ) -> dict[int, float]:
        """Return each row's share of the batch's remaining passes, given its tokens' chances of acceptance."""
        passes = {}
        for prospect in rows:
            chance = min(chances[prospect.row][0], RIGHT) if chances[prospect.row] else 0.0
            passes[prospect.row] = prospect.remaining * (1 - chance) / (1 - chance**AHEAD)
        return shares_of(passes, batch.sequences, waits=batch.waits)

    def _admitted(
        self, rows: Sequence[Prospect], chances: Mapping[int, Sequence[float]], shares: Mapping[int, float]
    ) -> Plan:
        """Return the best plan over rows that save more than reading their texts costs."""
        price, remaining_chances = self._prices, dict(chances)
        reading = self._reading * (1.0 if self._acceptance.tested(self.kind) >= SURE else DOUBT)
        while True:
            plan = best_plan(remaining_chances, price, shares)
            too_costly = {
                prospect.row
                for prospect in rows
                if prospect.row in plan.drafted
                and _text(prospect) * reading > prospect.remaining * saved(plan, prospect.row, price, shares)
            }
            if not too_costly:
                return plan
            remaining_chances = {
                row: row_chances for row, row_chances in remaining_chances.items() if row not in too_costly
            }


def _text(prospect: Prospect) -> int:
    """Return the tokens to read that do not fit into a step."""
    return prospect.unread if prospect.unread > FEW else 0


@dataclass(slots=True)
class Rest:
    """Rests from drafting. left: passes until the next look, at this number of sequences; next: passes of the next
    rest; gone: rested passes whose seconds are not counted yet."""

    left: int = 0
    going: int = 0
    next: int = RESTS
    gone: int = 0


class Learned:
    """What a verifier has learned about its passes and drafts, in one run or several."""

    def __init__(self) -> None:
        self.costs, self.acceptance, self.remaining, self.rest = Costs(), Acceptance(), Remaining(), Rest()
        self.looks = Looks()
        self._lengths: dict[str, Lengths] = {}

    def seed(self, passes: Mapping[tuple[int, int], float]) -> None:
        """Start from timings: seconds of the verifier's passes by (sequences, rows)."""
        for (sequences, rows), seconds in passes.items():
            self.costs.observe(sequences, rows, seconds)

    def lengths(self, kind: str) -> Lengths:
        """Return the lengths for the drafts of one model proposer."""
        if kind not in self._lengths:
            self._lengths[kind] = Lengths(kind, self.acceptance, self.costs)
        return self._lengths[kind]
