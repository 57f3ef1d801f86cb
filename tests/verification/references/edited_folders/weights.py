"""Faults of quantized weights: what is quantized and what is not (kinds 1, 10), GPTQ's conventions (2), heads (3)."""

from __future__ import annotations

from typing import Any

import torch

from tests.verification.references.edited_folders.edits import (
    DOWN,
    EMBEDDED,
    GATE,
    HEAD,
    QUERY,
    Edited,
    both,
    drop,
    each,
    excluded,
    gone,
    of_group,
    other_head,
    put,
    renamed,
    said,
    unquantized,
    weight,
)
from tests.verification.references.edited_folders.made import (
    INNER,
    QUANTIZED,
    Folder,
    _awq,
    _block,
    _fp8,
    _gptq,
    _int4,
    _int8,
    floats,
    modules,
    packed,
    unpacked,
)

ANEW = ("initialized anew", "KeyError", "KeyError", "-")
CAST = ("cast without a scale", "cast without a scale", "cast without a scale", "-")
PLAIN = {  # what servers do with a float layer that the config takes for quantized
    **dict.fromkeys(("ct-int4", "ct-nvfp4", "ct-mxfp4", "gptq", "gptq_v2", "awq"), ANEW),
    **dict.fromkeys(("ct-int8", "ct-fp8", "fp8-block", "modelopt-fp8"), CAST),
    "fp8-block": ("floats", "cast without a scale", "cast without a scale", "-"),
    "modelopt-nvfp4": ("not read", "shape error", "shape error", "-"),
    "bnb-nf4": ("quantized once more", "shape error", "shape error", "-"),
    "torchao": ("plain", "quantized at load", "quantized at load", "-"),
}
PREFIX = "model.language_model."
ENCODERS = {"ct-int4": _int4, "ct-int8": _int8, "ct-fp8": _fp8, "awq": _awq, "fp8-block": _block,
            "gptq": lambda one: _gptq(one, 7)}  # fmt: skip


def _layer_of_floats() -> list[Edited]:
    """Kind 1: floats that nothing lists, floats listed under another prefix, codes listed as floats."""
    found = []
    for format in QUANTIZED:
        escaped = DOWN.replace(".", r"\.")
        must = "refused|told" if format == "torchao" else "refused"
        more: dict[str, Any] = {"kind": 1, "format": format, "must": must, "servers": PLAIN[format]}
        found += [
            Edited(name=f"{format} layer of floats", edit=unquantized(DOWN), words=("down_proj",), **more),
            Edited(
                name=f"{format} floats listed under another prefix", words=("down_proj",),
                edit=both(unquantized(DOWN), excluded(DOWN.replace("model.", PREFIX, 1))), **more,
            ),
            Edited(
                name=f"{format} quantized layer listed as not", words=("down_proj",),
                edit=excluded(f".*{escaped}.*" if format.startswith("gptq") else DOWN),
                **more | {"servers": ("plain layer, weight missing", "KeyError", "KeyError", "-")},
            ),
        ]  # fmt: skip
    for format in ("ct-int4", "ct-fp8", "gptq", "awq", "fp8-block"):
        found.append(Edited(
            name=f"{format} every query is floats", kind=1, format=format, must="refused", words=("q_proj",),
            edit=both(*(unquantized(name) for name in modules() if name.endswith("q_proj"))), servers=PLAIN[format],
        ))  # fmt: skip
        found.append(Edited(
            name=f"{format} floats under a multimodal name", kind=1, format=format, must="refused",
            edit=unquantized(DOWN, under=DOWN.replace("model.", PREFIX, 1)), words=("down_proj",),
            servers=("initialized anew", "KeyError", "KeyError", "-"),
        ))  # fmt: skip
    found += [
        Edited(name="fp8 floats listed by their last name alone", kind=1, format="fp8-block", must="refused|told",
               edit=both(*(unquantized(name) for name in modules() if "down_proj" in name), excluded("down_proj")),
               words=("down_proj",), servers=("plain: the end of a name", "cast: whole names alone", "cast", "-")),
        Edited(name="ct floats listed by a pattern that misses them", kind=1, format="ct-int4", must="refused",
               edit=both(unquantized(DOWN), excluded(r"re:.*layers\.0\.mlp\.down_proj")), words=("down_proj",),
               servers=ANEW),
        Edited(name="ct every layer listed by class, all packed", kind=1, format="ct-int4", must="refused",
               edit=put("q:ignore", ["Linear"]), words=("ignore|Linear",), servers=("all anew", "KeyError",
               "KeyError", "-")),
        Edited(name="ct targets of no layer", kind=1, format="ct-int4", must="refused",
               edit=put("q:config_groups.group_0.targets", ["Conv2d"]), words=("target",),
               servers=("all anew", "KeyError", "KeyError", "-")),
        Edited(name="config says quantized, every layer is floats", kind=1, format="ct-int8", must="refused",
               edit=both(*(unquantized(name) for name in modules())), words=("quantiz",), servers=CAST),
        Edited(name="gptq layer and fp8 layers in one folder", kind=1, format="gptq", must="refused",
               edit=_encoded_as(QUERY, "fp8-block"), words=("q_proj",), servers=ANEW),
        Edited(name="awq layer and gptq layers in one folder", kind=1, format="gptq", must="refused",
               edit=_encoded_as(QUERY, "awq"), words=("q_proj",), servers=("shape error", "shape error", "shape error",
               "-")),
    ]  # fmt: skip
    return found


