"""Steered answers are the same, to the bit, whoever drafts; and not where a row is steered by another row's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from qualgate.engine import job as engine_job
from qualgate.engine import steering
from qualgate.engine.constraint import GrammarMask
from qualgate.engine.determinism import read_batch
from qualgate.engine.job import run_job
from qualgate.engine.load import LoadedArm
from qualgate.engine.penalties import penalized
from qualgate.engine.request import Request
from qualgate.engine.sampling import Draws
from qualgate.records import GREEDY, DraftSource, Job, QuantizeRecipe, Sampling, Speculation
from qualgate.scoring.constraint import grammar_of
from qualgate.speculation.propose import Asked, Draft
from qualgate.speculation.steps import Drafts
from tests.engine.engines import Told, answered, asked, opened, questions, reference
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


@pytest.mark.proof
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


def all_of(result: Any) -> list[tuple[Any, ...]]:
    return [
        (one.token_ids, one.logprobs, one.margins, one.finish_reason, one.masked, one.text)
        for one in result.completions
    ]


CONSTRAINED = {"greedy": GREEDY, "drawn": Sampling(temperature=0.9, top_p=0.95), "penalized": SAMPLINGS["drawn"]}


@pytest.mark.proof
@pytest.mark.parametrize("sampling", CONSTRAINED)
@pytest.mark.parametrize("way", WAYS)
def test_no_bit_of_a_constrained_answer_depends_on_who_drafts(arms, way, sampling):
    plain, drafted = arms("variant"), arms("variant", speculation=WAYS[way])
    work = constrained(job(plain, ""), CONSTRAINED[sampling])
    expected, found = run_job(plain, work), run_job(drafted, work)
    assert all_of(found) == all_of(expected)
    assert found.generation.checked > 0 == found.generation.otherwise
    assert expected.generation.otherwise == 0
    for prompt, said in zip(work.prompts, expected.completions, strict=True):
        assert (said.masked is None) == (not prompt.constraint)
        if said.finish_reason == "eos" and prompt.constraint == grammar_of(CONSTRAINTS["ends soon"]):
            assert re.fullmatch(CONSTRAINTS["ends soon"]["regex"], said.text)
    shares = [one.masked or 0.0 for one in expected.completions[:5]]
    assert 1 > min(shares[:4]) > shares[4] > 0  # bytes that are no text are always left out
    assert {one.finish_reason for one in expected.completions} == {"eos", "length"}


@pytest.mark.parametrize("rule", ["speculative_sampling", "block_verification"])
def test_answers_by_a_rule_keep_to_their_constraint(arms, rule):
    drafted = arms("variant", speculation=replace(WAYS["self-draft"], rule=rule))
    work = constrained(job(drafted, ""), CONSTRAINED["drawn"])
    ends = grammar_of(CONSTRAINTS["ends soon"])
    found = run_job(drafted, work)
    assert all_of(found) == all_of(run_job(drafted, work))
    texts = [one.text for one, prompt in zip(found.completions, work.prompts, strict=True) if prompt.constraint == ends]
    assert texts
    assert all(re.fullmatch("(ab|cd)[0-9]{0,2}", text) for text in texts)


@pytest.mark.parametrize("kind", ENGINES)
def test_an_evaluation_drafted_by_the_baseline_gives_the_same_constrained_answers(kind, tmp_path):
    arm = arms_under(kind, tmp_path)
    baseline, variant, artifact = arm("baseline"), arm("v", INT4), tmp_path / "artifacts" / "job.safetensors"
    run_job(baseline, constrained(job(baseline, artifact)))
    drafted, plain = (
        run_job(variant, constrained(job(variant, artifact, drafted=drafted))) for drafted in (True, False)
    )
    if kind == "padded":  # a row's bits are those of its batch
        assert [one.token_ids for one in drafted.completions] == [one.token_ids for one in plain.completions]
        return
    assert all_of(drafted) == all_of(plain)
    assert drafted.drifts == plain.drifts


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

        def propose(self, asked: Sequence[Asked]) -> list[Draft]:
            return [Draft(tuple([*way, 70, 71][len(one.said) :][: min(3, one.most)]), "way", 8) for one in asked]

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


class _NotRewound(GrammarMask):
    """Whose state stays behind what was rejected, as long as the text is as long."""

    def _reads(self, text: Sequence[int]) -> bool:
        missing = list(text[len(self._read) :])
        self._read += missing[: self._matcher.try_consume_tokens(missing)]
        return True


class _NotAdvanced(GrammarMask):
    """Every row of a draft has the mask of its first."""

    def admitted(self, said: Sequence[int], offered: Sequence[int]) -> list[bytes]:
        return super().admitted(said, []) * (len(offered) + 1)


MASK_MUTANTS = {"mask not rewound": _NotRewound, "mask not advanced within a draft": _NotAdvanced}

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


@pytest.mark.parametrize("sampling", CONSTRAINED)
@pytest.mark.parametrize("mutant", MASK_MUTANTS)
def test_a_mutant_of_the_mask_is_seen(arms, mutant, sampling):
    plain, drafted = arms("variant"), arms("variant", speculation=WAYS["self-draft"])
    work = constrained(job(plain, ""), CONSTRAINED[sampling])
    expected = all_of(run_job(plain, work))
    with patch.object(engine_job, "GrammarMask", MASK_MUTANTS[mutant]):
        try:
            found: Any = all_of(run_job(drafted, work))
        except KeyError:  # a token was said for which nobody asked what is admitted
            found = None
        except AssertionError as stopped:  # or what is looked at in every pass saw it first
            found = str(stopped)
    assert found != expected
    assert not isinstance(found, str) or "a mask is of another text" in found
