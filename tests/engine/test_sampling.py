"""Answers drawn at a temperature: exact draws, and the same ones in whatever batch, order or way they are asked for."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from qualgate.engine.determinism import read_batch
from qualgate.engine.job import run_job
from qualgate.engine.sampling import Draws, greedy, noise_cases, say
from qualgate.engine.truncation import cut
from qualgate.records import Job, Sampling, UnitKey
from qualgate_kernels.gumbel import gumbel, philox_torch
from tests.engine.jobs import ENGINES, INT4, INT8, job, sampled
from tests.tiny_models import END

STOPS = (END, 3, 50, 99, 120, 200)
CPU = torch.device("cpu")


def repeated(work: Job, temperature: float = 0.8, repeats: int = 3, **cuts) -> Job:
    """The same questions, each answered `repeats` times at this temperature, by draws cut so."""
    prompts = tuple(
        replace(prompt, key=replace(prompt.key, repeat=repeat)) for prompt in work.prompts for repeat in range(repeats)
    )
    return sampled(replace(work, prompts=prompts), Sampling(temperature=temperature, **cuts), seed=11)


def answers(result) -> dict[tuple[str, int], tuple[tuple[int, ...], str, str]]:
    return {(c.key.case_id, c.key.repeat): (c.token_ids, c.text, c.finish_reason) for c in result.completions}


def drawn(logits: torch.Tensor, seed: int, cases: torch.Tensor, temperature: float, **cuts) -> torch.Tensor:
    draws = Draws(seed=seed, cases=cases, sampling=Sampling(temperature=temperature, **cuts))
    return draws.sample(logits, torch.arange(len(logits)), torch.zeros(len(logits), dtype=torch.long)).tokens


# ------------------------------------------------------------------------------------------------------ one token


def fits(counts: np.ndarray, chances: np.ndarray) -> float:
    """p-value of Pearson's chi-square; tokens expected fewer than 10 times are one."""
    expected = chances * counts.sum()
    rare = expected < 10
    seen = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    return float(chisquare(seen[wanted > 0], wanted[wanted > 0]).pvalue)


