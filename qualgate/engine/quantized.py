"""Load a quantized checkpoint as a model: its architecture, packed linear layers, and the rest as floats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from qualgate.engine.unexpected import known_to_be_unused, left_out_of, own_names
from qualgate.errors import NotInThisVersion, UsageError, one_line
from qualgate.quant.agreement.config_keys import check_quant_type, check_status
from qualgate.quant.agreement.plain_layers import Module, check_plain
from qualgate.quant.agreement.tied_head import Head, chosen_head, may_differ
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.readers import Layer
from qualgate.quant.readers.checkpoint import check_runnable, read_checkpoint
from qualgate.text.numbers import counted
from qualgate_kernels.dequantize import dequantize_torch

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


_EXPERT = re.compile(r"\.experts\.\d+\.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedCheckpoint:
    """The model of a quantized folder, and the size of its weights."""

    model: PreTrainedModel  # in eval mode
    packed_bytes: int  # of the layers that run packed
    weights: int  # numbers the checkpoint stands for
    left_out: dict[str, int]  # see `ArmFootprint.left_out`


def load_quantized(folder: ModelFolder, dtype: torch.dtype, *, weightless: bool = False) -> LoadedCheckpoint:
    """Load the model of a quantized folder. Floats are rounded to `dtype` and held in float32; packed layers stay as
    stored. weightless: on the meta device, which finds all faults of a folder early.

    Quantized embeddings and fused experts are dequantized once to float32, without further rounding. Raises UsageError
    when checkpoint and architecture do not fit, NotInThisVersion when the engine cannot compute the format.
    """
    path = folder.path
    checkpoint = read_checkpoint(folder.shards, folder.format, weightless=weightless)
    check_runnable(checkpoint)
    model = empty_model(path)
    head = tied_head(folder, model.config)
    plain = [name.removesuffix(".weight") for name in checkpoint.tensors if name.endswith(".weight")]
    check_status(checkpoint.format, folder.read_as)
    check_quant_type(checkpoint.format)
    check_plain(checkpoint.format, _modules(model), checkpoint.layers, plain, folder.read_as)
    unused, strange = known_to_be_unused(folder, model), checkpoint.tensors.keys() - own_names(model)
    packed_bytes = 0
    floats = {
        name: tensor.to(dtype).float() for name, tensor in checkpoint.tensors.items() if tensor.is_floating_point()
    }
    experts: dict[str, list[torch.Tensor]] = {}
    for name, layer in checkpoint.layers.items():
        module = _submodule(model, name)
        if head == "embedding" and module is model.get_output_embeddings():
            continue
        if isinstance(module, nn.Linear):
            _check_shape(path, name, layer, (module.out_features, module.in_features))
            _put(
                model,
                name,
                QuantizedLinear(layer.weight, _bias(path, module, name, layer), layer.activations.rounding),
            )
            packed_bytes += layer.weight.nbytes
        elif isinstance(module, nn.Embedding):
            _check_shape(path, name, layer, (module.num_embeddings, module.embedding_dim))
            floats[f"{name}.weight"] = _numbers(layer)
        elif name.rpartition(".")[2].isdigit() and _parameter(model, name.rpartition(".")[0]) is not None:
            experts.setdefault(name.rpartition(".")[0], []).append(_numbers(layer))
        elif not unused.search(f"{name}.weight"):
            raise NotInThisVersion(
                f"{path}: {name} is quantized, but {type(model).__name__} has no linear layer of that name. Mixtures "
                "of experts that transformers fuses, and architectures it renames, are not run in this version."
            )
    for name, matrices in experts.items():
        parameter = _parameter(model, name)
        stacked = torch.stack([matrix.T for matrix in matrices])  # transformers multiplies from the other side
        if parameter is None or parameter.shape != stacked.shape:
            raise UsageError(f"{path}: {name} holds {list(stacked.shape)}, its architecture another shape.")
        floats[name] = stacked
    _load_floats(path, model, floats)
    left_out = left_out_of(folder, model, strange)
    count = sum(layer.weight.shape[0] * layer.weight.shape[1] for layer in checkpoint.layers.values())
    count += sum(tensor.numel() for tensor in checkpoint.tensors.values())
    model = model.eval().requires_grad_(False)
    return LoadedCheckpoint(model=model, packed_bytes=packed_bytes, weights=count, left_out=left_out)


def tied_head(folder: ModelFolder, whole: PreTrainedConfig | None = None) -> Head | None:
    """Return the result of `chosen_head`; None as well if the config ties nothing. For "file", `whole` (the model's
    config) is untied. UsageError for a config that transformers cannot read."""
    if not may_differ(folder.shards, folder.files.config) and "output.weight" not in folder.shards.entries:
        return None
    try:
        whole = whole or plain_config(folder.path)
    except Exception as error:  # whatever a config can make its class do
        raise UsageError(f"transformers cannot read {folder.path}: {one_line(error)}") from error
    config = whole.get_text_config(decoder=True)
    head = chosen_head(folder.shards, folder.format, folder.read_as) if config.tie_word_embeddings else None
    if head == "file":
        whole.tie_word_embeddings = config.tie_word_embeddings = False
    return head


def _modules(model: PreTrainedModel) -> list[Module]:
    """Return the modules that a quantized checkpoint may hold packed."""
    head = model.get_output_embeddings()
    return [
        Module(
            name=name,
            classes=tuple(kind.__name__ for kind in type(module).__mro__ if issubclass(kind, nn.Module)),
            is_head=module is head,
            is_embedding=isinstance(module, nn.Embedding),
        )
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Embedding)
    ]


def _numbers(layer: Layer) -> torch.Tensor:
    """Return the weight as float32 [out_features, in_features]."""
    weight = layer.weight
    return torch.empty(weight.shape, device="meta") if weight.codes.is_meta else dequantize_torch(weight)


def empty_model(folder: Path) -> PreTrainedModel:
    """Build the architecture without weights, but with the buffers that it computes. UsageError if the config does not
    build."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        config = plain_config(folder)
        with _weightless(), no_init_weights():
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except MemoryError:
        raise
    except Exception as error:  # whatever a config can make an architecture's constructor do
        raise UsageError(
            f"transformers cannot build {folder}: {' '.join(f'{type(error).__name__}: {error}'.split())[:400]}"
        ) from error


