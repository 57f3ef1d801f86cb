"""The layers of a decoder, and which linear layers of one read the same input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

# A linear layer → its sibling whose output reaches it scaled channel by channel: attention mixes v's tokens, not its
# channels, and down's input is act(gate) * up.
FED_BY = {"o_proj": "v_proj", "down_proj": "up_proj"}
# Servers run these as one matrix, for which a format with one scale a tensor needs one scale.
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Linear layers of one decoder layer that read the same input; names are relative to the decoder layer."""

    linears: tuple[str, ...]
    norm: str = ""  # the norm whose output is that input, when there is one
    linear: str = ""  # the linear layer whose output reaches that input channel by channel


def decoder_layers(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The name and the list of the decoder's layers: the ModuleList that holds most parameters."""
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=lambda named: sum(parameter.numel() for parameter in named[1].parameters()))


def linear_groups(layer: nn.Module, run: Callable[[], Any]) -> list[Group]:
    """Return the layer's linear layers in the order they are called, those with one input together. `run` calls the
    layer."""
    inputs: list[tuple[str, torch.Tensor]] = []  # held, so that no two inputs can have one identity
    normed: list[tuple[str, torch.Tensor]] = []
    handles = []
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            handles.append(module.register_forward_pre_hook(_note_input(name, inputs)))
        elif isinstance(getattr(module, "weight", None), nn.Parameter) and module.weight.dim() == 1:  # type: ignore[union-attr]
            handles.append(module.register_forward_hook(_note_output(name, normed)))
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    by_input: dict[int, list[str]] = {}
    for name, x in inputs:
        by_input.setdefault(id(x), []).append(name)
    norms = {id(y): name for name, y in normed}
    groups = []
    for identity, names in by_input.items():
        parent, _, leaf = names[0].rpartition(".")
        sibling = f"{parent}.{FED_BY[leaf]}".removeprefix(".") if leaf in FED_BY and len(names) == 1 else ""
        fed = sibling if sibling and any(sibling == name for name, _ in inputs) else ""
        groups.append(Group(linears=tuple(names), norm=norms.get(identity, ""), linear=fed))
    return groups


def fused_with(name: str) -> tuple[str, ...]:
    """The names of all layers that servers run as one matrix with layer `name`, itself among them."""
    parent, dot, leaf = name.rpartition(".")
    return next((tuple(f"{parent}{dot}{sibling}" for sibling in parts) for parts in FUSED if leaf in parts), (name,))


class Reached(Exception):
    """The layer has come to the module that is watched; what follows need not be computed."""


@contextmanager
def watched(module: nn.Module, see: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Inside the block `see` gets every input of `module`, which then raises Reached instead of running."""

    def stop(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        see(inputs[0])
        raise Reached

    handle = module.register_forward_pre_hook(stop)
    try:
        yield
    finally:
        handle.remove()


def _note_input(name: str, into: list[tuple[str, torch.Tensor]]) -> Callable[..., None]:
    return lambda _, inputs: into.append((name, inputs[0]))


def _note_output(name: str, into: list[tuple[str, torch.Tensor]]) -> Callable[..., None]:
    return lambda _, __, output: into.append((name, output))
