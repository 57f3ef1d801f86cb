"""GGUF files: llama.cpp's blocks, each with its scale inside, taken apart into codes and scales.

F16, F32 and BF16 stay plain tensors. In blocks of 32 the low nibbles are the first 16 weights and the high ones the
last 16 (not even and odd places, as everywhere else). Types with tables of their own (IQ, TQ, NVFP4) are dequantized by
the `gguf` package, and packed again without loss.

Names become those of transformers, and the rows of q and k go back to its order: llama.cpp's converter interleaves the
two halves of each head for architecture "llama". The file says neither how to build the model nor how to tokenize in a
way qualgate uses: config.json and the tokenizer must lie beside it, as a GGUF's repository of origin has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.formats import Format
from qualgate.quant.gguf_file import GGUFFile, GGUFTensor, open_gguf
from qualgate.quant.readers.source import AGAIN, Layer, Source, packed
from qualgate_kernels.packed import pack_codes

ARCHITECTURES = ("llama", "qwen2", "qwen3", "phi3")  # whose names and rows are known
_PERMUTED = ("llama",)
_PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}  # fmt: skip
_FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}  # phi3's
_WHOLE = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}
_PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F64": np.float64}


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized tensor, by transformers' module name (by the file's own where the architecture is not
    known)."""
    file = _file(source)
    for name, tensor in file.tensors.items():
        if tensor.type in _PLAIN:
            continue
        source.take(name)
        target = _name(file, name)
        module = target.removesuffix(".weight")
        parts = _unpacked(file, name, tensor)
        rows = _rows(file, name, tensor.shape[0])
        if rows is not None:
            parts = {key: part[rows].contiguous() if isinstance(part, torch.Tensor) else part
                     for key, part in parts.items()}  # fmt: skip
        bias_name = name.removesuffix(".weight") + ".bias"
        bias = _plain(file, bias_name, file.tensors[bias_name]) if bias_name in file.tensors else None
        if bias is not None:
            source.take(bias_name)
        weight = packed(source, name, any_scale=True, shape=(tensor.shape[0], tensor.shape[1]), **parts)
        yield module, Layer(weight=weight, layout=tensor.type, bias=bias)


def plain_tensors(source: Source) -> dict[str, torch.Tensor]:
    """Return the tensors that are not quantized, under transformers' names."""
    file = _file(source)
    tensors = {}
    for name in source.rest():
        source.take(name)
        if name.startswith(("rope_freqs", "rope_factors")):  # what config.json's rope_scaling says
            continue
        tensors[_name(file, name)] = _plain(file, name, file.tensors[name])
    return tensors


def _file(source: Source) -> GGUFFile:
    return open_gguf(source.format.where)


def _name(file: GGUFFile, name: str) -> str:
    """Return transformers' name of a tensor; the file's own for an unknown architecture or tensor."""
    if file.architecture not in ARCHITECTURES:
        return name
    stem, _, ending = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{ending}"
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    parts = _PARTS | _FUSED if file.architecture == "phi3" else _PARTS
    if block and block[2] in parts:
        return f"model.layers.{block[1]}.{parts[block[2]]}.{ending}"
    return name


def check_architecture(format: Format) -> None:
    """Raise NotInThisVersion for an architecture whose tensor names are not known, so that no model can be built."""
    file = open_gguf(format.where)
    if file.architecture not in ARCHITECTURES:
        raise NotInThisVersion(
            f"{file.path} is of architecture {file.architecture!r:.40}, whose tensor names are not known here. Known "
            f"architectures: {', '.join(ARCHITECTURES)}. `qualgate inspect` still reads the file."
        )


