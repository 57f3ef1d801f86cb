"""Inspecting a checkpoint: formats, sizes, statistics, one tensor written out, and the distance from another."""

from __future__ import annotations

import json
import shutil
from math import inf, log10

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import Exit, UsageError
from qualgate.quant.inspect import compare, inspect, write_tensor
from qualgate_kernels import cpu
from tests.command_line import qualgate
from tests.gated_model import GATE_FILE, write_evalset
from tests.quant.readers.made import MODULE, dequantized, folder_of, gptq_tensors
from tests.tiny_models import save_tiny_model

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
    def refuse(packed):
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
    shown = qualgate("inspect", str(quantized))
    assert shown.returncode == 0, shown.stderr
    assert all(part in shown.stdout for part in ("int4 g32", "gptq v1", "32 x 64", "odd: a bias of zeros"))
    found = json.loads(qualgate("inspect", str(quantized), "--compare", str(original), "--json").stdout)
    assert (found["method"], found["tensors"][0]["effective_bits"]) == ("gptq", 4.5)
    assert found["differences"][0]["sqnr"] > 0
    assert found["unmatched"] == ["model.norm.weight ([4] and [3])"]
    out = tmp_path / "t.safetensors"
    assert qualgate("inspect", str(quantized), "--tensor", MODULE, "--out", str(out)).returncode == 0
    assert out.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--tensor", "x"], "go together"), (["--out", "x"], "go together"), ([], "no model folder")],
)
def test_what_cannot_be_inspected_says_what_to_give(tmp_path, arguments, message):
    failed = qualgate("inspect", str(tmp_path / "nowhere"), *arguments)
    assert failed.returncode == Exit.USAGE
    assert message in failed.stderr


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspected")
    save_tiny_model(folder / "model")
    write_evalset(folder, [{"id": "a", "prompt": "a", "answer": "b", "max_new_tokens": 1}])
    (folder / "gate.yaml").write_text(GATE_FILE)
    return folder


WEIGHTS = {"codes": {}, "width": {"hidden_size": 128}, "depth": {"num_hidden_layers": 3}, "text": {"text_config": [1]}}
OTHERS = {"type": {"model_type": "lama"}, "code": {"auto_map": {}}, "head": {"architectures": ["RewardModel"]}}


@pytest.mark.parametrize("fault", [*WEIGHTS, *OTHERS, "tokenizer"])
def test_a_folder_that_plan_refuses_is_refused_or_shown_with_the_reason(workspace, tmp_path, fault):
    model = shutil.copytree(workspace, tmp_path / "copy") / "model"
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | (WEIGHTS | OTHERS).get(fault, {})))
    if fault == "codes":
        tensors = load_file(model / "model.safetensors")
        tensors[f"{MODULE}.weight"] = tensors[f"{MODULE}.weight"].to(torch.int8)
        save_file(tensors, model / "model.safetensors", {"format": "pt"})
    if fault == "tokenizer":
        (model / "tokenizer.json").unlink()
    planned = qualgate("plan", "gate.yaml", cwd=model.parent)
    reason = planned.stderr.splitlines()[-1].removeprefix("qualgate: ")
    assert (planned.returncode, str(model) in reason) == (Exit.USAGE, True), planned.stderr
    shown = qualgate("inspect", str(model))
    if fault in WEIGHTS:
        assert (shown.returncode, shown.stdout) == (Exit.USAGE, "")
        assert reason in shown.stderr
    else:  # the weights are what they are, whether or not they can be run
        assert f"plan and run refuse it: {reason}" in shown.stdout
        assert json.loads(qualgate("inspect", str(model), "--json").stdout)["refused"] == reason
