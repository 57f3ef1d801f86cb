"""GGUF blocks against the `gguf` package's own dequantizer, and the order of rows that its converter changes."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.errors.extras import install_command
from qualgate.quant.formats import recognise
from qualgate.quant.gguf_file import _read_all
from qualgate.quant.readers import read_quantized
from qualgate.quant.readers.gguf import ARCHITECTURES
from qualgate.quant.shards import other_files, read_shards
from qualgate_kernels.dequantize import dequantize_torch

gguf = pytest.importorskip("gguf")
# Where the float16 numbers of a block lie, and how the weight is packed.
TYPES = {
    "Q4_0": ([0], "int4 g32"), "Q4_1": ([0, 2], "int4 g32 asym"), "Q5_0": ([0], "int5 g32"),
    "Q5_1": ([0, 2], "int5 g32 asym"), "Q8_0": ([0], "int8 g32"), "Q2_K": ([80, 82], "int2 g16 asym"),
    "Q3_K": ([108], "int3 g16"), "Q4_K": ([0, 2], "int4 g32 asym"), "Q5_K": ([0, 2], "int5 g32 asym"),
    "Q6_K": ([208], "int6 g16"), "MXFP4": ([], "mxfp4"), "TQ1_0": ([52], "int2 g256"), "TQ2_0": ([64], "int3 g256"),
    "NVFP4": ([], "int5 g16"), "IQ1_S": ([0], "int5 g32"), "IQ1_M": ([], "int5 g16"), "IQ2_XXS": ([0], "int8 g32"),
    "IQ2_XS": ([0], "int8 g16"), "IQ2_S": ([0], "int8 g16"), "IQ3_XXS": ([0], "int6 g32"), "IQ3_S": ([0], "int5 g32"),
    "IQ4_NL": ([0], "int8 g32"), "IQ4_XS": ([0], "int8 g32"),
}  # fmt: skip


def blocks(kind: str, rows: int, columns: int) -> np.ndarray:
    """Random codes with sane scales: uint8 [rows, bytes]."""
    random = np.random.default_rng(len(kind))
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    for place in TYPES[kind][0]:
        half = random.normal(0, 0.1, raw.shape[:2]).astype(np.float16)
        raw[..., place : place + 2] = half.view(np.uint8).reshape(*raw.shape[:2], 2)
    if kind == "MXFP4":
        raw[..., 0] = random.integers(100, 150, raw.shape[:2])
    if kind == "NVFP4":
        raw[..., :4] &= 0x77  # no NaN
    if kind == "IQ1_M":
        raw[..., -1] &= 0x3F  # the highest bits of a float16 that is spread over the block: finite
    return raw.reshape(rows, -1)


def written(path, tensors: dict[str, tuple[str, np.ndarray]], architecture: str = "llama", heads: int = 2, kv: int = 1):
    path.mkdir(parents=True, exist_ok=True)
    return written_to(path / "model.gguf", tensors, {}, architecture, heads, kv)


def split(path, parts: list[dict[str, tuple[str, np.ndarray]]], last: dict | None = None):
    """All parts of a model as llama.cpp splits it; `last`: keys of the last part."""
    total = sum(map(len, parts))
    for number, tensors in enumerate(parts):
        fields = {"no": number, "count": len(parts), "tensors.count": total}
        fields |= (last or {}) if number == len(parts) - 1 else {}
        written_to(path / f"m-{number + 1:05}-of-{len(parts):05}.gguf", tensors, fields, heads=fields.get("heads", 2))
    return path


def written_to(file, tensors, fields, architecture="llama", heads=2, kv=1):
    writer, path = gguf.GGUFWriter(file, architecture), file.parent
    for key, value in fields.items():
        if isinstance(value, int) and key != "heads":
            writer.add_uint32(f"split.{key}", value)
    return finished(writer, tensors, path, heads, kv)


def finished(writer, tensors, path, heads=2, kv=1):
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    for name, (kind, raw) in tensors.items():
        if kind == "F32":
            writer.add_tensor(name, raw)
        else:
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_type_is_decoded_as_the_package_does(tmp_path, kind):
    raw = blocks(kind, 6, 512)
    folder = written(tmp_path, {"blk.0.ffn_down.weight": (kind, raw)})
    format = recognise(folder)
    assert format is not None
    assert format.method == "gguf"
    layer = read_quantized(folder).layers["model.layers.0.mlp.down_proj"]
    expected = gguf.dequantize(raw, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), expected)
    assert layer.weight.format == TYPES[kind][1]


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to the rows of q and k."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_rows_of_q_and_k_go_back_to_transformers_order_for_llama_alone(tmp_path, architecture):
    original = {part: blocks("Q8_0", rows, 32) for part, rows in (("attn_q", 32), ("attn_k", 16), ("attn_v", 16))}
    stored = dict(original)
    if architecture == "llama":
        stored |= {"attn_q": permuted(original["attn_q"], 2), "attn_k": permuted(original["attn_k"], 1)}
    tensors = {f"blk.3.{part}.weight": ("Q8_0", raw) for part, raw in stored.items()}
    tensors |= {
        "blk.3.attn_q.bias": ("F32", np.arange(32, dtype=np.float32)),
        "output_norm.weight": ("F32", np.ones(8, np.float32)),
    }
    checkpoint = read_quantized(written(tmp_path, tensors, architecture))
    for part, raw in original.items():
        layer = checkpoint.layers[f"model.layers.3.self_attn.{part.removeprefix('attn_')}_proj"]
        expected = gguf.dequantize(raw, gguf.GGMLQuantizationType.Q8_0)
        assert np.array_equal(dequantize_torch(layer.weight).numpy(), expected)
    bias = checkpoint.layers["model.layers.3.self_attn.q_proj"].bias
    assert bias is not None
    back = bias.numpy() if architecture == "qwen2" else permuted(bias.numpy()[:, None], 2)[:, 0]
    assert back.tolist() == list(range(32))
    assert list(checkpoint.tensors) == ["model.norm.weight"]


def test_types_and_architectures_that_are_not_known_are_named(tmp_path):
    raw = np.zeros((4, 292), dtype=np.uint8)
    with pytest.raises(NotInThisVersion, match="Q8_K, which is not read"):
        read_quantized(written(tmp_path / "a", {"blk.0.ffn_up.weight": ("Q8_K", raw)}))
    other = written(tmp_path / "b", {"blk.0.odd.weight": ("Q8_0", blocks("Q8_0", 4, 32))}, "gemma3")
    assert list(read_quantized(other).layers) == ["blk.0.odd"]
    from qualgate.quant.readers.checkpoint import check_runnable

    with pytest.raises(NotInThisVersion, match="architecture 'gemma3'"):
        check_runnable(read_quantized(other))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_name_is_the_one_that_the_package_gives_it(tmp_path, architecture):
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    theirs = gguf.get_tensor_name_map(kind, 4)
    known = [gguf.TENSOR_NAMES[tensor].format(bid=3) for tensor in gguf.MODEL_TENSORS[kind]]
    left = {"rope_freqs", "rope_factors_long", "rope_factors_short", "blk.3.attn_rot_embd"}
    left |= {name for name in known if "exps" in name or "ffn_gate_inp" in name}  # experts are refused
    if architecture == "phi3":
        left |= {f"blk.3.attn_{part}" for part in "qkv"}  # of fused models none has them
    stored = {f"{name}.weight": ("Q8_0", blocks("Q8_0", 4, 32)) for name in known if name not in left}
    found = read_quantized(written(tmp_path, stored, architecture)).layers
    assert {theirs.get_name(module) for module in found} == {name.removesuffix(".weight") for name in stored}
    assert len(found) == len(stored) >= 9


def test_the_first_part_of_a_split_model_may_hold_no_tensor_and_all_are_read_as_one(tmp_path):
    """As the package's own writer splits it."""
    raw = {f"blk.{layer}.ffn_up.weight": blocks("IQ4_XS", 4, 256) for layer in range(3)}
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=1, small_first_shard=True)
    folder = finished(writer, {name: ("IQ4_XS", data) for name, data in raw.items()}, tmp_path)
    checkpoint = read_quantized(folder)
    assert list(checkpoint.layers) == [f"model.layers.{layer}.mlp.up_proj" for layer in range(3)]
    for layer, data in zip(checkpoint.layers.values(), raw.values(), strict=True):
        assert np.array_equal(
            dequantize_torch(layer.weight).numpy(), gguf.dequantize(data, gguf.GGMLQuantizationType.IQ4_XS)
        )
    shards = read_shards(folder, hashed=True)
    assert [len(file.name) for file in shards.files] == [len("m-00001-of-00004.gguf")] * 4
    assert other_files(shards) == {}
    (folder / "another.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="5 GGUF files"):
        read_quantized(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 3}, "split.count is 3, expected 2 of part 2"),
        ({"no": 0}, "split.no is 0, expected 1"),
        ({"tensors.count": 7}, "split.tensors.count is 7, expected 2"),
        ({"tensors.count": None}, "split.tensors.count is None"),
        ({"name": "blk.0.ffn_up.weight"}, r"both hold tensor blk\.0\.ffn_up\.weight"),
        ({"heads": 8}, "llama.attention.head_count is 8, expected 2"),
        ({"rename": "m.gguf"}, r"lacks 1 part of a model split into 2: m-00002-of-00002\.gguf|2 GGUF files"),
        ({"alone": "m.gguf"}, "split.count is 2, expected 1"),
        ({"alone": "m-00002-of-00002.gguf"}, r"lacks 1 part of a model split into 2: m-00001"),
    ],
)
def test_a_part_of_another_model_and_a_missing_one_are_named(tmp_path, fields, message):
    first, second = ({name: ("Q8_0", blocks("Q8_0", 4, 32))} for name in ("blk.0.ffn_up.weight", "blk.1.ffn_up.weight"))
    if "name" in fields:
        second = first
    folder = split(tmp_path, [first, second], fields)
    for part in sorted(folder.iterdir()) if "alone" in fields else ():
        part.rename(folder / fields["alone"]) if "00002" in part.name else part.unlink()
    if "rename" in fields:
        (folder / "m-00002-of-00002.gguf").rename(folder / "m.gguf")
    with pytest.raises(UsageError, match=message):
        read_quantized(folder)


