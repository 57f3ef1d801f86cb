"""Random single edits of sound folders, seeded: a key, a tensor's name, bytes or place, an index entry, a file."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from tests.verification.references.edited_folders.edits import Edit
from tests.verification.references.edited_folders.made import FORMATS, INDEX, Folder, floats, sound

MUTATED = tuple(format for format in FORMATS if format not in ("gguf", "adapter"))
SWAPS: dict[str, tuple[Any, ...]] = {  # other values that are valid by themselves
    "model_type": ("mistral", "qwen2", "gemma"), "architectures": (["MistralForCausalLM"], ["Qwen2ForCausalLM"]),
    "hidden_act": ("gelu", "relu", "gelu_pytorch_tanh"), "dtype": ("float16", "float32"),
    "rope_type": ("linear", "dynamic", "yarn", "llama3"), "quant_method": ("gptq", "awq", "fp8", "compressed-tensors"),
    "format": ("pack-quantized", "int-quantized", "float-quantized", "gptq_v2", "gptq", "dense"),
    "checkpoint_format": ("gptq", "gptq_v2", "marlin"), "bits": (2, 3, 8), "num_bits": (2, 4, 8),
    "group_size": (-1, 16, 64, 128), "strategy": ("tensor", "channel", "group", "block"), "type": ("int", "float"),
    "version": ("gemm", "gemv", "0.12.0"), "activation_scheme": ("static", "dynamic"), "actorder": ("group", "weight"),
    "weight_block_size": ([64, 64], [128, 128], None), "ignore": ([], ["lm_head", "re:.*down_proj"], ["re:.*"]),
    "modules_to_not_convert": ([], None, ["lm_head", "down_proj"]),
    "targets": (["Embedding"], ["re:.*mlp.*"]),
    "llm_int8_skip_modules": ([], None, ["lm_head", "down_proj"]), "exclude_modules": ([], ["lm_head", "*down_proj"]),
    "quant_algo": ("FP8", "NVFP4", "W4A16_AWQ"), "bnb_4bit_quant_type": ("fp4", "nf4"),
    "pack_dtype": ("int16", "int64"),
    "quantization_status": ("frozen", "calibration", "initialized"), "eos_token": ("<|endoftext|>", "<|im_start|>"),
    "tokenizer_class": ("PreTrainedTokenizerFast", "LlamaTokenizer", "GPT2Tokenizer"), "bos_token": ("<|im_start|>",),
    "pad_token": ("<|im_end|>",), "kv_cache_scheme": ({"num_bits": 8, "type": "float"},),
    "dynamic": (True,),
    "kv_cache_quant_algo": ("FP8",), "bnb_4bit_compute_dtype": ("float16", "float32"), "method": ("awq", "gptq"),
    "eos_token_id": (0, [2, 0], None), "bos_token_id": (1, 2), "pad_token_id": (2, None),
    "_type": ("Int4WeightOnlyConfig",),
}  # fmt: skip
ADDED = {  # a generation config's keys that are not there, and a few of the others
    "generation_config.json": {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1, "max_new_tokens": 9,
                               "suppress_tokens": [5], "bos_token_id": 1},
    "config.json": {"sliding_window": 16, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0},
                    "quantization": {"bits": 4}, "text_config": {}, "logits_scaling": 2.0,
                    "partial_rotary_factor": 0.5},
    "tokenizer_config.json": {"add_bos_token": True, "add_prefix_space": True, "chat_template": "{{ messages }}",
                              "added_tokens_decoder": {"700": {"content": "x", "special": True}},
                              "padding_side": "left"},
}  # fmt: skip
BESIDE: dict[str, bytes] = {
    "README.md": b"# tiny", "LICENSE": b"Apache", ".gitattributes": b"*.safetensors filter=lfs",
    "special_tokens_map.json": b'{"eos_token": "<|endoftext|>"}', "added_tokens.json": b'{"<tools>": 5}',
    "chat_template.json": b'{"chat_template": "{{ messages }}"}', "vocab.json": b'{"a": 0}', "merges.txt": b"a b\n",
    "pytorch_model.bin": b"PK\x03\x04", "quant_config.json": b'{"w_bit": 8, "q_group_size": 64}',
    "quantize_config.json": b'{"bits": 8, "group_size": 64, "quant_method": "gptq"}',
    "params.json": b'{"dim": 64}',
    "hf_quant_config.json": b'{"quantization": {"quant_algo": "NVFP4"}}', "preprocessor_config.json": b"{}",
    "adapter_config.json": b'{"peft_type": "LORA", "r": 4}', "model.gguf": b"GGUF\x03\0\0\0",
    "tokenizer.model": b"\x0a",
    "additional_chat_templates/tool_use.jinja": b"{{ messages }}", "training_args.bin": b"PK\x03\x04",
    "recipe.yaml": b"quant_stage: {}", "model.safetensors.index.json": b'{"metadata": {}, "weight_map": {}}',
}  # fmt: skip


SAID = {  # keys that a message may name in words
    "group_size": ("groups of",), "zero_point": ("zero points",), "targets": ("target",), "bits": (" bits",),
    "kv_cache_scheme": ("keys and values",), "kv_cache_quant_algo": ("keys and values",), "group_0": ("target",),
    "weight_block_size": ("in blocks of", "one scale a row"), "num_bits": (" bits", "-bit"),
    "eos_token_id": ("stop token",),
    "chat_template": ("chat template",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutation:
    """key: what it is, equal for equal edits; names: one of them has to be in what a refusal says; place: of a JSON
    key, its file and path."""

    format: str
    key: str
    names: tuple[str, ...]
    edit: Edit = field(compare=False)
    place: tuple[str, ...] = ()
    values_alone: bool = False  # a tensor's values, which every server takes as they stand


@cache
def whole(format: str) -> Folder:
    """A sound folder, not to be edited."""
    return sound(format)


def drawn(count: int, seed: int) -> Iterator[Mutation]:
    """`count` edits, of every format as many."""
    draw = random.Random(seed)
    for number in range(count):
        format = MUTATED[number % len(MUTATED)]
        kinds = [_json] * 6 + [_tensor] * 3 + [_file] + ([_index] * 3 if format == "sharded" else [])
        yield draw.choice(kinds)(format, whole(format), draw)


def _paths(said: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in said.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from _paths(value, (*at, key))


def _json(format: str, folder: Folder, draw: random.Random) -> Mutation:
    file = draw.choice([name for name in folder.json if name != INDEX])
    if file == "config.json" and "quantization_config" in folder.config and draw.random() < 0.5:
        paths = [path for path in _paths(folder.config) if path[0] == "quantization_config"]
    else:
        paths = list(_paths(folder.json[file]))
    path = draw.choice(paths)
    value: Any = folder.json[file]
    for key in path:
        value = value[key]
    ways = [way for way in _values(path[-1], value, file, draw) if repr(way[1]) != repr(value)]
    what, after = draw.choice(ways)
    names = tuple(dict.fromkeys((path[-1], *path[-2:-1], *([file] if "quant" in file else []))))
    names += SAID.get(path[-1], ())
    names += (after,) if isinstance(after, str) and len(after) > 2 else ()
    if what.startswith("rename "):
        return Mutation(format, f"{file} {'.'.join(path)} {what}", (*names, after), _renaming(file, path, after),
                        (file, *path))  # fmt: skip
    if what.startswith("add "):
        path = (what.removeprefix("add "),)
        names = path
    return Mutation(
        format, f"{file} {'.'.join(path)} {what} {json.dumps(after)}", names, _setting(file, path, after), (file, *path)
    )


_GONE = "\0gone"


def _values(key: str, value: Any, file: str, draw: random.Random) -> Iterator[tuple[str, Any]]:
    """Ways to change it: (what, the value after)."""
    yield "remove", _GONE
    yield "remove", _GONE
    letter = draw.randrange(len(key))
    yield "rename one letter", draw.choice([key[:letter] + key[letter + 1 :], key[: letter + 1] + key[letter:]]) or "x"
    yield "retype", draw.choice([str(value), [value], None, {}, 3, True, "x"])
    if isinstance(value, bool):
        yield "negate", not value
    elif isinstance(value, int | float):
        yield "negate", -value
        yield "scale", draw.choice([value * 2, value / 2 if isinstance(value, float) else value // 2, value + 1])
    for other in SWAPS.get(key, ()):
        yield "swap", other
    if file in ADDED and draw.random() < 0.3:
        added = draw.choice(list(ADDED[file]))
        yield f"add {added}", ADDED[file][added]


def _setting(file: str, path: tuple[str, ...], value: Any) -> Edit:
    def edit(folder: Folder) -> None:
        place = folder.json[file]
        for key in path[:-1]:
            place = place[key]
        if value == _GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return edit


def _renaming(file: str, path: tuple[str, ...], name: str) -> Edit:
    def edit(folder: Folder) -> None:
        place = folder.json[file]
        for key in path[:-1]:
            place = place[key]
        place[name] = place.pop(path[-1])

    return edit


VIEWS = {8: (torch.float64, torch.int64), 4: (torch.int32, torch.float32),
         2: (torch.float16, torch.bfloat16, torch.int16),
         1: (torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2)}  # fmt: skip


def _tensor(format: str, folder: Folder, draw: random.Random) -> Mutation:
    file = draw.choice(list(folder.weights))
    name = draw.choice(sorted(folder.weights[file]))
    one, module = folder.weights[file][name], _module(name)
    names = (name, module)
    kinds = ["typo", "prefix", "remove", "twice", "again", *(["layer"] if ".layers." in name else [])]
    kind = draw.choice([*kinds, *_shapes(one)])
    after, change = name, one
    if kind == "typo":
        letter = draw.randrange(len(name) - 1)
        after = name[:letter] + name[letter + 1] + name[letter] + name[letter + 2 :]
        after = after if after != name else name + "t"
    elif kind == "layer":
        after = name.replace("layers.0", "layers.5").replace("layers.1", "layers.8")
    elif kind == "prefix":
        after = draw.choice([f"model.{name}", f"base_model.{name}", name.removeprefix("model."),
                             name.replace("model.", "model.language_model.", 1)])  # fmt: skip
    elif kind in ("twice", "again"):
        into = next((other for other in folder.weights if other != file), "model-00009-of-00009.safetensors")
        put = one.clone() if kind == "twice" else _other(one)
        return Mutation(format, f"{name} {kind} in {into}", (*names, into), _into(into, name, put))
    elif kind == "view":
        change = one.view(draw.choice([dtype for dtype in VIEWS[one.itemsize] if dtype != one.dtype]))
    elif kind == "cast":
        others = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
        change = one.to(draw.choice([dtype for dtype in others if dtype != one.dtype]))
    elif kind == "flat":
        change = one.flatten()
    elif kind == "turn":
        change = one.t()
    elif kind == "cut":
        change = one[: len(one) // 2]
    key = f"{name} {kind} {after} {change.dtype} {tuple(change.shape)}"
    names += ("output head",) if name == "lm_head.weight" else ()
    names = tuple(
        dict.fromkeys(
            (*names, after, after.partition(".weight")[0], _module(after), *re.findall(r"layers\.[58]", after))
        )
    )

    def edit(folder: Folder) -> None:
        held = folder.weights[file]
        del held[name]
        if kind != "remove":
            held[after] = change
        if folder.metadata.get(file, {}).get(name) and after != name:
            folder.metadata[file][after] = folder.metadata[file].pop(name)

    same_form = (after, change.dtype, change.shape) == (name, one.dtype, one.shape)
    return Mutation(format, key, names, edit, values_alone=kind != "remove" and same_form)


def _module(name: str) -> str:
    """What a tensor belongs to, whatever comes behind its name."""
    known = re.match(r".*(_proj|norm|embed_tokens|lm_head)(?=\.|$)", name)
    return known[0] if known else name.rpartition(".")[0]


def _shapes(one: torch.Tensor) -> list[str]:
    """The changes of a tensor that are any."""
    return [
        "view",
        "cast",
        *(["flat", "turn"] if one.dim() > 1 else []),
        *(["cut"] if one.dim() and len(one) > 1 else []),
    ]


def _other(one: torch.Tensor) -> torch.Tensor:
    """Other numbers of the same shape and dtype."""
    raw = one.contiguous().flatten().view(torch.uint8)
    return (raw ^ 1).view(one.dtype).reshape(one.shape)


def _into(file: str, name: str, one: torch.Tensor) -> Edit:
    return lambda folder: folder.weights.setdefault(file, {}).update({name: one})


def _index(format: str, folder: Folder, draw: random.Random) -> Mutation:
    said = folder.json[INDEX]["weight_map"]
    name, kind = draw.choice(sorted(said)), draw.choice(["repoint", "remove", "add", "file", "retype"])
    other = next(file for file in folder.weights if file != said[name])
    if kind == "remove":
        return Mutation(format, f"index {name} removed", (name,), lambda one: one.json[INDEX]["weight_map"].pop(name))
    key = f"{name}_x" if kind == "add" else name
    value = {"repoint": other, "add": other, "file": "model-00007-of-00007.safetensors", "retype": 7}[kind]
    return Mutation(
        format, f"index {key} {kind}", (key, str(value)),
        lambda one: one.json[INDEX]["weight_map"].update({key: value}),
    )  # fmt: skip


def _file(format: str, folder: Folder, draw: random.Random) -> Mutation:
    if draw.random() < 0.35:
        name = draw.choice(["extra.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors",
                            "model.fp16.safetensors", "original/model.safetensors", "mtp.safetensors"])  # fmt: skip
        norm = floats()["model.norm.weight"]
        if name not in folder.weights:
            return Mutation(format, f"file {name}", (name,), _into(name, "model.norm.weight", _other(norm)))
    name = draw.choice([one for one in BESIDE if one not in folder.json and one not in folder.other])
    return Mutation(format, f"file {name}", (name, name.rpartition("/")[2]),
                    lambda one: one.other.update({name: BESIDE[name]}))  # fmt: skip
