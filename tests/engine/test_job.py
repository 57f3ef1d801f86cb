"""A job's answers are those of transformers.generate, and what is told of them is true."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from qualgate.engine.job import run_job
from qualgate.engine.loaded import LoadedArm
from qualgate.errors import InfrastructureError
from tests.engine.engines import generated
from tests.engine.jobs import job, loaded, under
from tests.tiny_models import END

STOPS = (END, 3, 50, 99, 120, 200)
RUN_BY = {"llama": ("plain", "packed", "padded"), "gemma2": ("packed", "padded"), "gpt_neox": ("packed", "padded")}


@pytest.fixture(scope="module", params=[(arch, kind) for arch, kinds in RUN_BY.items() for kind in kinds], ids="-".join)
def arm(request, saved, tmp_path_factory) -> LoadedArm:
    arch, kind = request.param
    folder = saved(arch=arch, eos_token_ids=STOPS, dtype="float32")
    return under(kind, loaded(folder, tmp_path_factory.mktemp("cache"), dtype="float32"))


@pytest.fixture(scope="module")
def theirs(arm):
    """The model as transformers has it, which no engine of ours touched."""
    return AutoModelForCausalLM.from_pretrained(arm.spec.model).eval()


@pytest.fixture(scope="module")
def expected(arm, theirs) -> list[list[int]]:
    """What transformers.generate answers each prompt alone."""
    return [generated(theirs, prompt.token_ids, prompt.max_new_tokens, arm.stop_ids) for prompt in job(arm, "").prompts]


def test_one_row_at_a_time_is_identical_to_transformers_and_a_batch_but_for_near_ties(arm, expected):
    work = job(arm, "")
    for prompt, tokens in list(zip(work.prompts, expected, strict=True))[:5]:
        assert list(run_job(arm, replace(work, prompts=(prompt,))).completions[0].token_ids) == tokens
    for completion, tokens in zip(run_job(arm, work).completions, expected, strict=True):
        pairs = zip(completion.token_ids, tokens, strict=False)
        fork = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        assert completion.margins[fork] < 1e-4 if fork is not None else list(completion.token_ids) == tokens


def test_completions_carry_what_was_measured(arm, theirs):
    work = job(arm, "", count=16)
    completions = run_job(arm, work).completions
    assert [completion.key for completion in completions] == [prompt.key for prompt in work.prompts]
    assert {completion.finish_reason for completion in completions} == {"eos", "length"}
    for completion, prompt in zip(completions, work.prompts, strict=True):
        ids, ended = completion.token_ids, completion.finish_reason == "eos"
        assert ended == (ids[-1] in arm.stop_ids)
        assert ended or len(ids) == prompt.max_new_tokens
        assert not set(ids[:-1]) & set(arm.stop_ids)
        assert completion.text == arm.tokenizer.decode(ids[:-1] if ended else ids)
        assert 0 < completion.ttft <= completion.e2e
        assert (completion.max_gap is None) == (len(ids) == 1)
        assert completion.max_gap is None or completion.tpot <= completion.max_gap <= completion.e2e - completion.ttft
        assert (completion.baseline_proposed, completion.baseline_accepted) == (0, 0)
        # The log-probs and margins of an independent pass over prompt and answer.
        with torch.inference_mode():
            whole = theirs(torch.tensor([prompt.token_ids + ids])).logits[0]
        logits = whole[len(prompt.token_ids) - 1 : -1].double()
        best, second = logits.topk(2).values.unbind(-1)
        reference = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logprobs).double(), reference, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(completion.margins).double(), best - second, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["plain", "packed", "padded"])
@pytest.mark.parametrize("weight", ["lm_head.weight", "model.embed_tokens.weight"])
def test_nan_logits_are_a_failure_that_names_arm_and_cases_never_an_answer(saved, tiny_arm, tmp_path, kind, weight):
    """One row of a weight is NaN: of the head, which spoils all, or of the embedding, which spoils who reads it."""
    work = job(tiny_arm, "", count=6)
    poison = work.prompts[4].token_ids[0]
    shutil.copytree(saved(), tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    tensors[weight][poison] = float("nan")
    save_file(tensors, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    broken = [prompt.key.case_id for prompt in work.prompts if poison in prompt.token_ids or weight[0] == "l"]
    with pytest.raises(InfrastructureError, match=rf"baseline: .* NaN or infinite on .*set/{broken[0]}"):
        run_job(under(kind, loaded(tmp_path / "model", tmp_path)), work)