def _rows(file: GGUFFile, name: str, rows: int) -> torch.Tensor | None:
    """Return where each of transformers' rows of q and k lies in the file; None if rows are in their places."""
    part = re.fullmatch(r"blk\.\d+\.attn_(q|k)\.(weight|bias)", name)
    if part is None or file.architecture not in _PERMUTED:
        return None
    heads = file.fields.get(f"{file.architecture}.attention.head_count")
    if part[1] == "k":
        heads = file.fields.get(f"{file.architecture}.attention.head_count_kv", heads)
    if type(heads) is not int or heads < 1 or rows % (2 * heads):
        raise UsageError(
            f"{file.path}: tensor {name} has {rows} rows and the file says {heads!r:.20} heads, so its rows cannot be "
            f"put in order. {AGAIN}"
        )
    return torch.arange(rows).view(heads, rows // heads // 2, 2).transpose(1, 2).reshape(-1)


def _plain(file: GGUFFile, name: str, tensor: GGUFTensor) -> torch.Tensor:
    """Return an unquantized tensor, with its rows in transformers' order."""
    data = np.frombuffer(tensor.data.tobytes(), dtype=_PLAIN[tensor.type]) if tensor.type in _PLAIN else None
    if data is None:
        raise NotInThisVersion(f"{file.path}: tensor {name} is {tensor.type}, which is read only for matrices.")
    values = torch.from_numpy(data.copy())
    if tensor.type == "BF16":
        values = values.view(torch.bfloat16)
    values = values.view(tensor.shape)
    rows = _rows(file, name, tensor.shape[0])
    return values if rows is None else values[rows].contiguous()


def _unpacked(file: GGUFFile, name: str, tensor: GGUFTensor) -> dict[str, Any]:
    """Return the fields of a PackedWeight, rows in the file's order. Raises for types and shapes that are not read."""
    make = _TYPES.get(tensor.type)
    if make is None and tensor.type not in _GROUPS:
        raise NotInThisVersion(
            f"{file.path}: tensor {name} is {tensor.type}, which is not read. Types that are read: "
            f"{', '.join((*_TYPES, *_GROUPS, *_PLAIN))}. Quantize the file again to one of these."
        )
    if len(tensor.shape) != 2:
        raise NotInThisVersion(
            f"{file.path}: tensor {name} {list(tensor.shape)} is not a matrix. Experts in three dimensions are not "
            "read from GGUF in this version."
        )
    rows, columns = tensor.shape
    size = tensor.block
    if columns % size:
        raise UsageError(f"{file.path}: tensor {name} has {columns} in_features, not a multiple of {size}. {AGAIN}")
    raw = np.frombuffer(tensor.data.tobytes(), dtype=np.uint8).reshape(rows, columns // size, -1)
    if make is not None:
        return make(torch.from_numpy(raw.copy()))
    step = max(1, _AT_ONCE // columns)
    chunks = [_whole_codes(raw[first : first + step], tensor.type) for first in range(0, rows, step)]
    codes, scales = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    if not scales.isfinite().all():
        raise UsageError(f"{file.path}: tensor {name} holds NaN or infinite values. {AGAIN}")
    reach = max(int(codes.max()), -1 - int(codes.min()))
    bits = next(bits for bits in (2, 3, 4, 5, 6, 8) if reach < 2 ** (bits - 1))  # of which there are kernels
    codes = (codes + 2 ** (bits - 1)).to(torch.uint8)
    return _int(codes, bits, scales=scales, group_size=_GROUPS[tensor.type])


def _whole_codes(raw: np.ndarray, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of blocks as (uint8 codes of int8, float32 scales), NaN where a group is not finite.

    Every weight of these types is d * scale * number, all whole but for powers of two and together of 24 bits at most.
    So the greatest common divisor of a group leaves numbers of 8 bits, and their products with it are exact.
    """
    from gguf import GGMLQuantizationType, dequantize

    with np.errstate(all="ignore"):
        values = dequantize(raw.reshape(len(raw), -1), GGMLQuantizationType[kind])
    groups = values.reshape(len(raw), -1, _GROUPS[kind])
    finite = np.isfinite(groups).all(-1, keepdims=True)
    groups = np.where(finite, groups, 0).astype(np.float64)
    shift = 24 - np.where(groups == 0, 24, np.frexp(groups)[1]).min(-1, keepdims=True)
    whole = np.ldexp(groups, shift).astype(np.int64)
    unit = np.maximum(np.gcd.reduce(whole, axis=-1, keepdims=True), 1)
    scales = np.where(finite, np.ldexp(unit.astype(np.float64), -shift), np.nan)[..., 0]
    return torch.from_numpy((whole // unit).astype(np.int16)), torch.from_numpy(scales.astype(np.float32))


def _halves(nibbles: torch.Tensor) -> torch.Tensor:
    """uint8 [..., 16] → codes [..., 32]: first the low nibbles, then the high ones."""
    return torch.cat([nibbles & 15, nibbles >> 4], -1)


def _float(raw: torch.Tensor) -> torch.Tensor:
    """Two bytes → float16 [rows, blocks]."""
    return raw.contiguous().view(torch.float16).squeeze(-1)


def _int(codes: torch.Tensor, bits: int, **fields: Any) -> dict[str, Any]:
    return {"code": "int", "bits": bits, "codes": pack_codes(codes.flatten(1), bits), **fields}


def _q4_0(raw: torch.Tensor) -> dict[str, Any]:
    return _int(_halves(raw[..., 2:]), 4, scales=_float(raw[..., :2]), group_size=32)


def _q4_1(raw: torch.Tensor) -> dict[str, Any]:
    offsets = _float(raw[..., 2:4])
    return _int(_halves(raw[..., 4:]), 4, scales=_float(raw[..., :2]), offsets=offsets, group_size=32)


def _fifth(raw: torch.Tensor) -> torch.Tensor:
    """Four bytes → the bits of 32 codes, at the place of their fifth."""
    bit = torch.arange(32)
    return ((raw[..., bit // 8] >> (bit % 8).to(torch.uint8)) & 1) << 4


def _q5_0(raw: torch.Tensor) -> dict[str, Any]:
    return _int(_halves(raw[..., 6:]) | _fifth(raw[..., 2:6]), 5, scales=_float(raw[..., :2]), group_size=32)


def _q5_1(raw: torch.Tensor) -> dict[str, Any]:
    codes, offsets = _halves(raw[..., 8:]) | _fifth(raw[..., 4:8]), _float(raw[..., 2:4])
    return _int(codes, 5, scales=_float(raw[..., :2]), offsets=offsets, group_size=32)


def _q8_0(raw: torch.Tensor) -> dict[str, Any]:
    return _int(raw[..., 2:] ^ 128, 8, scales=_float(raw[..., :2]), group_size=32)  # two's complement → + 128


def _planes(raw: torch.Tensor, width: int, run: int) -> torch.Tensor:
    """Bytes → codes of `width` bits [..., 8 / width * bytes]: of each `run` bytes first the lowest bits of all."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8).unsqueeze(-1)
    return ((raw.unflatten(-1, (-1, 1, run)) >> shifts) & (2**width - 1)).flatten(-3)


def _with_minima(codes: torch.Tensor, bits: int, scales: torch.Tensor, minima: torch.Tensor, d: torch.Tensor,
                 dmin: torch.Tensor) -> dict[str, Any]:  # fmt: skip
    """Weights d * scale * code - dmin * minimum, with a scale and a minimum for each group of a block of 256."""
    return _int(
        codes.flatten(1),
        bits,
        scales=(_float(d).float().unsqueeze(-1) * scales.float()).flatten(1),
        offsets=-(_float(dmin).float().unsqueeze(-1) * minima.float()).flatten(1),
        group_size=256 // scales.shape[-1],
    )


def _q2_k(raw: torch.Tensor) -> dict[str, Any]:
    """256 weights: 16 scales and minima of 4 bits, 2-bit codes, float16 d and dmin."""
    codes, scales, minima = _planes(raw[..., 16:80], 2, 32), raw[..., :16] & 15, raw[..., :16] >> 4
    return _with_minima(codes, 2, scales, minima, raw[..., 80:82], raw[..., 82:84])


def _q3_k(raw: torch.Tensor) -> dict[str, Any]:
    """256 weights: their third bits, their lower two, 16 six-bit scales (low nibbles, then high pairs), float16 d."""
    codes = _planes(raw[..., 32:96], 2, 32) | _planes(raw[..., :32], 1, 32) << 2
    scales = (_planes(raw[..., 96:104], 4, 8) | _planes(raw[..., 104:108], 2, 4) << 4).float() - 32
    return _int(codes.flatten(1), 3, scales=(_float(raw[..., 108:110]).float().unsqueeze(-1) * scales).flatten(1),
                group_size=16)  # fmt: skip


def _q45_k(raw: torch.Tensor) -> dict[str, Any]:
    """256 weights: float16 d and dmin, 8 six-bit scales and minima, the fifth bits of Q5_K, then nibbles."""
    low, middle, high, nibbles = raw[..., 4:8], raw[..., 8:12], raw[..., 12:16], raw[..., -128:]
    scales = torch.cat([low & 63, (high & 15) | ((low >> 2) & 48)], -1)
    minima = torch.cat([middle & 63, (high >> 4) | ((middle >> 2) & 48)], -1)
    codes, bits = _planes(nibbles, 4, 32), 4
    if raw.shape[-1] == 176:
        codes, bits = codes | _planes(raw[..., 16:48], 1, 32) << 4, 5
    return _with_minima(codes, bits, scales, minima, raw[..., 0:2], raw[..., 2:4])


def _q6_k(raw: torch.Tensor) -> dict[str, Any]:
    """256 weights: low nibbles (128 bytes), two high bits each (64 bytes), 16 int8 scales, float16 d."""
    codes = _planes(raw[..., :128], 4, 64) | _planes(raw[..., 128:192], 2, 32) << 4
    scales = raw[..., 192:208].contiguous().view(torch.int8).float() * _float(raw[..., 208:210]).float().unsqueeze(-1)
    return _int(codes.flatten(1), 6, scales=scales.flatten(1), group_size=16)


def _mxfp4(raw: torch.Tensor) -> dict[str, Any]:
    codes = _halves(raw[..., 1:])
    return {
        "code": "e2m1", "bits": 4, "codes": pack_codes(codes.flatten(1), 4), "scales": raw[..., 0].contiguous(),
        "group_size": 32,
    }  # fmt: skip


_TYPES = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q2_K": _q2_k, "Q3_K": _q3_k,
    "Q4_K": _q45_k, "Q5_K": _q45_k, "Q6_K": _q6_k, "MXFP4": _mxfp4,
}  # fmt: skip
# Weights that share all factors but their own number, by the types that the `gguf` package dequantizes for us.
_GROUPS = {
    "IQ1_S": 32, "IQ1_M": 16, "IQ2_XXS": 32, "IQ2_XS": 16, "IQ2_S": 16, "IQ3_XXS": 32, "IQ3_S": 32, "IQ4_NL": 32,
    "IQ4_XS": 32, "TQ1_0": 256, "TQ2_0": 256, "NVFP4": 16,
}  # fmt: skip
_AT_ONCE = 2**22  # weights dequantized at a time, which bounds the memory of it
