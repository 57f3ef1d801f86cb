"""Steered answers are the same, to the bit, whoever drafts; and not where a row is steered by another row's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from qualgate.engine import steering
from qualgate.engine.determinism import read_batch
from qualgate.engine.job import run_job
from qualgate.engine.request import Request
from qualgate.engine.sampling import Draws
from qualgate.engine.speculation.propose import Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts
from qualgate.records import GREEDY, Job, Sampling
from qualgate.scoring.constraint import grammar_of
from tests.engine.engines import Told, answered, asked, opened, questions, reference
from tests.engine.jobs import ENGINES, INT4, NGRAM, SELF_DRAFT, job, said, sampled

WAYS = {
    "n-gram": NGRAM,
    "self-draft": SELF_DRAFT,
    "cascade": replace(SELF_DRAFT, draft=replace(SELF_DRAFT.draft, under=NGRAM), tokens=6),
}
PENALIZED = Sampling(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3)
SAMPLINGS = {
    "greedy": PENALIZED,
    "drawn": replace(PENALIZED, temperature=0.8, top_k=40, top_p=0.95),
}


def steered(work: Job, sampling: Sampling) -> Job:
    """The same questions with this sampling, their answers long enough to say things twice."""
    prompts = tuple(replace(one, max_new_tokens=24) for one in work.prompts)
    return sampled(replace(work, prompts=prompts), sampling)


@pytest.mark.proof
@pytest.mark.parametrize("way", WAYS)
def test_no_bit_of_a_penalized_answer_depends_on_who_drafts(arms, way):
    plain, drafted = arms("variant"), arms("variant", speculation=WAYS[way])
    work = steered(job(plain, "", count=8), SAMPLINGS["drawn"])
    found, expected = run_job(drafted, work), said(run_job(plain, work))
    assert said(found) == expected
    accepted = sum(one.accepted for one in found.draft_steps if one.level == 1)
    assert accepted > 0 or way == "n-gram"  # this model says nothing twice
    assert found.generation.checked > 0 == found.generation.otherwise
    free = replace(SAMPLINGS["drawn"], repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    assert expected != said(run_job(plain, steered(work, free)))


@pytest.mark.parametrize("rule", ["keyed", "speculative_sampling", "block_verification"])
def test_log_probs_are_the_models_own_by_whatever_rule_tokens_are_drawn(arms, rule):
    drafted = arms("variant", speculation=replace(SELF_DRAFT, rule=rule))
    work = steered(job(drafted, "", count=6), SAMPLINGS["drawn"])
    found = run_job(drafted, work)
    assert ruled(found) == ruled(run_job(drafted, work))
    texts = [(*prompt.token_ids, *one.token_ids) for prompt, one in zip(work.prompts, found.completions, strict=True)]
    for prompt, one, logits in zip(
        work.prompts, found.completions, read_batch(drafted.model, drafted.choice, texts), strict=True
    ):
        own = logits[len(prompt.token_ids) - 1 : -1].double().log_softmax(-1)
        expected = own.gather(-1, torch.tensor(one.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(one.logprobs).double(), expected, rtol=0, atol=1e-5)


def ruled(result: Any) -> list[tuple[Any, ...]]:
    """A rule draws by no margin."""
    return [(one.token_ids, one.logprobs, one.finish_reason, one.masked) for one in result.completions]


STEERED: dict[str, Callable[[Job], Job]] = {
    **{name: lambda work, of=of: steered(work, of) for name, of in SAMPLINGS.items()},
    "constrained": lambda work: constrained(work),
}


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("how", STEERED)
def test_an_evaluation_drafted_by_the_baseline_gives_the_same_answers_and_drift(kind, how, arms_of, tmp_path):
    arm, artifact = arms_of(kind), tmp_path / "artifacts" / "job.safetensors"
    baseline, variant = arm(), arm("variant", INT4)
    run_job(baseline, STEERED[how](job(baseline, artifact, count=8)))
    drafted, plain = (
        run_job(variant, STEERED[how](job(variant, artifact, drafted=drafted, count=8))) for drafted in (True, False)
    )
    if kind == "padded":  # a row's bits are those of its batch
        assert [one.token_ids for one in drafted.completions] == [one.token_ids for one in plain.completions]
        return
    assert said(drafted) == said(plain)
    assert drafted.drifts == plain.drifts
    assert any(one.first_divergence for one in drafted.drifts)


# --------------------------------------------------------------------------------------------------- constraints

CONSTRAINTS = {
    "list of words": {"regex": "[a-z]{3}(,[a-z]{2,4})*"},
    "ends soon": {"regex": "(ab|cd)[0-9]{0,2}"},
    "schema": {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
    "grammar": {"grammar": 'start: pair ("; " pair)*\npair: /[a-f]+/ "=" /[0-9]{1,3}/'},
    "any text": {"regex": "(?s:.*)"},
}


def constrained(work: Job, sampling: Sampling = GREEDY) -> Job:
    """The same questions, each under another constraint, and some under none."""
    kinds = [*CONSTRAINTS.values(), None]
    prompts = tuple(
        replace(one, constraint=grammar_of(kind) if (kind := kinds[number % len(kinds)]) else "")
        for number, one in enumerate(steered(work, sampling).prompts)
    )
    return replace(work, prompts=prompts, seed=3)


CONSTRAINED = {"greedy": GREEDY, "drawn": Sampling(temperature=0.9, top_p=0.95), "penalized": SAMPLINGS["drawn"]}


@pytest.mark.proof
@pytest.mark.parametrize("sampling", ["greedy", "penalized"])
@pytest.mark.parametrize("way", WAYS)
def test_no_bit_of_a_constrained_answer_depends_on_who_drafts(arms, way, sampling):
    plain, drafted = arms("variant"), arms("variant", speculation=WAYS[way])
    work = constrained(job(plain, "", count=12), CONSTRAINED[sampling])
    expected, found = run_job(plain, work), run_job(drafted, work)
    assert said(found) == said(expected)
    assert found.generation.checked > 0 == found.generation.otherwise
    assert expected.generation.otherwise == 0
    for prompt, one in zip(work.prompts, expected.completions, strict=True):
        assert (one.masked is None) == (not prompt.constraint)
    assert texts_that_end_soon(work, expected)
    shares = [one.masked or 0.0 for one in expected.completions[:5]]
    assert 1 > min(shares[:4]) > shares[4] > 0  # bytes that are no text are always left out
    assert {one.finish_reason for one in expected.completions} == {"eos", "length"}


def texts_that_end_soon(work: Job, result: Any) -> list[str]:
    """Of the constraint that makes them: each is one that it admits, whole."""
    ends = grammar_of(CONSTRAINTS["ends soon"])
    texts = [
        one.text for one, prompt in zip(result.completions, work.prompts, strict=True) if prompt.constraint == ends
    ]
    assert all(re.fullmatch(CONSTRAINTS["ends soon"]["regex"], text) for text in texts)
    return texts


@pytest.mark.parametrize("rule", ["block_verification", pytest.param("speculative_sampling", marks=pytest.mark.proof)])
def test_answers_by_a_rule_keep_to_their_constraint(arms_of, rule):
    drafted = arms_of("plain")("variant", speculation=replace(SELF_DRAFT, rule=rule))
    work = constrained(job(drafted, "", count=8), CONSTRAINED["drawn"])
    found = run_job(drafted, work)
    assert ruled(found) == ruled(run_job(drafted, work))
    assert texts_that_end_soon(work, found)


class OneWay:
    """Admits one token at a time of a text, and behind it nothing, not even an end."""

    def __init__(self, text: Sequence[int]) -> None:
        self.text = list(text)

    def admitted(self, said: Sequence[int], offered: Sequence[int]) -> list[bytes]:
        rows = list[bytes]()
        for count in range(len(offered) + 1):
            here = [*said, *offered[:count]]
            if here != self.text[: len(here)]:
                break
            following = self.text[len(here) : len(here) + 1]
            rows.append(bytes(token in following for token in range(256)))
        return rows


@pytest.mark.parametrize("draws", [None, Draws(seed=1, cases=torch.arange(9), sampling=CONSTRAINED["drawn"])])
@pytest.mark.parametrize("rule", ["keyed", "speculative_sampling"])
def test_a_dead_end_ends_one_answer_and_no_other(draws, rule):
    """At once, in the middle of a draft, behind a draft; with what rides along as it is alone."""
    prompts, way = questions()[:4], [20, 30, 40, 50, 60]

    class Drafts_:
        name, runs_model = "way", False

        def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
            return [Draft(tuple([*way, 70, 71][len(one.generated) :][: min(3, one.most)]), "way", 8) for one in asked]

        def ended(self, row: int) -> None:
            pass

    lengths = [0, 2, 5, None]

    def requests() -> list[Request]:
        return [
            replace(one, steering=None if length is None else steering.Steering(one.prompt, mask=OneWay(way[:length])))
            for one, length in zip(asked(prompts), lengths, strict=True)
        ]

    with opened("plain", reference("plain")) as engine:
        told = Told.nothing(4)
        engine.run(requests(), Drafts(Drafts_(), 3, rule=rule), told.hear, draws)
        plain = answered(engine, requests(), draws=draws)
    assert told.tokens[:3] == plain.tokens[:3] == [way[:0], way[:2], way]
    assert told.reasons[:3] == plain.reasons[:3] == ["dead_end"] * 3
    assert told.reasons[3] in ("eos", "length")
    if rule == "keyed" or draws is None:
        assert (told.tokens[3], told.logprobs) == (plain.tokens[3], plain.logprobs)


def test_a_head_without_the_tokens_that_a_mask_admits_is_a_dead_end():
    logits = torch.zeros(1, 10)
    found = steering.Steering((1,), mask=OneWay([20])).steered(logits, [], [])
    assert found.dead == [0]
    assert torch.equal(found.logits, logits)


def test_a_text_that_its_mask_does_not_admit_is_a_dead_end_and_goes_on_no_more():
    steered, logits = steering.Steering((1,), mask=OneWay([2, 3])), torch.randn(2, 10)
    found = steered.steered(logits, [5], [6])
    assert found.dead == [0]
    assert steered.masked == {1: 1.0}


@pytest.mark.parametrize("draws", [None, Draws(seed=1, cases=torch.arange(2), sampling=CONSTRAINED["drawn"])])
def test_rows_of_which_none_is_steered_are_said_as_they_are(draws):
    logits, steered = torch.randn(1, 10), {1: (steering.Steering((1,), mask=OneWay([2])), [])}
    said = steering.say(draws, logits, [0], [0])
    before = said.tokens.clone()
    found = steering.choose(draws, logits, [0], [0], steered, said)
    assert torch.equal(said.tokens, before)
    assert torch.equal(found.logits, logits)


def test_the_masked_share_is_the_models_own_probability_outside():
    logits = torch.tensor([[1.0, 2.0, 0.5, -1.0]])
    [share] = steering.masked_shares(logits, torch.tensor([[True, False, True, False]]))
    assert share == pytest.approx(float(logits.double().softmax(-1)[0, [1, 3]].sum()), abs=1e-15)
