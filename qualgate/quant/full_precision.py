"""Tensors that an architecture has no place for: which may be left out, and which show that weights are quantized.

transformers casts a float8 or integer tensor to what the architecture holds and drops the scales beside it, so that
codes would be taken for weights. Needs no torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from qualgate.errors import UsageError
from qualgate.quant.shards import Shards, TensorEntry
from qualgate.text.numbers import counted

FLOATS = ("F16", "BF16", "F32", "F64")
_CODES = ("I8", "U8", "U32", "F4")  # and everything of the family F6 and F8: no architecture has parameters of these
# Endings that only a quantized layer's tensors have, whatever their type.
_PACKED = (
    ".qweight", ".qzeros", ".g_idx", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".weight_scale_2",
    ".weight_global_scale", ".weight_zero_point", ".input_scale", ".input_global_scale", ".pre_quant_scale",
    ".activation_scale", ".SCB", ".weight.absmax", "._weight_qdata",
)  # fmt: skip
# Names of what is computed anew from the config whenever the architecture is built; older libraries stored them.
REBUILT = re.compile(
    r"(^|\.)(original_)?inv_freq$|(^|\.)(position_ids|relative_position_index|freqs_cis|causal_mask)$"
    r"|(^|\.)(cos|sin)_cached?$|embed_positions\.weights$|(^|\.)rope\.freqs$"
)
_MASK = re.compile(r"(^|\.)(attn|attention|self_attn|self_attention|transformer)\.(masked_)?bias$")
# Heads that say nothing of the next token of a text: more tokens at once, pictures and sound, a reward.
UNUSED_HEAD = re.compile(
    r"(^|\.)(mtp(_\w+)?|nextn\w*|medusa_heads?|v_head)\."
    r"|(^|\.)(visual|vision_\w+|vit|image_\w+|img_\w+|multi_?modal_\w+|mm_\w+|patch_\w+|audio_\w+|audio|speech_\w+)\."
    r"|^(model\.)?(talker|token2wav|code2wav|embed_vision|embed_audio|resampler|vpm|apm|tts)\.|(^|\.)image_newline$"
)
# Of a quantized key-value cache, which is a server's own setting: the weights are what they are without it.
_CACHE_SCALE = re.compile(
    r"\.(kv?|v|q|prob|prob_output)_(cache_)?(scale|zero_point)$|\.[kvq]_proj\.output_(scale|zero_point)$"
)


def check_full_precision(shards: Shards) -> None:
    """Raise UsageError for a folder that names no quantized format when its headers show one, saying which it may be.

    What only the architecture can tell, `left_out` does when the model is loaded.
    """
    low = [
        name
        for name, entry in shards.entries.items()
        if (
            entry.dtype in _CODES
            or entry.dtype.startswith(("F8", "F6"))
            or (entry.dtype not in FLOATS and name.endswith(".weight"))  # integers elsewhere may be an architecture's
        )
        and not has_no_say(name, entry.shape)
    ]
    packed = [name for name in shards.entries if name.endswith(_PACKED) and not UNUSED_HEAD.search(name)]
    if low or packed:
        raise quantized_unsaid(shards, (low or packed)[0])


def left_out(shards: Shards, unexpected: Iterable[str], known: re.Pattern[str]) -> dict[str, int]:
    """Return which of a model's tensors are left out: how many, by name with * for each number.

    unexpected: names that the architecture has no place for, as it would call them. known: matches those that are no
    part of it. UsageError if another one would have affected the answers.
    """
    counts: Counter[str] = Counter()
    faults = []
    for name in sorted(unexpected):
        if known.search(name) or has_no_say(name, _shape(shards.entries, name)):
            counts[re.sub(r"(?<=\.)\d+(?=\.)", "*", name)] += 1
        else:
            faults.append(name)
    scale_names = [name for name in faults if "scale" in name.lower() or "zero" in name.lower()]
    if scale_names:
        raise quantized_unsaid(shards, scale_names[0])
    if faults:
        raise UsageError(
            f"{shards.folder} holds {counted(len(faults), 'tensor')} that its architecture has no place for, such as "
            f"{faults[0]}: without them, it would be another model than the one that was saved. config.json and the "
            "weights belong to different models, or an adapter was not merged. Fetch or save this checkpoint again."
        )
    return dict(sorted(counts.items()))


def check_floats(shards: Shards, buffers: Iterable[str], known: re.Pattern[str]) -> None:
    """Raise UsageError for a tensor that holds no floats and would fill a parameter. buffers: names of the
    architecture's tables, which may be of integers. known: as in `left_out`."""
    tables = {name.rpartition(".")[2] for name in buffers}
    for name, entry in shards.entries.items():
        if entry.dtype in FLOATS or name.rpartition(".")[2] in tables or known.search(name):
            continue
        if not has_no_say(name, entry.shape):
            raise quantized_unsaid(shards, name)


