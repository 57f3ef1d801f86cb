from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.pipeline.batches import JOB_ROWS, JOB_TOKENS, batches, in_turns
from qualgate.records import NOISE, ArmSpec, Job, Prompt, Sampling, UnitKey
from tests.depth import examples


def prompt(case: str, length: int = 10, answer: int = 10, repeat: int = 0, temperature: float = 0.0) -> Prompt:
    return Prompt(
        key=UnitKey("baseline", "s", case, repeat),
        case_hash="",
        token_ids=(0,) * length,
        max_new_tokens=answer,
        sampling=Sampling(temperature=temperature),
    )


def of_clusters(prompts: list[Prompt], clusters: list[int]) -> dict[tuple[str, str, int], int]:
    return {("s", one.key.case_id, one.key.repeat): name for one, name in zip(prompts, clusters, strict=True)}


def fits(batch: list[int], prompts: list[Prompt], most: int = JOB_ROWS) -> bool:
    longest, answer = max(prompts[i].tokens_read for i in batch), max(prompts[i].max_new_tokens for i in batch)
    return len(batch) <= most and len(batch) * (longest + answer) <= JOB_TOKENS


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 800)), max_size=300))
def test_batches_hold_every_prompt_once_within_their_limits(sizes):
    prompts = [prompt(f"{i}", *size) for i, size in enumerate(sizes)]
    found = list(batches(prompts))
    assert sorted(position for batch in found for position in batch) == list(range(len(prompts)))
    assert all(len(batch) == 1 or fits(batch, prompts) for batch in found)
    apart = of_clusters(prompts, list(range(len(prompts))))
    assert found == list(batches(prompts, clusters=apart)), "a cluster of one is as none"


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 800), st.integers(0, 30)), max_size=200),
    st.integers(1, 20),
)
def test_a_cluster_is_in_one_batch_or_has_batches_of_its_own(sizes, most):
    prompts = [prompt(f"{i}", *size[:2]) for i, size in enumerate(sizes)]
    clusters = [size[2] for size in sizes]
    found = list(batches(prompts, most, of_clusters(prompts, clusters)))
    assert sorted(position for batch in found for position in batch) == list(range(len(prompts)))
    assert all(len(batch) == 1 or fits(batch, prompts, most) for batch in found)
    for name in set(clusters):
        mine = [batch for batch in found if any(clusters[i] == name for i in batch)]
        whole = [i for i, one in enumerate(clusters) if one == name]
        if len(whole) == 1 or fits(whole, prompts, most):
            assert len(mine) == 1
        else:
            assert {clusters[i] for batch in mine for i in batch} == {name}


def test_batches_of_clusters_are_alike_in_length_and_of_one_temperature():
    clusters = [number // 2 for number in range(40)]
    prompts = [
        prompt(f"{number:02d}", answer=16 * (1 + number // 2 % 4), temperature=float(number >= 20))
        for number in range(40)
    ]
    found = list(batches(prompts, 4, of_clusters(prompts, clusters)))
    assert all(len({prompts[i].sampling for i in batch}) == 1 for batch in found)
    answers = [{prompts[i].max_new_tokens for i in batch} for batch in found]
    assert sum(len(lengths) == 1 for lengths in answers) >= len(found) - 4, "where one length ends another begins"
    shuffled = [*reversed(prompts)]
    again = batches(shuffled, 4, of_clusters(prompts, clusters))
    assert [{shuffled[i].key for i in batch} for batch in again] == [{prompts[i].key for i in b} for b in found]


BASELINE = ArmSpec(name="baseline", model="m")


def jobs(count: int, *variants: str) -> list[Job]:
    """In the order of a plan: arm after arm; an A/A arm has twice as many."""
    return [
        Job(index=index, arm=arm, prompts=(prompt(f"{index}"),), artifact="a", drafted=False, timed=True)
        for arm in (BASELINE, *(ArmSpec(name=name, model="m") for name in variants))
        for index in range(count * (2 if arm.name.endswith(NOISE) else 1))
    ]


@pytest.mark.parametrize(("count", "turns"), [(24, None), (61, None), (61, 24), (5, 24), (1, None)])
def test_a_turn_holds_the_jobs_of_the_same_indexes_of_every_arm(count, turns):
    found = in_turns(jobs(count, "a", "b"), 0, turns=turns)
    assert Counter((job.arm.name, job.index) for job in found) == Counter(
        (job.arm.name, job.index) for job in jobs(count, "a", "b")
    )
    assert [job.stage for job in found] == sorted(job.stage for job in found)
    assert {job.stage for job in found} == set(range(min(turns or count, count)))
    ends = []
    for stage in sorted({job.stage for job in found}):
        turn = [job for job in found if job.stage == stage]
        of_arm = {name: [job.index for job in turn if job.arm.name == name] for name in ("a", "b", "baseline")}
        assert of_arm["a"] == of_arm["b"] == of_arm["baseline"]
        assert len({job.arm.name for job in turn}) == 1 + sum(a.arm != b.arm for a, b in pairwise(turn)), "arm by arm"
        ends += of_arm["a"]
    assert ends == list(range(count)), "consecutive"
    sizes = Counter(job.stage for job in found).values()
    assert max(sizes) - min(sizes) <= 3


def test_which_arm_is_first_in_a_turn_is_drawn_and_the_seed_draws_it_again():
    def orders(seed: int) -> list[tuple[str, ...]]:
        found = in_turns(jobs(600, "a", "b"), seed)
        return [tuple(job.arm.name for job in found[start : start + 3]) for start in range(0, 1800, 3)]

    assert orders(0) == orders(0) != orders(1)
    counts = Counter(orders(0))
    assert len(counts) == 6
    assert all(60 <= count <= 140 for count in counts.values()), "each of six orders 100 times, give or take 4 sigma"
    after = Counter(zip(orders(0), orders(0)[1:], strict=False))
    assert len(after) == 36, "no order follows from the one before"


def test_an_a_a_arm_comes_after_all_turns_but_with_looks_in_them():
    every = jobs(24, f"baseline{NOISE}", "a")
    found = in_turns(every, 0)
    last = [job for job in found if job.arm.name.endswith(NOISE)]
    assert found[-48:] == last
    assert [job.stage for job in last] == [24 + index for index in range(48)]
    looked = in_turns([job for job in every if job.index < 24], 0, looks=True)
    assert Counter(job.stage for job in looked) == dict.fromkeys(range(24), 3)


def test_a_baseline_alone_is_laid_out_too():
    assert [job.index for job in in_turns(jobs(7), 0)] == list(range(7))
