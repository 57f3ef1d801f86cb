"""Sound folders, every one of which is to be let through: those that `qualgate quantize` writes, and those that the
libraries write, built again here from what was noted of them.

`folders/recipes.jsonl` was taken from folders that llm-compressor, GPTQModel, AutoGPTQ, AutoAWQ, AutoRound, ModelOpt,
torchao, bitsandbytes, transformers and PEFT made on a CPU of the models in `BASES`: the config, and of each tensor its
name, dtype, shape in terms of the layer's (N out_features, K in_features), and value where all numbers are one. The
codes are drawn; scales are what makes small weights of them.

Where the environments of `qualgate quantize --setup-backend` are found, the libraries in them make a few more.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from qualgate.config.gate_file import load_gate_file
from qualgate.errors import NotInThisVersion, QualgateError, UsageError
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.quantize.folder import Order, quantize
from qualgate.quant.backends.call import run_backend
from qualgate.quant.backends.environment import find
from qualgate.quant.backends.job import backend_job
from qualgate.quant.recipes import parse_recipe
from qualgate.records import QuantizeRecipe
from qualgate_kernels.dequantize import NF4
from tests.tiny_models import END, PAD, START, save_byte_tokenizer, save_tiny_model
from tests.tiny_sets import CALIBRATION, write_set

RECIPES = Path(__file__).with_name("folders") / "recipes.jsonl"
SIZES = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.08, "pad_token_id": PAD,
    "bos_token_id": START, "eos_token_id": END,
}  # fmt: skip
LONGER = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}  # fmt: skip
BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"tie_word_embeddings": False}),
    "llama3": ("llama", {"tie_word_embeddings": True, "rope_parameters": LONGER}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"tie_word_embeddings": True, "head_dim": 64}),
    "mistral": ("mistral", {"tie_word_embeddings": False, "sliding_window": None}),
    "phi3": ("phi3", {"tie_word_embeddings": False}),
    "gemma2": ("gemma2", {"tie_word_embeddings": True, "head_dim": 64, "sliding_window": 64}),
}
DTYPES = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8, "U8": torch.uint8,
    "I32": torch.int32, "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn,
}  # fmt: skip
# What floats are about, by the end of the tensor's name: `SCALE` for the others.
SCALE = 0.005
FLOATS = {
    "weight_scale_2": 0.001, "weight_global_scale": 1000.0, "input_global_scale": 300.0, "SCB": 5.0, "bias": 0.0,
    "per_tensor_scale": 0.001, "input_scale": 0.02, "k_scale": 0.02, "v_scale": 0.02, "absmax": 0.1,
}  # fmt: skip
ARGUMENTS = {
    "actorder": None, "block_structure": None, "dynamic": False, "group_size": None, "num_bits": 8, "observer": None,
    "observer_kwargs": {}, "scale_dtype": None, "strategy": None, "symmetric": True, "type": "int", "zp_dtype": None,
}  # fmt: skip
TEXTS = [f"Question {row}: what is {row} plus {row + 3}? Answer: {2 * row + 3}." for row in range(4)]
GATE = """\
version: 1
baseline: {{model: {base}}}
variants:
  v: {{model: {folder}{adapter}}}