def has_no_say(name: str, shape: tuple[int, ...]) -> bool:
    """Rebuilt with the architecture, no part of reading and saying text, or of a cache that is not the weights'."""
    if _MASK.search(name):  # a mask is a square, or the one number that it hides with; a real bias is neither
        return prod(shape) == 1 or (len(shape) >= 2 and shape[-1] == shape[-2] and prod(shape[:-2]) == 1)
    return any(pattern.search(name) for pattern in (REBUILT, UNUSED_HEAD, _CACHE_SCALE))


def quantized_unsaid(shards: Shards, name: str) -> UsageError:
    """Return the error for a folder whose tensor `name` is of a quantized format that its config does not name."""
    entry = shards.entries.get(name)
    what = f"{name} ({entry.dtype})" if entry is not None else name
    return UsageError(
        f"{shards.folder} declares no quantization, but its tensor {what} belongs to a quantized checkpoint, probably "
        f"{likely_format(shards.entries)}. Read as full precision, its codes would be taken for weights and their "
        "scales dropped. Put the `quantization_config` that its export wrote back into "
        f"{shards.folder / 'config.json'}, or give the folder as it was exported."
    )


def likely_format(entries: Mapping[str, TensorEntry]) -> str:
    """Return a format's name for people, from the names and types of its tensors."""
    endings = {name.rpartition(".")[2] for name in entries}
    types = {entry.dtype for entry in entries.values()}
    eight = any(kind.startswith("F8") for kind in types)
    looks = (
        ("qweight" in endings and "g_idx" in endings, "GPTQ"),
        ("qweight" in endings, "AWQ or GPTQ"),
        ("SCB" in endings, "bitsandbytes int8"),
        (bool({"absmax", "quant_map"} & endings), "bitsandbytes 4-bit"),
        (any("_weight_qdata" in ending for ending in endings), "torchao"),
        ("U32" in types and {"scales", "biases"} <= endings, "MLX"),
        ("weight_scale_2" in endings, "NVFP4 of NVIDIA ModelOpt"),
        ("pre_quant_scale" in endings, "AWQ of NVIDIA ModelOpt"),
        ("weight_global_scale" in endings, "NVFP4 of compressed-tensors"),
        ("weight_packed" in endings, "compressed-tensors, packed"),
        ("weight_scale_inv" in endings, "FP8 in blocks, as DeepSeek writes it"),
        (any(ending.endswith("_blocks") for ending in endings), "MXFP4, as gpt-oss has it"),
        (eight and "weight_scale" in endings, "FP8 of NVIDIA ModelOpt or of compressed-tensors"),
        (eight, "FP8 without its scales"),
        ("I8" in types and "weight_scale" in endings, "int8 of compressed-tensors"),
    )
    return next((name for matches, name in looks if matches), "one without its scales, or of a library of its own")


def _shape(entries: Mapping[str, TensorEntry], name: str) -> tuple[int, ...]:
    """Return the shape of the architecture's tensor `name`; files may omit its first parts. (0,): not found."""
    parts = name.split(".")
    names = (".".join(parts[start:]) for start in range(len(parts)))
    return next((entries[own].shape for own in names if own in entries), (0,))
