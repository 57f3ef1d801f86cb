"""Which kernel runs a variant's packed layers: the fused one by default, the torch twin where asked or needed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from qualgate.engine.job import run_job
from qualgate.engine.kernels import choose_kernels
from qualgate.quant.linear import QuantizedLinear
from qualgate_kernels import cpu
from tests.engine.jobs import INT4, job, loaded, under

pytestmark = pytest.mark.skipif(not cpu.path(), reason=cpu.available())


@pytest.fixture
def launches(monkeypatch):
    """The weight of every product that the C kernels were asked for by a layer."""
    asked = []
    real = cpu.matmul
    monkeypatch.setattr(cpu, "matmul", lambda x, weight: asked.append(id(weight)) or real(x, weight))
    return asked


def alike_up_to_near_ties(found, expected) -> None:
    for one, other in zip(found.completions, expected.completions, strict=True):
        for place, (a, b) in enumerate(zip(one.token_ids, other.token_ids, strict=False)):
            if a != b:
                assert one.margins[place] < 1e-4
                break


def test_every_packed_layer_goes_through_the_fused_kernel_and_the_completion_says_so(arms_of, launches):
    arm = arms_of("packed")("variant", INT4)
    layers = sum(isinstance(module, QuantizedLinear) for module in arm.model.modules())
    stacked = layers * 4 // 7  # q, k and v are one product, gate and up another
    launches.clear()  # of the self-check
    result = run_job(arm, job(arm, "", count=4))
    times = Counter(launches)
    head = arm.model.get_output_embeddings().prepared
    assert times.pop(id(head)) > 0
    assert len(times) == stacked
    assert len(set(times.values())) == 1  # each layer in each forward
    assert {completion.kernel for completion in result.completions} == {f"c {cpu.path()}"}


def test_fused_kernels_in_c_the_models_modules_and_the_torch_twin_say_the_same_up_to_near_ties(
    saved, tmp_path, launches
):
    arm = loaded(saved(), tmp_path, "v", INT4)
    launches.clear()
    by_c = run_job(arm, work := job(arm, "", count=8))
    assert set(launches) == {id(arm.model.get_output_embeddings().prepared)}
    assert {completion.kernel for completion in by_c.completions} == {f"c {cpu.path()}"}
    alike_up_to_near_ties(by_c, run_job(under("packed", arm), work))
    twin = loaded(saved(), tmp_path, "v", INT4, kernels="torch")
    launches.clear()
    result = run_job(twin, work)
    assert twin.choice.kind == "padded"  # torch's products have other bits in other company
    assert launches == []
    assert {completion.kernel for completion in result.completions} == {"torch twin: asked for"}
    alike_up_to_near_ties(by_c, result)


def test_a_baseline_has_no_packed_layers_to_speak_of(tiny_arm):
    assert tiny_arm.kernel == ""


def test_layers_that_no_kernel_covers_are_counted_with_the_reason(monkeypatch):
    class Two(torch.nn.Module):
        pass

    model, reasons = Two(), iter(["c avx2", "torch twin: nf4"])
    monkeypatch.setattr(QuantizedLinear, "fuse", lambda self: next(reasons))
    monkeypatch.setattr(QuantizedLinear, "__init__", lambda self: torch.nn.Module.__init__(self))
    model.one, model.two = QuantizedLinear(), QuantizedLinear()
    assert choose_kernels(model, "fused") == "c avx2 (1), torch twin: nf4 (1)"