evalsets: [{evalset}]
gate: {{rules: [{{metric: exact_match, max_drop: 0.1}}]}}
"""
Recipe = dict[str, Any]
Words = dict[str, Any]

GROUPED: list[Words] = [
    {"group_size": 32}, {"group_size": 128}, {"group_size": 0}, {"group_size": 32, "symmetric": False},
    {"group_size": 32, "keep": {"down_proj": "bfloat16"}}, {"group_size": 32, "keep": {"layers.0.*": "bfloat16"}},
]  # fmt: skip
ORDERED: list[Words] = [
    {"group_size": 64, "act_order": True}, {"group_size": 64, "act_order": "static"}, {"group_size": 64, "bits": 8},
    {"group_size": 32, "bits": 3}, {"group_size": 32, "bits": 2},
    {"group_size": 32, "keep": {"down_proj": "int8", "v_proj": "bfloat16"}},
]  # fmt: skip
UNCALIBRATED: list[Words] = [
    {"method": "int8"}, {"method": "int8", "keep": {"layers.0.*": "bfloat16"}}, {"method": "int3"}, {"method": "int2"},
    *({"method": "int4", **words} for words in GROUPED),
    {"method": "fp8"}, {"method": "fp8", "granularity": "block"}, {"method": "fp8", "granularity": "tensor"},
    {"method": "fp8", "keep": {"q_proj": "bfloat16", "down_proj": "int8"}}, {"method": "nvfp4"},
    {"method": "nvfp4", "keep": {"v_proj": "fp8"}}, {"method": "mxfp4"}, {"method": "mxfp8"},
]  # fmt: skip
OWN: list[tuple[str, Words]] = [
    *(("gptq", {"method": "gptq", **words}) for words in (*GROUPED, *ORDERED)),
    *(("gptq_v2", {"method": "gptq", **words}) for words in (*GROUPED, *ORDERED)),
    *(("awq", {"method": "awq", **words}) for words in GROUPED if words["group_size"]),
    *(("compressed-tensors", {"method": "gptq", **words}) for words in (*GROUPED, *ORDERED[1:])),
    *(("compressed-tensors", words) for words in ({"method": "smoothquant"}, *UNCALIBRATED)),
]
_MADE = {"method": "gptq", "bits": 4, "group_size": 32}
LIBRARIES: list[tuple[str, Words]] = [
    ("gptqmodel", _MADE), ("gptqmodel", {**_MADE, "act_order": "group", "symmetric": False}),
    ("gptqmodel", {"method": "awq", "bits": 4, "group_size": 32, "symmetric": False}),
    ("llmcompressor", _MADE), ("llmcompressor", {"method": "smoothquant", "group_size": 0, "activations": "int8"}),
    ("llmcompressor", {"method": "fp8", "group_size": 0, "granularity": "block"}),
    ("llmcompressor", {"method": "nvfp4", "group_size": 16}), ("auto-gptq", _MADE),
    ("autoawq", {"method": "awq", "bits": 4, "group_size": 32, "symmetric": False}),
]  # fmt: skip


def sound(every: int = 1, own_every: int = 4, say: Callable[[str], None] = lambda line: None) -> tuple[int, list[str]]:
    """(folders that were asked about, those that were refused: name and message).

    every, own_every: each nth of the recipes and libraries, and of what `qualgate quantize` writes (`OWN`), which
    takes some seconds each.

    A folder that needs what this version does not compute counts as let through where its recipe says so (`limit`),
    and is refused where it is accused of something else. say: told of the libraries that are not there.
    """
    asked, refused = 0, []
    with tempfile.TemporaryDirectory() as place:
        room = Path(place)
        for name, base, folder, limit in _all(room, every, own_every, say):
            asked += 1
            message = folder if isinstance(folder, str) else refusal(room, base, folder, limit)
            refused += [f"{name}: {message}"] if message else []
    return asked, refused


def _all(room: Path, every: int, own_every: int, say: Callable[[str], None]) -> Iterator[Made]:
    yield from _rebuilt(room, every)
    yield from _own(room, own_every)
    yield from _made(room, every, say)


Made = tuple[str, str, Path | str, bool]  # name, base, the folder or why there is none, whether it needs a limit lifted


def refusal(room: Path, base: str, folder: Path, limit: bool = False) -> str:
    """Why a plan refuses `folder` as a variant of `base`; "" where it does not."""
    adapter = f", adapter: {folder}" if (folder / "adapter_config.json").exists() else ""
    model = _base(room, base)
    gate = room / "gate.yaml"
    evalset = write_set(room, "cases", ["Is it so?"])
    gate.write_text(GATE.format(base=model, folder=model if adapter else folder, adapter=adapter, evalset=evalset))
    try:
        make_plan(load_gate_file(gate))
    except NotInThisVersion as error:
        return "" if limit else str(error)
    except UsageError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _base(room: Path, name: str) -> Path:
    """The full-precision model of that name, made once."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    folder = room / "base" / name
    if not folder.exists():
        kind, extra = BASES[name]
        with torch.random.fork_rng():
            torch.manual_seed(len(name))
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES, **extra), dtype=torch.bfloat16)
        model.generation_config = GenerationConfig(eos_token_id=[END], pad_token_id=PAD, bos_token_id=START)
        model.save_pretrained(folder)
        save_byte_tokenizer(folder)
    return folder


# ------------------------------------------------------------------------------------------- made by ourselves


def _own(room: Path, every: int) -> Iterator[Made]:
    write_set(room, "calibration", TEXTS, CALIBRATION)
    tiny = save_tiny_model(room / "base" / "tiny", width=128)
    for number, (format, words) in enumerate(OWN[::every]):
        name = f"qualgate quantize, {format}: {words}"
        if words["method"] in ("gptq", "awq", "smoothquant"):
            words = {**words, "calibration": "./calibration.yaml"}
        out = room / f"own-{number}"
        order = Order(model=tiny, recipe=parse_recipe(words), out=out, format=format, relative_to=room)
        try:
            quantize(order)
            yield name, "tiny", out, False
        except QualgateError as error:
            yield name, "tiny", str(error), False


