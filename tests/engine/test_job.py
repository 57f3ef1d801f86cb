"""A job's answers are those of transformers.generate, and what is told of them is true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from qualgate.engine.job import run_job
from qualgate.engine.load import LoadedArm
from qualgate.errors import InfrastructureError
from tests.engine.jobs import job, loaded, under
from tests.tiny_models import END, PAD, save_tiny_model

STOPS = (END, 3, 50, 99, 120, 200)
RUN_BY = {"llama": ("plain", "packed", "padded"), "gemma2": ("packed", "padded"), "gpt_neox": ("packed", "padded")}


@pytest.fixture(scope="module", params=[(arch, kind) for arch, kinds in RUN_BY.items() for kind in kinds], ids="-".join)
def arm(request, tmp_path_factory) -> LoadedArm:
    arch, kind = request.param
    folder = save_tiny_model(tmp_path_factory.mktemp("model"), arch=arch, eos_token_ids=STOPS, dtype="float32")
    return under(kind, loaded(folder, folder, dtype="float32"))


@pytest.fixture(scope="module")
def theirs(arm):
    """The model as transformers has it, which no engine of ours touched."""
    return AutoModelForCausalLM.from_pretrained(arm.spec.model).eval()


def generated(model, stop_ids, prompts, width: int) -> list[list[int]]:
    """What transformers.generate answers, in batches of `width` padded on the left."""
    answers = []
    for start in range(0, len(prompts), width):
        part = prompts[start : start + width]
        longest = max(len(prompt.token_ids) for prompt in part)
        ids = torch.tensor([[PAD] * (longest - len(p.token_ids)) + list(p.token_ids) for p in part])
        mask = torch.tensor([[0] * (longest - len(p.token_ids)) + [1] * len(p.token_ids) for p in part])
        said = model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=max(p.max_new_tokens for p in part),
            eos_token_id=list(stop_ids), pad_token_id=PAD,
        )[:, longest:].tolist()  # fmt: skip
        for prompt, tokens in zip(part, said, strict=True):
            ends = [place + 1 for place, token in enumerate(tokens) if token in stop_ids]
            answers.append(tokens[: min([*ends, prompt.max_new_tokens])])
    return answers


def test_one_row_at_a_time_is_identical_to_transformers(arm, theirs):
    work = job(arm, "", count=6)
    expected = generated(theirs, arm.stop_ids, work.prompts, 1)
    for number, prompt in enumerate(work.prompts):
        alone = run_job(arm, replace(work, prompts=(prompt,)))
        assert list(alone.completions[0].token_ids) == expected[number]


def test_a_batch_of_16_differs_from_transformers_only_at_near_ties(arm, theirs):
    work = job(arm, "", count=16)
    expected = generated(theirs, arm.stop_ids, work.prompts, 16)
    mismatches = []
    for completion, tokens in zip(run_job(arm, work).completions, expected, strict=True):
        fork = next(
            (i for i, pair in enumerate(zip(completion.token_ids, tokens, strict=False)) if len({*pair}) > 1), None
        )
        if fork is not None:
            mismatches.append((completion.key.case_id, fork, completion.margins[fork]))
        else:
            assert list(completion.token_ids) == tokens
    assert all(margin < 1e-4 for *_, margin in mismatches), mismatches


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


def test_the_model_is_only_ever_called_through_forward(arm, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("generate was called")

    monkeypatch.setattr(type(arm.model), "generate", refuse)
    run_job(arm, job(arm, "", count=2))
    sources = Path(__file__).resolve().parents[2] / "qualgate" / "engine"
    assert not any(".generate(" in source.read_text(encoding="utf-8") for source in sources.rglob("*.py"))


def with_nan(folder: Path, name: str, row: int) -> Path:
    """A tiny model, one row of whose weight is NaN."""
    save_tiny_model(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors[name][row] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", ["plain", "packed", "padded"])
def test_nan_logits_are_a_failure_that_names_arm_and_cases_never_an_answer(tmp_path, kind):
    arm = under(kind, loaded(with_nan(tmp_path / "model", "lm_head.weight", 5), tmp_path))
    with pytest.raises(InfrastructureError, match=r"baseline: .* NaN or infinite on set/case-0, set/case-1"):
        run_job(arm, job(arm, "", count=3))


@pytest.mark.parametrize("kind", ["plain", "packed", "padded"])
def test_nan_on_one_case_names_that_case(tmp_path, kind):
    arm = loaded(save_tiny_model(tmp_path / "model"), tmp_path)
    work = job(arm, "", count=6)
    poison = work.prompts[4].token_ids[0]
    arm = under(kind, loaded(with_nan(tmp_path / "model", "model.embed_tokens.weight", poison), tmp_path))
    broken = [prompt.key.case_id for prompt in work.prompts if poison in prompt.token_ids]
    with pytest.raises(InfrastructureError, match=rf"set/{broken[0]}"):
        run_job(arm, work)
