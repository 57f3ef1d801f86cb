"""A served variant's answers begin as the baseline's where its server would have said so, and its drift is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import ArmSpec, Job, JobResult, Prompt, Sampling, Served, UnitKey
from qualgate.records.identity import write_sealed
from qualgate.served.job import run_served
from tests.served.chance import SIZE, Model
from tests.served.scripted import scripted
from tests.tiny_models import save_byte_tokenizer

MOST = 24


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps({"vocab_size": SIZE, "eos_token_id": 258}))
    return folder


def prompts(**change: Any) -> tuple[Prompt, ...]:
    keys = [UnitKey("x", "s", f"c-{number}") for number in range(12)]
    return tuple(
        replace(Prompt(key=key, case_hash="h", token_ids=(1, 20 + at), max_new_tokens=MOST), **change)
        for at, key in enumerate(keys)
    )


def answered(
    model: Model, folder: Path, artifact: Path, name: str = "v", rows: Sequence[int] | None = None, **change: Any
) -> JobResult:
    with scripted(otherwise=model) as server:
        served = Served(endpoint=server.address, tokenizer=str(folder), prompt_logprobs=4, stream=False, **change)
        arm = ArmSpec(name=name, model="m", served=served)
        asked = prompts()
        asked = asked if rows is None else tuple(asked[row] for row in rows)
        job = Job(index=0, arm=arm, prompts=asked, artifact=str(artifact), drafted=name != "baseline", seed=5)
        return run_served(job, {"temperature": 0}, 4)


@pytest.fixture
def left(tokenizer, tmp_path) -> tuple[JobResult, Path]:
    artifact = tmp_path / "run" / "job-0.safetensors"
    return answered(Model(), tokenizer, artifact, "baseline"), artifact


def plain(model: Model) -> list[list[int]]:
    return [model.answer(list(prompt.token_ids), MOST) for prompt in prompts()]


def said(result: JobResult) -> list[list[int]]:
    return [list(completion.token_ids) for completion in result.completions]


@pytest.mark.parametrize("other", [0.0, 0.05, 0.3, 3.0])
def test_drafted_answers_are_the_plain_ones_for_fewer_tokens(other, left, tokenizer):
    baseline, artifact = left
    model = Model(other=other)
    result = answered(model, tokenizer, artifact)
    assert said(result) == plain(model)
    whole = sum(map(len, plain(model)))
    checked = result.generation.checked
    assert checked > 0
    if other == 0:
        assert said(result) == said(baseline)
        assert model.said == checked
    elif other < 1:
        assert checked < model.said < whole
    accepted = sum(completion.baseline_accepted for completion in result.completions)
    assert accepted + model.said + result.generation.forked == whole + checked
    assert result.generation.tokens == model.said + len(prompts())  # each reading costs vLLM a token
    assert result.generation.because == ""


def test_drift_is_that_of_both_servers_distributions(left, tokenizer):
    baseline, artifact = left
    model = Model(other=0.3, floor=True)
    drifts = {drift.key.case_id: drift for drift in answered(model, tokenizer, artifact).drifts}
    differed = 0
    for prompt, answer in zip(prompts(), said(baseline), strict=True):
        before = [prompt.token_ids[-1], *answer[:-1]]
        p, q = (np.array([of.logprobs(last) for last in before]) for of in (Model(), model))
        true = (np.exp(p) * (p - q)).sum(-1)
        drift = drifts[prompt.key.case_id]
        assert (np.array(drift.kl) <= true).all()
        assert (np.array(drift.kl_upper) >= true).all()
        apart = np.flatnonzero(p.argmax(-1) != q.argmax(-1))
        assert drift.top1_differs == tuple(apart)
        assert drift.first_divergence == (int(apart[0]) if len(apart) else None)
        differed += len(apart)
    assert differed


def test_some_of_a_batchs_cases_are_asked_as_all_are(left, tokenizer):
    _, artifact = left
    whole = answered(Model(other=0.3), tokenizer, artifact)
    part = answered(Model(other=0.3), tokenizer, artifact, rows=(3, 0))
    assert said(part) == [said(whole)[3], said(whole)[0]]
    assert [drift.kl for drift in part.drifts] == [whole.drifts[3].kl, whole.drifts[0].kl]


def test_without_the_least_likely_token_a_kl_is_bounded_from_below_alone(left, tokenizer):
    _, artifact = left
    for drift in answered(Model(other=0.3), tokenizer, artifact).drifts:
        assert set(drift.kl_upper or ()) == {inf}
        assert max(drift.kl) > 0


def test_a_server_that_reads_otherwise_than_it_says_is_asked_plainly(left, tokenizer):
    _, artifact = left
    model = Model(reading=3.0)
    result = answered(model, tokenizer, artifact)
    assert said(result) == plain(model)
    assert "asked plainly" in result.generation.because
    assert "no near tie" in result.generation.because
    assert {completion.baseline_proposed for completion in result.completions} == {0}


def test_a_server_that_says_otherwise_each_time_is_no_reason_to_refuse_drafts(left, tokenizer):
    _, artifact = left
    model = Model(reading=3.0, whim=3.0)
    result = answered(model, tokenizer, artifact)
    assert result.generation.because == ""
    assert {completion.baseline_proposed for completion in result.completions} != {0}


@pytest.mark.parametrize(
    ("of_baseline", "change"),
    [
        ({"hides_its_end": True}, {}),  # it does not tell the token that ended its answer
        ({"context": 12}, {}),
        ({"ends": frozenset({258, 40})}, {"ends": frozenset({258})}),
        ({"ends": frozenset()}, {"ends": frozenset({258})}),
    ],
)
def test_an_answer_that_ended_as_the_variants_would_not_is_no_draft(of_baseline, change, tokenizer, tmp_path):
    artifact, model = tmp_path / "run" / "job-0.safetensors", Model(**change)
    theirs = said(answered(Model(**of_baseline), tokenizer, artifact, "baseline"))
    result = answered(model, tokenizer, artifact)
    assert said(result) == plain(model)
    assert theirs != plain(Model(**change))


@pytest.mark.parametrize(
    "change",
    [{"sampling": Sampling(temperature=0.5)}, {"until": ("x",)}, {"asked": '{"response_format": {}}'}],
)
def test_what_is_drawn_steered_or_stopped_by_a_text_is_asked_plainly(change, left, tokenizer, monkeypatch):
    _, artifact = left
    monkeypatch.setattr("tests.served.test_answering.prompts", lambda: tuple(replace(p, **change) for p in ALL))
    model = Model(other=0.05)
    result = answered(model, tokenizer, artifact)
    assert {completion.baseline_proposed for completion in result.completions} == {0}
    assert sum("prompt_logprobs" not in body for body in model.asked) == len(ALL)
    assert len(result.drifts) == len(ALL)


ALL = prompts()


def test_a_model_whose_own_settings_penalize_is_asked_plainly(tokenizer, tmp_path):
    folder = shutil.copytree(tokenizer, tmp_path / "penalized")
    for penalty, drafted in ((1.0, True), (1.05, False)):
        (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": penalty, "eos_token_id": 258}))
        artifact = tmp_path / str(penalty) / "job-0.safetensors"
        answered(Model(), folder, artifact, "baseline")
        result = answered(Model(other=0.05), folder, artifact)
        assert any(completion.baseline_proposed for completion in result.completions) is drafted


def test_what_goes_with_each_request_may_steer_so_answers_are_asked_plainly(left, tokenizer):
    _, artifact = left
    result = answered(Model(), tokenizer, artifact, extra_body='{"logit_bias": {"1": 5}}')
    assert {completion.baseline_proposed for completion in result.completions} == {0}


def without_the_first(told: list[Any]) -> list[Any]:
    return told[1:]


def of_another_text(told: list[Any]) -> list[Any]:
    return [told[0], *told[:0:-1]]


def too_likely(told: list[Any]) -> list[Any]:
    return [one and {key: {**entry, "logprob": 0.0} for key, entry in one.items()} for one in told]


def misranked(told: list[Any]) -> list[Any]:
    return [one and {key: {**entry, "rank": SIZE - entry["rank"]} for key, entry in one.items()} for one in told]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda told: None, "lists 0 places"),
        (without_the_first, "places of"),
        (of_another_text, "read other tokens"),
        (too_likely, "more than a probability of 1"),
        (misranked, "ranks are not those"),
    ],
)
def test_lists_that_no_reading_can_have_are_refused(spoil, why, left, tokenizer):
    _, artifact = left
    with pytest.raises(UsageError, match=why):
        answered(Model(spoil=spoil), tokenizer, artifact)


def test_an_artifact_of_another_job_is_not_read_and_made_again(left, tokenizer):
    _, artifact = left
    moved = artifact.with_name("job-1.safetensors")
    artifact.rename(moved)
    with pytest.raises(InfrastructureError, match="cannot be read"):
        answered(Model(), tokenizer, moved)
    assert not moved.exists()
    write_sealed(moved, b"nothing")
    with pytest.raises(InfrastructureError, match="cannot be read"):
        answered(Model(), tokenizer, moved)