def plain_config(folder: Path) -> PreTrainedConfig:
    """Return the folder's config without its quantizer: weights are read here."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    for key in ("quantization_config", "compression_config"):
        if hasattr(config, key):
            delattr(config, key)
    return config


@contextmanager
def _weightless() -> Iterator[None]:
    """Create parameters without storage in the block: a model's float weights may not fit into memory."""
    original = nn.Module.register_parameter

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        original(self, name, param if param is None else nn.Parameter(param.to("meta"), requires_grad=False))

    nn.Module.register_parameter = register
    try:
        yield
    finally:
        nn.Module.register_parameter = original


def _submodule(model: nn.Module, name: str) -> nn.Module | None:
    """Return the submodule `name`; None if the model has none of that name."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _parameter(model: nn.Module, name: str) -> nn.Parameter | None:
    """Return the parameter `name`; None if the model has none of that name."""
    try:
        return model.get_parameter(name)
    except AttributeError:
        return None


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], module)


def _check_shape(folder: Path, name: str, layer: Layer, expected: tuple[int, int]) -> None:
    if layer.weight.shape != expected:
        raise UsageError(
            f"{folder}: {name} holds {layer.weight.shape[0]} x {layer.weight.shape[1]} weights, but its architecture "
            f"has {expected[0]} x {expected[1]}. config.json and the weights belong to different models, or the config "
            "lies about bits or group size. Fetch this checkpoint again."
        )


def _bias(folder: Path, linear: nn.Linear, name: str, layer: Layer) -> torch.Tensor | None:
    """Return the bias in float32. Zeros are dropped if the architecture has no bias."""
    if layer.bias is not None:
        return layer.bias.float() if linear.bias is not None or layer.bias.any() else None
    if linear.bias is not None:
        raise UsageError(f"{folder} lacks {name}.bias, which its architecture needs. Fetch this checkpoint again.")
    return None


def _load_floats(folder: Path, model: PreTrainedModel, floats: Mapping[str, torch.Tensor]) -> None:
    """Load the unquantized tensors `floats` into `model`. UsageError if they do not fit, or if a weight stays without
    numbers."""
    empty = {name for name, parameter in model.named_parameters(remove_duplicate=False) if parameter.is_meta}
    try:
        model.load_state_dict(floats, strict=False, assign=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise UsageError(f"{folder} does not fit its architecture: {lines[0] if lines else error}") from None
    model.tie_weights()
    named = dict(model.named_parameters(remove_duplicate=False))
    loaded = {id(parameter) for name, parameter in named.items() if name not in empty or name in floats}
    missing = sorted(name for name, parameter in named.items() if id(parameter) not in loaded)  # nor tied to one found
    expert = next((name for name in floats if _EXPERT.search(name)), "") if missing else ""
    if expert and "experts" in missing[0]:
        raise NotInThisVersion(
            f"{folder} holds its experts one by one as floats ({expert}), and {type(model).__name__} has them in one "
            f"tensor ({missing[0]}): a quantized checkpoint with such experts is not put together in this version. "
            "Judge it by the answers of the server that serves it (`served`)."
        )
    if missing:
        raise UsageError(
            f"{folder} lacks {counted(len(missing), 'tensor')} that its architecture needs, among them {missing[0]}. "
            "Fetch or save this checkpoint again."
        )
