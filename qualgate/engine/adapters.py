"""LoRA adapters, either merged into a model's weights at load time or kept separate.

Servers keep them separate, and over packed weights nothing else works: y = W x + scale · up (down x), with its matrices
rounded to the arm's dtype. A merged weight is round(W + scale · up down), from the adapter's numbers as stored: the
result of PEFT's `merge_and_unload`, but summed in float64, so that the thread count changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from qualgate.errors import NotInThisVersion, UsageError, close_names
from qualgate.quant.adapter_folder import MERGE, TENSORS, AdapterFolder, AdapterLayer, some
from qualgate.quant.linear import QuantizedLinear

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LINEARS = (nn.Linear, Conv1D, QuantizedLinear)
ROWS = 1024  # rows of a weight merged at a time, in float64


class LoraLinear(nn.Module):
    """Linear layer with a separate adapter: y = base(x) + scale · up(down(x)). No sum runs over rows, so batching does
    not change a row's bits as long as it does not change those of the three parts."""

    def __init__(self, base: nn.Module, down: nn.Linear, up: nn.Linear, scale: float) -> None:
        super().__init__()
        self.base, self.down, self.up, self.scale = base, down, up, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features]."""
        # Two operators: one that multiplies and adds may round otherwise in the last elements of a tensor.
        return self.base(x).add_(self.up(self.down(x)).mul_(self.scale))

    def extra_repr(self) -> str:
        """Return the text that torch prints for the module."""
        return f"scale={self.scale:.4g}"


def check_adapter(adapter: AdapterFolder, model: nn.Module, *, merged: bool) -> None:
    """Check that `adapter` fits `model`, whose weights may be missing. UsageError for an adapter of another base model;
    NotInThisVersion for adapted parts that are not supported."""
    head, embedded = (_name_of(model, accessor) for accessor in ("get_output_embeddings", "get_input_embeddings"))
    linears = {name: module for name, module in model.named_modules() if isinstance(module, LINEARS)}
    for layer in adapter.layers:
        if layer.module == head:
            _check_head(adapter, model, merged=merged)
        if layer.module not in linears:
            near = close_names(layer.module, linears)
            raise UsageError(
                f"{adapter.path} adapts {layer.module}, and {type(model).__name__} has no linear layer of that name"
                f"{f' ({near[0]} is near)' if near else ''}: it is an adapter of another base. Name the model that it "
                "was trained on."
            )
        _check_shape(adapter, layer, linears[layer.module])
    adapted = {layer.module for layer in adapter.layers}
    expected = {name for name in linears if name in adapter.targets}
    expected -= {head} if adapter.config.get("target_modules") == "all-linear" else set()
    if embedded in adapter.targets and adapter.config.get("target_modules") != "all-linear":
        raise NotInThisVersion(f"{adapter.path} adapts the embedding {embedded}, which is not in this version. {MERGE}")
    for problem, names in (("lacks tensors of", expected - adapted), ("holds unnamed tensors of", adapted - expected)):
        if names:
            raise UsageError(
                f"{adapter.path / TENSORS} {problem} {some(names)}: by its config it adapts {some(expected)} of this "
                "model. It is damaged, or an adapter of another base."
            )


def merge(model: nn.Module, adapter: AdapterFolder, dtype: torch.dtype) -> None:
    """Add the adapter to the float weights of `model`, rounded to `dtype`. UsageError if a sum is not finite."""
    for layer, down, up in _tensors(adapter):
        module: Any = model.get_submodule(layer.module)
        weight = module.weight.T if isinstance(module, Conv1D) else module.weight
        narrow, wide = down.double(), up.double()
        for first in range(0, len(weight), ROWS):
            rows = slice(first, first + ROWS)
            added = weight[rows].double() + layer.scale * (wide[rows] @ narrow)
            merged = added.float().to(dtype)
            if not merged.isfinite().all():
                raise UsageError(
                    f"{adapter.path}: merged into {layer.module} it gives numbers that {dtype} does not hold. It is "
                    "another model's adapter, or damaged."
                )
            weight[rows] = merged.to(weight.dtype)


def keep_apart(model: PreTrainedModel, adapter: AdapterFolder, dtype: torch.dtype) -> None:
    """Put the adapter beside the layers of `model` (on its device, packed layers fused): in float32, rounded to
    `dtype`. UsageError for numbers beyond the range of `dtype`."""
    for layer, down, up in _tensors(adapter):
        parent, _, attribute = layer.module.rpartition(".")
        holder, base = model.get_submodule(parent), model.get_submodule(layer.module)
        rounded = [matrix.to(dtype).float() for matrix in (down, up)]
        if not all(matrix.isfinite().all() for matrix in rounded):
            raise UsageError(
                f"{adapter.path / TENSORS}: the tensors of {layer.module} hold numbers that {dtype} does not, in which "
                "servers keep an adapter. Write `dtype: bfloat16` beside the model, or `merge: true`."
            )
        narrow, wide = (_linear(matrix.to(model.device)) for matrix in rounded)
        setattr(holder, attribute, LoraLinear(base, narrow, wide, layer.scale).eval())


def _tensors(adapter: AdapterFolder) -> Iterator[tuple[AdapterLayer, torch.Tensor, torch.Tensor]]:
    """Yield each layer with its matrices as stored. UsageError if the file changed since it was read, or holds NaN."""
    from safetensors.torch import load

    body = (adapter.path / TENSORS).read_bytes()
    if hashlib.sha256(body).hexdigest() != adapter.tensors_sha256:
        raise UsageError(f"{adapter.path / TENSORS} changed while it was loaded. Run again when it stays as it is.")
    tensors = load(body)
    for layer in adapter.layers:
        matrices = [tensors[f"base_model.model.{layer.module}.lora_{letter}.weight"] for letter in "AB"]
        if not all(tensor.isfinite().all() for tensor in matrices):
            raise UsageError(f"{adapter.path / TENSORS}: the tensors of {layer.module} hold NaN or infinities.")
        yield layer, matrices[0], matrices[1]


def _linear(weight: torch.Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def _check_shape(adapter: AdapterFolder, layer: AdapterLayer, module: Any) -> None:
    """Raise UsageError unless the adapter's matrices and its `fan_in_fan_out` fit the weight of `module`."""
    transposed = isinstance(module, Conv1D)
    if adapter.config.get("fan_in_fan_out") and not transposed:
        raise UsageError(
            f"{adapter.path}: `fan_in_fan_out` says that the weight of {layer.module} lies turned, as GPT-2's do, and "
            "it does not. It is an adapter of another base."
        )
    shape = tuple(reversed(module.weight.shape)) if transposed else (module.out_features, module.in_features)
    adapter_shape = layer.up.shape[0], layer.down.shape[1]
    if adapter_shape != shape:
        raise UsageError(
            f"{adapter.path}: its part of {layer.module} is for a weight of {adapter_shape[0]} x {adapter_shape[1]}, "
            f"and this model's has {shape[0]} x {shape[1]}: it is an adapter of another base. Name the model that it "
            "was trained on."
        )


def _check_head(adapter: AdapterFolder, model: Any, *, merged: bool) -> None:
    """Refuse an adapter of the output head that is kept apart, or whose head is tied to the embedding."""
    if not merged:
        raise NotInThisVersion(
            f"{adapter.path} adapts the output head, which is not kept apart in this version: write `adapter: {{path: "
            "…, merge: true}`, or merge it with PEFT."
        )
    if model.config.get_text_config(decoder=True).tie_word_embeddings:
        raise NotInThisVersion(
            f"{adapter.path} adapts an output head that is tied to the embedding: merged, it would change both. {MERGE}"
        )


def _name_of(model: Any, accessor: str) -> str:
    """Return the name in `model` of the module that the method `accessor` returns; "" if no submodule is it."""
    module = getattr(model, accessor)()
    return next((name for name, submodule in model.named_modules() if submodule is module), "")
