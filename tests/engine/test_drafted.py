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
from qualgate.engine.packed import PackedEngine
from qualgate.engine.padded.forward import Decoder
from qualgate.errors import InfrastructureError, UsageError
from qualgate.quant.sealed_tensors import read_tensors
from tests.engine.jobs import ENGINES, INT4, INT8, arms_under, job
from tests.tiny_models import END

STOPS = (END, 3, 50, 99, 120, 200)


@pytest.fixture(scope="module", params=ENGINES)
def arms(request, tmp_path_factory):
    """(baseline, its result, artifact, loads another arm of the folder), all under one engine."""
    folder = tmp_path_factory.mktemp("model")
    arm = arms_under(request.param, folder, STOPS)
    baseline = arm("baseline")
    artifact = folder / "artifacts" / "job.safetensors"
    return baseline, run_job(baseline, job(baseline, artifact, count=12)), artifact, arm


@pytest.mark.parametrize("recipe", [INT8, INT4])
def test_drafting_changes_nothing_but_the_cost(arms, recipe):
    _, reference, artifact, arm = arms
    variant = arm("v", recipe)
    drafted = run_job(variant, job(variant, artifact, drafted=True, count=12))
    plain = run_job(variant, job(variant, artifact, count=12))
    for one, other, base in zip(drafted.completions, plain.completions, reference.completions, strict=True):
        fork = next((i for i, (a, b) in enumerate(zip(one.token_ids, other.token_ids, strict=False)) if a != b), None)
        if variant.choice.kind == "padded":  # a row's bits are those of its batch
            assert fork is None or one.margins[fork] < 1e-4
        else:
            assert fork is None
            assert (one.logprobs, one.margins) == (other.logprobs, other.margins), "to the bit"
        if fork is None:
            assert (one.token_ids, one.text, one.finish_reason) == (other.token_ids, other.text, other.finish_reason)
            np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=1e-4, atol=1e-5)
        agreed = [a == b for a, b in zip(one.token_ids, base.token_ids, strict=False)]
        assert one.baseline_proposed == len(base.token_ids)
        assert one.baseline_accepted == (agreed.index(False) if False in agreed else len(agreed))
    for one, other in zip(drafted.drifts, plain.drifts, strict=True):
        assert (one.first_divergence, one.top1_agreement) == (other.first_divergence, other.top1_agreement)
        np.testing.assert_allclose(one.kl, other.kl, rtol=1e-3, atol=1e-9)
        assert variant.choice.kind == "padded" or one.kl == other.kl
    assert sum(completion.baseline_accepted for completion in drafted.completions) > 0


def test_drift_agrees_with_a_float64_oracle(arms):
    baseline, reference, artifact, arm = arms
    variant = arm("v", INT4)
    work = job(variant, artifact, drafted=True, count=12)
    result = run_job(variant, work)
    for prompt, base, drift, said in zip(
        work.prompts, reference.completions, result.drifts, result.completions, strict=True
    ):
        ids = torch.tensor([prompt.token_ids + base.token_ids])
        with torch.inference_mode():
            p, q = (
                one.model(ids).logits[0, len(prompt.token_ids) - 1 : -1].numpy().astype(np.float64)
                for one in (baseline, variant)
            )
        log_p, log_q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (p, q))
        np.testing.assert_allclose(drift.kl, (np.exp(log_p) * (log_p - log_q)).sum(-1), rtol=1e-3, atol=1e-6)
        agrees = q.argmax(-1) == base.token_ids
        assert drift.top1_agreement == agrees.mean()
        assert drift.top1_differs == tuple(np.flatnonzero(~agrees))
        assert drift.first_divergence == (None if agrees.all() else int(agrees.argmin()))
        assert drift.length_ratio == len(said.token_ids) / len(base.token_ids)


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


def test_a_missing_artifact_or_one_of_other_cases_is_a_failure(arms, tmp_path):
    _, _, artifact, arm = arms
    variant = arm("v", INT8)
    with pytest.raises(InfrastructureError, match="cannot be read"):
        run_job(variant, job(variant, tmp_path / "gone.safetensors", drafted=True))
    copies = Path(shutil.copytree(artifact.parent, tmp_path / "artifacts"))
    work = job(variant, copies / artifact.name, drafted=True, count=12)
    other = replace(work.prompts[3], case_hash="of another text")
    with pytest.raises(InfrastructureError, match="of other cases"):
        run_job(variant, replace(work, prompts=(*work.prompts[:3], other)))


