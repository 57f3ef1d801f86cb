"""Small sound folders of several formats, and single edits of them; `check` is what a plan does with each arm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.check_weights import check_weights
from qualgate.quant.checkpoint import pack, read_packed
from qualgate.quant.model_folder import read_model_folder
from qualgate.quant.recipes import parse_recipe
from qualgate.quant.writers.card import Provenance
from qualgate.quant.writers.folder import write_folder
from qualgate.records import ArmSpec
from qualgate.records.arms import ReadAs
from qualgate_kernels.dequantize import NF4
from tests.tiny_models import save_tiny_model

Tensors = dict[str, torch.Tensor]
LAYER = "model.layers.1.mlp.down_proj"
_WRITTEN = {"gptq", "gptq_v2", "awq", "compressed-tensors"}
_PROVENANCE = Provenance(model="tiny", source_sha256="0" * 64, dtype="bfloat16", versions={})
_BY_HAND = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]},
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": None},
}
KINDS = (*sorted(_WRITTEN), *_BY_HAND)


def sound(kind: str, out: Path) -> Path:
    """A folder in one of KINDS, or "plain", that nothing is wrong with."""
    return shutil.copytree(_made(kind), out)


@cache
def _made(kind: str) -> Path:
    room = Path(mkdtemp(prefix="agreement-"))
    if kind == "plain":
        return save_tiny_model(room / "model")
    model = _made("plain")
    if kind in _WRITTEN:
        recipe = parse_recipe({"method": "int4", "symmetric": kind != "awq"})
        packed = read_packed(pack(model, recipe, room / "packed", scale_dtype=torch.float16))
        format: Any = kind
        write_folder(model, packed, room / "out", format, _PROVENANCE)
        return room / "out"
    folder = shutil.copytree(model, room / "out")
    edit(folder, tensors=_by_hand(kind))
    edit(folder, config=lambda config: config.update(quantization_config=dict(_BY_HAND[kind])))
    return folder


def _by_hand(kind: str) -> Callable[[Tensors], object]:
    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            module, weight = name.removesuffix(".weight"), tensors[name].float()
            if kind == "bitsandbytes":
                blocks, levels = weight.view(-1, 64), torch.tensor(NF4)
                peaks = blocks.abs().amax(1)
                codes = ((blocks / peaks[:, None])[..., None] - levels).abs().argmin(-1).view(-1, 2)
                state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [*weight.shape]}
                tensors[name] = (codes[:, :1] << 4 | codes[:, 1:]).to(torch.uint8)
                tensors |= {f"{name}.absmax": peaks, f"{name}.quant_map": levels}
                tensors[f"{name}.quant_state.bitsandbytes__nf4"] = torch.tensor([*json.dumps(state).encode()]).byte()
                continue
            tensors[f"{module}.weight_scale"] = weight.abs().max() / 448
            tensors[name] = (weight / tensors[f"{module}.weight_scale"]).to(torch.float8_e4m3fn)
            if kind == "modelopt":
                tensors[f"{module}.input_scale"] = torch.tensor(0.05)

    return change


def edit(
    folder: Path,
    *,
    tensors: Callable[[Tensors], object] | None = None,
    config: Callable[[dict], object] | None = None,
    quantization: Callable[[dict], object] | None = None,
) -> Path:
    """The folder, with one of its files changed in place."""
    if tensors is not None:
        file = folder / "model.safetensors"
        found = load_file(file)
        tensors(found)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, file, {"format": "pt"})
    if config is not None or quantization is not None:
        found = json.loads((folder / "config.json").read_text())
        if config is not None:
            config(found)
        if quantization is not None:
            quantization(found["quantization_config"])
            if (folder / "quantize_config.json").is_file():
                (folder / "quantize_config.json").write_text(json.dumps(found["quantization_config"]))
        (folder / "config.json").write_text(json.dumps(found))
    return folder


def with_plain_layer(folder: Path, module: str = LAYER) -> Path:
    """The folder with one layer as the model has it, before it was quantized."""
    floats = load_file(_made("plain") / "model.safetensors")[f"{module}.weight"].half()

    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith(f"{module}.")]:
            del tensors[name]
        tensors[f"{module}.weight"] = floats

    return edit(folder, tensors=change)


def check(folder: Path, read_as: ReadAs | None = None, allow_config: tuple[str, ...] = ()) -> None:
    """Raises as a plan does, for a variant of this folder."""
    found = read_model_folder(folder, hashed=False, read_as=read_as)
    check_weights(ArmSpec(name="v", model=str(folder), read_as=read_as, allow_config=allow_config), found)
