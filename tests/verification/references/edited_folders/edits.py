"""The words that edits are written in, and the record of an edited folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.verification.references.edited_folders.made import INDEX, ONE, Folder, Tensors, floats

Edit = Callable[[Folder], Any]
DOWN, GATE, QUERY = "model.layers.1.mlp.down_proj", "model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.q_proj"
EMBEDDED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
EVERY = ("transformers", "vllm", "sglang", "llama.cpp")
RUN = ("plain", "sharded", "ct-int4", "ct-int8", "ct-fp8", "ct-nvfp4", "ct-mxfp4", "fp8-block")  # on a CPU
ANY = "refused|told|accepted"  # every server that loads it computes what is judged
VERSIONS = {
    "transformers": "5.23.0, read; run for RUN", "compressed-tensors": "0.20.1, run", "sglang": "0.5.23, read in part",
    "vllm": "as known, no release read here", "llama.cpp": "as known", "gptqmodel": "as known",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A folder that was sound, with one fault.

    servers: what transformers, vLLM, SGLang and llama.cpp do with it, see `how` and `VERSIONS`. must: what the gate has
    to do; words: each has to be in what it says, alternatives apart by "|". tied: whether baseline and variant have one
    matrix for both embeddings; base: an edit of the baseline as well.
    """

    name: str
    kind: int
    format: str
    edit: Edit
    must: str  # "refused", "blocked", "told" (accepted, and spoken of), "accepted", or several apart by "|"
    words: tuple[str, ...] = ()
    servers: tuple[str, ...]
    tied: bool = False
    base: Edit | None = None
    more: str = ""  # keys of the variant in the gate file

    @property
    def harmless(self) -> bool:
        """Whether every server that loads it computes what is judged: to be told, and no wrong approval where not."""
        return {*self.servers} <= {"not read", "no file", "model.safetensors", "the tensor's state", "-"}

    @property
    def how(self) -> str:
        """How it is known what servers do: transformers was run where it loads the format here, on a CPU."""
        of_weights = self.kind in (1, 2, 3, 7, 10, 11) and self.format in RUN
        return "transformers run, others as VERSIONS says" if of_weights else "as VERSIONS says"


def json_file(path: str) -> tuple[str, list[str]]:
    """ "config.json:a.b" → the file and the keys; without a file, config.json; "q:" begins quantization_config."""
    file, found, keys = path.rpartition(":")
    if not found:
        return "config.json", keys.split(".")
    if file == "q":
        return "config.json", ["quantization_config", *keys.split(".")]
    return {"g": "generation_config.json", "t": "tokenizer_config.json"}.get(file, file), keys.split(".")


def _place(folder: Folder, path: str) -> tuple[dict[str, Any], str]:
    file, keys = json_file(path)
    place = folder.json.setdefault(file, {})
    for key in keys[:-1]:
        place = place[key]
    return place, keys[-1]


def put(path: str, value: Any) -> Edit:
    """A key of a JSON file, as `json_file` reads its path, with this value."""

    def edit(folder: Folder) -> None:
        place, key = _place(folder, path)
        place[key] = value

    return edit


def drop(*paths: str) -> Edit:
    def edit(folder: Folder) -> None:
        for path in paths:
            place, key = _place(folder, path)
            del place[key]

    return edit


def both(*edits: Edit) -> Edit:
    return lambda folder: [edit(folder) for edit in edits]


def file(name: str, content: str | bytes) -> Edit:
    raw = content.encode() if isinstance(content, str) else content
    return lambda folder: folder.other.update({name: raw})


def without_file(name: str) -> Edit:
    return lambda folder: (folder.other.pop(name, None), folder.json.pop(name, None))


def weight(name: str, value: torch.Tensor | Callable[[torch.Tensor], torch.Tensor], into: str = "") -> Edit:
    """A tensor put in place of what was there, in the first file or in `into`."""

    def edit(folder: Folder) -> None:
        held = next((tensors for tensors in folder.weights.values() if name in tensors), folder.tensors)
        made = value if isinstance(value, torch.Tensor) else value(held[name])
        (folder.weights.setdefault(into, {}) if into else held)[name] = made
        if INDEX in folder.json and not into:
            folder.json[INDEX]["weight_map"].setdefault(name, next(iter(folder.weights)))

    return edit


def gone(*names: str) -> Edit:
    def edit(folder: Folder) -> None:
        for name in names:
            for held in folder.weights.values():
                held.pop(name, None)

    return edit


def renamed(before: str, after: str) -> Edit:
    def edit(folder: Folder) -> None:
        for held in folder.weights.values():
            for name in [name for name in held if name.startswith(before)]:
                held[after + name.removeprefix(before)] = held.pop(name)

    return edit


def each(part: str, change: Callable[[torch.Tensor], torch.Tensor], within: str = "") -> Edit:
    """Every tensor whose last name is `part`, of modules that hold `within`."""

    def edit(folder: Folder) -> None:
        for held in folder.weights.values():
            for name in [name for name in held if name.endswith(f".{part}") and within in name]:
                held[name] = change(held[name])

    return edit


def unquantized(module: str, dtype: torch.dtype = torch.bfloat16, under: str = "") -> Edit:
    """The module with its floats in place of codes; under: another name for it."""

    def edit(folder: Folder) -> None:
        for held in folder.weights.values():
            for name in [name for name in held if name.startswith(f"{module}.")]:
                del held[name]
        folder.tensors[f"{under or module}.weight"] = floats()[f"{module}.weight"].to(dtype)
        folder.metadata.get(ONE, {}).pop(f"{module}.weight", None)

    return edit


EXCLUDING = {"awq": "modules_to_not_convert", "fp8-block": "modules_to_not_convert",
             "torchao": "modules_to_not_convert", "bnb-nf4": "llm_int8_skip_modules"}  # fmt: skip


def excluded(*names: str) -> Edit:
    """The modules listed as not quantized, beside those that are, in the words of the folder's format."""

    def edit(folder: Folder) -> None:
        said = folder.quantization
        if folder.format.startswith("gptq"):
            said["dynamic"] = {f"-:{name}": {} for name in names}
            folder.json["quantize_config.json"] = dict(said)
            return
        said[EXCLUDING.get(folder.format, "ignore")] = ["lm_head", *names]
        if "hf_quant_config.json" in folder.json:
            folder.json["hf_quant_config.json"]["quantization"]["exclude_modules"] = ["lm_head", *names]

    return edit


def said(**keys: Any) -> Edit:
    """Keys of quantization_config, and of the file beside it that repeats it."""

    def edit(folder: Folder) -> None:
        folder.quantization.update(keys)
        if "quantize_config.json" in folder.json:
            folder.json["quantize_config.json"].update(keys)

    return edit


def of_group(**keys: Any) -> Edit:
    """compressed-tensors: keys of its group's weights."""
    return lambda folder: folder.quantization["config_groups"]["group_0"]["weights"].update(keys)


def other_head(tensors: Tensors | None = None) -> torch.Tensor:
    """An output head that is not the embeddings, of their shape."""
    return floats()[EMBEDDED].roll(1, 0)
