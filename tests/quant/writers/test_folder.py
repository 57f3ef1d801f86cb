"""What we write, read back: by our own readers, which are tested on the libraries' files, and byte by byte."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from qualgate.errors import UsageError
from qualgate.quant.activations import PER_TOKEN
from qualgate.quant.checkpoint import PackedModel, pack, read_packed
from qualgate.quant.readers import read_quantized
from qualgate.quant.recipes import parse_recipe
from qualgate.quant.writers import awq, compressed_tensors, folder, gptq
from qualgate.quant.writers.card import Provenance
from qualgate.quant.writers.folder import write_folder
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes
from tests.depth import with_proofs
from tests.tiny_models import VOCABULARY, save_tiny_model

PROVENANCE = Provenance(
    model="tiny", source_sha256="0" * 64, dtype="bfloat16", versions={"qualgate": "0", "torch": "2"},
    date="1 January 2027", calibration="calibration", calibration_cases=3, calibration_tokens=99,
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def made(model: Path, room: Path, scales: str = "bfloat16", **words: Any) -> PackedModel:
    recipe = parse_recipe(words)
    if recipe.calibration:
        recipe = replace(recipe, calibration_sha256="0" * 64)
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(VOCABULARY, (40,), generator=generator).tolist() for _ in range(6)]
    return read_packed(pack(model, recipe, room / "packed", prompts=lambda: rows, scale_dtype=getattr(torch, scales)))


CALIBRATED = {"calibration": "./data.yaml", "group_size": 32}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("gptq", {"method": "gptq", **CALIBRATED}),
    ("gptq", {"method": "gptq", "bits": 3, "act_order": True, **CALIBRATED}),
    ("gptq", {"method": "gptq", "bits": 2, "symmetric": False, **CALIBRATED}),
    ("gptq_v2", {"method": "gptq", "bits": 8, "symmetric": False, "act_order": True, **CALIBRATED}),
    ("gptq_v2", {"method": "gptq", "calibration": "./data.yaml", "group_size": 0}),
    ("gptq", {"method": "int4", "keep": {"layers.0.*": "bf16"}}),
    ("gptq", {"method": "int4", "keep": {"down_proj": "int8"}}),
    ("awq", {"method": "awq", **CALIBRATED}),
    ("awq", {"method": "awq", "symmetric": True, **CALIBRATED}),
    ("awq", {"method": "int4", "symmetric": False, "keep": {"layers.1.*": "bf16"}}),
    ("compressed-tensors", {"method": "gptq", "act_order": "static", **CALIBRATED}),
    ("compressed-tensors", {"method": "gptq", "act_order": "static", "symmetric": False, **CALIBRATED}),
    ("compressed-tensors", {"method": "awq", **CALIBRATED}),
    ("compressed-tensors", {"method": "int3"}),
    ("compressed-tensors", {"method": "int2", "group_size": 0}),
    ("compressed-tensors", {"method": "int8", "granularity": "tensor"}),
    ("compressed-tensors", {"method": "int8", "activations": "int8"}),
    ("compressed-tensors", {"method": "smoothquant", "calibration": "./data.yaml"}),
    ("compressed-tensors", {"method": "fp8", "activations": "fp8"}),
    ("compressed-tensors", {"method": "fp8", "granularity": "tensor"}),
    ("compressed-tensors", {"method": "fp8", "granularity": "block"}),
    ("compressed-tensors", {"method": "mxfp4"}),
    ("compressed-tensors", {"method": "mxfp8"}),
    ("compressed-tensors", {"method": "nvfp4"}),
    ("compressed-tensors", {"method": "mxfp4", "keep": {"layers.0.*": "int8", "down_proj": "bf16"}}),
]


@pytest.mark.parametrize("place", with_proofs(range(len(CASES)), range(0, len(CASES), 2)))
def test_a_folder_reads_back_as_the_weights_it_was_written_from(model, tmp_path, place):
    format, words = CASES[place]
    scales = "bfloat16" if format == "compressed-tensors" else "float16"
    packed = made(model, tmp_path, scales, **words)
    write_folder(model, packed, tmp_path / "out", format, PROVENANCE)
    found = read_quantized(tmp_path / "out")
    assert set(found.layers) == set(packed.weights)
    for name, weight in packed.weights.items():
        layer = found.layers[name]
        assert torch.equal(dequantize_torch(layer.weight), dequantize_torch(weight)), name
        expected = "int8" if words["method"] == "smoothquant" else words.get("activations", "")
        assert layer.activations.rounding == PER_TOKEN[expected]
    # Nothing is lost and nothing is there twice: every float of the source, folded or not.
    source = load_file(model / "model.safetensors")
    floats = {name for name in source if name.removesuffix(".weight") not in packed.weights}
    assert set(found.tensors) == floats
    for name in floats:
        expected_float = packed.folded.get(name, source[name])
        assert torch.equal(found.tensors[name].float(), expected_float.to(found.tensors[name].dtype).float())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_folder_says_what_was_done_and_brings_its_tokenizer(model, tmp_path):
    packed = made(model, tmp_path, "float16", method="gptq", **CALIBRATED)
    write_folder(model, packed, tmp_path / "out", "gptq", PROVENANCE)
    out = tmp_path / "out"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (out / name).read_bytes() == (model / name).read_bytes()
    config = json.loads((out / "config.json").read_bytes())
    assert config["quantization_config"] == json.loads((out / "quantize_config.json").read_bytes())
    assert config["dtype"] == "float16"
    card = (out / "README.md").read_text()
    for said in (
        "1 January 2027",
        "`0000",
        "3 cases, 99 tokens",
        "int4 g32 | 14",
        "effective bits a weight | 4.5",
        "`gptq`",
    ):
        assert said in card, card
    assert str(tmp_path) not in card
    assert str(model) not in card


@pytest.mark.parametrize(("format", "symmetric"), [("gptq", False), ("gptq", True), ("gptq_v2", False)])
def test_the_card_of_asymmetric_v1_says_which_library_will_not_take_it(model, tmp_path, format, symmetric):
    packed = made(model, tmp_path, "float16", method="gptq", symmetric=symmetric, **CALIBRATED)
    write_folder(model, packed, tmp_path / "out", format, PROVENANCE)
    said = (
        "GPT-QModel | loads asymmetric weights of others' making only as gptq_v2"
        in (tmp_path / "out" / "README.md").read_text()
    )
    assert said == (format == "gptq" and not symmetric)


def test_the_words_of_gptq_v1_are_those_of_the_layout():
    """qweight: eight inputs a word, lowest first; qzeros: eight outputs, less one in v1 and as they are in v2."""
    codes = torch.arange(128, dtype=torch.uint8).view(8, 16) % 16
    zeros = torch.arange(1, 9, dtype=torch.uint8).view(8, 1)
    weight = PackedWeight(
        code="int", bits=4, shape=(8, 16), codes=pack_codes(codes, 4), scales=torch.ones(8, 1), group_size=16,
        zero_points=zeros,
    )  # fmt: skip
    v1, v2 = (gptq.tensors("x", weight, v2=second) for second in (False, True))
    assert v1["x.qweight"].shape == (2, 8)
    assert v1["x.qweight"][0, 3].item() == 0x76543210
    assert v1["x.qzeros"].tolist() == [[0x76543210]]
    assert v2["x.qzeros"].numpy().view("uint32").tolist() == [[0x87654321]]
    assert v1["x.g_idx"].tolist() == [0] * 16


def test_three_bit_codes_straddle_words_ten_and_twenty_one():
    codes = torch.zeros(32, 32, dtype=torch.uint8)
    codes[0, 10], codes[1, 21] = 7, 7
    weight = PackedWeight(
        code="int", bits=3, shape=(32, 32), codes=pack_codes(codes, 3), scales=torch.ones(32, 1), group_size=0
    )
    words = gptq.tensors("x", weight, v2=True)["x.qweight"].numpy().view("uint32")
    assert words[:, 0].tolist() == [0b11 << 30, 0b1, 0]
    assert words[:, 1].tolist() == [0, 0b1 << 31, 0b11]


def test_awq_interleaves_columns_as_its_kernel_wants_them():
    codes = torch.arange(8, dtype=torch.uint8).view(8, 1).repeat(1, 2)
    weight = PackedWeight(
        code="int", bits=4, shape=(8, 2), codes=pack_codes(codes, 4), scales=torch.ones(8, 1), group_size=0
    )
    found = awq.tensors("x", weight)
    assert found["x.qweight"].tolist() == [[0x75316420], [0x75316420]]
    assert found["x.qzeros"].numpy().view("uint32").tolist() == [[0x88888888]]


@pytest.mark.parametrize(
    ("format", "words", "message"),
    [
        ("gptq", {"method": "mxfp4"}, "GPTQ format holds integers"),
        ("awq", {"method": "int8"}, "AWQ format holds integers of 4 bits"),
        ("awq", {"method": "gptq", "act_order": True, **CALIBRATED}, "cannot hold"),
        ("gptq", {"method": "int8", "activations": "int8"}, "only the compressed-tensors format"),
        ("compressed-tensors", {"method": "fp8", "element": "e5m2"}, "no format for"),
        ("compressed-tensors", {"method": "gptq", "act_order": True, **CALIBRATED}, "act_order: static"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_leaves_nothing(model, tmp_path, format, words, message):
    packed = made(model, tmp_path, **words)
    with pytest.raises(UsageError, match=message):
        write_folder(model, packed, tmp_path / "out", format, PROVENANCE)
    assert [path.name for path in tmp_path.iterdir()] == ["packed"]


def test_a_zero_point_of_zero_has_no_place_in_gptq_v1():
    weight = PackedWeight(
        code="int", bits=4, shape=(8, 8), codes=torch.zeros(8, 4, dtype=torch.uint8), scales=torch.ones(8, 1),
        group_size=0, zero_points=torch.zeros(8, 1, dtype=torch.uint8),
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"zero point of 0.*gptq_v2"):
        gptq.tensors("x", weight, v2=False)
    assert gptq.tensors("x", weight, v2=True)["x.qzeros"].tolist() == [[0]]


def test_scales_beyond_float16_are_refused():
    weight = PackedWeight(
        code="int", bits=4, shape=(8, 8), codes=torch.zeros(8, 4, dtype=torch.uint8), scales=torch.full((8, 1), 1e-12),
        group_size=0,
    )  # fmt: skip
    with pytest.raises(UsageError, match="float16, which cannot hold"):
        awq.tensors("x", weight)


def test_a_folder_that_is_there_is_left_alone(model, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UsageError, match="already exists"):
        write_folder(model, made(model, tmp_path, method="int8"), tmp_path / "out", "compressed-tensors", PROVENANCE)


def test_a_large_model_is_cut_into_shards_with_an_index(model, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "SHARD_BYTES", 50_000)
    packed = made(model, tmp_path, method="int8")
    write_folder(model, packed, tmp_path / "out", "compressed-tensors", PROVENANCE)
    assert not (tmp_path / "out" / "model.safetensors").exists()
    found = read_quantized(tmp_path / "out")
    for name, weight in packed.weights.items():
        assert torch.equal(dequantize_torch(found.layers[name].weight), dequantize_torch(weight))


def test_layers_of_one_scheme_name_their_class_and_several_name_themselves():
    one = PackedWeight(
        code="int", bits=4, shape=(4, 8), codes=torch.zeros(4, 4, dtype=torch.uint8), scales=torch.ones(4, 1),
        group_size=0,
    )  # fmt: skip
    other = replace(one, bits=8, codes=torch.zeros(4, 8, dtype=torch.uint8))
    alone = compressed_tensors.config({"a": one, "b": one}, ["lm_head"], {})
    assert alone["format"] == "pack-quantized"
    assert alone["config_groups"]["group_0"]["targets"] == ["Linear"]
    mixed = compressed_tensors.config({"a": one, "b": other}, ["lm_head"], {})
    assert mixed["format"] == "mixed-precision"
    assert [group["targets"] for group in mixed["config_groups"].values()] == [["a"], ["b"]]