def _encoded_as(module: str, format: str, head: str = ""):
    """A module in this format, whatever the folder's is; head: a module that has floats[EMBEDDED]'s numbers."""

    def edit(folder: Folder) -> None:
        source = floats()[EMBEDDED] if head else floats()[f"{module}.weight"]
        held = folder.tensors
        for name in [name for name in held if name.startswith(f"{module}.")]:
            del held[name]
        held.update({f"{module}.{part}": one for part, one in ENCODERS[format](source).items()})

    return edit


def _shifted(zero: int):
    """Codes and zero points moved by as many steps: the same weights where zero points are read."""

    def edit(folder: Folder) -> None:
        held = folder.tensors
        for name in [name for name in held if name.endswith(".qweight")]:
            codes = unpacked(held[name].T, 4) - 1
            held[name] = packed(codes.clamp_min(0), 4).T
            zeros = f"{name.removesuffix('qweight')}qzeros"
            held[zeros] = packed(torch.full_like(unpacked(held[zeros], 4), zero), 4)

    return edit


def _mixed_groups(folder: Folder) -> None:
    """Columns of a layer dealt out to groups as act-order does."""
    held, draw = folder.tensors, torch.Generator().manual_seed(0)
    held[f"{DOWN}.g_idx"] = (torch.arange(INNER) // 32).int()[torch.randperm(INNER, generator=draw)]


IGNORED = ("zeros not read", "zeros not read", "zeros not read", "-")
GPTQ = [
    *(Edited(name=f"{format} sym with other zero points", kind=2, format=format, edit=_shifted(stored), must="refused",
             words=("sym", "zero"), servers=IGNORED) for format, stored in (("gptq", 6), ("gptq_v2", 7))),
    Edited(name="gptq one layer's zero points are not symmetric", kind=2, format="gptq", must="refused",
           edit=weight(f"{DOWN}.qzeros", lambda one: torch.full_like(one, 0x55555555)), words=("sym", "down_proj"),
           servers=IGNORED),
    Edited(name="gptq_v2 zero points called gptq", kind=2, format="gptq_v2", must="refused",
           edit=said(format="gptq", checkpoint_format="gptq"), words=("checkpoint_format", "gptq_v2"),
           servers=("a step off", "zeros not read", "a step off", "-")),
    Edited(name="gptq zero points called gptq_v2", kind=2, format="gptq", must="refused",
           edit=said(format="gptq_v2", checkpoint_format="gptq_v2"), words=("checkpoint_format|sym",),
           servers=("a step off", "zeros not read", "a step off", "-")),
    Edited(name="gptq asym v2 zero points called gptq", kind=2, format="gptq_v2", must="refused|blocked",
           edit=said(format="gptq", checkpoint_format="gptq", sym=False), words=("checkpoint_format|zero",),
           servers=("a step off", "a step off", "a step off", "-")),
    *(Edited(name=f"{format} desc_act false, g_idx permuted", kind=2, format=format, edit=_mixed_groups, must="refused",
             words=("desc_act", "g_idx"), servers=("g_idx read", "g_idx not read", "g_idx not read", "-"))
      for format in ("gptq", "gptq_v2")),
    Edited(name="gptq format and checkpoint_format disagree", kind=2, format="gptq", must="refused",
           edit=said(format="gptq_v2"), words=("format",), servers=("format", "checkpoint_format", "checkpoint_format",
           "-")),
    Edited(name="gptq 8 bits for a layer that has 4", kind=2, format="gptq", must="refused",
           edit=said(dynamic={r"+:.*down_proj.*": {"bits": 8}}), words=("dynamic|down_proj",),
           servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="gptq another group size for a layer", kind=2, format="gptq", must="refused",
           edit=said(dynamic={r"+:.*down_proj.*": {"group_size": 64}}), words=("dynamic|down_proj|group",),
           servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="gptq 8 bits", kind=2, format="gptq", edit=said(bits=8), must="refused", words=("bits",),
           servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="gptq group size 64", kind=2, format="gptq", edit=said(group_size=64), must="refused",
           words=("group",), servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="gptq marlin layout", kind=2, format="gptq", edit=said(is_marlin_format=True), must="refused",
           words=("marlin",), servers=("refused", "marlin", "marlin", "-")),
    Edited(name="awq called gptq", kind=2, format="awq", edit=put("q:quant_method", "gptq"), must="refused",
           words=("quant_method|version|qweight|scales|zero_point",),
           servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="awq gemv layout said", kind=2, format="awq", edit=put("q:version", "gemv"), must="refused",
           words=("gemv",), servers=("shape error", "not read", "not read", "-")),
    Edited(name="awq without zero points said", kind=2, format="awq", must="refused", words=("zero",),
           edit=both(put("q:zero_point", False),
                     weight(f"{DOWN}.qzeros", lambda one: torch.full_like(one, 0x55555555))),
           servers=("zeros not read", "zeros read", "zeros read", "-")),
    Edited(name="ct actorder group, no g_idx", kind=2, format="ct-int4", edit=of_group(actorder="group"),
           must="refused", words=("actorder", "g_idx"), servers=("refused", "g_idx anew", "g_idx anew", "-")),
    Edited(name="ct asym, no zero points", kind=2, format="ct-int4", edit=of_group(symmetric=False), must="refused",
           words=("zero_point",), servers=("error", "zeros anew", "zeros anew", "-")),
    Edited(name="ct sym with zero points", kind=2, format="ct-int8", must="refused", words=("zero_point", "symmetric"),
           edit=weight(f"{DOWN}.weight_zero_point", torch.full((64, 1), 3, dtype=torch.int8)), servers=IGNORED),
    Edited(name="ct g_idx that nothing says", kind=2, format="ct-int4", must="refused", words=("g_idx",),
           edit=weight(f"{DOWN}.weight_g_idx", (torch.arange(INNER) % 4).int()),
           servers=("g_idx not read", "KeyError", "KeyError", "-")),
    Edited(name="ct 8 bits for packed 4", kind=2, format="ct-int4", edit=of_group(num_bits=8), must="refused",
           words=("weight_packed|bits",), servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="ct group size 64", kind=2, format="ct-int4", edit=of_group(group_size=64), must="refused",
           words=("weight_scale|group",), servers=("shape error", "shape error", "shape error", "-")),
    Edited(name="ct format of the group is another", kind=2, format="ct-int4", must="refused", words=("format",),
           edit=put("q:config_groups.group_0.format", "int-quantized"), servers=("the group's", "the whole's",
           "the whole's", "-")),
    Edited(name="ct float codes called int", kind=2, format="ct-fp8", must="refused", words=("weight|type|format",),
           edit=of_group(type="int"), servers=("cast", "cast", "cast", "-")),
    Edited(name="fp8 blocks of another size", kind=2, format="fp8-block", must="refused", words=("weight_scale_inv",),
           edit=put("q:weight_block_size", [64, 64]), servers=("by the scales", "shape error", "shape error", "-")),
    Edited(name="fp8 blocks forgotten", kind=2, format="fp8-block", must="refused", words=("weight_block_size|scale",),
           edit=drop("q:weight_block_size"), servers=("by the scales", "KeyError", "KeyError", "-")),
    Edited(name="fp8 inputs static without scales", kind=2, format="fp8-block", must="refused",
           edit=put("q:activation_scheme", "static"), words=("activation|input_scale",),
           servers=("dynamic", "refused: block-wise is dynamic", "refused: block-wise is dynamic", "-")),
    Edited(name="modelopt two algorithms", kind=2, format="modelopt-fp8", must="refused", words=("quant_algo",),
           edit=put("hf_quant_config.json:quantization.quant_algo", "NVFP4"),
           servers=("not read", "hf_quant_config.json", "hf_quant_config.json", "-")),
    Edited(name="nf4 called fp4", kind=2, format="bnb-nf4", edit=put("q:bnb_4bit_quant_type", "fp4"),
           must="refused|told", words=("quant_type|bnb_4bit_quant_type",),
           servers=("the tensor's state", "the tensor's state", "the tensor's state", "-")),
    Edited(name="nf4 blocks of another size", kind=2, format="bnb-nf4", must="refused", words=("blocksize|absmax",),
           edit=weight(f"{DOWN}.weight.absmax", lambda one: one[: len(one) // 2]),
           servers=("read beyond", "read beyond", "read beyond", "-")),
]  # fmt: skip

DROPPED = ("the embeddings: tied", "the embeddings: skipped", "the embeddings: skipped", "-")
USED = ("the file's head", "the embeddings: skipped", "the embeddings: skipped", "-")
TIED = [
    *(Edited(name=f"{format} tied with another head", kind=3, format=format, edit=weight(HEAD, other_head()), tied=True,
             must="refused", words=("lm_head", "tie_word_embeddings"),
             servers=USED if format in ("plain", "sharded") else DROPPED)
      for format in ("plain", "sharded", "ct-int4", "ct-fp8", "gptq", "awq", "fp8-block", "modelopt-fp8", "bnb-nf4",
                     "torchao")),
    *(Edited(name=f"{format} untied, no head", kind=3, format=format, edit=gone(HEAD), must="refused",
             words=("lm_head",), servers=("initialized anew", "error", "error", "-"))
      for format in ("plain", "sharded", "ct-int4", "gptq", "fp8-block")),
    *(Edited(name=f"{format} tied, quantized head", kind=3, format=format, edit=_encoded_as("lm_head", format, "head"),
             tied=True, must="refused", words=("lm_head",), servers=DROPPED)
      for format in ("ct-int4", "gptq", "awq", "fp8-block")),
    *(Edited(name=f"{format} tie flag of an untied folder turned on", kind=3, format=format, must="refused",
             edit=put("tie_word_embeddings", True), words=("lm_head|tie_word_embeddings",),
             servers=USED if format == "plain" else DROPPED) for format in ("plain", "ct-int8", "gptq")),
    Edited(name="plain tied, head said under another prefix", kind=3, format="plain", tied=True, must="refused",
           edit=weight("model.lm_head.weight", other_head()), words=("lm_head",),
           servers=("unexpected", "KeyError", "KeyError", "-")),
]  # fmt: skip


def _scaled(change, kind: str) -> list[Edited]:
    return [
        Edited(name=f"{format} scales {kind}", kind=10, format=format, edit=each(part, change), must="refused|blocked",
               words=("scale",), servers=("as stored",) * 3 + ("-",))
        for format, part in (("fp8-block", "weight_scale_inv"), ("ct-int4", "weight_scale"))
    ]  # fmt: skip


def _eight(rows: torch.Tensor) -> torch.Tensor:
    return (rows.float() / rows.float().abs().max() * 127).round().to(torch.int8)


ONLINE = [{"targets": ["re:.*down_proj"], "location": location, "inverse": False, "ignore": []}
          for location in ("input", "weight_input")]  # fmt: skip
HURT = [
    *_scaled(torch.ones_like, "all 1"),
    *_scaled(lambda one: 1 / one.float(), "inverted"),
    Edited(name="fp8 scales of some layers only", kind=10, format="fp8-block", must="refused", words=("scale",),
           edit=gone(f"{DOWN}.weight_scale_inv"), servers=("scale anew", "scale anew", "scale anew", "-")),
    Edited(name="ct scales of some layers only", kind=10, format="ct-int4", must="refused", words=("weight_scale",),
           edit=gone(f"{DOWN}.weight_scale"), servers=("scale anew", "scale anew", "scale anew", "-")),
    *(Edited(name=f"{format} {what} in int8", kind=10, format=format, edit=weight(name, _eight), must="refused",
             words=(name.removesuffix(".weight"),), servers=("codes as numbers",) * 3 + ("-",))
      for format in ("ct-int8", "gptq", "plain")
      for what, name in (("norm", "model.norm.weight"), ("embeddings", EMBEDDED), ("head", HEAD))),
    Edited(name="ct embeddings packed, not targeted", kind=10, format="ct-int4", must="refused",
           words=("embed_tokens",), edit=_encoded_as("model.embed_tokens", "ct-int4", "head"), servers=ANEW),
    Edited(name="ct head packed, listed as not", kind=10, format="ct-int4", must="refused", words=("lm_head",),
           edit=_encoded_as("lm_head", "ct-int4", "head"), servers=ANEW),
    Edited(name="gptq head packed, lm_head false", kind=10, format="gptq", must="refused|told", words=("lm_head",),
           edit=_encoded_as("lm_head", "gptq", "head"), servers=("plain, anew", "KeyError", "KeyError", "-")),
    Edited(name="awq head packed, listed as not", kind=10, format="awq", must="refused", words=("lm_head",),
           edit=_encoded_as("lm_head", "awq", "head"), servers=ANEW),
    Edited(name="norm of another name", kind=10, format="ct-int8", must="refused",
           edit=renamed("model.layers.0.input_layernorm", "model.layers.0.input_layer_norm"),
           words=("input_layernorm|input_layer_norm",), servers=("anew", "KeyError", "KeyError", "-")),
    Edited(name="layer of codes in another layer's place", kind=10, format="gptq", must="refused",
           edit=renamed(GATE, GATE.replace("layers.0", "layers.7")), words=("layers.7|gate_proj",),
           servers=("anew", "KeyError", "KeyError", "-")),
    Edited(name="unknown quantization key", kind=10, format="gptq", edit=said(codebook_rank=4), must="refused",
           words=("codebook_rank",), servers=("not read",) * 3 + ("-",)),
    Edited(name="unknown key in ct", kind=10, format="ct-int4", edit=of_group(codebook="learned"), must="refused",
           words=("codebook",), servers=("refused: extra", "refused: extra", "refused: extra", "-")),
    Edited(name="unknown key in awq", kind=10, format="awq", edit=put("q:duo_scaling_matrix", "M"), must="refused",
           words=("duo_scaling_matrix",), servers=("not read",) * 3 + ("-",)),
    Edited(name="rotations said", kind=10, format="ct-int4", must="refused", words=("transform_config|rotation",),
           edit=put("q:transform_config", {"config_groups": {"R4": {"type": "hadamard", "apply": ONLINE}}}),
           servers=("not read", "rotated", "refused", "-")),
    Edited(name="sparsity said", kind=10, format="ct-int8", must="refused", words=("spars",),
           edit=put("q:sparsity_config", {"format": "sparse-24-bitmask", "targets": ["Linear"]}),
           servers=("not read", "decompressed", "refused", "-")),
]  # fmt: skip
CASES = (*_layer_of_floats(), *GPTQ, *TIED, *HURT)
