"""Run by test_triton.py: drift and attention compiled for GPUs that are not there; prints what spills, as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import triton
import triton.backends.nvidia as nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from qualgate_kernels import attention_gpu, drift_gpu
from qualgate_kernels.attention import FORMATS, new_cache
from qualgate_kernels.drift_gpu import TILES

CODES = {"int8": "*i8", "fp8": "*fp8e4nv", "int4": "*u8"}
TARGETS = (90, 80)


def spills(kernel, signature: dict[str, str], constants: dict, options: dict, target: int) -> dict[str, int]:
    order = kernel.arg_names
    whole = {name: signature.get(name, "constexpr") for name in order}
    assert sorted([*signature, *constants]) == sorted(order), set(order) ^ {*signature, *constants}
    divisible = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(order)
        if whole[name].startswith("*") or name in ("PD", "QD", "capacity")
    }
    made = triton.compile(
        ASTSource(kernel, whole, constexprs=constants, attrs=divisible),
        target=GPUTarget("cuda", target, 32), options=options,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])
        tool = os.path.join(os.path.dirname(nvidia.__file__), "bin", "nvdisasm")
        listing = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    return {
        "spills": sum(word in line for line in listing.splitlines() for word in (" STL", " LDL")),
        "products": sum(word in line for line in listing.splitlines() for word in ("HGMMA", "HMMA")),
        "shared": made.metadata.shared,
    }


def drift(noise: bool, target: int) -> dict[str, int]:
    tile = TILES[2]
    signature = {
        **dict.fromkeys(("p_hidden", "p_weight", "q_hidden", "q_weight"), "*bf16"),
        **dict.fromkeys(("p_bias", "q_bias", "scratch"), "*fp32"),
        **dict.fromkeys(("labels", "cases", "positions"), "*i64"), "numbers": "*fp64",
        "seed": "i64", "inverse_temperature": "fp32",
        **dict.fromkeys(("N", "V", "PD", "QD", "row_blocks", "parts", "per_part"), "i32"),
    }  # fmt: skip
    constants = {
        "P_BIAS": True, "Q_BIAS": True, "LABELS": True, "NOISE": noise, "EVEN": True,
        "ROWS": tile.rows, "TOKENS": tile.tokens, "WIDTH": tile.width, "SLICE": tile.slice, "GROUP": tile.group,
    }  # fmt: skip
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return spills(drift_gpu.drift_kernel, signature, constants, options, target)


def attention(format: str, split: bool, target: int) -> dict[str, int]:
    cache = new_cache(format, 1, 1, 64, 128)
    signature = {
        **dict.fromkeys(("query", "out"), "*bf16"), **dict.fromkeys(("keys", "values"), CODES[format]),
        **dict.fromkeys(("key_scales", "channel_scales", "value_scales", "partial", "totals"), "*fp32"),
        "start": "*i64", "scale": "fp32",
        **dict.fromkeys(("heads", "group", "rows", "capacity", "packs", "spans"), "i32"),
    }  # fmt: skip
    constants = attention_gpu.constants(cache, split)
    return spills(attention_gpu.attend_kernel, signature, constants, attention_gpu.OPTIONS, target)


def combine(target: int) -> dict[str, int]:
    signature = {
        **dict.fromkeys(("partial", "totals"), "*fp32"), "out": "*bf16",
        **dict.fromkeys(("group", "rows", "packs", "spans"), "i32"),
    }  # fmt: skip
    constants = {"DIM": 128, "PACK": attention_gpu.PACK}
    return spills(attention_gpu.combine_kernel, signature, constants, attention_gpu.OPTIONS, target)


if __name__ == "__main__":
    found = {f"drift sm_{target}": drift(True, target) for target in TARGETS}
    for target in TARGETS:
        found[f"combine sm_{target}"] = combine(target)
        for format in FORMATS:
            if format == "fp8" and target < 89:
                continue  # no float8 there
            for split in (False, True) if format == "int4" else (False,):
                found[f"attention {format} sm_{target}{' split' * split}"] = attention(format, split, target)
    print(json.dumps(found))