def _made(room: Path, every: int, say: Callable[[str], None]) -> Iterator[Made]:
    """What the libraries of the backends' environments make, where these are there."""
    for number, (backend, words) in enumerate(LIBRARIES[::every]):
        try:
            environment = find(backend)
        except UsageError as error:
            say(f"left out: {error}")
            continue
        recipe = QuantizeRecipe(**words)
        texts = [list(text.encode()) for text in TEXTS]
        out, name = room / f"made-{number}", f"{backend} {recipe.label}"
        try:
            job = backend_job(backend, _base(room, "llama"), recipe, texts, out)
            yield name, "llama", run_backend(environment, job).folder, False
        except QualgateError as error:
            say(f"left out: {name}: {error}")


# ------------------------------------------------------------------------------------------- built again


def recipes() -> list[Recipe]:
    """Every folder that was noted.

    The first line holds what several have in common: they write "@n" for it, or {"@": "@n", …} for it with other
    values, and without those under "-". ".0." begins the names of the first layer.
    """
    shared, *rows = [json.loads(line) for line in RECIPES.read_text(encoding="utf-8").splitlines()]

    def whole(value: Any) -> Any:
        if isinstance(value, str):
            return whole(shared[value]) if value in shared else re.sub(r"(^| )\.(?=\d\.)", r"\1model.layers.", value)
        if isinstance(value, list):
            return [whole(item) for item in value]
        if isinstance(value, dict):
            found = {whole(key): whole(item) for key, item in value.items() if key not in ("@", "-")}
            if "@" in value:
                found = whole(shared[value["@"]]) | found
                found = {key: item for key, item in found.items() if key not in value.get("-", ())}
            return ARGUMENTS | found if "observer" in found and "num_bits" in found else found
        return value

    return [{"by": shared["by"][row["name"][:2]], **whole(row)} for row in rows]


def _rebuilt(room: Path, every: int) -> Iterator[Made]:
    for recipe in recipes()[::every]:
        folder = room / recipe["name"]
        rebuild(recipe, _base(room, recipe["base"]), folder)
        yield f"{recipe['name']} ({recipe['by']}: {recipe['options']})", recipe["base"], folder, "limit" in recipe


