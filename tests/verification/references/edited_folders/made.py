"""Sound folders of a tiny Llama in 17 formats, written and read by their published layouts and by nothing of qualgate.

`Folder` is a model folder in memory, which edits change and `write` puts on disk. `decoded` says which weights a server
that follows the format multiplies with: the truth that qualgate's own loading is held against.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from qualgate.refmodel import PATH as REFERENCE

Tensors = dict[str, torch.Tensor]
WIDTH, INNER, HEADS, KV, LAYERS, VOCABULARY = 64, 128, 4, 2, 2, 768
ONE, FIRST, SECOND = "model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
])  # fmt: skip  # Dettmers et al. 2023, appendix E
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None,
    "dtype": "bfloat16", "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu", "hidden_size": WIDTH,
    "initializer_range": 0.02, "intermediate_size": INNER, "max_position_embeddings": 1024, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV,
    "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": False,
    "transformers_version": "5.23.0", "use_cache": True, "vocab_size": VOCABULARY,
}  # fmt: skip


@dataclass(eq=False)
class Folder:
    """A folder in memory. weights: file → its tensors; metadata: of a weight file's header; json: file → content;
    other: file → bytes; gguf: (header, tensors), see `gguf_files`."""

    format: str
    weights: dict[str, Tensors]
    json: dict[str, Any]
    other: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    gguf: Any = None

    @property
    def config(self) -> dict[str, Any]:
        return self.json["config.json"]

    @property
    def quantization(self) -> dict[str, Any]:
        return self.config["quantization_config"]

    @property
    def tensors(self) -> Tensors:
        """Those of the first file that holds weights."""
        return self.weights[next(iter(self.weights))]

    def copied(self) -> Folder:
        """A copy that can be edited; tensors are shared until they are replaced."""
        return Folder(
            self.format, {file: dict(held) for file, held in self.weights.items()}, copy.deepcopy(self.json),
            dict(self.other), copy.deepcopy(self.metadata), copy.deepcopy(self.gguf),
        )  # fmt: skip

    def write(self, path: Path) -> Path:
        """The folder on disk, in place of what was there."""
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        for name, content in self.other.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        for name, said in self.json.items():
            (path / name).write_text(json.dumps(said))
        for name, held in self.weights.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            save_file(
                {key: one.contiguous().clone() for key, one in held.items()}, path / name,
                self.metadata.get(name, {"format": "pt"}),
            )  # fmt: skip
        if self.gguf is not None:
            from tests.verification.references.edited_folders.gguf_files import write

            write(path / "model.gguf", *self.gguf)
        return path


@cache
def floats() -> Tensors:
    """The baseline's weights in bfloat16, wide enough that its logits are sharp."""
    draw = torch.Generator().manual_seed(45)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        for part, rows, columns in (
            ("self_attn.q_proj", WIDTH, WIDTH), ("self_attn.k_proj", KV * 16, WIDTH),
            ("self_attn.v_proj", KV * 16, WIDTH), ("self_attn.o_proj", WIDTH, WIDTH),
            ("mlp.gate_proj", INNER, WIDTH), ("mlp.up_proj", INNER, WIDTH),
            ("mlp.down_proj", WIDTH, INNER),
        ):  # fmt: skip
            shapes[f"model.layers.{layer}.{part}.weight"] = (rows, columns)
    found = {name: (0.15 * torch.randn(shape, generator=draw)).bfloat16() for name, shape in shapes.items()}
    norms = [f"model.layers.{layer}.{kind}" for layer in range(LAYERS)
             for kind in ("input_layernorm", "post_attention_layernorm")]  # fmt: skip
    for name in (*norms, "model.norm"):
        found[f"{name}.weight"] = (1 + 0.1 * torch.randn(WIDTH, generator=draw)).bfloat16()
    return found


def modules() -> list[str]:
    """The linear layers within the decoder."""
    return [name.removesuffix(".weight") for name in floats() if name.endswith("_proj.weight")]


def plain(tied: bool = False) -> Folder:
    """The baseline, of one file."""
    names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
    kept = {name: (REFERENCE / name).read_bytes() for name in names}
    said = {name: json.loads(kept.pop(name)) for name in names if name.endswith("_config.json")}
    tensors = {name: one for name, one in floats().items() if not (tied and name == "lm_head.weight")}
    config = copy.deepcopy(CONFIG) | {"tie_word_embeddings": tied}
    return Folder("plain", {ONE: tensors}, {"config.json": config, **said}, kept)


