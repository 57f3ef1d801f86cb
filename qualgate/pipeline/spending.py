"""Spending on servers: the most possible, the expected, and the actual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from qualgate.config import GateFile
from qualgate.pipeline.judging import judged_most
from qualgate.records import JUDGING, Budget, Job, Plan, Price, Spent
from qualgate.served.charging import batch_most
from qualgate.served.ledger import Ledger
from qualgate.store import queries, runs
from qualgate.store.database import Store, open_store

LEDGER = "spent.jsonl"  # in the folder of a plan's artifacts

Spender = Callable[[str], Spent | None]  # arm → its spending so far; None: not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Forecast spending of one arm. most: see `_most_of_job`, with every answer at its limit. expected: scaled from
    an earlier run, all its requests included; None without one."""

    arm: str
    most: Spent
    expected: Spent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Forecast spending of a run's requests to served arms and the judge."""

    budget: Budget
    arms: tuple[Spending, ...] = ()
    judge: Spending | None = None
    run: str = ""  # the earlier run behind `expected`

    @property
    def entries(self) -> tuple[Spending, ...]:
        """The arms' entries, followed by the judge's."""
        return (*self.arms, *([self.judge] if self.judge else []))

    @property
    def most(self) -> Spent:
        """The most that the arms and the judge can spend together."""
        return sum((entry.most for entry in self.entries), Spent())

    @property
    def expected(self) -> Spent | None:
        """Expected spending of the arms and the judge; None if one is unknown."""
        amounts = [entry.expected for entry in self.entries if entry.expected is not None]
        return sum(amounts, Spent()) if len(amounts) == len(self.entries) and amounts else None


def ledger_opener(gate: GateFile, artifacts: str) -> Callable[[], Ledger] | None:
    """Return how each process opens the ledger of a run's requests, a file in the plan's folder; None where no arm is
    served."""
    return partial(Ledger, Path(artifacts) / LEDGER, gate.budget) if _any_served(gate) else None


def ledger_of(gate: GateFile, artifacts: str) -> Ledger | None:
    """Return the ledger of a run's requests, in its plan's folder; None where no arm is served."""
    opener = ledger_opener(gate, artifacts)
    return None if opener is None else opener()


def _any_served(gate: GateFile) -> bool:
    return any(arm.served for arm in (gate.baseline, *gate.variants))


@contextmanager
def spending(gate: GateFile, plan: Plan, store: Store, run: str) -> Iterator[Spender]:
    """Count a run's requests while it generates, and store the totals however it ends. Yields a function that returns
    an arm's spending so far."""
    ledger = ledger_of(gate, plan.artifacts)
    if ledger is None:
        yield lambda arm: None
        return
    with _counted(ledger, store, run):
        yield lambda arm: ledger.spent().get(arm)


@contextmanager
def judging(gate: GateFile, folder: Path, store: Store, run: str) -> Iterator[Ledger | None]:
    """Count a judge's requests in the run's ledger, under the same budget, and store the totals however it ends. Yields
    None without a judge. folder: the ledger's."""
    if gate.policy.judge is None:
        yield None
        return
    ledger = Ledger(folder / LEDGER, gate.budget)
    with _counted(ledger, store, run):
        yield ledger


@contextmanager
def _counted(ledger: Ledger, store: Store, run: str) -> Iterator[None]:
    """Begin the run's ledger with the spending that the store holds, and store the new totals however the block
    ends."""
    summary = queries.run_summary(store, run)
    earlier = {arm.name: spent for arm in summary.arms if (spent := _spent(arm))}
    ledger.begin(run, earlier | ({JUDGING: summary.judging} if summary.judging else {}))
    try:
        yield
    finally:
        runs.note_spent(store, run, ledger.spent())


# ------------------------------------------------------------------------------------------------------------ foreseen


def foresee(gate: GateFile, plan: Plan, run: str) -> Foreseen:
    """Forecast the spending of a plan. run: an earlier run in the store; "": none."""
    before = None
    if run:
        with open_store(gate.store_url, create=False) as store:
            before = queries.run_summary(store, run)
    lines = {arm.name: arm for arm in before.arms} if before else {}
    entries = []
    for arm in plan.arms:
        if arm.served is None:
            continue
        jobs = [job for job in plan.jobs if job.arm.name == arm.name]
        price, max_spent = arm.served.price, sum((_most_of_job(job) for job in jobs), Spent())
        answers = sum(len(job.prompts) for job in jobs)
        spent, done = (_spent(lines[arm.name]), lines[arm.name].done) if arm.name in lines else (None, 0)
        entries.append(_spending(arm.name, price, max_spent, spent, answers / done if done else 0.0))
    judge = _judge_spending(gate, plan, before)
    is_known = any(entry.expected for entry in (*entries, judge) if entry)
    return Foreseen(budget=gate.budget, arms=tuple(entries), judge=judge, run=run if is_known else "")


def _judge_spending(gate: GateFile, plan: Plan, before: queries.RunSummary | None) -> Spending | None:
    """Forecast the judge's spending; None without a judge or labels. before: an earlier run, None: no expectation."""
    if plan.policy.judge is None or gate.labels is None:
        return None
    max_spent, spent = judged_most(plan, gate.labels), before.judging if before else None
    done = sum(arm.done for arm in before.arms) if before else 0
    return _spending(
        JUDGING, plan.policy.judge.served.price, max_spent, spent, len(plan.expected) / done if done else 0.0
    )


def _spending(name: str, price: Price | None, max_spent: Spent, spent: Spent | None, times: float) -> Spending:
    """Build one entry. spent: by an earlier run; times: number of new answers divided by that run's."""
    expected = _priced(_scaled(spent, times), price) if spent and spent.requests and times else None
    return Spending(arm=name, most=_priced(max_spent, price), expected=expected)


def _spent(arm: queries.ArmLine) -> Spent | None:
    return arm.footprint.spent if arm.footprint else None


def _most_of_job(job: Job) -> Spent:
    """Return the most that a job can use if no request fails: each case once; if the server reads the baseline's
    answers, these as well; if it is drafted, each case once more from where it leaves them, and two for the longest."""
    prompt_tokens, answer_tokens = batch_most(job.prompts)
    total = Spent(requests=len(job.prompts), prompt=prompt_tokens, answer=answer_tokens)
    if not job.artifact:
        return total
    total += Spent(requests=len(job.prompts), prompt=prompt_tokens + answer_tokens, answer=len(job.prompts))
    if not job.drafted:
        return total
    longest = max(job.prompts, key=lambda prompt: len(prompt.token_ids) + prompt.max_new_tokens)
    once_more = Spent(requests=2, prompt=2 * len(longest.token_ids), answer=2 * longest.max_new_tokens)
    return (
        total + once_more + Spent(requests=len(job.prompts), prompt=prompt_tokens + answer_tokens, answer=answer_tokens)
    )


def _scaled(spent: Spent, times: float) -> Spent:
    return Spent(
        requests=round(spent.requests * times), prompt=round(spent.prompt * times), answer=round(spent.answer * times)
    )


def _priced(spent: Spent, price: Price | None) -> Spent:
    return replace(spent, cost=None if price is None else price.of(spent.prompt, spent.answer))