def test_a_group_that_is_not_finite_is_damage(tmp_path):
    raw = blocks("IQ4_NL", 4, 64)
    raw[2, 18:20] = [0, 0x7C]
    with pytest.raises(UsageError, match=r"ffn_up\.weight holds NaN or infinite values"):
        read_quantized(written(tmp_path, {"blk.0.ffn_up.weight": ("IQ4_NL", raw)}))


def test_a_damaged_file_is_named(tmp_path):
    folder = written(tmp_path, {"blk.0.ffn_up.weight": ("Q8_0", blocks("Q8_0", 4, 32))})
    whole = (folder / "model.gguf").read_bytes()
    for content, message in (
        (whole[:20], "cut within its header"),
        (whole[:-40], "cannot be read as GGUF|does not fit"),
        (b"GGUF" + whole[4:8] + b"\xff" * 8 + whole[16:], "more than its"),
        (whole[:64], "cannot be read as GGUF|more than its"),
    ):
        (folder / "model.gguf").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_quantized(folder)


def test_without_the_package_the_extra_to_install_is_named(tmp_path, monkeypatch):
    folder = written(tmp_path, {"blk.0.ffn_up.weight": ("Q8_0", blocks("Q8_0", 4, 32))})
    monkeypatch.setitem(sys.modules, "gguf", None)
    _read_all.cache_clear()
    with pytest.raises(UsageError, match=re.escape(install_command("gguf"))):
        read_quantized(folder)


