"""The case that kills its workers, found by the real pool; workers die of what a test has them die of."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records import Job, JobFailure, JobResult
from qualgate.workers import pool
from qualgate.workers.deaths import MAX_ATTEMPTS
from qualgate.workers.suspects import ALONE, IN_VAIN, MOST, Suspects
from tests.depth import examples
from tests.workers.fake_worker import result_of
from tests.workers.test_copies import DIES, Nodes, Seat
from tests.workers.test_pool import BASELINE, VARIANTS, job_of, told

ARMS = (BASELINE, *VARIANTS)


def batches(*sizes: int, arms=ARMS) -> list[Job]:
    return [job_of(arm, index, size, f"job-{index}") for arm in arms for index, size in enumerate(sizes)]


@pytest.fixture
def work(monkeypatch):
    return lambda every, kills, workers=1: ran(monkeypatch, every, dying(kills), workers)


def dying(kills):
    return lambda seat, job: (1.0, DIES if kills(job) else result_of(job))


def ran(monkeypatch, every: list[Job], says, workers: int = 1, **more):
    """What comes of jobs of which workers say so; and who was handed what."""
    nodes = Nodes(says)
    with monkeypatch.context() as patched:
        patched.setattr(pool, "time", nodes)
        patched.setattr(pool, "wait", nodes.wait)
        patched.setattr(pool, "_put_in_place", lambda job: None)
        return nodes, list(pool.run_jobs(every, told(Path(), place=nodes, **more), workers))


def holding(*names: str):
    """names: of cases as ARM/CASE, or CASE for every arm's."""
    return lambda job: any(p.key.case_id in names or f"{p.key.arm}/{p.key.case_id}" in names for p in job.prompts)


def told_apart(outcomes) -> tuple[Counter, dict[str, str]]:
    """(the units that were answered, what is said of those that were not)."""
    done = Counter(
        f"{one.key.arm}/{one.key.case_id}" for outcome in outcomes if isinstance(outcome, JobResult)
        for one in outcome.completions
    )  # fmt: skip
    failed = [
        (f"{key.arm}/{key.case_id}", one.error) for one in outcomes if isinstance(one, JobFailure) for key in one.keys
    ]
    assert len(dict(failed)) == len(failed)
    return done, dict(failed)


def every_unit(every: list[Job]) -> set[str]:
    return {f"{p.key.arm}/{p.key.case_id}" for job in every for p in job.prompts}


def deaths(nodes: Nodes) -> int:
    return sum(seat.exitcode == -9 and not seat.due for seat in nodes.seats)


@pytest.mark.parametrize("row", [0, 63, 64, 127])
def test_a_case_that_kills_its_workers_is_set_apart_alone_and_the_rest_is_answered(work, row):
    every = batches(128, 128)
    nodes, outcomes = work(every, holding(f"a/1-{row}"))
    done, failed = told_apart(outcomes)
    assert set(failed) == {f"a/1-{row}"}
    assert f"the worker process dies on this case (signal 9): set/1-{row}" in failed[f"a/1-{row}"]
    assert set(done) == every_unit(every) - set(failed)
    assert set(done.values()) == {1}
    assert deaths(nodes) < MAX_ATTEMPTS + log2(128) + ALONE


def test_what_the_baseline_has_no_answer_to_its_variants_are_not_asked(work):
    every = batches(5, 5)
    nodes, outcomes = work(every, holding("baseline/0-3"), workers=3)
    done, failed = told_apart(outcomes)
    assert set(failed) == {"baseline/0-3", "a/0-3", "b/0-3"}
    assert failed["b/0-3"] == "the baseline has no answer to set/0-3: its worker process dies on it"
    assert set(done) == every_unit(every) - set(failed)
    asked = [job for _, job in nodes.handed if job.arm.name == "b" and job.index == 0]
    assert [len(job.prompts) for job in asked] == [4]


def test_two_cases_of_a_batch_are_found_one_after_the_other(work):
    every = batches(40)
    _, outcomes = work(every, holding("a/0-0", "a/0-1", "b/0-39", "b/0-3"))
    done, failed = told_apart(outcomes)
    assert set(failed) == {"a/0-0", "a/0-1", "b/0-39", "b/0-3"}
    assert set(done) == every_unit(every) - set(failed)


def test_cases_that_kill_together_alone_are_set_apart_with_their_batch(work):
    every = batches(4, 4)
    _, outcomes = work(every, lambda job: job.arm.name == "a" and job.index == 1 and len(job.prompts) > 1)
    done, failed = told_apart(outcomes)
    assert set(failed) == {f"a/1-{row}" for row in range(4)}
    assert re.search(
        r"the worker process died \d times on this job \(signal 9\); its cases: set/1-0, ", failed["a/1-0"]
    )
    assert set(done) == every_unit(every) - set(failed)


def test_an_arm_that_kills_whatever_it_is_asked_is_not_searched_for_ever(work):
    every = batches(128, 128, 128, arms=(BASELINE, VARIANTS[0]))
    nodes, outcomes = work(every, lambda job: job.arm.name == "a")
    done, failed = told_apart(outcomes)
    assert set(failed) == {unit for unit in every_unit(every) if unit.startswith("a/")}
    assert len(done) == 3 * 128
    assert deaths(nodes) <= 3 * MAX_ATTEMPTS + IN_VAIN * (log2(128) + ALONE + MAX_ATTEMPTS)


