"""Quantized weights in a folder that says nothing of them, told from its headers, without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import UsageError
from qualgate.quant.inspect import inspect
from qualgate.quant.model_folder import read_model_folder
from tests.quant.readers.made import SAMPLES
from tests.tiny_models import save_tiny_model

LAYER = "model.layers.0.mlp.down_proj"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture
def exported(plain, tmp_path):
    """Makes a folder like `plain` in which one layer is what an export makes of it, and no config says so."""

    def export(weight, **beside: torch.Tensor) -> Path:
        tensors = load_file(plain / "model.safetensors")
        floats = tensors.pop(f"{LAYER}.weight").float()
        if weight is not None:
            tensors[f"{LAYER}.weight"] = weight(floats)
        more = {name if "mtp." in name else f"{LAYER}.{name}": tensor.clone() for name, tensor in beside.items()}
        shutil.copytree(plain, tmp_path, dirs_exist_ok=True)
        save_file(tensors | more, tmp_path / "model.safetensors", {"format": "pt"})
        return tmp_path

    return export


def float8(weight: torch.Tensor) -> torch.Tensor:
    return weight.to(torch.float8_e4m3fn)


def int8(weight: torch.Tensor) -> torch.Tensor:
    return (weight * 100).to(torch.int8)


ONE, CODES, WORDS = torch.ones(1), torch.zeros(8, 8, dtype=torch.uint8), torch.zeros(8, 8, dtype=torch.int32)
EXPORTS = {
    "FP8 of NVIDIA ModelOpt or of compressed-tensors": (float8, {"weight_scale": ONE, "input_scale": ONE}),
    "FP8 in blocks": (float8, {"weight_scale_inv": torch.ones(1, 1)}),
    "FP8 without its scales": (float8, {}),
    "int8 of compressed-tensors": (int8, {"weight_scale": ONE}),
    "bitsandbytes int8": (int8, {"SCB": ONE}),
    "bitsandbytes 4-bit": (lambda weight: CODES, {"weight.absmax": ONE, "weight.quant_map": ONE}),
    "NVFP4 of NVIDIA ModelOpt": (lambda weight: CODES, {"weight_scale": ONE, "weight_scale_2": ONE}),
    "NVFP4 of compressed-tensors": (None, {"weight_packed": CODES, "weight_global_scale": ONE}),
    "AWQ of NVIDIA ModelOpt": (lambda weight: CODES, {"weight_scale": ONE, "pre_quant_scale": ONE}),
    "compressed-tensors, packed": (None, {"weight_packed": WORDS, "weight_scale": ONE}),
    "AWQ or GPTQ": (None, {"qweight": WORDS, "qzeros": WORDS, "scales": ONE}),
    "GPTQ": (None, {"qweight": WORDS, "qzeros": WORDS, "scales": ONE, "g_idx": WORDS[0].clone()}),
    "one without its scales": (int8, {}),
    "one without its scales, or of a library": (lambda weight: weight.int(), {}),
}


@pytest.mark.parametrize("format", EXPORTS)
def test_an_export_without_its_config_is_refused_with_the_formats_likely_name(exported, format):
    weight, beside = EXPORTS[format]
    folder = exported(weight, **beside)
    for reads in (read_model_folder, inspect):
        with pytest.raises(UsageError, match=rf"declares no quantization, but .*, probably {format}") as refused:
            reads(folder)
        assert str(folder / "config.json") in str(refused.value)


def test_a_full_precision_folder_whose_cache_has_scales_is_one(exported):
    scales = {f"{side}_scale": ONE.clone() for side in ("k", "v", "q", "prob")}
    assert read_model_folder(exported(lambda weight: weight, **scales)).format is None


def test_an_unused_heads_own_format_is_no_part_of_the_model(exported):
    head = {"mtp.fc.weight": float8(torch.ones(4, 4)), "mtp.fc.weight_scale_inv": torch.ones(1, 1)}
    assert read_model_folder(exported(lambda weight: weight, **head)).format is None


def modelopt(folder: Path, **quantization) -> Path:
    about = {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": quantization}
    (folder / "hf_quant_config.json").write_text(json.dumps(about))
    return folder


def test_what_modelopt_writes_beside_the_config_is_read(exported):
    folder = modelopt(exported(float8, weight_scale=ONE), quant_algo="FP8", kv_cache_quant_algo="FP8")
    found = read_model_folder(folder).format
    assert found is not None
    assert (found.method, found.where) == ("modelopt", folder / "hf_quant_config.json")
    assert found.settings["quant_algo"] == "FP8"


@pytest.mark.parametrize("weights", [{"quant_algo": None}, {"quant_algo": "NO_QUANT"}, {}])
def test_where_modelopt_quantized_the_cache_alone_the_weights_are_whole(exported, weights):
    folder = exported(lambda weight: weight, k_scale=ONE)
    before = read_model_folder(folder).config_sha256
    found = read_model_folder(modelopt(folder, kv_cache_quant_algo="FP8", **weights))
    assert found.format is None
    assert found.config_sha256 != before


def test_a_modelopt_file_of_another_kind_is_named(exported):
    folder = exported(lambda weight: weight)
    (folder / "hf_quant_config.json").write_text('{"quantization": ["FP8"]}')
    with pytest.raises(UsageError, match=r"hf_quant_config\.json: quantization is list, expected a JSON object"):
        read_model_folder(folder)


def test_looking_needs_no_torch(exported):
    code = (
        "import sys; from pathlib import Path; from qualgate.errors import UsageError;"
        "from qualgate.quant.model_folder import read_model_folder\n"
        "try: read_model_folder(Path(sys.argv[1]))\nexcept UsageError: sys.exit('torch' in sys.modules)\nsys.exit(2)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(exported(float8))], check=False).returncode == 0


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample checkpoints are not here")
@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("autoawq-gemm", "AWQ or GPTQ"),
        ("gptqmodel-gptq-v2fmt", "GPTQ"),
        ("llmcompressor-fp8", "FP8"),
        ("llmcompressor-gptq-w4a16", "compressed-tensors"),
        ("llmcompressor-mxfp4a16", "compressed-tensors"),
        ("llmcompressor-nvfp4a16", "NVFP4"),
        ("llmcompressor-smoothquant-w8a8", "int8"),
    ],
)
def test_folders_that_libraries_made_are_known_without_their_config(tmp_path, name, format):
    for file in (SAMPLES / name).iterdir():
        if not file.name.startswith(("ref_", "quant")):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=f"quantized checkpoint, probably {format}"):
        read_model_folder(tmp_path)
