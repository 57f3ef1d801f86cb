"""A variant weighed against a baseline by hidden states: by the drift kernel, by logits, in any company."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qualgate.engine import drift
from qualgate.engine.artifact import read_artifact
from qualgate.engine.drift import weigh
from qualgate.engine.forward import Decoder, open_decoder
from qualgate.engine.job import run_job
from qualgate.engine.likelihood import read_answers
from qualgate.engine.sampling import Draws
from qualgate.records import Sampling
from tests.engine.jobs import INT4, job, loaded
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def pair(request, tmp_path_factory):
    """(job, variant) behind a baseline's artifact. gemma2 caps its logits, which the kernel does not."""
    folder = tmp_path_factory.mktemp("model")
    model = save_tiny_model(folder / "model", arch=request.param)
    artifact = folder / "job.safetensors"
    baseline = loaded(model, folder)
    run_job(baseline, job(baseline, artifact, count=6))
    variant = loaded(model, folder, "v", INT4)
    return job(variant, artifact, drafted=True, count=6), variant


def weighed(pair, draws=None):
    """Every row's columns, [answer] each, by row."""
    work, variant = pair
    baseline = read_artifact(work, torch.device("cpu"))
    prompts, found = [prompt.token_ids for prompt in work.prompts], {}
    with open_decoder(variant.model) as decoder:
        for reading in read_answers(decoder, prompts, baseline.answers, keep_cache=False, lean=True):
            columns = weigh(reading, decoder, baseline, draws)
            for place, (row, length) in enumerate(zip(reading.rows.tolist(), reading.offered.tolist(), strict=True)):
                flat = (*columns.said, columns.given, columns.kl, columns.top)
                found[row] = [column[place, :length].double().numpy() for column in flat]
    return [np.concatenate(columns) for columns in zip(*(found[row] for row in sorted(found)), strict=True)]


def test_the_kernel_and_full_logits_say_the_same(pair, monkeypatch):
    draws = Draws(seed=3, cases=torch.arange(6), sampling=Sampling(temperature=1.0))
    by_logits, drawn = weighed(pair), weighed(pair, draws)
    assert (drawn[0] != by_logits[0]).any()
    calls = []
    kernel = drift.drift
    monkeypatch.setattr(drift, "drift", lambda *heads, **more: calls.append(1) or kernel(*heads, **more))
    monkeypatch.setattr(drift, "KERNEL_FROM", 0)
    by_kernel = weighed(pair)
    capped = pair[1].model.config.model_type == "gemma2"
    assert bool(calls) is not capped
    assert torch.equal(*(torch.from_numpy(one[0]) for one in (drawn, weighed(pair, draws)))), "drawn from logits"
    names = ("token", "logprob", "margin", "finite", "given", "kl", "top")
    for name, one, other in zip(names, by_kernel, by_logits, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=0 if name in ("token", "top") else 3e-6, err_msg=name)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kernel_from", [0, 2**30], ids=["kernel", "logits"])
def test_a_position_does_not_notice_the_others(pair, monkeypatch, kernel_from, one_thread):
    work, variant = pair
    monkeypatch.setattr(drift, "KERNEL_FROM", kernel_from)
    baseline = read_artifact(work, torch.device("cpu"))
    with open_decoder(variant.model) as decoder:
        prompts = [prompt.token_ids for prompt in work.prompts]
        (reading,) = read_answers(decoder, prompts, baseline.answers, keep_cache=False, lean=True)
        whole = weigh(reading, decoder, baseline)
        for chosen in ([3], [5, 0, 2]):
            fields = {name: getattr(reading, name)[chosen] for name in ("rows", "answer", "offered", "hidden", "start")}
            fewer = drift.Reading(**fields, logits=None, stop=reading.stop, cache=None)
            part = weigh(fewer, decoder, baseline)
            for one, all_ in zip((*part.said, part.given, part.kl, part.top),
                                 (*whole.said, whole.given, whole.kl, whole.top), strict=True):  # fmt: skip
                assert torch.equal(one, all_[chosen])


def test_a_model_that_does_something_unknown_is_read_with_its_own_logits(pair, monkeypatch):
    known = weighed(pair)
    monkeypatch.setattr(Decoder, "knows", lambda self, step: False)
    for one, other in zip(weighed(pair), known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_reading_holds_no_logits(pair, monkeypatch):
    """The head is given one position a row, and then no more than the few that are met at a time."""
    monkeypatch.setattr(drift, "POSITIONS", 5)
    given = []
    hook = (
        pair[1]
        .model.get_output_embeddings()
        .register_forward_hook(lambda _, inputs, logits: given.append(logits.numel() // logits.shape[-1]))
    )
    weighed(pair)
    hook.remove()
    assert max(given) <= len(pair[0].prompts)
