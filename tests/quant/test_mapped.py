"""Pages of a model's file: given back when they were laid out, and no number is ever lost by it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from qualgate.engine.dense import lay_out
from qualgate.quant import mapped
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.mapped import give_back
from qualgate_kernels.packed import PackedWeight

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="how a file lies in memory is told by Linux alone")
SIDE = 512  # of a weight: 1 MiB of float32


@pytest.fixture
def file(tmp_path) -> Path:
    draw = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(SIDE, SIDE, generator=draw) for name in ("one", "other")}
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def resident(file: Path) -> int:
    """KiB of the file that this process holds."""
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    return sum(int(one.split("Rss:")[1].split()[0]) for one in maps if str(file) in one)


def test_a_files_pages_are_given_back_and_read_again_where_they_are_touched(file):
    with safe_open(file, "pt") as opened:
        one, other = opened.get_tensor("one"), opened.get_tensor("other")
        before, sums = one.clone(), other.sum()
        assert resident(file) >= 2000
        give_back(one)
        assert resident(file) <= 1100, "the other tensor's stay"
        assert torch.equal(one, before)
        assert other.sum() == sums


@pytest.mark.parametrize("maps", ["/proc/self/maps", "/nonexistent"])
def test_memory_that_is_no_file_s_keeps_its_numbers(monkeypatch, maps):
    monkeypatch.setattr(mapped, "MAPS", Path(maps))
    tensor = torch.arange(2**20, dtype=torch.float32)
    for part in (tensor, tensor[: 2**18], tensor.view(1024, 1024).T, tensor[:3], tensor[:0]):
        give_back(part)
    assert torch.equal(tensor, torch.arange(2**20, dtype=torch.float32))


def test_a_model_that_is_laid_out_holds_no_more_of_its_file(file):
    with safe_open(file, "pt") as opened:
        names = ("one", "other")
        model = nn.ModuleDict({name: nn.Linear(SIDE, SIDE, bias=False, device="meta") for name in names})
        for name, layer in model.items():
            layer.weight = nn.Parameter(opened.get_tensor(name), requires_grad=False)
        keeps = model["one"].weight  # as whoever else would keep the file in memory
        numbers = [layer.weight.clone() for layer in model.values()]
        assert lay_out(model) == ""
        assert resident(file) <= 100
        assert all(torch.equal(layer.weight, one) for layer, one in zip(model.values(), numbers, strict=True))
        assert torch.equal(keeps, numbers[0])


def test_packed_weights_hold_no_more_of_theirs_once_a_kernel_has_them(tmp_path):
    codes = torch.randint(0, 256, (2 * SIDE, 2 * SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    save_file({"codes": codes}, tmp_path / "packed.safetensors")
    with safe_open(tmp_path / "packed.safetensors", "pt") as opened:
        found, scales = opened.get_tensor("codes"), torch.ones(2 * SIDE, 1)
        layer = QuantizedLinear(
            PackedWeight(code="int", bits=8, shape=(2 * SIDE, 2 * SIDE), codes=found, scales=scales, group_size=0)
        )
        x = torch.ones(3, 2 * SIDE)
        before = layer(x)
        assert resident(tmp_path) >= 1000
        if layer.fuse().startswith("torch twin"):
            pytest.skip("no kernel in C for it here")
        assert resident(tmp_path) <= 50
        assert torch.allclose(layer(x), before, rtol=1e-4)