def test_an_arm_of_which_every_second_case_kills_is_given_up_after_some(work):
    every = batches(64, arms=(BASELINE, VARIANTS[0]))
    odd = [f"a/0-{row}" for row in range(1, 64, 2)]
    nodes, outcomes = work(every, holding(*odd))
    _, failed = told_apart(outcomes)
    assert set(failed) >= set(odd)
    assert deaths(nodes) <= (MOST + 1) * (log2(64) + ALONE + MAX_ATTEMPTS)
    assert any("its cases: " in said and "and 51 more" in said for said in failed.values())


def test_where_nothing_was_answered_yet_others_are_tried_before_a_case_is_looked_for(work):
    every = batches(4, 4, arms=(BASELINE,))
    nodes, outcomes = work(every, holding("0-2"))
    _, failed = told_apart(outcomes)
    assert set(failed) == {"baseline/0-2"}
    assert [job.index for _, job in nodes.handed[: MAX_ATTEMPTS + 1]] == [0, 0, 0, 1]


@pytest.mark.parametrize("chance", range(4, 12))
def test_one_worker_lost_by_chance_sets_no_sound_case_apart(work, chance):
    """Of one case that kills, and one more death at some moment of its search, or after it."""
    every, handed = batches(4, 16, arms=(BASELINE,)), list[Job]()

    def kills(job: Job) -> bool:
        handed.append(job)
        mine = [one for one in handed if one.index == 1]
        return holding("1-5")(job) or (job.index == 1 and len(mine) == chance)

    _, outcomes = work(every, kills)
    done, failed = told_apart(outcomes)
    assert set(failed) == {"baseline/1-5"}
    assert set(done) == every_unit(every) - set(failed)


def test_a_batch_that_three_workers_were_lost_at_by_chance_is_answered(work):
    every, handed = batches(4, 16, arms=(BASELINE,)), list[Job]()
    _, outcomes = work(every, lambda job: job.index == 1 and (handed.append(job) or len(handed) <= MAX_ATTEMPTS))
    assert {type(outcome) for outcome in outcomes} == {JobResult}


def test_what_a_half_leaves_is_not_what_the_batch_leaves(work):
    nodes, _ = work(batches(4, 4, arms=(BASELINE,)), holding("1-2"))
    left = {len(job.prompts): Path(job.left_at).name for _, job in nodes.handed if job.index == 1}
    assert left[2] == left[1] == "half-job-1.part"
    assert left[3] != left[2]


def test_a_half_that_hangs_sets_its_batch_apart(monkeypatch):
    every = batches(4, 4, arms=(BASELINE,))

    def says(seat: Seat, job: Job):
        if job.index == 1 and len(job.prompts) == 4:
            return 1.0, DIES
        return (10_000.0 if job.index == 1 else 1.0), result_of(job)

    monkeypatch.setattr(Seat, "kill", lambda seat: seat.due.insert(0, (seat.nodes.now, DIES)))
    _, failed = told_apart(ran(monkeypatch, every, says, job_seconds=60)[1])
    assert set(failed) == {f"baseline/1-{row}" for row in range(4)}
    assert "no answer within 60 s" in failed["baseline/1-0"]


def test_what_is_timed_is_not_searched(work):
    every = [replace(job, timed=True) for job in batches(4, 4, arms=(BASELINE,))]
    nodes, outcomes = work(every, lambda job: job.index == 1)
    assert {outcome.index for outcome in outcomes if isinstance(outcome, JobFailure)} == {1}
    assert all(len(job.prompts) == 4 for _, job in nodes.handed)


def test_nor_is_what_a_server_answers_or_what_is_alone():
    [job] = batches(4, arms=(BASELINE,))
    assert Suspects().may_begin(job)
    served = replace(BASELINE, served=object())
    assert not Suspects().may_begin(replace(job, arm=served))
    assert not Suspects().may_begin(replace(job, prompts=job.prompts[:1]))


@examples(60)
@given(data=st.data(), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), workers=st.integers(1, 4))
def test_every_unit_ends_once_and_all_that_kill_nobody_are_answered_or_set_apart_with_their_batch(data, sizes, workers):
    every = batches(1, *sizes)  # the first is answered, whatever the others do
    names = sorted(every_unit(every))
    may = [name for name in names if "/0-" not in name]
    killers = data.draw(st.lists(st.sampled_from(may), max_size=3, unique=True))
    with pytest.MonkeyPatch.context() as patched:
        _, outcomes = ran(patched, every, dying(holding(*killers)), workers)
    done, failed = told_apart(outcomes)
    assert set(done) | set(failed) == set(names)
    assert not set(done) & set(failed)
    assert set(done.values()) <= {1}
    assert set(killers) <= set(failed)
    if len(killers) == 1:
        [killer] = killers
        arm, case = killer.split("/")
        assert set(failed) == ({f"{one.name}/{case}" for one in ARMS} if arm == BASELINE.name else {killer})
