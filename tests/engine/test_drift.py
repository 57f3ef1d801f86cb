"""A variant weighed against a baseline by hidden states, in any company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from qualgate.engine import drift, packed
from qualgate.engine.artifact import BaselineAnswers, read_artifact
from qualgate.engine.choice import open_engine
from qualgate.engine.drift import weigh
from qualgate.engine.head import OutputHead
from qualgate.engine.job import run_job
from qualgate.engine.padded import forward, transcript
from qualgate.engine.padded.forward import Decoder
from qualgate.engine.request import Read, Request
from qualgate_kernels import dispatch
from tests.engine.jobs import ENGINES, INT4, job, under


@pytest.fixture(scope="module", params=ENGINES)
def pair(request, arms_of, tmp_path_factory):
    """(job, variant) behind a baseline's artifact. gemma2, the packed one, caps its logits, which the kernel does
    not."""
    arm, artifact = arms_of(request.param), tmp_path_factory.mktemp("artifact") / "job.safetensors"
    run_job(arm(), job(arm(), artifact, count=6))
    variant = arm("variant", INT4)
    return job(variant, artifact, drafted=True, count=6), variant


def reads(pair) -> tuple[list[Read], OutputHead, BaselineAnswers]:
    """What the variant's engine tells of the baseline's answers."""
    work, variant = pair
    baseline, told = read_artifact(work, torch.device("cpu")), []
    asked = [
        Request(prompt=prompt.token_ids, answer=answer)
        for prompt, answer in zip(work.prompts, baseline.answers, strict=True)
    ]
    with open_engine(variant.model, variant.choice) as engine:
        engine.run(asked, None, told.append)
        return [event for event in told if isinstance(event, Read)], engine.head, baseline


def weighed(pair) -> list[np.ndarray]:
    """Every position's columns, each answer's in its order: token, logprob, margin, finite, given, kl, top."""
    events, head, baseline = reads(pair)
    rows = {}
    for event in events:
        found = weigh(event, head, baseline)
        columns = (*event.predicted, found.given, found.kl, found.top)
        for at, place in enumerate(zip(event.requests, event.positions, strict=True)):
            rows[place] = [float(column[at]) for column in columns]
    assert sorted(rows) == [(row, at) for row, answer in enumerate(baseline.answers) for at in range(len(answer))]
    return [np.array(column) for column in zip(*(rows[place] for place in sorted(rows)), strict=True)]


def test_the_kernel_and_float64_say_the_same(pair, monkeypatch):
    by_twin, calls = weighed(pair), []
    in_c = dispatch.kl_cpu.kl
    monkeypatch.setattr(dispatch.kl_cpu, "kl", lambda *inputs: calls.append(1) or in_c(*inputs))
    monkeypatch.setattr(dispatch, "LARGE", 0)
    by_kernel = weighed(pair)
    assert bool(calls) is not bool(dispatch.kl_cpu.missing())
    names = ("token", "logprob", "margin", "finite", "given", "kl", "top")
    for name, one, other in zip(names, by_kernel, by_twin, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=0 if name in ("token", "top") else 3e-6, err_msg=name)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("large", [0, 2**30], ids=["kernel", "twin"])
def test_a_position_does_not_notice_the_others(pair, monkeypatch, large, one_thread):
    monkeypatch.setattr(dispatch, "LARGE", large)
    events, head, baseline = reads(pair)
    whole = weigh(event := max(events, key=lambda one: len(one.requests)), head, baseline)
    last = len(event.requests) - 1
    for chosen in ([3], [last, 0, 2], [*range(5, last)]):
        fewer = replace(
            event,
            requests=[event.requests[at] for at in chosen],
            positions=[event.positions[at] for at in chosen],
            answer=event.answer[chosen],
            states=event.states[chosen],
            logits=event.logits[chosen],
        )
        part = weigh(fewer, head, baseline)
        for name in ("likeliest", "given", "kl", "top"):
            assert torch.equal(getattr(part, name), getattr(whole, name)[chosen]), name


def test_a_model_that_does_something_unknown_is_read_with_its_own_logits(pair, monkeypatch):
    known, (work, variant) = weighed(pair), pair
    by_modules = variant if variant.choice.kind == "padded" else under("packed", variant)
    unknown = work, replace(by_modules, choice=replace(by_modules.choice, whole=False))
    monkeypatch.setattr(Decoder, "try_head", lambda self: setattr(self.head, "whole", False))  # the padded engine's
    events, head, _ = reads(unknown)
    assert not head.whole
    assert all(event.states.shape[1] == head.vocabulary for event in events)
    for one, other in zip(weighed(unknown), known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_no_more_logits_are_held_than_are_met_at_a_time(pair, monkeypatch):
    """Of either model, whatever is read in one pass."""
    for module in (drift, packed, transcript):
        monkeypatch.setattr(module, "LOGITS_AT_ONCE", 5 * 260)
    monkeypatch.setattr(forward, "TRIED", 5)
    given = []
    hook = (
        pair[1]
        .model.get_output_embeddings()
        .register_forward_hook(lambda _, inputs, logits: given.append(logits.numel() // logits.shape[-1]))
    )
    events, head, baseline = reads(pair)
    logits_of = BaselineAnswers.logits_of
    monkeypatch.setattr(
        BaselineAnswers, "logits_of", lambda self, states: given.append(len(states)) or logits_of(self, states)
    )
    for event in events:
        weigh(event, head, baseline)
    hook.remove()
    assert max(len(event.requests) for event in events) == max(given) == 5