def test_some_of_a_batchs_cases_are_read_from_its_artifact_as_all_are(arms):
    _, _, artifact, arm = arms
    variant = arm("v", INT4)
    work = job(variant, artifact, drafted=True, count=12)
    some = [7, 0, 5, 11]
    whole = run_job(variant, work)
    part = run_job(variant, replace(work, prompts=tuple(work.prompts[row] for row in some)))
    for row, said, drift in zip(some, part.completions, part.drifts, strict=True):
        assert said.token_ids == whole.completions[row].token_ids
        assert drift.top1_differs == whole.drifts[row].top1_differs
        if variant.choice.kind != "padded":
            assert drift == whole.drifts[row]
        np.testing.assert_allclose(drift.kl, whole.drifts[row].kl, atol=1e-9)


def test_vocabularies_of_other_sizes_are_not_compared(arms, tmp_path):
    _, _, artifact, arm = arms
    variant = arm("v")
    dense.take_back(variant.model)
    variant.model.resize_token_embeddings(320, mean_resizing=False)
    variant = replace(variant, choice=choose_engine(variant.model))
    with pytest.raises(UsageError, match="320 entries"):
        run_job(variant, job(variant, artifact, drafted=True, count=12))


def test_only_what_diverged_is_decoded(arms, monkeypatch):
    """Of a row that agrees to the end every token is read once, and none is decoded, whatever its length."""
    _, reference, artifact, arm = arms
    same, read, decoded, passes = arm("same"), [], [], []
    states_of, step = PackedEngine.states_of, Decoder.step

    def packed(self, parts):
        passes.append(parts)
        read.extend(len(part.tokens) for part in parts)
        decoded.extend(part for part in parts if not part.stream.forced)
        return states_of(self, parts)

    def padded(self, ids, mask, cache, keep, **more):
        if cache is not None:  # without one the head is tried
            passes.append(ids)
            read.append(int(mask.sum()))
            decoded.extend(ids if ids.shape[1] == 1 else ())
        return step(self, ids, mask, cache, keep, **more)

    monkeypatch.setattr(PackedEngine, "states_of", packed)
    monkeypatch.setattr(Decoder, "step", padded)
    work = replace(job(same, artifact, drafted=True, count=12), timed=True)  # so that nothing is said once more
    run_job(same, work)
    lengths = [len(one.token_ids) for one in reference.completions]
    # The last token of an answer predicts nothing.
    assert sum(read) == sum(len(prompt.token_ids) for prompt in work.prompts) + sum(lengths) - len(lengths)
    assert not decoded
    assert len(passes) == 1, "all that fit beside each other are read at once"


@pytest.mark.parametrize("stops", [(END, 3, 50), (*STOPS, *range(0, 256, 7))], ids=["fewer", "more"])
def test_a_variant_with_other_stop_tokens_ends_at_its_own(arms, stops):
    """Fewer: it goes on where the baseline ended. More: it ends inside the baseline's answer."""
    _, reference, artifact, arm = arms
    variant = replace(arm("v"), stop_ids=tuple(sorted(set(stops))))
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


@pytest.mark.parametrize("broken", ["job.safetensors", "head-*"])
def test_a_broken_artifact_is_deleted_so_that_the_next_run_makes_it_again(arms, tmp_path, broken):
    _, _, artifact, arm = arms
    variant = arm("v")
    copies = Path(shutil.copytree(artifact.parent, tmp_path / "artifacts"))
    next(copies.glob(broken)).write_bytes(b"half")
    with pytest.raises(InfrastructureError, match="cannot be read"):
        run_job(variant, job(variant, copies / artifact.name, drafted=True, count=12))
    assert not (copies / artifact.name).exists()
    assert not list(copies.glob(broken))


def test_some_of_a_batchs_cases_are_read_likewise_where_windows_are(arms, tmp_path):
    baseline, _, _, arm = arms
    variant, artifact = arm("v", INT4), tmp_path / "artifacts" / "windows.safetensors"
    asked = job(variant, artifact, drafted=True, count=5)

    def windows(row: int) -> tuple:
        return tuple((((row + 1, 2, n + 3), (7, row + 9, n + 1)),) * (1 + n) for n in range(1 + row % 3))

    prompts = tuple(replace(prompt, requests=windows(row)) for row, prompt in enumerate(asked.prompts))
    run_job(baseline, replace(asked, arm=baseline.spec, prompts=prompts))
    whole = run_job(variant, replace(asked, prompts=prompts))
    for some in ([3], [4, 0], [1, 2, 4]):
        part = run_job(variant, replace(asked, prompts=tuple(prompts[row] for row in some)))
        for row, said, drift in zip(some, part.completions, part.drifts, strict=True):
            assert said.token_ids == whole.completions[row].token_ids
            assert drift.top1_differs == whole.drifts[row].top1_differs
            np.testing.assert_allclose(drift.kl, whole.drifts[row].kl, atol=1e-6)
            assert max(drift.kl) > 0
