"""The attention of every architecture that asks transformers' interface for one: rows of a pass over their own blocks.

The pass is found in a context, not in keyword arguments, which some architectures drop on the way. transformers makes
no mask for a name that its mask interface does not know, and none is needed: a row sees its own sequence up to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from qualgate.engine.batch import Batch
from qualgate.engine.overflow import Overflows
from qualgate.errors import NotInThisVersion
from qualgate_kernels import availability, dispatch
from qualgate_kernels.cpu import paged as kernel
from qualgate_kernels.cpu.library import threaded
from qualgate_kernels.paged import Blocks, Seen, new_blocks

NAME = "qualgate_paged"
CPU = torch.device("cpu")
UNIT = 16  # numbers of a head that the kernel takes at a time


@dataclass(slots=True)
class KeysValues:
    """Keys and values of all layers, the same number of blocks in each, allocated when a layer first needs them.

    form: the storage format, one of `kept.FORMS`; scales: fp8 scales of keys and values by layer, 1 where missing;
    seen: attention parameters of each layer, as its model passes them; numbers: stored per position and layer (blocks
    may pad with zeros); memory: writable blocks of each layer, at least as many.
    """

    form: str = "float32"
    scales: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    layers: dict[int, Blocks] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    memory: dict[int, Blocks] = field(default_factory=dict)

    def of(self, layer: int, count: int, kv_heads: int, head_dim: int, device: torch.device = CPU) -> Blocks:
        """Return the blocks of one layer."""
        if layer not in self.layers:
            blocks = self.memory.get(layer)
            expected_kind = self.form, kv_heads, head_dim, device
            if blocks is None or blocks.count < count or _kind(blocks) != expected_kind:
                if blocks is not None:  # too few, or another model's: none of them is of use
                    blocks = None
                    for unused_layer in self.memory.keys() - self.layers.keys():
                        del self.memory[unused_layer]
                blocks = self.memory[layer] = new_blocks(count, kv_heads, head_dim, form=self.form, device=device)
            keys, values = self.scales.get(layer, (1.0, 1.0))  # the memory may be of an arm with others
            self.layers[layer] = replace(blocks.first(count), key_scale=keys, value_scale=values)
        return self.layers[layer]

    def copy(self, blocks: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, given as pairs (source, target). All sources are read before any target is written."""
        if not blocks:
            return
        sources, targets = torch.tensor(blocks).T
        for layer_blocks in self.layers.values():
            layer_blocks.copy(sources, targets)

    def emptied(self) -> KeysValues:
        """Return empty keys and values that reuse the same memory."""
        return KeysValues(self.form, self.scales, memory=self.memory)

    @property
    def size(self) -> int:
        """Bytes that they take when every block is written."""
        return sum(layer_blocks.nbytes for layer_blocks in self.memory.values())


def _kind(blocks: Blocks) -> tuple[str, int, int, torch.device]:
    return blocks.form, blocks.kv_heads, blocks.head_dim, blocks.keys.device


_MEMORY: dict[int, Blocks] = {}


@contextmanager
def recycled(form: str = "float32", scales: Mapping[int, tuple[float, float]] | None = None) -> Iterator[KeysValues]:
    """Yield empty keys and values in the memory that the process used last, for fresh memory costs as much time as
    attention does. It holds no sequence's data. GPU memory is released instead: torch caches it, and the next arm's
    weights may need it."""
    states = KeysValues(form, scales or {}, memory=dict(_MEMORY))
    _MEMORY.clear()
    try:
        yield states
    finally:
        _MEMORY.update({layer: blocks for layer, blocks in states.memory.items() if blocks.keys.device.type == "cpu"})


@dataclass(frozen=True, slots=True)
class _Pass:
    batch: Batch
    states: KeysValues
    threads: int
    overflows: Overflows | None


_PASS: ContextVar[_Pass] = ContextVar("pass")


@contextmanager
def attending(batch: Batch, states: KeysValues, threads: int, overflows: Overflows | None = None) -> Iterator[None]:
    """Make a model's layers attend to the rows of this pass inside the block."""
    token = _PASS.set(_Pass(batch, states, threads, overflows))
    try:
        with threaded(threads):
            yield
    finally:
        _PASS.reset(token)


def register() -> None:
    """Register NAME with transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend over each row's sequence: query [1, heads, rows, head_dim], key and value [1, kv_heads, rows, head_dim] →
    [1, rows, heads, head_dim].

    NotInThisVersion for what the kernel does not do.
    """
    if attention_mask is not None or key.shape != value.shape or options.get("position_bias") is not None:
        raise NotInThisVersion("attention with a mask, a bias or values of another width")
    current, dim, sinks = _PASS.get(), query.shape[-1], options.get("s_aux")
    stored = value.dtype  # turned heads come in float32, where the model computes in half of its width
    query, key, value = (_rows(states.to(stored)) for states in (query, key, value))
    seen = Seen(
        scale=dim**-0.5 if scaling is None else float(scaling),
        soft_cap=float(options.get("softcap") or 0.0),
        window=int(options.get("sliding_window") or 0),
        sinks=None if sinks is None else sinks.float().contiguous(),
    )
    current.states.seen[module.layer_idx], current.states.numbers[module.layer_idx] = seen, 2 * key.shape[1] * dim
    if current.overflows is not None:
        current.overflows.look(f"keys of layer {module.layer_idx}", key)
        current.overflows.look(f"values of layer {module.layer_idx}", value)
    blocks = current.states.of(module.layer_idx, current.batch.blocks, key.shape[1], key.shape[2], key.device)
    if key.device.type == "cpu" and not availability.on_triton(key.device):  # what dispatch chooses, without its looks
        kernel.keep(blocks, current.batch.slots, key, value, current.threads)
        output = kernel.attend(query, blocks, current.batch.places, seen, current.threads)
    else:
        dispatch.keep_paged(blocks, current.batch.places, key, value)
        output = dispatch.attend_paged(query, blocks, current.batch.places, seen)
    return output[None, :, :, :dim].to(stored), None


def _rows(states: torch.Tensor) -> torch.Tensor:
    """Reshape [1, heads, rows, dim] to float32 [rows, heads, dim filled up with zeros to whole units], contiguous."""
    rows = states[0].transpose(0, 1).float()
    if surplus := -rows.shape[-1] % UNIT:
        rows = torch.nn.functional.pad(rows, (0, surplus))
    return rows.contiguous()
