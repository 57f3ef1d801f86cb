"""Layers that are not quantized, held for our own kernel: a row's bits are its own, which torch's float32 product
breaks, and a bfloat16 weight takes bfloat16's bytes, an embedding's too."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from qualgate_kernels import cpu
from qualgate_kernels.dense import PreparedDense, prepare_dense, restore_dense, rows_of


class DenseLinear(nn.Module):
    """y = x @ W.T + bias, in float32."""

    def __init__(self, prepared: PreparedDense, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.prepared = prepared
        self.out_features, self.in_features = prepared.shape
        self.register_buffer("values", prepared.values)  # counted, as a parameter was
        self.bias = None if bias is None else nn.Parameter(bias.float(), requires_grad=False)

    @property
    def weight(self) -> torch.Tensor:
        """float32 [out_features, in_features], made anew."""
        return restore_dense(self.prepared).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], float32."""
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], self.out_features)
        rows = x.reshape(-1, self.in_features).float().contiguous()
        product = cpu.matmul(rows, self.prepared).view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product.add_(self.bias)

    def extra_repr(self) -> str:
        """What torch prints of it."""
        return f"{self.in_features}, {self.out_features}, {self.prepared.values.dtype}"


class DenseEmbedding(nn.Module):
    """Rows of a weight [num_embeddings, embedding_dim], float32: of its own, in the narrowest dtype that holds it, or
    of the output head's that is tied to it, which is held once."""

    def __init__(self, held: torch.Tensor | DenseLinear) -> None:
        super().__init__()
        self.head = held if isinstance(held, DenseLinear) else None
        self.num_embeddings, self.embedding_dim = held.weight.shape if isinstance(held, DenseLinear) else held.shape
        if isinstance(held, torch.Tensor):
            narrow = [dtype for dtype in (torch.bfloat16, torch.float16) if torch.equal(held.to(dtype).float(), held)]
            self.register_buffer("rows", held.to(narrow[0]) if narrow else held)

    @property
    def weight(self) -> torch.Tensor:
        """float32 [num_embeddings, embedding_dim], made anew."""
        return self.head.weight if self.head is not None else self.get_buffer("rows").float()

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [...] → float32 [..., embedding_dim]."""
        if self.head is None:
            return nn.functional.embedding(token_ids, self.get_buffer("rows")).float()
        ids = token_ids.flatten()
        rows = rows_of(self.head.prepared, ids)
        return rows.view(*token_ids.shape, self.embedding_dim)


def lay_out(model: nn.Module) -> str:
    """Put a DenseLinear in the place of every linear layer of floats, and hold embeddings narrowly; "" or why one is
    not. What was laid out by then stays: `take_back` undoes it."""
    tied: dict[int, DenseLinear] = {}
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear:
            prepared = prepare_dense(module.weight)
            if isinstance(prepared, str):
                return f"{name}: {prepared}"
            place = module.weight.data_ptr()
            _put(model, name, linear := DenseLinear(prepared, module.bias))
            tied[place] = linear
    for name, module in list(model.named_modules()):
        if type(module) is nn.Embedding and module.max_norm is None:
            _put(model, name, DenseEmbedding(tied.get(module.weight.data_ptr(), module.weight.detach())))
    return ""


def take_back(model: nn.Module) -> None:
    """Put torch's layers back, with the same numbers in float32; weights that were tied are tied again."""
    for name, module in list(model.named_modules()):
        if isinstance(module, DenseEmbedding):
            weight = nn.Parameter(module.weight, requires_grad=False)
            _put(
                model,
                name,
                nn.Embedding(module.num_embeddings, module.embedding_dim, _weight=weight).requires_grad_(False),
            )
    for name, module in list(model.named_modules()):
        if isinstance(module, DenseLinear):
            _put(model, name, _torch_linear(module.weight, module.bias))
    model.float()
    tie = getattr(model, "tie_weights", None)
    if tie is not None:
        tie()


def head_of(tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A linear layer of `weight` and perhaps `bias`, ours where it can be: the one of a model's own head."""
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


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
