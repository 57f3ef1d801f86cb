"""What a run that goes on has still to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qualgate.pipeline.jobs import remaining
from qualgate.records import Job, UnitKey
from tests.workers.test_pool import jobs


def keys(job: Job) -> list[str]:
    return [prompt.key.case_id for prompt in job.prompts]


def all_but(every: list[Job], *still: tuple[str, str]) -> frozenset[UnitKey]:
    return frozenset(p.key for job in every for p in job.prompts if (p.key.arm, p.key.case_id) not in still)


def test_of_a_variants_job_that_was_answered_in_part_the_rest_is_asked(tmp_path):
    every = jobs(tmp_path, 2)
    for job in every:
        Path(job.artifact).write_text("made")
    left = remaining(every, all_but(every, ("a", "1-2"), ("b", "0-0"), ("b", "0-1")))
    assert [(job.arm.name, job.index, keys(job)) for job in left] == [("a", 1, ["1-2"]), ("b", 0, ["0-0", "0-1"])]


def test_the_baselines_job_is_asked_whole_for_it_leaves_one_artifact(tmp_path):
    every = jobs(tmp_path, 2)
    left = remaining(every, all_but(every, ("baseline", "1-2"), ("a", "1-2"), ("b", "1-2")))
    assert [(job.arm.name, keys(job)) for job in left] == [
        ("baseline", ["1-0", "1-1", "1-2"]), ("a", ["1-2"]), ("b", ["1-2"]),
    ]  # fmt: skip


def test_of_a_baselines_job_that_leaves_nothing_the_rest_is_asked(tmp_path):
    every = [replace(job, artifact="") for job in jobs(tmp_path, 2)]
    left = remaining(every, all_but(every, ("baseline", "1-2")))
    assert [(job.arm.name, keys(job)) for job in left] == [("baseline", ["1-2"])]


def test_where_a_variant_has_still_to_read_what_is_gone_the_baseline_makes_it_again(tmp_path):
    every = jobs(tmp_path, 2)
    left = remaining(every, all_but(every, ("a", "1-2")))
    assert [(job.arm.name, keys(job)) for job in left] == [("baseline", ["1-0", "1-1", "1-2"]), ("a", ["1-2"])]


def test_what_is_timed_is_asked_in_the_batches_that_were_planned(tmp_path):
    every = [replace(job, timed=True) for job in jobs(tmp_path, 2)]
    left = remaining(every, all_but(every, ("a", "1-2")))
    assert [(job.arm.name, len(job.prompts)) for job in left] == [("baseline", 3), ("a", 3)]
    assert remaining(every, all_but(every)) == []
