"""Baseline-drafted evaluation: the variant's own answer, found faster; and the drift that comes with it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from qualgate.engine import dense
from qualgate.engine.choice import choose_engine
from qualgate.engine.head import finished
from qualgate.engine.job import run_job
from qualgate.engine.likelihood import kl_divergence
from qualgate.engine.loaded import LoadedArm
from qualgate.errors import InfrastructureError, UsageError
from qualgate.quant.sealed_tensors import read_tensors
from qualgate.records import GREEDY, Job, Sampling
from tests.engine.jobs import ENGINES, INT4, job, loaded, said, sampled, under
from tests.tiny_models import END

STOPS = (END, 3, 50, 99, 120, 200)


@pytest.fixture(scope="module", params=ENGINES)
def arms(request, arms_of, tmp_path_factory):
    """(baseline, its result, artifact, loads another arm of the folder), all under one engine."""
    arm, artifact = arms_of(request.param, STOPS), tmp_path_factory.mktemp("artifacts") / "artifacts/job.safetensors"
    baseline = arm("baseline")
    return baseline, run_job(baseline, job(baseline, artifact, count=12)), artifact, arm


def test_drafting_changes_nothing_but_the_cost(arms):
    _, reference, artifact, arm = arms
    variant = arm("variant", INT4)
    drafted, plain = (run_job(variant, job(variant, artifact, drafted=how, count=12)) for how in (True, False))
    exact = variant.choice.kind != "padded"  # there a row's bits are those of its batch
    for one, other, base in zip(drafted.completions, plain.completions, reference.completions, strict=True):
        fork = next((i for i, (a, b) in enumerate(zip(one.token_ids, other.token_ids, strict=False)) if a != b), None)
        assert fork is None or (not exact and one.margins[fork] < 1e-4)
        assert not exact or (one.logprobs, one.margins) == (other.logprobs, other.margins), "to the bit"
        if fork is None:
            assert (one.token_ids, one.text, one.finish_reason) == (other.token_ids, other.text, other.finish_reason)
            np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=1e-4, atol=1e-5)
        agreed = [a == b for a, b in zip(one.token_ids, base.token_ids, strict=False)]
        assert one.baseline_proposed == len(base.token_ids)
        assert one.baseline_accepted == (agreed.index(False) if False in agreed else len(agreed))
    for one, other in zip(drafted.drifts, plain.drifts, strict=True):
        assert (one.first_divergence, one.top1_agreement) == (other.first_divergence, other.top1_agreement)
        np.testing.assert_allclose(one.kl, other.kl, rtol=1e-3, atol=1e-9)
        assert not exact or one.kl == other.kl
    assert sum(completion.baseline_accepted for completion in drafted.completions) > 0


@pytest.mark.parametrize("weighed", [(), (0, 3, 7), tuple(range(11))], ids=["none", "some", "all but one"])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0)], ids=["greedy", "drawn"])
def test_only_weighed_answers_are_read_and_no_answer_changes(arms, tmp_path, weighed, sampling):
    base, _, _, arm = arms
    variant, artifact = arm("variant", INT4), tmp_path / "run" / "job.safetensors"

    def work(arm: LoadedArm, drafted: bool = False, chosen: tuple[int, ...] = tuple(range(12))) -> Job:
        whole = sampled(job(arm, artifact, drafted=drafted, count=12), sampling)
        return replace(
            whole, prompts=tuple(replace(prompt, weighed=row in chosen) for row, prompt in enumerate(whole.prompts))
        )

    every = run_job(base, work(base))
    expected = run_job(variant, work(variant))
    artifact.unlink()
    assert said(run_job(base, work(base, chosen=weighed))) == said(every)
    columns, _ = read_tensors(artifact)
    assert len(columns["states"]) == sum(len(every.completions[row].token_ids) for row in weighed)
    for drafted in (True, False):
        found = run_job(variant, work(variant, drafted, weighed))
        if variant.choice.kind != "padded":  # there a row's bits are those of its batch
            assert said(found) == said(expected)
            assert found.drifts == tuple(expected.drifts[row] for row in weighed)
        assert [drift.key.case_id for drift in found.drifts] == [f"case-{row}" for row in weighed]
        for one, base_answer in zip(found.completions, every.completions, strict=True):
            agreed = [a == b for a, b in zip(one.token_ids, base_answer.token_ids, strict=False)]
            shared = agreed.index(False) if False in agreed else len(agreed)
            assert one.baseline_accepted == (shared if drafted else 0)


def test_drift_agrees_with_a_float64_oracle(arms):
    baseline, reference, artifact, arm = arms
    variant = arm("variant", INT4)
    work = job(variant, artifact, drafted=True, count=12)
    result = run_job(variant, work)
    for prompt, base, drift, kept in zip(
        work.prompts, reference.completions, result.drifts, result.completions, strict=True
    ):
        ids = torch.tensor([prompt.token_ids + base.token_ids])
        with torch.inference_mode():
            p, q = (
                one.model(ids).logits[0, len(prompt.token_ids) - 1 : -1].double().log_softmax(-1).numpy()
                for one in (baseline, variant)
            )
        np.testing.assert_allclose(drift.kl, (np.exp(p) * (p - q)).sum(-1), rtol=1e-3, atol=1e-6)
        agrees = q.argmax(-1) == base.token_ids
        assert drift.top1_agreement == agrees.mean()
        assert drift.top1_differs == tuple(np.flatnonzero(~agrees))
        assert drift.first_divergence == (None if agrees.all() else int(agrees.argmin()))
        assert drift.length_ratio == len(kept.token_ids) / len(base.token_ids)


def test_the_baseline_does_not_drift_from_itself(arms):
    _, reference, artifact, arm = arms
    same = arm("same")
    result = run_job(same, job(same, artifact, drafted=True, count=12))
    assert all(drift.first_divergence is None and drift.top1_agreement == 1.0 for drift in result.drifts)
    # One pass over the answer and many steps have the same bits; in padded batches they round differently.
    most = max(max(drift.kl) for drift in result.drifts)
    assert most == 0 if same.choice.kind != "padded" else most < 1e-9
    for one, base in zip(result.completions, reference.completions, strict=True):
        assert (one.token_ids, one.baseline_accepted) == (base.token_ids, len(base.token_ids))


def test_kl_of_equal_logits_is_exactly_zero_and_chunks_do_not_matter(monkeypatch):
    logits = torch.randn(50, 40) * 5
    assert kl_divergence(logits, logits).tolist() == [0.0] * 50
    other = logits + torch.randn(50, 40)
    whole = kl_divergence(logits, other)
    monkeypatch.setattr("qualgate.engine.likelihood.FLOAT64_AT_ONCE", 41)
    assert torch.equal(whole, kl_divergence(logits, other))
    assert (whole > 0).all()


def test_an_artifact_that_is_missing_broken_or_of_other_cases_is_a_failure_and_made_again(arms, tmp_path):
    _, _, artifact, arm = arms
    variant = arm("variant", INT4)
    with pytest.raises(InfrastructureError, match="cannot be read"):
        run_job(variant, job(variant, tmp_path / "gone.safetensors", drafted=True))
    for broken in ("", "job.safetensors", "head-*"):
        copies = Path(shutil.copytree(artifact.parent, tmp_path / "artifacts", dirs_exist_ok=True))
        work = job(variant, copies / artifact.name, drafted=True, count=12)
        if not broken:
            other = replace(work.prompts[3], case_hash="of another text")
            with pytest.raises(InfrastructureError, match="of other cases"):
                run_job(variant, replace(work, prompts=(*work.prompts[:3], other)))
            continue
        next(copies.glob(broken)).write_bytes(b"half")
        with pytest.raises(InfrastructureError, match="cannot be read"):
            run_job(variant, work)
        assert not (copies / artifact.name).exists()
        assert not list(copies.glob(broken))


def windows(row: int) -> tuple:
    return tuple((((row + 1, 2, n + 3), (7, row + 9, n + 1)),) * (1 + n) for n in range(1 + row % 3))


@pytest.mark.parametrize("likelihoods", [False, True], ids=["answers", "windows"])
def test_some_of_a_batchs_cases_are_read_from_its_artifact_as_all_are(arms, tmp_path, likelihoods):
    baseline, _, artifact, arm = arms
    variant = arm("variant", INT4)
    work = job(variant, artifact, drafted=True, count=12)
    if likelihoods:
        prompts = tuple(replace(prompt, requests=windows(row)) for row, prompt in enumerate(work.prompts[:5]))
        work = replace(work, prompts=prompts, artifact=str(tmp_path / "artifacts" / "windows.safetensors"))
        run_job(baseline, replace(work, arm=baseline.spec))
    whole = run_job(variant, work)
    for some in ([3], [4, 0], [1, 2, 4]) if likelihoods else ([7, 0, 5, 11],):
        part = run_job(variant, replace(work, prompts=tuple(work.prompts[row] for row in some)))
        for row, kept, drift in zip(some, part.completions, part.drifts, strict=True):
            assert kept.token_ids == whole.completions[row].token_ids
            assert drift.top1_differs == whole.drifts[row].top1_differs
            assert variant.choice.kind == "padded" or likelihoods or drift == whole.drifts[row]
            np.testing.assert_allclose(drift.kl, whole.drifts[row].kl, atol=1e-6 if likelihoods else 1e-9)
            assert not likelihoods or max(drift.kl) > 0


def test_vocabularies_of_other_sizes_are_not_compared(arms, tmp_path):
    baseline, _, artifact, _ = arms
    variant = under(baseline.choice.kind, loaded(Path(baseline.spec.model), tmp_path, "variant"))
    dense.take_back(variant.model)
    variant.model.resize_token_embeddings(320, mean_resizing=False)
    variant = replace(variant, choice=choose_engine(variant.model))
    with pytest.raises(UsageError, match="320 entries"):
        run_job(variant, job(variant, artifact, drafted=True, count=12))


@pytest.mark.parametrize("stops", [(END, 3, 50), (*STOPS, *range(0, 256, 7))], ids=["fewer", "more"])
def test_a_variant_with_other_stop_tokens_ends_at_its_own(arms, stops):
    """Fewer: it goes on where the baseline ended. More: it ends inside the baseline's answer."""
    _, reference, artifact, arm = arms
    variant = replace(arm("same"), stop_ids=tuple(sorted(set(stops))))
    drafted = run_job(variant, job(variant, artifact, drafted=True, count=12)).completions
    plain = run_job(variant, job(variant, artifact, count=12)).completions
    assert [c.token_ids for c in drafted] == [c.token_ids for c in plain]
    assert [(c.text, c.finish_reason) for c in drafted] == [(c.text, c.finish_reason) for c in plain]
    for one, other in zip(drafted, plain, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=1e-4, atol=1e-5)
        assert one.baseline_accepted <= len(one.token_ids)
    assert any(a.token_ids != b.token_ids for a, b in zip(drafted, reference.completions, strict=True))


def test_what_comes_after_the_head_is_done_again_from_the_config(arms):
    _, _, artifact, _ = arms
    columns, _ = read_tensors(artifact)
    assert columns["states"].shape[1] == 64  # the hidden width: not the vocabulary, also for a soft cap
    logits = torch.randn(3, 5) * 50
    assert finished(logits, {"final_logit_softcapping": 30.0}).abs().max() <= 30
    assert torch.equal(finished(logits, {"logit_scale": 0.5}), finished(logits, {"logits_scaling": 2.0}))