def sharded(tied: bool = False) -> Folder:
    """The same over two files with their index."""
    found = plain(tied)
    names = sorted(found.tensors)
    halves = {FIRST: names[: len(names) // 2], SECOND: names[len(names) // 2 :]}
    found.weights = {file: {name: found.tensors[name] for name in held} for file, held in halves.items()}
    found.json[INDEX] = {"metadata": {}, "weight_map": {name: file for file, held in halves.items() for name in held}}
    found.format = "sharded"
    return found


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes along the last axis into int32, the first in the lowest bits."""
    each = 32 // bits
    parts = codes.long().unflatten(-1, (-1, each)) << (bits * torch.arange(each))
    words = parts.sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


def unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The codes of `packed`."""
    each = 32 // bits
    return ((words.long() & 0xFFFFFFFF).unsqueeze(-1) >> (bits * torch.arange(each)) & (2**bits - 1)).flatten(-2)


def _groups(weight: torch.Tensor, size: int, most: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(groups [N, G, size] divided by their scales, scales [N, G])."""
    groups = weight.float().unflatten(1, (-1, size))
    scales = groups.abs().amax(-1) / most
    return groups / scales.bfloat16().float().unsqueeze(-1), scales.bfloat16()


def _nearest(values: torch.Tensor) -> torch.Tensor:
    """The E2M1 codes nearest to values."""
    codes = (values.unsqueeze(-1) - E2M1).abs().argmin(-1)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).byte()


def _of_nibbles(raw: torch.Tensor) -> torch.Tensor:
    return E2M1[torch.stack([raw & 15, raw >> 4], -1).flatten(-2).long()]


def _int4(weight: torch.Tensor) -> Tensors:
    groups, scales = _groups(weight, 32, 7)
    codes = groups.round().clamp(-8, 7).flatten(1) + 8
    return {"weight_packed": packed(codes, 4), "weight_scale": scales, "weight_shape": torch.tensor(weight.shape)}


def _int8(weight: torch.Tensor) -> Tensors:
    groups, scales = _groups(weight, weight.shape[1], 127)
    return {"weight": groups.round().clamp(-128, 127).flatten(1).to(torch.int8), "weight_scale": scales}


def _fp8(weight: torch.Tensor) -> Tensors:
    groups, scales = _groups(weight, weight.shape[1], 448)
    return {"weight": groups.clamp(-448, 448).flatten(1).to(torch.float8_e4m3fn), "weight_scale": scales}


def _nvfp4(weight: torch.Tensor) -> Tensors:
    whole = 448 * 6 / weight.float().abs().max()
    groups = weight.float().unflatten(1, (-1, 16))
    scales = (groups.abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn)
    codes = _nearest((groups * whole / scales.float().unsqueeze(-1)).flatten(1))
    return {"weight_packed": codes, "weight_scale": scales, "weight_global_scale": whole.reshape(1)}


def _mxfp4(weight: torch.Tensor) -> Tensors:
    groups = weight.float().unflatten(1, (-1, 32))
    powers = groups.abs().amax(-1).log2().floor() - 2
    codes = _nearest((groups / 2 ** powers.unsqueeze(-1)).flatten(1))
    return {"weight_packed": codes, "weight_scale": (powers + 127).byte()}


def _gptq(weight: torch.Tensor, stored: int) -> Tensors:
    groups, scales = _groups(weight, 32, 7)
    codes = groups.round().clamp(-8, 7).flatten(1) + 8
    zeros = torch.full((weight.shape[1] // 32, len(weight)), stored)
    return {
        "qweight": packed(codes, 4).T, "qzeros": packed(zeros, 4), "scales": scales.T.half(),
        "g_idx": (torch.arange(weight.shape[1]) // 32).int(),
    }  # fmt: skip


def _awq(weight: torch.Tensor) -> Tensors:
    groups, scales = _groups(weight, 32, 7)
    codes = (groups.round().clamp(-8, 7).flatten(1) + 8).T.unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1)
    zeros = torch.full((weight.shape[1] // 32, len(weight)), 8)
    return {"qweight": packed(codes, 4), "qzeros": packed(zeros, 4), "scales": scales.T.half()}


def _block(weight: torch.Tensor) -> Tensors:
    blocks = weight.float().unflatten(1, (-1, 32)).unflatten(0, (-1, 32))
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"weight": codes.reshape(weight.shape), "weight_scale_inv": scales}


def _modelopt_fp8(weight: torch.Tensor) -> Tensors:
    scale = weight.float().abs().max() / 448
    codes = (weight.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.02)}


def _modelopt_nvfp4(weight: torch.Tensor) -> Tensors:
    made = _nvfp4(weight)
    return {
        "weight": made["weight_packed"], "weight_scale": made["weight_scale"],
        "weight_scale_2": 1 / made["weight_global_scale"][0], "input_scale": torch.tensor(0.01),
    }  # fmt: skip


def _nf4(weight: torch.Tensor) -> Tensors:
    blocks = weight.float().reshape(-1, 64)
    absmax = blocks.abs().amax(1)
    codes = (blocks / absmax[:, None]).unsqueeze(-1).sub(NF4).abs().argmin(-1).flatten()
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(weight.shape)}
    return {
        "weight": (codes[0::2] << 4 | codes[1::2]).byte()[:, None], "weight.absmax": absmax,
        "weight.quant_map": NF4.clone(),
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode())).byte(),
    }  # fmt: skip


def _torchao(weight: torch.Tensor) -> Tensors:
    made = _int8(weight)
    return {"_weight_qdata": made["weight"], "_weight_scale": made["weight_scale"].float()}


def _compressed(kind: str, **weights: Any) -> dict[str, Any]:
    of_weights = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": None, "observer": None,
                  "observer_kwargs": {}, "symmetric": True, **weights}  # fmt: skip
    group = {"targets": ["Linear"], "weights": of_weights, "input_activations": None, "output_activations": None,
             "format": kind}  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "format": kind,
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None,
        "global_compression_ratio": None, "sparsity_config": {}, "transform_config": {}, "version": "0.19.0",
    }  # fmt: skip


def _gptq_said(kind: str) -> dict[str, Any]:
    return {
        "quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True, "lm_head": False,
        "method": "gptq", "format": kind, "checkpoint_format": kind, "pack_dtype": "int32",
        "meta": {"quantizer": ["gptqmodel:5.6.0"], "damp_percent": 0.05},
    }  # fmt: skip


def _modelopt_said(algorithm: str) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], "kv_cache_scheme": None,
            "producer": {"name": "modelopt", "version": "0.33.0"}}  # fmt: skip


BITSANDBYTES = {
    "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16", "quant_method": "bitsandbytes",
    "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False,
    "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": ["lm_head"],
    "llm_int8_threshold": 6.0, "load_in_4bit": True, "load_in_8bit": False,
}  # fmt: skip
TORCHAO = {
    "quant_method": "torchao", "include_input_output_embeddings": False, "modules_to_not_convert": ["lm_head"],
    "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_version": 2, "_data": {"group_size": None}}},
    "quant_type_kwargs": {}, "untie_embedding_weights": False,
}  # fmt: skip
QUANTIZED: dict[str, tuple[Callable[[torch.Tensor], Tensors], dict[str, Any]]] = {
    "ct-int4": (_int4, _compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32)),
    "ct-int8": (_int8, _compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "ct-fp8": (_fp8, _compressed("float-quantized", num_bits=8, type="float", strategy="channel")),
    "ct-nvfp4": (_nvfp4, _compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group",
                                     group_size=16)),
    "ct-mxfp4": (_mxfp4, _compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group",
                                     group_size=32)),
    "gptq": (lambda weight: _gptq(weight, 7), _gptq_said("gptq")),
    "gptq_v2": (lambda weight: _gptq(weight, 8), _gptq_said("gptq_v2")),
    "awq": (_awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
                   "modules_to_not_convert": ["lm_head"]}),
    "fp8-block": (_block, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                           "modules_to_not_convert": ["lm_head"]}),
    "modelopt-fp8": (_modelopt_fp8, _modelopt_said("FP8")),
    "modelopt-nvfp4": (_modelopt_nvfp4, _modelopt_said("NVFP4")),
    "torchao": (_torchao, TORCHAO),
    "bnb-nf4": (_nf4, BITSANDBYTES),
}  # fmt: skip


@cache
def _encoded(format: str) -> Tensors:
    encode = QUANTIZED[format][0]
    return {f"{module}.{part}": one for module in modules()
            for part, one in encode(floats()[f"{module}.weight"]).items()}  # fmt: skip


def quantized(format: str, tied: bool = False) -> Folder:
    """A sound folder of this format: every linear layer of the decoder is quantized, the head is not."""
    found = plain(tied)
    found.format = format
    kept = {name: one for name, one in found.tensors.items() if name.removesuffix(".weight") not in modules()}
    found.weights = {ONE: {**kept, **_encoded(format)}}
    found.config["quantization_config"] = copy.deepcopy(QUANTIZED[format][1])
    if format.startswith("gptq"):
        found.json["quantize_config.json"] = copy.deepcopy(found.quantization)
    if format.startswith("modelopt"):
        said = {"quant_algo": found.quantization["quant_algo"], "kv_cache_quant_algo": None,
                "exclude_modules": ["lm_head"]}  # fmt: skip
        found.json["hf_quant_config.json"] = {"producer": found.quantization["producer"], "quantization": said}
    if format == "torchao":
        kind = {"_type": "Int8Tensor", "_data": {"block_size": [1, WIDTH], "act_quant_kwargs": None},
                "_tensor_data_names": ["qdata", "scale"]}  # fmt: skip
        sizes = {name: floats()[f"{name}.weight"].shape[1] for name in modules()}
        said = {f"{name}.weight": kind | {"_data": kind["_data"] | {"block_size": [1, size]}}  # type: ignore[operator]
                for name, size in sizes.items()}  # fmt: skip
        names = json.dumps([*said, *kept])
        found.metadata[ONE] = {"format": "pt", "tensor_names": names} | {k: json.dumps(v) for k, v in said.items()}
    return found


def sound(format: str, tied: bool = False) -> Folder:
    """A sound folder of any of `FORMATS`."""
    if format in QUANTIZED:
        return quantized(format, tied)
    if format == "gguf":
        from tests.verification.references.edited_folders.gguf_files import folder

        return folder(plain(tied))
    if format == "adapter":
        from tests.verification.references.edited_folders.adapters import adapter

        return adapter()
    return {"plain": plain, "sharded": sharded}[format](tied)


FORMATS = ("plain", "sharded", *QUANTIZED, "gguf", "adapter")


def _layer(format: str, said: dict[str, torch.Tensor]) -> torch.Tensor:
    """One layer's weight as the format defines it, float32 [out, in]."""
    match format:
        case "ct-int4":
            codes = unpacked(said["weight_packed"], 4) - 8
            return codes * said["weight_scale"].float().repeat_interleave(32, 1)
        case "ct-int8" | "ct-fp8":
            return said["weight"].float() * said["weight_scale"].float()
        case "ct-nvfp4":
            scales = said["weight_scale"].float() / said["weight_global_scale"].float()
            return _of_nibbles(said["weight_packed"]) * scales.repeat_interleave(16, 1)
        case "ct-mxfp4":
            powers = 2.0 ** (said["weight_scale"].float() - 127)
            return _of_nibbles(said["weight_packed"]) * powers.repeat_interleave(32, 1)
        case "gptq" | "gptq_v2":
            groups = said["g_idx"].long()
            zeros = unpacked(said["qzeros"], 4) + (format == "gptq")
            codes = unpacked(said["qweight"].T, 4).T
            return ((codes - zeros[groups]) * said["scales"].float()[groups]).T
        case "awq":
            back = [AWQ_ORDER.index(place) for place in range(8)]
            codes, zeros = (unpacked(said[part], 4).unflatten(1, (-1, 8))[..., back].flatten(1)
                            for part in ("qweight", "qzeros"))  # fmt: skip
            return ((codes - zeros.repeat_interleave(32, 0)) * said["scales"].float().repeat_interleave(32, 0)).T
        case "fp8-block":
            scales = said["weight_scale_inv"].float().repeat_interleave(32, 0).repeat_interleave(32, 1)
            return said["weight"].float() * scales
        case "modelopt-fp8":
            return said["weight"].float() * said["weight_scale"].float()
        case "modelopt-nvfp4":
            scales = said["weight_scale"].float() * said["weight_scale_2"].float()
            return _of_nibbles(said["weight"]) * scales.repeat_interleave(16, 1)
        case "torchao":
            return said["_weight_qdata"].float() * said["_weight_scale"].float()
        case "bnb-nf4":
            raw = said["weight"].flatten().long()
            codes = torch.stack([raw >> 4, raw & 15], 1).reshape(-1, 64)
            shape = json.loads(bytes(said["weight.quant_state.bitsandbytes__nf4"].tolist()))["shape"]
            return (NF4[codes] * said["weight.absmax"].float()[:, None]).reshape(shape)
    raise KeyError(format)


ROUNDS_INPUTS = ("fp8-block", "modelopt-fp8", "modelopt-nvfp4")  # inputs are quantized too: `decoded` has the weights


def decoded(folder: Folder) -> Tensors:
    """The float32 weights that this folder means; KeyError where a tensor that the format needs is not there."""
    if folder.format == "gguf":
        from tests.verification.references.edited_folders.gguf_files import floats_of

        return floats_of(*folder.gguf)
    files = [ONE] if ONE in folder.weights else sorted(set(folder.json[INDEX]["weight_map"].values()))
    held = {name: one for file in files for name, one in folder.weights[file].items()}
    found = {name: one.float() for name, one in held.items() if f"{name.removesuffix('.weight')}" not in modules()}
    found = {name: one for name, one in found.items() if not any(name.startswith(f"{m}.") for m in modules())}
    for module in modules():
        said = {name.removeprefix(f"{module}."): one for name, one in held.items() if name.startswith(f"{module}.")}
        dense = said.get("weight")
        if len(said) == 1 and dense is not None and dense.is_floating_point() and dense.itemsize > 1:
            found[f"{module}.weight"] = dense.float()
        else:
            found[f"{module}.weight"] = _layer(folder.format, said).float()
    return found