def rebuild(recipe: Recipe, base: Path, folder: Path) -> None:
    """Write the folder that `recipe` tells of into `folder`, of the model in `base`."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(0)
    plain = load_file(base / "model.safetensors")
    if "adapter" in recipe:
        _write(folder, "adapter_config.json", recipe["adapter"])
        save_file(dict(_lora(recipe["lora"], plain, draw)), folder / "adapter_model.safetensors")
        return
    changes = {"tokenizer.json": {}, "tokenizer_config.json": {}, **recipe.get("tokenizer", {})}
    changes |= {"config.json": recipe["config"], "generation_config.json": recipe.get("generation", {})}
    for name, change in changes.items():
        if change is not None:
            _write(folder, name, _changed(base / name, change))
    template = (base / "chat_template.jinja").read_text()
    if "template_inside" in recipe:
        _write(folder, "tokenizer_config.json", _changed(folder / "tokenizer_config.json", {"chat_template": template}))
    else:
        (folder / "chat_template.jinja").write_text(template)
    settings = recipe["config"].get("quantization_config")
    for name, content in recipe.get("files", {}).items():
        _write(folder, name, settings if content == "=" else content)
    quantized, described = _layers(recipe, plain, draw)
    gone = {f"{module}.weight" for module in described} | set(recipe.get("absent", ()))
    kept = {name: tensor for name, tensor in plain.items() if name not in gone}
    floats = recipe.get("other_floats", {})
    kept = {name: tensor.to(DTYPES[floats.get(name, recipe.get("floats", "BF16"))]) for name, tensor in kept.items()}
    metadata = {"format": "pt", **recipe.get("metadata", {})}
    if "names" in recipe:  # torchao tells of each tensor what it is made of
        metadata |= dict.fromkeys(kept, '{"_type": "Tensor"}')
        metadata |= {f"{module}.weight": text for module, text in described.items()}
        metadata["tensor_names"] = json.dumps(sorted({*kept, *(f"{module}.weight" for module in described)}))
    _save(folder, {**kept, **quantized}, metadata, recipe.get("shards", 1), recipe.get("file", "model.safetensors"))


def _changed(file: Path, change: dict[str, Any]) -> dict[str, Any]:
    """The JSON object in `file` with other values, and without those that are None now."""
    found = (json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}) | change
    return {key: value for key, value in found.items() if value is not None or key not in change}


def _write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")


def _save(folder: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str], shards: int, file: str) -> None:
    if shards == 1:
        save_file(tensors, folder / file, metadata=metadata)
        return
    index, names = {}, sorted(tensors)
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        index |= dict.fromkeys(names[number::shards], file)
        save_file({name: tensors[name] for name in names[number::shards]}, folder / file, metadata=metadata)
    size = sum(tensor.nbytes for tensor in tensors.values())
    _write(folder, "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index})


def _lora(ranks: dict[str, int], plain: dict[str, torch.Tensor], draw: torch.Generator) -> Iterator[Any]:
    for module, rank in ranks.items():
        rows, columns = plain[f"{module}.weight"].shape
        yield f"base_model.model.{module}.lora_A.weight", torch.randn(rank, columns, generator=draw) / 16
        yield f"base_model.model.{module}.lora_B.weight", torch.randn(rows, rank, generator=draw) / 16


def _layers(
    recipe: Recipe, plain: dict[str, torch.Tensor], draw: torch.Generator
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """(the tensors of the quantized layers, and others that only this folder has; what torchao says of each layer)."""
    linear = [name[:-7] for name, tensor in plain.items() if tensor.dim() == 2 and ".layers." in name]
    left = {*linear, *recipe.get("also", "").split()} - set(recipe.get("kept", "").split())
    left -= {module for modules, _ in recipe["layers"] if modules != "*" for module in modules.split()}
    found, described = {}, {}
    for modules, parts in recipe["layers"]:
        for module in sorted(left) if modules == "*" else modules.split():
            name = f"{module}.weight" if f"{module}.weight" in plain else "model.embed_tokens.weight"  # of a tied head
            rows, columns = plain[name].shape
            groups = [_extent(text, rows, columns) for text in re.findall(r"scales?\W+\w+\[([^],]+)", f"{parts}")]
            for ending, said in parts.items():
                found[f"{module}.{ending}"] = _tensor(ending, said, (rows, columns), groups, draw)
            described[module] = recipe.get("described", "").replace(" K]", f" {columns}]").replace("[N,", f"[{rows},")
    for name, said in recipe.get("alone", {}).items():
        found[name] = _tensor(name, said, (1, 1), [], draw)
    return found, described


def _extent(text: str, rows: int, columns: int) -> int:
    """Of "K/8", "N*3/32", "N^128" (blocks of 128, the last one ragged), "NK/2" or "512"."""
    base, sign, number = re.fullmatch(r"([NK]*)([/*^]?)([\d/]*)", text.strip()).groups()  # type: ignore[union-attr]
    size = {"N": rows, "K": columns, "NK": rows * columns}.get(base, 1)
    if sign == "*":
        times, by = map(int, number.split("/"))
        return size * times // by
    return -(-size // int(number)) if sign else size * int(number or 1)


def _tensor(ending: str, said: str, weight: tuple[int, int], groups: list[int], draw: torch.Generator) -> torch.Tensor:
    dtype, extents, value = re.fullmatch(r"(\w+)\[(.*?)\](?:=(.*))?", said, re.DOTALL).groups()  # type: ignore[union-attr]
    if extents == "state":  # bitsandbytes' JSON
        return torch.tensor(list(json.dumps({**json.loads(value), "shape": list(weight)}).encode()), dtype=torch.uint8)
    shape = [_extent(text, *weight) for text in extents.split(",") if text]
    if value in ("sorted", "mixed"):
        found = torch.arange(weight[1], dtype=torch.int32) // (weight[1] // groups[0])
        return found[torch.randperm(weight[1], generator=draw)] if value == "mixed" else found
    if ending == "weight_shape":
        return torch.tensor(weight)
    if value is not None:
        return torch.full(shape, int(value), dtype=DTYPES[dtype])
    if ending.endswith("quant_map"):
        return torch.tensor(NF4) if shape == [16] else torch.linspace(-1, 1, shape[0])
    if "zero" in ending:  # codes from the middle of their range, in each place of a word
        return torch.full(shape, 0x55555555 if dtype == "I32" else 1, dtype=DTYPES[dtype])
    if dtype == "U8" and ending.endswith("scale"):  # powers of two
        return torch.randint(118, 122, shape, generator=draw).to(torch.uint8)
    if dtype[0] in "IU":
        least, most = {"I8": (-8, 8), "U8": (0, 256), "I32": (-(2**31), 2**31)}[dtype]
        return torch.randint(least, most, shape, generator=draw).to(DTYPES[dtype])
    if dtype == "F8_E4M3":  # of weights, or scales of blocks
        numbers = (
            torch.rand(shape, generator=draw) * 32 + 32
            if "scale" in ending
            else torch.randn(shape, generator=draw) * 90
        )
        return numbers.to(DTYPES[dtype])
    about = next((size for name, size in FLOATS.items() if ending.endswith(name)), SCALE)
    return (about * (1 + 0.1 * torch.rand(shape, generator=draw))).to(DTYPES[dtype])