def test_draws_have_the_models_own_distribution(tiny_arm):
    """24,000 draws of one next token over seeds and cases, against float64 softmax."""
    many, temperature = 24_000, 0.7
    logits = read_batch(tiny_arm.model, tiny_arm.choice, [[5, 80, 33, 7]])[0][-1:] / 3  # flatter: many have a chance
    chances = np.exp(logits[0].numpy().astype(np.float64) / temperature)
    chances /= chances.sum()
    cases = noise_cases([UnitKey("baseline", "set", "case", repeat) for repeat in range(240)], CPU)
    tokens = torch.cat([drawn(logits.expand(240, -1), seed, cases, temperature) for seed in range(many // 240)])
    counts = np.bincount(tokens.numpy(), minlength=len(chances))
    assert (counts > 0).sum() > 30
    assert fits(counts, chances) > 1e-4
    assert fits(counts, np.roll(chances, 1)) < 1e-12, "the test tells distributions apart"


def test_a_draw_is_the_argmax_over_the_whole_vocabulary():
    """Tokens left out because no noise could lift them are never the ones: against all of the noise, at once."""
    torch.manual_seed(0)
    for scale, temperature in ((0.1, 1.0), (4.0, 1.0), (12.0, 0.5), (1.0, 5.0), (60.0, 0.3)):
        logits = scale * torch.randn(40, 3000)
        cases, positions = torch.arange(40) * 2**40 - 7, torch.arange(40) * 3
        draws = Draws(seed=9, cases=cases, sampling=Sampling(temperature=temperature))
        found = draws.sample(logits, torch.arange(40), positions)
        noisy = logits.double() / temperature + gumbel(9, torch.arange(3000), positions[:, None], cases[:, None])
        best = noisy.topk(2).values
        assert torch.equal(found.tokens, noisy.argmax(-1))
        lead = (best[:, 0] - best[:, 1]) * temperature
        near = lead < 22.9 * temperature
        torch.testing.assert_close(found.margins.double()[near], lead[near], rtol=1e-4, atol=1e-5)
        assert (found.margins[~near] >= 22.8 * temperature).all(), "no other could have been drawn"
        own = logits.double().log_softmax(-1).gather(-1, found.tokens[:, None])[:, 0]
        torch.testing.assert_close(found.logprobs.double(), own, rtol=1e-4, atol=1e-5)
        assert found.finite.all()
    broken = logits.index_fill(1, torch.tensor([4]), torch.nan)
    assert (
        not replace(draws, sampling=Sampling(temperature=1.0)).sample(broken, torch.arange(40), positions).finite.any()
    )


CUTS = [{"top_k": 12}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 40, "top_p": 0.9, "min_p": 0.05}]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_a_cut_draw_is_the_argmax_of_the_same_noise_over_what_is_left(cuts):
    """So it is the uncut draw wherever that one was left; and its margin is finite, even where one token is."""
    torch.manual_seed(2)
    logits = torch.cat([scale * torch.randn(12, 3000) for scale in (0.3, 2.0, 5.0, 60.0)])
    rows = torch.arange(len(logits))
    draws = Draws(seed=9, cases=rows * 2**40 - 7, sampling=Sampling(temperature=0.8, **cuts))
    found = draws.sample(logits, rows, rows * 3)
    noisy = cut(logits.double() / 0.8, draws.sampling)
    noisy += gumbel(9, torch.arange(3000), rows[:, None] * 3, draws.cases[:, None])
    best = noisy.topk(2).values
    assert torch.equal(found.tokens, noisy.argmax(-1))
    lead = ((best[:, 0] - best[:, 1]) * 0.8).clamp(max=22.9 * 0.8)
    assert found.margins.isfinite().all()
    near = lead < 18
    assert near.any()
    assert not near.all()
    torch.testing.assert_close(found.margins.double()[near], lead[near], rtol=1e-4, atol=1e-5)
    own = logits.double().log_softmax(-1).gather(-1, found.tokens[:, None])[:, 0]
    torch.testing.assert_close(found.logprobs.double(), own, rtol=1e-4, atol=1e-5)
    whole = replace(draws, sampling=Sampling(temperature=0.8)).sample(logits, rows, rows * 3).tokens
    kept = noisy.gather(-1, whole[:, None])[:, 0].isfinite()
    assert torch.equal(found.tokens[kept], whole[kept])


def test_of_equal_logits_a_cut_draws_by_the_noise_alone_and_breaks_no_row_beside_a_broken_one():
    even = torch.zeros(3, 50)
    even[1, 3] = torch.nan
    draws = Draws(seed=1, cases=torch.arange(3), sampling=Sampling(temperature=1.0, top_p=0.5))
    rows = torch.arange(3)
    found = draws.sample(even, rows, rows)
    assert found.finite.tolist() == [True, False, True]
    assert found.tokens[[0, 2]].max() < 25, "the lowest ids are those that stay"
    alone = draws.sample(even[[0, 2]], rows[[0, 2]], rows[[0, 2]])
    assert all(torch.equal(one, all_[[0, 2]]) for one, all_ in zip(alone, found, strict=True))
    one = replace(draws, sampling=Sampling(temperature=5.0, top_k=1))
    logits = torch.randn(3, 50)
    assert torch.equal(one.sample(logits, rows, rows).tokens, greedy(logits).tokens)


def test_a_low_temperature_is_greedy_and_a_row_has_its_bits_whatever_is_beside_it():
    torch.manual_seed(1)
    rows, places = torch.arange(64), torch.arange(64) % 7
    logits = torch.randn(64, 500) * 3.0 ** (rows[:, None] % 3)
    draws = Draws(seed=4, cases=rows * 10**15, sampling=Sampling(temperature=0.01))
    assert (draws.sample(logits, rows, places).tokens == greedy(logits).tokens).float().mean() > 0.9
    for cuts in ({}, *CUTS):
        draws = replace(draws, sampling=Sampling(temperature=1.0, **cuts))
        whole = draws.sample(logits, rows, places)
        for part in (*torch.randperm(64).split(17), *rows[:5].split(1)):
            for one, all_ in zip(draws.sample(logits[part], rows[part], places[part]), whole, strict=True):
                assert torch.equal(one, all_[part])


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.7, top_p=0.9)], ids=["greedy", "drawn"])
def test_a_row_has_its_bits_alone_and_on_several_threads_too(sampling):
    """torch sums a single row in parts, one a thread, where it is large."""
    logits, rows = torch.randn(8, 70_000, generator=torch.Generator().manual_seed(3)) * 3, torch.arange(8)
    draws = sampling and Draws(seed=4, cases=rows, sampling=sampling)
    whole, threads = say(draws, logits, range(8), range(8)), torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for part in (rows, *rows.split(1)):
                for one, all_ in zip(say(draws, logits[part], part.tolist(), part.tolist()), whole, strict=True):
                    assert torch.equal(one, all_[part])
    finally:
        torch.set_num_threads(threads)


def test_noise_is_named_by_set_case_and_repeat_and_never_by_the_arm():
    keys = [
        UnitKey("baseline", "a", "b"),
        UnitKey("int4", "a", "b"),
        UnitKey("int4", "a", "b", 1),
        UnitKey("", "ab", ""),
    ]
    numbers = noise_cases(keys, CPU).tolist()
    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 3
    assert numbers[2] == int.from_bytes(sha256(b"a\0b\x001").digest()[:8], "little", signed=True)


# ---------------------------------------------------------------------------------------------------- whole answers


@pytest.fixture(scope="module", params=ENGINES)
def arms(request, arms_of, tmp_path_factory):
    """(baseline, its sampled answers, its job, artifact, loads another arm of the folder), all under one engine."""
    arm, artifact = arms_of(request.param, STOPS), tmp_path_factory.mktemp("artifacts") / "job.safetensors"
    baseline = arm("baseline")
    work = repeated(job(baseline, artifact, count=10))
    return baseline, run_job(baseline, work), work, artifact, arm


