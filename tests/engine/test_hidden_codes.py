"""Hidden states in 18 bits: what comes back, what it may move, and the drift of a run that kept them so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from qualgate.engine import artifact
from qualgate.engine.artifact import read_artifact
from qualgate.engine.hidden_codes import Kept, keep, moved, read
from qualgate.engine.job import run_job
from qualgate.quant.sealed_tensors import read_tensors
from qualgate.stats.kl_error_bound import kl_error
from qualgate_kernels import dispatch
from tests.engine.jobs import INT4, job


@pytest.mark.parametrize("width", [1, 64, 100])
def test_a_number_comes_back_to_17_bits_of_its_block_s_largest(width):
    torch.manual_seed(width)
    states = torch.randn(9, width) * torch.logspace(-30, 30, 9)[:, None]
    states[3] = 0
    back = read(keep(states))
    largest = states.abs().amax(-1, keepdim=True)  # at least the largest of each block
    assert ((back - states).abs() <= largest * 2.0**-17).all()
    assert torch.equal(read(keep(back)), back)
    powers = torch.tensor([[1.0, -0.5, 3.0, 2.0**-14]])
    assert torch.equal(read(keep(powers)), powers)


def test_an_outlier_spoils_its_own_block_alone():
    states = torch.randn(1, 256, generator=torch.Generator().manual_seed(0))
    states[0, 70] = 1000.0
    lost = (read(keep(states)) - states).abs()[0]
    assert lost[64:128].max() > 1e-4
    assert torch.cat([lost[:64], lost[128:]]).max() < 2e-5


def test_no_log_prob_moves_further_than_said():
    torch.manual_seed(0)
    states, weight = torch.randn(20, 96), torch.randn(700, 96) / 3
    kept = keep(states)
    eta = moved(states, kept, weight)
    before, after = ((x.double() @ weight.double().T).log_softmax(-1) for x in (states, read(kept)))
    most = (before - after).abs().amax(-1)
    assert (most <= eta).all()
    assert (most >= eta / 4).all()
    assert eta.max() < 1e-3


def test_columns_that_do_not_fit_are_refused():
    kept = keep(torch.randn(3, 70))
    for broken in (
        Kept(kept.high, kept.low[:, :-1], kept.exponent, 70), Kept(kept.high, kept.low, kept.exponent, 30),
        Kept(kept.high[:2], kept.low, kept.exponent, 70),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="do not fit"):
            read(broken)


@pytest.fixture(scope="module")
def runs(arms_of, tmp_path_factory):
    """(artifact, drifts) of one variant against the exact baseline, and against a rounded one by the kernel."""
    folder, arm, found = tmp_path_factory.mktemp("runs"), arms_of(), []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("exact", "rounded"):
            work = job(arm("variant", INT4), folder / f"{name}.safetensors", drafted=True, count=6)
            run_job(arm(), job(arm(), work.artifact, count=6))
            found.append((work, run_job(arm("variant", INT4), work)))
            patch.setattr(artifact, "LARGE", 0)
            patch.setattr(dispatch, "LARGE", 0)
    return found


def test_a_run_keeps_its_certificate(runs):
    (exact, before), (rounded, after) = runs
    assert [c.token_ids for c in before.completions] == [c.token_ids for c in after.completions]
    for one, other in zip(before.drifts, after.drifts, strict=True):
        assert one.top1_differs == other.top1_differs  # by logits, and by the kernel
        assert one.top1_agreement == (len(one.kl) - len(one.top1_differs)) / len(one.kl)
        assert one.kl_eta == 0
        assert 0 < other.kl_eta < 1e-3
        truth, said = np.array(one.kl), np.array(other.kl)
        assert (np.abs(truth - said) <= kl_error(said, other.kl_eta) + 3e-6).all()  # 3e-6: the kernel's float32 sums
    assert any(one.top1_differs for one in before.drifts)
    sizes = []
    for work in (exact, rounded):
        columns, _ = read_tensors(Path(work.artifact))
        kept = {"states", "eta", "high", "low", "exponent"} & set(columns)
        sizes.append(sum(columns[name].nbytes for name in kept))
    assert sizes[1] < 0.6 * sizes[0]


def test_a_position_that_rounding_would_move_too_far_is_kept_whole(runs, tiny_arm, tmp_path, monkeypatch):
    exact = read_artifact(runs[0][0], torch.device("cpu"))
    monkeypatch.setattr(artifact, "LARGE", 0)
    etas = sorted(read_artifact(runs[1][0], torch.device("cpu")).etas)
    monkeypatch.setattr(artifact, "ETA", etas[len(etas) // 2])
    work = job(tiny_arm, tmp_path / "mixed.safetensors", count=6)
    run_job(tiny_arm, work)
    mixed = read_artifact(work, torch.device("cpu"))
    assert max(mixed.etas) <= etas[len(etas) // 2]
    same = (mixed.states == exact.states).all(-1)
    assert 0 < int(same.sum()) < len(same)
    assert (mixed.states - exact.states).abs().max() < 1e-3
