"""Steered answers are the same, to the bit, whoever drafts; and not where a row is steered by another row's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from qualgate.engine import steering
from qualgate.engine.determinism import read_batch
from qualgate.engine.job import run_job
from qualgate.engine.load import LoadedArm
from qualgate.engine.penalties import penalized
from qualgate.records import DraftSource, Job, QuantizeRecipe, Sampling, Speculation
from tests.engine.jobs import ENGINES, INT4, arms_under, job

MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
NGRAM = Speculation(draft=DraftSource(kind="ngram"), tokens=3)
WAYS = {
    "n-gram": NGRAM,
    "self-draft": Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4), tokens=5),
    "cascade": Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4, under=NGRAM), tokens=6),
}
NOBODYS = 10**6  # a token that no head has
PENALIZED = Sampling(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3)
SAMPLINGS = {
    "greedy": PENALIZED,
    "drawn": replace(PENALIZED, temperature=0.8, top_k=40, top_p=0.95),
}


@pytest.fixture(scope="module", params=["plain", "packed"])
def arms(request, tmp_path_factory):
    return arms_under(request.param, tmp_path_factory.mktemp("model"))


def steered(work: Job, sampling: Sampling) -> Job:
    """The same questions with this sampling, their answers long enough to say things twice."""
    prompts = tuple(replace(one, sampling=sampling, max_new_tokens=24) for one in work.prompts)
    return replace(work, prompts=prompts, seed=3)


def bits(arm: LoadedArm, work: Job) -> list[tuple[Any, ...]]:
    return [(one.token_ids, one.logprobs, one.margins, one.finish_reason) for one in run_job(arm, work).completions]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("way", WAYS)
def test_no_bit_of_a_penalized_answer_depends_on_who_drafts(arms, way, sampling):
    plain, drafted = arms("variant"), arms("variant", speculation=WAYS[way])
    work = steered(job(plain, ""), SAMPLINGS[sampling])
    found = run_job(drafted, work)
    assert bits(drafted, work) == bits(plain, work)
    accepted = sum(one.accepted for one in found.draft_steps if one.level == 1)
    assert accepted > 0 or way == "n-gram"  # this model says nothing twice
    assert found.generation.checked > 0 == found.generation.otherwise
    free = replace(SAMPLINGS[sampling], repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    assert bits(plain, work) != bits(plain, steered(work, free))


@pytest.mark.parametrize("rule", ["keyed", "speculative_sampling", "block_verification"])
def test_log_probs_are_the_models_own_by_whatever_rule_tokens_are_drawn(arms, rule):
    drafted = arms("variant", speculation=replace(WAYS["self-draft"], rule=rule))
    work = steered(job(drafted, "", count=6), SAMPLINGS["drawn"])
    found = run_job(drafted, work)
    assert bits_of(found) == bits_of(run_job(drafted, work))
    for prompt, said in zip(work.prompts, found.completions, strict=True):
        [logits] = read_batch(drafted.model, drafted.choice, [(*prompt.token_ids, *said.token_ids)])
        own = logits[len(prompt.token_ids) - 1 : -1].double().log_softmax(-1)
        expected = own.gather(-1, torch.tensor(said.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(said.logprobs).double(), expected, rtol=0, atol=1e-5)


def bits_of(result: Any) -> list[tuple[Any, ...]]:
    return [(one.token_ids, one.logprobs, one.finish_reason) for one in result.completions]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_evaluation_drafted_by_the_baseline_gives_the_same_answers_and_drift(kind, sampling, tmp_path):
    arm = arms_under(kind, tmp_path)
    baseline, variant, artifact = arm("baseline"), arm("v", INT4), tmp_path / "artifacts" / "job.safetensors"
    run_job(baseline, steered(job(baseline, artifact), SAMPLINGS[sampling]))
    drafted, plain = (
        run_job(variant, steered(job(variant, artifact, drafted=drafted), SAMPLINGS[sampling]))
        for drafted in (True, False)
    )
    if kind == "padded":  # a row's bits are those of its batch
        assert [one.token_ids for one in drafted.completions] == [one.token_ids for one in plain.completions]
        return
    assert bits_of(drafted) == bits_of(plain)
    assert drafted.drifts == plain.drifts
    assert any(one.first_divergence for one in drafted.drifts)


# ------------------------------------------------------------------------------------------------------- mutants


def _counts_not_advanced(logits: Any, prompt: Any, said: Any, offered: Sequence[int], sampling: Sampling) -> Any:
    return penalized(logits, prompt, said, [NOBODYS] * len(offered), sampling)


def _counts_rejected() -> Callable[..., Any]:
    seen: dict[int, list[int]] = {}

    def wrong(logits: Any, prompt: Any, said: Any, offered: Sequence[int], sampling: Sampling) -> Any:
        before = seen.setdefault(hash(tuple(prompt)), [])
        found = penalized(logits, prompt, [*said, *before], offered, sampling)
        before += offered  # whether they were accepted or not
        return found

    return wrong


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "counts stand still within a draft": lambda: patch.object(steering, "penalized", _counts_not_advanced),
    "counts of rejected tokens stay": lambda: patch.object(steering, "penalized", _counts_rejected()),
}


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_seen(arms, mutant, sampling):
    plain, drafted = arms("variant"), arms("variant", speculation=WAYS["self-draft"])
    work = steered(job(plain, ""), SAMPLINGS[sampling])
    expected = bits(plain, work)
    with MUTANTS[mutant]():
        assert bits(drafted, work) != expected