def test_repeats_differ_and_so_do_seeds(arms):
    baseline, result, work, _, _ = arms
    said = answers(result)
    long = {case for case, _ in said if max(len(said[case, r][0]) for r in range(3)) > 4}
    assert long
    assert all(len({said[case, repeat][0] for repeat in range(3)}) == 3 for case in long)
    other = answers(run_job(baseline, replace(work, artifact="", seed=12)))
    assert sum(other[key] != said[key] for key in said) > len(said) / 2


def test_an_answer_is_the_same_in_any_batch_and_order(arms):
    baseline, result, work, _, _ = arms
    prompts, said = list(work.prompts), {}
    random.Random(3).shuffle(prompts)
    for size in (1, 4, 25):
        part, prompts = prompts[:size], prompts[size:]
        said |= answers(run_job(baseline, replace(work, prompts=tuple(part), artifact="")))
    assert said == answers(result)


CASES = [pytest.param(INT8, {}, marks=pytest.mark.proof), (INT4, {}), (INT4, {"top_p": 0.7}),
         pytest.param(INT4, {"top_k": 5, "min_p": 0.02}, marks=pytest.mark.proof)]  # fmt: skip


@pytest.mark.parametrize(("recipe", "cuts"), CASES, ids=str)
def test_a_drafted_answer_is_the_variants_own_draw(arms, tmp_path, recipe, cuts):
    baseline, arm, artifact = arms[0], arms[4], tmp_path / "artifacts" / "job.safetensors"
    reference = run_job(baseline, repeated(job(baseline, artifact, count=6), 1.2, 2, **cuts))
    variant = arm("variant", recipe)
    mine = repeated(job(variant, artifact, count=6), 1.2, 2, **cuts)
    drafted, plain = (run_job(variant, replace(mine, drafted=drafted)) for drafted in (True, False))
    alone = run_job(variant, replace(mine, artifact=""))
    assert answers(drafted) == answers(plain) == answers(alone)
    assert recipe is INT8 or answers(drafted) != answers(reference)
    for one, other in zip(drafted.completions, alone.completions, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(one.margins, other.margins, rtol=1e-3, atol=1e-3)
        assert variant.choice.kind == "padded" or (one.logprobs, one.margins) == (other.logprobs, other.margins)
    for base, one, *drifts in zip(
        reference.completions, drafted.completions, drafted.drifts, plain.drifts, strict=True
    ):
        pairs = zip(base.token_ids, one.token_ids, strict=False)
        fork = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
        assert all(drift.first_divergence == fork or fork is None for drift in drifts)
        assert len({drift.first_divergence for drift in drifts}) == 1
    assert sum(one.baseline_accepted for one in drafted.completions) > 0
    whole = run_job(variant, repeated(job(variant, "", count=6), 1.2, 2))
    assert not cuts or answers(whole) != answers(plain), "the cut leaves tokens out that would have been said"
    for prompt, one in zip(mine.prompts, drafted.completions, strict=True):
        with torch.inference_mode():
            logits = variant.model(torch.tensor([prompt.token_ids + one.token_ids])).logits[0]
        scores = cut(logits[len(prompt.token_ids) - 1 : -1].double() / 1.2, prompt.sampling)
        assert scores.gather(-1, torch.tensor(one.token_ids)[:, None]).isfinite().all()


def test_equal_weights_draw_equal_answers_and_temperature_zero_draws_none(arms):
    baseline, reference, _, artifact, arm = arms
    same = arm("same")
    result = run_job(same, replace(repeated(job(same, artifact, count=10)), drafted=True))
    assert answers(result) == answers(reference)
    assert all(drift.first_divergence is None and drift.top1_agreement == 1 for drift in result.drifts)
    greedy_job = replace(repeated(job(same, "", count=4), temperature=0.0, repeats=1))
    assert answers(run_job(baseline, greedy_job)) == answers(run_job(baseline, replace(greedy_job, seed=99)))


def test_philox_is_philox():
    # Random123's known answers for philox4x32-10.
    ones = torch.tensor([0xFFFFFFFF])
    assert philox_torch(0, *(torch.tensor([0]),) * 3).item() == 0x6627E8D5
    assert philox_torch(2**64 - 1, ones, ones, torch.tensor([-1])).item() == 0x408F276D
    counter = torch.tensor([0x243F6A88]), torch.tensor([0x85A308D3]), torch.tensor([0x0370734413198A2E])
    assert philox_torch(0x299F31D0A4093822, *counter).item() == 0xD16CFE09


def test_the_noise_is_gumbel():
    noise = gumbel(1, torch.arange(5000), torch.tensor([[9]]), torch.arange(40)[:, None]).flatten().numpy()
    assert abs(noise.mean() - 0.57722) < 5 * 1.2825 / np.sqrt(noise.size)
    ordered = np.sort(noise)
    distance = np.abs(np.exp(-np.exp(-ordered)) - np.arange(1, noise.size + 1) / noise.size).max()
    assert distance < 1.95 / np.sqrt(noise.size)  # Kolmogorov-Smirnov, 0.1 %
