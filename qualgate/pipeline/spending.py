"""What a run may spend on servers, what it is expected to, and what it did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.records import Budget, Job, Plan, Price, Spent, Wire
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
    """What a run's requests to servers would come to; no arms where none is served."""

    budget: Budget
    arms: tuple[Spending, ...] = ()
    run: str = ""  # the earlier one that is expected to be met again

    @property
    def most(self) -> Spent:
        """Of all arms."""
        return sum((one.most for one in self.arms), Spent())

    @property
    def expected(self) -> Spent | None:
        """Of all arms; None where one of them is not known."""
        known = [one.expected for one in self.arms if one.expected is not None]
        return sum(known, Spent()) if len(known) == len(self.arms) and known else None


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
    ledger = Ledger(Path(wire.ledger), wire.budget)
    ledger.begin(run, {arm: spent for arm, (spent, _) in _spent_in(store, run).items()})
    try:
        yield
    finally:
        runs.note_spent(store, run, ledger.spent())


def put_away(gate: GateFile, plan: Plan, run: str) -> None:
    """Behind a run that came to its end: its artifacts and its ledger are deleted, its recording is whole."""
    if gate.recording and not gate.replayed:
        of_run(Path(gate.recording), run, whole=True)
    shutil.rmtree(plan.artifacts, ignore_errors=True)


# ------------------------------------------------------------------------------------------------------------ foreseen


def foresee(gate: GateFile, plan: Plan, run: str) -> Foreseen:
    """What its requests would come to. run: an earlier one of the store's, "" of none."""
    before: Mapping[str, tuple[Spent, int]] = {}
    if run:
        with open_store(gate.store_url, create=False) as store:
            before = _spent_in(store, run)
    found = []
    for arm in plan.arms:
        if arm.served is None:
            continue
        jobs = [job for job in plan.jobs if job.arm.name == arm.name]
        price, most = arm.served.price, sum((_most(job) for job in jobs), Spent())
        answers = sum(len(job.prompts) for job in jobs)
        spent, done = before.get(arm.name, (Spent(), 0))
        expected = _priced(_scaled(spent, answers / done), price) if done and spent.requests else None
        found.append(Spending(arm=arm.name, most=_priced(most, price), expected=expected))
    known = any(one.expected for one in found)
    return Foreseen(budget=gate.budget, arms=tuple(found), run=run if known else "")


def _spent_in(store: Store, run: str) -> dict[str, tuple[Spent, int]]:
    """By arm, what it spent in a run, and for how many answers."""
    lines = queries.run_summary(store, run).arms
    return {one.name: (one.footprint.spent, one.done) for one in lines if one.footprint and one.footprint.spent}


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
