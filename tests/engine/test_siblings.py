"""Answers that variants leave for one another: read where they are of these cases, and never asked to be there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.engine.siblings import leave_answers, sibling_answers
from qualgate.records import ArmSpec, Job, Prompt, UnitKey


@pytest.fixture
def job(tmp_path):
    def of(arm: str, cases=("a", "b", "c")) -> Job:
        prompts = tuple(
            Prompt(key=UnitKey(arm, "set", case), case_hash=f"hash {case}", token_ids=(1,), max_new_tokens=9)
            for case in cases
        )
        artifact = str(tmp_path / "job-1.safetensors")
        return Job(index=1, arm=ArmSpec(name=arm, model="m"), prompts=prompts, artifact=artifact, drafted=True)

    return of


SAID = [[5, 6], [7], [8, 9, 10]]


def test_what_one_variant_said_the_next_is_offered(job):
    assert sibling_answers(job("int8")) == ()
    leave_answers(job("int8"), SAID)
    leave_answers(job("int4 / group 32"), [[5], [7], [8]])
    assert set(sibling_answers(job("mxfp4"))) == {((5, 6), (7,), (8, 9, 10)), ((5,), (7,), (8,))}
    assert sibling_answers(job("int8")) == (((5,), (7,), (8,)),)  # not its own


def test_answers_to_other_cases_are_not(job):
    leave_answers(job("int8", cases=("a", "b", "d")), SAID)
    assert sibling_answers(job("int4")) == ()


def test_a_damaged_file_is_as_good_as_none(job, tmp_path):
    leave_answers(job("int8"), SAID)
    (path,) = tmp_path.glob("job-1.safetensors.*")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        path.write_bytes(damaged)
        assert sibling_answers(job("int4")) == ()
    path.write_bytes(whole)
    assert len(sibling_answers(job("int4"))) == 1


def test_a_folder_that_cannot_be_written_ends_nothing(job, tmp_path):
    lost = replace(job("int8"), artifact=str(tmp_path / "gone" / "file" / "job-1.safetensors"))
    (tmp_path / "gone").write_text("a file")
    leave_answers(lost, SAID)
    assert sibling_answers(lost) == ()
