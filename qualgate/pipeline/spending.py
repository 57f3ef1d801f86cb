"""Spending on servers: the most allowed, the expected, and the actual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.pipeline.judging import judged_most
from qualgate.records import JUDGING, Budget, Job, Plan, Price, Spent
from qualgate.served.charging import batch_most
from qualgate.served.ledger import Ledger
from qualgate.store import queries, runs
from qualgate.store.database import Store, open_store

LEDGER = "spent.jsonl"  # in the folder of a plan's artifacts

Spender = Callable[[str], Spent | None]  # what the requests of an arm came to until now; None: they are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Of one arm. most: see `_most`, every answer as long as it may be. expected: by what an earlier run's took, all of
    its requests among them; None where there is none."""

    arm: str
    most: Spent
    expected: Spent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What a run's requests to servers would come to; no arms where none is served, no judge where none is asked."""

    budget: Budget
    arms: tuple[Spending, ...] = ()
    judge: Spending | None = None
    run: str = ""  # the earlier one that is expected to be met again

    @property
    def asked(self) -> tuple[Spending, ...]:
        """The arms', and the judge's behind them."""
        return (*self.arms, *([self.judge] if self.judge else []))

    @property
    def most(self) -> Spent:
        """Of all."""
        return sum((one.most for one in self.asked), Spent())

    @property
    def expected(self) -> Spent | None:
        """Of all; None where one of them is not known."""
        known = [one.expected for one in self.asked if one.expected is not None]
        return sum(known, Spent()) if len(known) == len(self.asked) and known else None


def ledger_path(gate: GateFile, artifacts: str) -> str:
    """Return the file in which a run's requests are counted, in its plan's folder; "" where no arm is served."""
    return str(Path(artifacts) / LEDGER) if _any_served(gate) else ""


def ledger_of(gate: GateFile, artifacts: str) -> Ledger | None:
    """Return the ledger of a run's requests, in its plan's folder; None where no arm is served."""
    path = ledger_path(gate, artifacts)
    return Ledger(Path(path), gate.budget) if path else None


def _any_served(gate: GateFile) -> bool:
    return any(arm.served for arm in (gate.baseline, *gate.variants))


@contextmanager
def spending(gate: GateFile, plan: Plan, store: Store, run: str) -> Iterator[Spender]:
    """While a run generates: its requests are counted, and what they came to is in the store behind it, however it
    ends; what the requests of an arm came to until now can be asked for."""
    ledger = ledger_of(gate, plan.artifacts)
    if ledger is None:
        yield lambda arm: None
        return
    with _counted(ledger, store, run):
        yield lambda arm: ledger.spent().get(arm)


@contextmanager
def judging(gate: GateFile, folder: Path, store: Store, run: str) -> Iterator[Ledger | None]:
    """While a run's judge is asked: its requests are counted in the run's own ledger, under the same budget, and what
    they came to is in the store behind them, however that ends. None where there is no judge. folder: the ledger's."""
    if gate.policy.judge is None:
        yield None
        return
    ledger = Ledger(folder / LEDGER, gate.budget)
    with _counted(ledger, store, run):
        yield ledger


@contextmanager
def _counted(ledger: Ledger, store: Store, run: str) -> Iterator[None]:
    summary = queries.run_summary(store, run)
    known = {arm.name: spent for arm in summary.arms if (spent := _spent(arm))}
    ledger.begin(run, known | ({JUDGING: summary.judging} if summary.judging else {}))
    try:
        yield
    finally:
        runs.note_spent(store, run, ledger.spent())


# ------------------------------------------------------------------------------------------------------------ foreseen


def foresee(gate: GateFile, plan: Plan, run: str) -> Foreseen:
    """What its requests would come to. run: an earlier one of the store's, "" of none."""
    before = None
    if run:
        with open_store(gate.store_url, create=False) as store:
            before = queries.run_summary(store, run)
    lines = {arm.name: arm for arm in before.arms} if before else {}
    found = []
    for arm in plan.arms:
        if arm.served is None:
            continue
        jobs = [job for job in plan.jobs if job.arm.name == arm.name]
        price, most = arm.served.price, sum((_most(job) for job in jobs), Spent())
        answers = sum(len(job.prompts) for job in jobs)
        spent, done = (_spent(lines[arm.name]), lines[arm.name].done) if arm.name in lines else (None, 0)
        found.append(_spending(arm.name, price, most, spent, answers / done if done else 0.0))
    judge = _of_judge(gate, plan, before)
    known = any(one.expected for one in (*found, judge) if one)
    return Foreseen(budget=gate.budget, arms=tuple(found), judge=judge, run=run if known else "")


def _of_judge(gate: GateFile, plan: Plan, before: queries.RunSummary | None) -> Spending | None:
    """None where none is asked."""
    if plan.policy.judge is None or gate.labels is None:
        return None
    most, spent = judged_most(plan, gate.labels), before.judging if before else None
    done = sum(arm.done for arm in before.arms) if before else 0
    return _spending(JUDGING, plan.policy.judge.served.price, most, spent, len(plan.expected) / done if done else 0.0)


def _spending(name: str, price: Price | None, most: Spent, spent: Spent | None, times: float) -> Spending:
    """spent: by an earlier run; times: how often as many answers are to come."""
    expected = _priced(_scaled(spent, times), price) if spent and spent.requests and times else None
    return Spending(arm=name, most=_priced(most, price), expected=expected)


def _spent(arm: queries.ArmLine) -> Spent | None:
    return arm.footprint.spent if arm.footprint else None


def _most(job: Job) -> Spent:
    """What a job can take where no request fails: each case asked once; where its server reads the baseline's answers,
    these too, and each case once more from where it leaves them, and again where that proves to be no answer of its
    own."""
    read, said = batch_most(job.prompts)
    found = Spent(requests=len(job.prompts), prompt=read, answer=said)
    if not job.artifact:
        return found
    found += Spent(requests=len(job.prompts), prompt=read + said, answer=len(job.prompts))
    if not job.drafted:
        return found
    longest = max(job.prompts, key=lambda one: len(one.token_ids) + one.max_new_tokens)
    once_more = Spent(requests=2, prompt=2 * len(longest.token_ids), answer=2 * longest.max_new_tokens)
    return found + once_more + Spent(requests=len(job.prompts), prompt=read + said, answer=said)


def _scaled(spent: Spent, times: float) -> Spent:
    return Spent(
        requests=round(spent.requests * times), prompt=round(spent.prompt * times), answer=round(spent.answer * times)
    )


def _priced(spent: Spent, price: Price | None) -> Spent:
    return replace(spent, cost=None if price is None else price.of(spent.prompt, spent.answer))
