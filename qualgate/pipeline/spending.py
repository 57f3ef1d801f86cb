"""What a run may spend on servers, what it is expected to, and what it did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.pipeline.judging import judged_most
from qualgate.records import JUDGING, Budget, Job, Plan, Price, Spent, Wire
from qualgate.served.charging import batch_most
from qualgate.served.ledger import Ledger
from qualgate.served.tape import begin_recording, check_recorded, of_run
from qualgate.store import queries, runs
from qualgate.store.database import Store, open_store


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


def recorded(gate: GateFile, folder: Path) -> GateFile:
    """The gate file, whose run is recorded into the folder. UsageError where that cannot be."""
    _check_served(gate, "--record")
    begin_recording(folder, gate.path.name)
    return replace(gate, recording=str(folder.absolute()))


def replayed(gate: GateFile, folder: Path) -> GateFile:
    """The gate file, whose servers' answers are those of the recording. UsageError where there is none, EvidenceMissing
    where it is older than the policy's evidence may be."""
    _check_served(gate, "--replay")
    check_recorded(folder, gate.policy.max_age)
    arms = [
        arm if arm.served is None else replace(arm, served=replace(arm.served, replayed=True))
        for arm in (gate.baseline, *gate.variants)
    ]
    return replace(gate, baseline=arms[0], variants=tuple(arms[1:]), recording=str(folder.absolute()), replayed=True)


def _check_served(gate: GateFile, option: str) -> None:
    if not _any_served(gate):
        raise UsageError(f"{option} is about what servers say, and {gate.path.name} asks none: leave it out.")


def wire_of(gate: GateFile, artifacts: str = "") -> Wire:
    """What holds for every request of the gate file's run. artifacts: its plan's folder, "" before there is one. What
    is told again costs nothing, so no budget holds then."""
    budget = Budget(currency=gate.budget.currency) if gate.replayed else gate.budget
    ledger = str(Path(artifacts) / "spent.jsonl") if artifacts and _any_served(gate) else ""
    return Wire(ledger=ledger, budget=budget, recording=gate.recording, replayed=gate.replayed)


def _any_served(gate: GateFile) -> bool:
    return any(arm.served for arm in (gate.baseline, *gate.variants))


@contextmanager
def spending(gate: GateFile, plan: Plan, store: Store, run: str) -> Iterator[None]:
    """While a run generates: its requests are counted, and what they came to is in the store behind it, however it
    ends. A recording is this run's from then on: UsageError where the folder holds another's."""
    if gate.recording and not gate.replayed:
        of_run(Path(gate.recording), run)
    wire = wire_of(gate, plan.artifacts)
    if not wire.ledger:
        yield
        return
    with _counted(Path(wire.ledger), wire.budget, store, run, told_again=gate.replayed):
        yield


@contextmanager
def judging(gate: GateFile, folder: Path, store: Store, run: str) -> Iterator[Ledger | None]:
    """While a run's judge is asked: its requests are counted in the run's own ledger, under the same budget, and what
    they came to is in the store behind them, however that ends. None where there is no judge. folder: the ledger's."""
    if gate.policy.judge is None:
        yield None
        return
    with _counted(folder / "spent.jsonl", wire_of(gate).budget, store, run, told_again=gate.replayed) as ledger:
        yield ledger


@contextmanager
def _counted(path: Path, budget: Budget, store: Store, run: str, *, told_again: bool = False) -> Iterator[Ledger]:
    """A ledger of who is asked, or of arms whose answers are told again."""
    ledger, summary = Ledger(path, budget), queries.run_summary(store, run)
    known = {arm.name: one for arm in summary.arms if (one := _spent(arm)) and _is_told_again(arm) == told_again}
    # What a replayed run's judge said when it was recorded is no part of what asking another takes.
    judging = {JUDGING: one} if (one := summary.judging) and one.replayed == told_again else {}
    ledger.begin(run, known | judging)
    try:
        yield ledger
    finally:
        spent = {name: replace(one, replayed=told_again) for name, one in ledger.spent().items()}
        runs.note_spent(store, run, spent)


def put_away(gate: GateFile, plan: Plan, run: str) -> None:
    """Behind a run that came to its end: its artifacts and its ledger are deleted, its recording is whole."""
    if gate.recording and not gate.replayed:
        of_run(Path(gate.recording), run, whole=True)
    shutil.rmtree(plan.artifacts, ignore_errors=True)


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


def _is_told_again(arm: queries.ArmLine) -> bool:
    return arm.spec.served is not None and arm.spec.served.replayed


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
