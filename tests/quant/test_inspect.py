"""Inspecting a checkpoint: formats, sizes, statistics, one tensor written out, and the distance from another."""

from __future__ import annotations

import json
from math import inf, log10

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from qualgate.quant.inspect import compare, inspect, write_tensor
from qualgate_kernels import cpu
from tests.quant.readers.made import MODULE, dequantized, folder_of, gptq_tensors

N, K = 32, 64


@pytest.fixture
def weights():
    random = np.random.default_rng(0)
    q, zeros = random.integers(0, 16, (N, K)), np.full((N, 2), 8)
    scales = torch.tensor(random.uniform(0.01, 0.1, (N, 2))).half()
    return q, zeros, scales, dequantized(q, zeros, scales, np.arange(K) // 32)


@pytest.fixture
def quantized(tmp_path, weights):
    q, zeros, scales, _ = weights
    tensors = gptq_tensors(q, zeros, scales, 4, None, v1=True)
    tensors |= {f"{MODULE}.bias": torch.zeros(N), "model.norm.weight": torch.tensor([1.0, 0.0, float("nan"), 3.0])}
    return folder_of(tmp_path / "gptq", tensors, {"quant_method": "gptq", "bits": 4, "group_size": 32})


@pytest.fixture
def original(tmp_path, weights):
    tensors = {f"{MODULE}.weight": torch.tensor(weights[3]) + 0.01, "model.norm.weight": torch.ones(3)}
    return folder_of(tmp_path / "original", tensors, None)


def test_a_packed_tensor_is_described_by_what_it_stands_for(quantized, weights):
    q, _, _, values = weights
    report = inspect(quantized)
    assert report.method == "gptq"
    packed, norm = report.tensors[0], report.tensors[1]
    assert (packed.name, packed.format, packed.layout) == (f"{MODULE}.weight", "int4 g32", "gptq v1")
    assert (packed.bits, packed.group_size, packed.shape, packed.effective_bits) == (4, 32, (N, K), 4.5)
    assert packed.nbytes == N * K // 2 + N * 2 * 2
    assert (packed.min, packed.max) == (values.min(), values.max())
    assert packed.mean == pytest.approx(values.mean(dtype=np.float64), rel=1e-6)
    assert packed.std == pytest.approx(values.std(dtype=np.float64), rel=1e-6)
    assert packed.zeros == (q == 8).mean()
    assert packed.saturated == ((q == 0) | (q == 15)).mean()
    assert (norm.format, norm.layout, norm.min, norm.max) == ("float32", "plain", 0.0, 3.0)
    assert norm.oddities == ("NaN or infinite values",)
    assert dict(report.oddities) == {
        "NaN or infinite values": 1,
        "a bias of zeros, as AutoGPTQ writes for layers without one": 1,
    }
    assert report.nbytes == packed.nbytes + norm.nbytes
    ((kernel, layers),) = report.kernels
    assert layers == 1
    assert kernel.startswith("c " if cpu.path() else "torch twin: ")


def test_layers_that_are_left_to_the_torch_twin_are_listed_with_the_reason(quantized, monkeypatch):
    def refuse(packed, *, halves):
        raise cpu.Unsupported("no kernel for this")

    monkeypatch.setattr(cpu, "prepare", refuse)
    assert inspect(quantized).kernels == (("torch twin: no kernel for this", 1),)


@pytest.mark.parametrize("name", [MODULE, f"{MODULE}.weight"])
def test_a_tensor_is_written_dequantized(quantized, weights, tmp_path, name):
    assert write_tensor(quantized, name, tmp_path / "out" / "t.safetensors") == (N, K)
    found = load_file(tmp_path / "out" / "t.safetensors")
    assert np.array_equal(found[f"{MODULE}.weight"].numpy(), weights[3])


def test_a_tensor_that_is_not_there_names_those_like_it(quantized, tmp_path):
    with pytest.raises(UsageError, match=rf"Did you mean .*{MODULE}\.weight"):
        write_tensor(quantized, MODULE.replace("down", "dwon"), tmp_path / "t.safetensors")


def test_a_comparison_gives_relative_error_and_sqnr(quantized, original, weights):
    values = weights[3].astype(np.float64)
    differences, unmatched = compare(quantized, original)
    assert [one.name for one in differences] == [f"{MODULE}.weight"]
    truth = (weights[3] + np.float32(0.01)).astype(np.float64)
    expected = np.linalg.norm(values - truth) / np.linalg.norm(truth)
    assert differences[0].relative_error == pytest.approx(expected, rel=1e-9)
    assert differences[0].sqnr == pytest.approx(20 * log10(1 / expected))
    assert unmatched == ("model.norm.weight ([4] and [3])",)
    (same,) = [one for one in compare(original, original)[0] if one.name == f"{MODULE}.weight"]
    assert (same.relative_error, same.sqnr) == (0.0, inf)


def test_two_models_without_a_common_tensor_are_not_compared(quantized, tmp_path):
    other = folder_of(tmp_path / "other", {"x": torch.ones(2)}, None)
    with pytest.raises(UsageError, match="no tensor in common"):
        compare(quantized, other)


def test_the_command_prints_a_table_or_json(quantized, original, tmp_path):
    shown = CliRunner().invoke(app, ["inspect", str(quantized)])
    assert shown.exit_code == 0, shown.output
    for part in ("int4 g32", "gptq v1", "32 x 64", "odd: a bias of zeros"):
        assert part in shown.output
    found = CliRunner().invoke(app, ["inspect", str(quantized), "--compare", str(original), "--json"])
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout)
    assert value["method"] == "gptq"
    assert value["tensors"][0]["effective_bits"] == 4.5
    assert value["differences"][0]["sqnr"] > 0
    assert value["unmatched"] == ["model.norm.weight ([4] and [3])"]
    out = tmp_path / "t.safetensors"
    wrote = CliRunner().invoke(app, ["inspect", str(quantized), "--tensor", MODULE, "--out", str(out)])
    assert wrote.exit_code == 0, wrote.output
    assert out.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--tensor", "x"], "go together"), (["--out", "x"], "go together"), ([], "no model folder")],
)
def test_what_cannot_be_inspected_says_what_to_give(tmp_path, arguments, message):
    failed = CliRunner().invoke(app, ["inspect", str(tmp_path / "nowhere"), *arguments])
    assert isinstance(failed.exception, UsageError)
    assert message in str(failed.exception)