def test_bfloat16_tensors_stay_plain(tmp_path):
    bits = np.array([[0x80, 0x3F, 0, 0xC0]], dtype=np.uint8)
    tensors = {"blk.0.ffn_up.weight": ("Q8_0", blocks("Q8_0", 4, 32)), "token_embd.weight": ("BF16", bits)}
    found = read_quantized(written(tmp_path, tensors)).tensors["model.embed_tokens.weight"]
    assert torch.equal(found, torch.tensor([[1.0, -2.0]]).bfloat16())


def test_a_gguf_beside_config_and_tokenizer_runs_as_its_floats_do(tmp_path):
    """Rows of q and k permuted, embeddings and head quantized too: everything but the norms is Q8_0."""
    import shutil

    from safetensors.torch import load_file, save_file

    from qualgate.engine.load import load_arm
    from qualgate.quant.readers.gguf import _PARTS, _WHOLE
    from qualgate.records import ArmSpec
    from tests.tiny_models import save_tiny_model

    plain = save_tiny_model(tmp_path / "model", dtype="float32")
    floats = load_file(plain / "model.safetensors")
    stored = {}
    for name, tensor in floats.items():
        if tensor.dim() == 2:
            raw = gguf.quantize(tensor.numpy(), gguf.GGMLQuantizationType.Q8_0)
            floats[name] = torch.tensor(gguf.dequantize(raw, gguf.GGMLQuantizationType.Q8_0))
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                raw = permuted(raw, 4 if "q_proj" in name else 2)
            kind = "Q8_0"
        else:
            raw, kind = tensor.numpy(), "F32"
        parts = name.removesuffix(".weight").split(".")
        whole = {target: own for own, target in _WHOLE.items()}.get(".".join(parts))
        layer = {target: own for own, target in _PARTS.items()}.get(".".join(parts[3:]))
        stored[f"{whole or f'blk.{parts[2]}.{layer}'}.weight"] = (kind, raw)
    folder = written(tmp_path / "gguf", stored, "llama", heads=4, kv=2)
    for file in plain.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
    save_file(floats, plain / "model.safetensors", {"format": "pt"})
    found, expected = (
        load_arm(ArmSpec(name="v", model=str(one), dtype="float32", kernels="torch"), tmp_path, {}, device="cpu")
        for one in (folder, plain)
    )
    ids = torch.arange(40).view(2, 20)
    with torch.inference_mode():
        assert torch.equal(found.model(ids).logits, expected.model(ids).logits)
    assert found.footprint.quantized_bytes > 0
