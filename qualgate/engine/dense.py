"""Unquantized layers in the layout of our own kernel: batching does not change a row's bits, as it does with torch's
float32 product, and bfloat16 weights and embeddings take two bytes per number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from qualgate.engine.dense_experts import lay_out_experts, take_back_experts
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.mapped import give_back
from qualgate_kernels.dense import Dense, matmul_dense, narrowest, prepare_dense, restore_dense, rows_of


class DenseLinear(nn.Module):
    """y = x @ W.T + bias in float32. turned: replaces a Conv1D, as in GPT-2, whose weight is [in_features,
    out_features]."""

    def __init__(self, prepared: Dense, bias: torch.Tensor | None, *, turned: bool = False) -> None:
        super().__init__()
        self.prepared, self.turned = prepared, turned
        self.out_features, self.in_features = prepared.shape
        self.register_buffer("values", prepared.values)  # counted, as a parameter was
        self.bias = None if bias is None else nn.Parameter(bias.float(), requires_grad=False)

    @property
    def weight(self) -> torch.Tensor:
        """Return a new float32 [out_features, in_features]."""
        return restore_dense(self.prepared).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], in x's dtype; sums are float32."""
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], self.out_features)
        rows = x.reshape(-1, self.in_features).float().contiguous()
        product = matmul_dense(rows, self.prepared).view(*x.shape[:-1], self.out_features)
        return (product if self.bias is None else product.add_(self.bias)).to(x.dtype)

    def extra_repr(self) -> str:
        """Return the text that torch prints for the module."""
        return f"{self.in_features}, {self.out_features}, {self.prepared.values.dtype}"


class DenseEmbedding(nn.Module):
    """Rows of a weight [num_embeddings, embedding_dim] as float32: its own weight, in the narrowest dtype that holds
    it, or that of the tied output head, which is stored once."""

    def __init__(self, source: torch.Tensor | DenseLinear) -> None:
        """Embed by `source`: a matrix [vocabulary, width], or the output head that is tied to the embedding."""
        super().__init__()
        self.head = source if isinstance(source, DenseLinear) else None
        self.num_embeddings, self.embedding_dim = (
            source.prepared.shape if isinstance(source, DenseLinear) else source.shape
        )
        if isinstance(source, torch.Tensor):
            self.register_buffer("rows", source.to(narrowest(source)))

    @property
    def weight(self) -> torch.Tensor:
        """Return a new float32 [num_embeddings, embedding_dim]."""
        return self.head.weight if self.head is not None else self.get_buffer("rows").float()

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [...] → float32 [..., embedding_dim]."""
        if self.head is None:
            return nn.functional.embedding(token_ids, self.get_buffer("rows")).float()
        ids = token_ids.flatten()
        rows = rows_of(self.head.prepared, ids)
        return rows.view(*token_ids.shape, self.embedding_dim)


def lay_out(model: nn.Module) -> str:
    """Replace every float linear layer by a DenseLinear, store embeddings narrowly, and lay out experts
    (`dense_experts`). Return "" or the reason for stopping; `take_back` then undoes what was laid out."""
    tied: dict[int, DenseLinear] = {}
    for name in _names(model, nn.Linear, Conv1D):
        module: Any = model.get_submodule(name)
        is_conv1d, address = type(module) is Conv1D, module.weight.data_ptr()
        weight = module.weight.T if is_conv1d else module.weight
        tied_linear = tied.get(address)  # by another layer that has the same weight
        prepared = (
            prepare_dense(weight)
            if tied_linear is None or tied_linear.prepared.shape != weight.shape
            else tied_linear.prepared
        )
        if isinstance(prepared, str):
            return f"{name}: {prepared}"
        linear = DenseLinear(prepared, module.bias, turned=is_conv1d)
        give_back(module.weight)
        if not is_conv1d:
            tied[address] = linear
        _put(model, name, linear)
    if reason := lay_out_experts(model):
        return reason
    for name in _names(model, nn.Embedding):
        module = model.get_submodule(name)
        if module.max_norm is None:
            head = tied.get(module.weight.data_ptr())
            _put(model, name, DenseEmbedding(module.weight.detach() if head is None else head))
    return ""


def take_back(model: nn.Module) -> None:
    """Put torch's layers back, with the same numbers in float32, and tie the weights again that were tied."""
    for name in _names(model, DenseEmbedding):
        module: Any = model.get_submodule(name)
        weight = nn.Parameter(module.weight, requires_grad=False)
        # pyrefly: ignore[bad-argument-type]
        _put(model, name, nn.Embedding(*weight.shape, _weight=weight).requires_grad_(False))
    for name in _names(model, DenseLinear):
        module: Any = model.get_submodule(name)
        _put(model, name, (_conv1d if module.turned else _torch_linear)(module.weight, module.bias))
    take_back_experts(model)
    _widen(model)
    tie: Any = getattr(model, "tie_weights", None)
    if tie is not None:
        tie()


def _widen(model: nn.Module) -> None:
    """Convert the remaining floats to float32, except the scales of packed weights."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    for module in model.modules():
        if not isinstance(module, QuantizedLinear):
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    setattr(module, name, buffer.float())


def _names(model: nn.Module, *types: type[nn.Module]) -> list[str]:
    """Names of modules of exactly these kinds. A list of the modules themselves would keep each in memory."""
    return [name for name, module in model.named_modules(remove_duplicate=False) if type(module) in types]


def head_of(tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """Return a linear layer of `weight` and an optional `bias`, ours if possible, as for a model's own head."""
    weight, bias = tensors["weight"], tensors.get("bias")
    prepared = prepare_dense(weight)
    if isinstance(prepared, str):
        return _torch_linear(weight, None if bias is None else nn.Parameter(bias, requires_grad=False))
    return DenseLinear(prepared, bias)


def _torch_linear(weight: torch.Tensor, bias: nn.Parameter | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = bias
    return linear


def _conv1d(weight: torch.Tensor, bias: nn.Parameter) -> Conv1D:
    with torch.device("meta"):
        layer = Conv1D(*weight.shape)
    layer.weight, layer.bias = nn.Parameter(weight.T.contiguous(), requires_grad=False), bias
    return layer


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put `module` in the place of the submodule `name`."""
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)
