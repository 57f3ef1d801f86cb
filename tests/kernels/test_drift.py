"""Drift against float64 numpy on full logits. Most inputs are small whole numbers, so that every float32 logit is
exact whatever the order of its sum, ties are frequent, and what is compared is the reduction alone."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from qualgate_kernels import drift_cpu
from qualgate_kernels.dispatch import drift, drift_path
from qualgate_kernels.drift import Drift, Head, drift_torch
from qualgate_kernels.gumbel import Noise, gumbel_torch, philox_torch

SOURCE = Path(drift_cpu.__file__).parent / "cpu" / "drift.c"
SHAPES = [(1, 8, 2), (3, 33, 257), (65, 48, 1025), (9, 1, 31), (130, 17, 700), (2061, 9, 40)]  # rows, width, vocabulary
# Sums of e in float32 lanes of 16 products: 16 * 2**-24 = 1e-6, relative to sums of order 1 to 10.
CLOSE = 3e-6


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("drift") / "_drift_test.so"
    command = [compiler, "-O2", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(made), str(SOURCE), "-lm"], check=True)
    found = drift_cpu.open_library(made)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(params=["torch", "c"])
def measure(request, monkeypatch):
    if request.param == "c":
        library = request.getfixturevalue("library")
        monkeypatch.setattr(drift_cpu, "load", lambda: library)
        return drift
    return lambda p, q, threads=None, **more: drift_torch(p, q, **more)


def pair(rows: int, width: int, vocabulary: int, dtype=torch.float32, seed: int = 0) -> tuple[Head, Head]:
    rng = np.random.default_rng(seed)

    def whole(*shape: int) -> torch.Tensor:
        return torch.tensor(rng.integers(-3, 4, shape), dtype=dtype)

    first = whole(vocabulary, width) / 4
    second = first + (whole(vocabulary, width) / 8) * (torch.rand(vocabulary, width) < 0.1)
    hidden = whole(rows, width)
    bias = whole(vocabulary).float()
    return Head(hidden=hidden, weight=first, bias=bias), Head(hidden=hidden, weight=second.to(dtype))


def oracle(p: Head, q: Head) -> dict[str, np.ndarray]:
    logits = []
    for side in (p, q):
        made = side.hidden.double().numpy() @ side.weight.double().numpy().T
        logits.append(made if side.bias is None else made + side.bias.double().numpy())
    logs = [one - (one.max(-1) + np.log(np.exp(one - one.max(-1, keepdims=True)).sum(-1)))[:, None] for one in logits]
    ordered = [np.sort(one, axis=-1) for one in logits]
    return {
        "kl": np.stack([(np.exp(one) * (one - its)).sum(-1) for one, its in (logs, logs[::-1])]),
        "entropy": np.stack([-(np.exp(one) * one).sum(-1) for one in logs]),
        "top": np.stack([one.argmax(-1) for one in logits]),
        "margin": np.stack([one[:, -1] - one[:, -2] for one in ordered]),
        "best": np.stack([one.max(-1) for one in logs]),
        "logs": np.stack(logs),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width", "vocabulary"), SHAPES)
def test_every_number_is_that_of_the_full_logits(measure, rows, width, vocabulary, dtype):
    p, q = pair(rows, width, vocabulary, dtype)
    labels = torch.arange(rows) * 7 % vocabulary
    found, expected = measure(p, q, labels=labels), oracle(p, q)
    for name in ("kl", "entropy", "best"):
        np.testing.assert_allclose(getattr(found, name), expected[name], rtol=CLOSE, atol=CLOSE)
    said = expected["logs"][:, np.arange(rows), labels]
    np.testing.assert_allclose(found.logprob, said, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_array_equal(found.top, expected["top"])  # numpy's argmax is the first of equals, too
    np.testing.assert_array_equal(found.margin, expected["margin"])
    assert found.sample is None


def test_other_widths_and_dtypes_of_the_two_models(measure):
    p, _ = pair(5, 16, 300)
    q, _ = pair(5, 40, 300, torch.bfloat16, seed=1)
    expected = oracle(p, q)
    np.testing.assert_allclose(measure(p, q).kl, expected["kl"], rtol=CLOSE, atol=CLOSE)
    mixed = Head(hidden=p.hidden, weight=p.weight.half(), bias=p.bias)  # widened, not rounded
    np.testing.assert_array_equal(measure(mixed, q).kl, measure(p, q).kl)


def test_equal_models_have_no_drift_at_all(measure):
    torch.manual_seed(0)
    hidden, weight = torch.randn(20, 64), torch.randn(999, 64)
    same = Head(hidden=hidden, weight=weight)
    for other in (same, Head(hidden=hidden.clone(), weight=weight.clone())):
        found = measure(same, other)
        assert (found.kl == 0).all()
        assert torch.equal(found.top[0], found.top[1])


def test_a_row_does_not_notice_the_others(measure):
    torch.manual_seed(2)
    hidden, weight = torch.randn(200, 96), torch.randn(777, 96)
    labels = torch.arange(200)
    numbers = torch.arange(200) + 2**33

    def of(rows: torch.Tensor, threads: int = 1) -> Drift:
        p = Head(hidden=hidden[rows], weight=weight)
        q = Head(hidden=hidden[rows] + 0.01, weight=weight)
        noise = Noise(seed=3, cases=numbers[rows], positions=labels[rows])
        return measure(p, q, labels=labels[rows], noise=noise, threads=threads)

    whole = of(torch.arange(200))
    for rows, threads in ((torch.tensor([70]), 1), (torch.tensor([199, 70, 3]), 2), (torch.arange(150, 40, -1), 3)):
        part = of(rows, threads)
        for name in Drift.__slots__:
            assert torch.equal(getattr(part, name), getattr(whole, name)[:, rows]), name


def test_a_tie_goes_to_the_lowest_token_across_tiles(measure):
    weight = torch.zeros(2600, 4)
    for token in (5, 6, 300, 1024, 2599):
        weight[token] = 1
    head = Head(hidden=torch.ones(1, 4), weight=weight)
    moved = replace(head, weight=weight.roll(-1, 0))
    found = measure(head, moved)
    assert found.top[:, 0].tolist() == [5, 4]
    assert found.margin[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_huge_logits_stay_finite_and_right(measure, size):
    p, q = pair(4, 16, 600)
    shifted = replace(p, bias=p.bias + size)
    spread = replace(q, weight=q.weight * 4096)
    found, expected = measure(shifted, spread), oracle(shifted, spread)
    for name in ("kl", "entropy"):
        assert getattr(found, name).isfinite().all()
        np.testing.assert_allclose(getattr(found, name), expected[name], rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_broken_row_is_nan_alone(measure, bad):
    p, q = pair(7, 24, 500)
    whole = measure(p, q, labels=torch.arange(7))
    hidden = p.hidden.clone()
    hidden[3, 5] = bad
    found = measure(replace(p, hidden=hidden), q, labels=torch.arange(7))
    others = torch.tensor([0, 1, 2, 4, 5, 6])
    for name in ("kl", "entropy", "top", "margin", "best", "logprob"):
        one, all_ = getattr(found, name), getattr(whole, name)
        assert torch.equal(one[:, others], all_[:, others]), name
    assert found.kl[:, 3].isnan().all()
    assert found.entropy[0, 3].isnan()
    assert found.top[0, 3] == -1
    assert found.entropy[1, 3] == whole.entropy[1, 3]  # Q is sound
    assert found.top[1, 3] == whole.top[1, 3]


def test_philox_is_philox():
    # Random123's known answers for philox4x32-10.
    ones = torch.tensor([0xFFFFFFFF])
    assert philox_torch(0, *(torch.tensor([0]),) * 3).item() == 0x6627E8D5
    assert philox_torch(2**64 - 1, ones, ones, torch.tensor([-1])).item() == 0x408F276D
    counter = torch.tensor([0x243F6A88]), torch.tensor([0x85A308D3]), torch.tensor([0x0370734413198A2E])
    assert philox_torch(0x299F31D0A4093822, *counter).item() == 0xD16CFE09


def test_the_noise_is_gumbel():
    noise = Noise(seed=1, cases=torch.arange(40), positions=torch.full((40,), 9))
    drawn = gumbel_torch(noise, slice(0, 40), torch.arange(5000)).flatten().numpy()
    assert abs(drawn.mean() - 0.57722) < 5 * 1.2825 / np.sqrt(drawn.size)
    at = np.sort(drawn)
    distance = np.abs(np.exp(-np.exp(-at)) - np.arange(1, drawn.size + 1) / drawn.size).max()
    assert distance < 1.95 / np.sqrt(drawn.size)  # Kolmogorov-Smirnov, 0.1 %


def test_samples_are_the_argmax_of_noisy_logits_and_shared_by_equal_models(measure):
    p, q = pair(60, 24, 900)
    noise = Noise(seed=2**40 + 1, cases=torch.arange(60) + 2**40, positions=torch.arange(60) * 50, temperature=0.7)
    found = measure(p, q, noise=noise)
    logs = torch.from_numpy(oracle(p, q)["logs"])
    noisy = logs / 0.7 + gumbel_torch(noise, slice(0, 60), torch.arange(900))
    best = noisy.topk(2).values
    clear = best[..., 0] - best[..., 1] > 1e-4  # float32 noise may turn a nearer one
    assert clear.float().mean() > 0.9
    assert torch.equal(found.sample[clear], noisy.argmax(-1)[clear])
    assert (found.sample != found.top).any()
    again = measure(p, p, noise=noise)
    assert torch.equal(again.sample[0], again.sample[1])
    assert torch.equal(again.sample[0], found.sample[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: {"hidden": p.hidden.double()}, "hidden: expected"),
        (lambda p: {"hidden": p.hidden[:0]}, "extents above 0"),
        (lambda p: {"hidden": p.hidden[:, :4]}, "contiguous"),
        (lambda p: {"weight": p.weight[:, :4].contiguous()}, "expected width 8"),
        (lambda p: {"weight": p.weight[:1], "bias": None}, "vocabulary of 2"),
        (lambda p: {"bias": p.bias.double()}, "bias: expected"),
        (lambda p: {"bias": p.bias[1:]}, "bias: expected"),
        (lambda p: {"weight": p.weight.to("meta")}, "one device"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    p, _ = pair(3, 8, 40)
    with pytest.raises(ValueError, match=message):
        replace(p, **change(p))


def test_what_does_not_fit_together_is_refused(measure):
    p, q = pair(3, 8, 40)
    with pytest.raises(ValueError, match="as many rows"):
        measure(p, replace(q, hidden=q.hidden[:2]))
    for labels in (torch.arange(2), torch.tensor([0, 1, 40]), torch.tensor([0, 1, -1]), torch.zeros(3)):
        with pytest.raises(ValueError, match="labels"):
            measure(p, q, labels=labels)
    with pytest.raises(ValueError, match="cases"):
        measure(p, q, noise=Noise(seed=0, cases=torch.arange(4), positions=torch.arange(4)))
    for wrong in ({"seed": -1}, {"temperature": 0.0}, {"positions": torch.tensor([-1, 0, 1])}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Noise(**{"seed": 0, "cases": torch.arange(3), "positions": torch.arange(3)} | wrong)


def test_without_the_compiled_kernel_the_twin_serves(monkeypatch):
    monkeypatch.setattr(drift_cpu, "load", lambda: "not compiled")
    p, q = pair(3, 8, 40)
    assert torch.equal(drift(p, q).kl, drift_torch(p, q).kl)
    assert drift_path(torch.device("cpu")) == "torch twin: not compiled"
