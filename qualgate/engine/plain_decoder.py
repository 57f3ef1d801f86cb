"""The fast path of plain decoders: a transformers model as one record, run by a kernel in C.

It needs a model of the kernel's form; `choice` tests whether it gives the results of the model's own modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.dense import DenseLinear
from qualgate.quant.linear import QuantizedLinear
from qualgate.records import Overflow
from qualgate_kernels.cpu.decode import PLACES, Decode, unfit
from qualgate_kernels.paged import Seen
from qualgate_kernels.plain_decoder import DecoderLayer, PlainDecoder, Products

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLAIN = {"llama", "mistral", "qwen2", "qwen3", "phi3"}  # model_type
HOLDS_ALL = 1e38  # a dtype with this maximum covers float32's range
POSITIONS = 1024  # angles are computed for so many at a time


class Unfit(Exception):
    """A model that the kernel does not support; the message says why."""


class FastDecoder:
    """Passes of a plain decoder. seen: attention parameters by layer, as the model's own modules pass them."""

    def __init__(
        self,
        model: PreTrainedModel,
        seen: dict[int, Seen],
        stored: str = "float32",
        *,
        rounded: str = "float32",
    ) -> None:
        """Raise Unfit for another model. stored: the server's activation dtype; rounded: see `Choice`."""
        if model.config.model_type not in PLAIN:
            raise Unfit(f"{model.config.model_type} is no plain decoder")
        if model.config.hidden_act not in ("silu", "swish"):
            raise Unfit(f"its feed-forward's activation is {model.config.hidden_act}")
        self._body: Any = model.model
        config: Any = model.config
        self._layers = self._body.layers
        layers = tuple(_layer(layer, seen[index]) for index, layer in enumerate(self._layers))
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._rounded = rounded
        cosines, sines = self._angles(POSITIONS)
        self._plain = PlainDecoder(
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=layers[0].heads.columns // (heads + 2 * kv_heads),
            norm=self._body.norm.weight,
            eps=_eps(self._body.norm),
            cosines=cosines,
            sines=sines,
        )
        norms = [
            self._body.norm,
            *(module for module in self._body.modules() if type(module).__name__.endswith("RMSNorm")),
        ]
        if reason := unfit(self._plain):
            raise Unfit(reason)
        if len({_eps(norm) for norm in norms}) > 1:
            raise Unfit("its norms have an eps each of their own")
        self._bound: tuple[KeysValues, Decode] | None = None
        self._parted: tuple[KeysValues, Any, list[Decode | None]] | None = None
        limit = torch.finfo(getattr(torch, stored)).max
        self._limit = limit if limit < HOLDS_ALL else 0.0
        self._beyond = torch.zeros(len(layers) * len(PLACES) + 2, dtype=torch.int64)

    def forward(self, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """See `ModelDecoder.forward`."""
        self._reach(batch)
        if self._bound is None or self._bound[0] is not states or self._bound[1].blocks[0].count != batch.blocks:
            plain, self._bound = self._plain, None  # the old go before the new are made
            blocks = [
                states.of(index, batch.blocks, plain.kv_heads, plain.head_dim) for index in range(len(plain.layers))
            ]
            self._bound = states, Decode(plain, blocks)
        x, run, beyond = self._embedded(batch), self._bound[1], self._beyond if self._limit else None
        return self._passed(run, x, batch, threads, beyond)

    def tapped(
        self, batch: Batch, states: KeysValues, threads: int, after: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run `forward`, to the bit, on a batch with all rows wanted, and return the residual stream after some layers
        as well, float32 [rows, len(after) * width]. after: counts of layers, ascending, below the number of layers."""
        self._reach(batch)
        key = (id(states), batch.blocks, tuple(after))
        if self._parted is None or self._parted[0] is not states or self._parted[1] != key:
            parts = [self._part(first, last, batch, states) for first, last in pairwise((0, *after, len(self._layers)))]
            self._parted = states, key, parts
        x, streams, entering, first = self._embedded(batch), list[torch.Tensor](), None, 0
        for run in self._parted[2]:
            if run is not None:
                last = first + len(run.decoder.layers)
                beyond = torch.zeros((last - first) * len(PLACES) + 2, dtype=torch.int64) if self._limit else None
                entering = self._passed(run, x, batch, threads, beyond)
                if beyond is not None:  # what is said of a last norm is true of the last part alone
                    self._beyond[first * len(PLACES) : last * len(PLACES)] += beyond[:-2]
                    self._beyond[-2:] += beyond[-2:] if last == len(self._layers) else 0
                first = last
            streams.append(x.clone())
        assert entering is not None, "a model has layers"
        return entering, torch.cat(streams[:-1], -1)

    def _embedded(self, batch: Batch) -> torch.Tensor:
        return self._held(self._body.embed_tokens(batch.token_ids))

    def _held(self, numbers: torch.Tensor) -> torch.Tensor:
        """Round numbers to the stored dtype, in float32."""
        return numbers.to(getattr(torch, self._rounded)).float()

    def _passed(
        self, run: Decode, x: torch.Tensor, batch: Batch, threads: int, beyond: torch.Tensor | None
    ) -> torch.Tensor:
        how = {"limit": self._limit, "beyond": beyond, "stored": self._rounded}
        return run(x, batch.places, batch.slots, batch.wanted, threads, **how)

    def _part(self, first: int, last: int, batch: Batch, states: KeysValues) -> Decode | None:
        """Return the passes of some layers; None for no layers."""
        if first == last:
            return None
        plain = self._plain
        blocks = [states.of(index, batch.blocks, plain.kv_heads, plain.head_dim) for index in range(first, last)]
        return Decode(replace(plain, layers=plain.layers[first:last]), blocks)

    def _reach(self, batch: Batch) -> None:
        """Compute the angles of every position of a pass."""
        longest = int(batch.places.position.max())
        if longest >= len(self._plain.cosines):
            cosines, sines = self._angles((longest // POSITIONS + 1) * POSITIONS)
            self._plain, self._bound, self._parted = replace(self._plain, cosines=cosines, sines=sines), None, None

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Values so far beyond the range of the server's dtype, by the names of the model's modules."""
        places = [place.format(**_names(at, layer)) for at, layer in enumerate(self._layers) for place in PLACES]
        counts = Counter[str]()
        for name, count in zip([*places, "what enters model.norm", "model.norm"], self._beyond.tolist(), strict=True):
            counts[name] += count
        return tuple((place, name, count) for place, (name, count) in enumerate(counts.items()) if count)

    def _angles(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines [positions, rotary / 2], scaled as in the model."""
        rotary = self._body.rotary_emb
        tables = rotary(torch.zeros(1), torch.arange(positions)[None])
        half = tables[0].shape[-1] // 2
        cosines, sines = (self._held(table[0, :, :half]).contiguous() for table in tables)
        return cosines, sines


def _names(index: int, layer: Any) -> dict[str, Any]:
    """Return the names of one layer's modules, by the placeholders in PLACES."""
    prefix = f"model.layers.{index}"
    heads = [name for name in ("q_proj", "k_proj", "v_proj") if hasattr(layer.self_attn, name)] or ["qkv_proj"] * 3
    gates = [name for name in ("gate_proj", "up_proj") if hasattr(layer.mlp, name)] or ["gate_up_proj"] * 2
    return {
        "layer": index,
        "attention_norm": f"{prefix}.input_layernorm",
        "feed_norm": f"{prefix}.post_attention_layernorm",
        "o": f"{prefix}.self_attn.o_proj",
        "q_norm": f"{prefix}.self_attn.q_norm",
        "k_norm": f"{prefix}.self_attn.k_norm",
        "down": f"{prefix}.mlp.down_proj",
        **{key: f"{prefix}.self_attn.{name}" for key, name in zip("qkv", heads, strict=True)},
        **{key: f"{prefix}.mlp.{name}" for key, name in zip(("gate", "up"), gates, strict=True)},
    }


def _layer(layer: Any, seen: Seen) -> DecoderLayer:
    """Return one layer as the kernel takes it. Raises Unfit for a layer with other modules."""
    attention, feed = layer.self_attn, layer.mlp
    fused_heads, fused_gates = getattr(attention, "qkv_proj", None), getattr(feed, "gate_up_proj", None)
    names = {name for name, _ in layer.named_children()}
    if names != {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"} | (names & DROPOUTS):
        raise Unfit(f"its layers hold {', '.join(sorted(names))}")
    return DecoderLayer(
        heads=_products(
            [fused_heads] if fused_heads is not None else [attention.q_proj, attention.k_proj, attention.v_proj]
        ),
        out=_products([attention.o_proj]),
        gates=_products([fused_gates] if fused_gates is not None else [feed.gate_proj, feed.up_proj]),
        down=_products([feed.down_proj]),
        attention_norm=layer.input_layernorm.weight,
        feed_norm=layer.post_attention_layernorm.weight,
        query_norm=_weight(getattr(attention, "q_norm", None)),
        key_norm=_weight(getattr(attention, "k_norm", None)),
        seen=seen,
    )


DROPOUTS = {"resid_attn_dropout", "resid_mlp_dropout"}  # of Phi-3, which do nothing in evaluation


def _products(modules: list[Any]) -> Products:
    """Return one product for layers that were fused into one matrix, else one each."""
    parts = [list(group) for _, group in groupby(modules, key=lambda module: id(_together(module) or module))]
    for group in parts:
        together = _together(group[0])
        if together is not None and together.extents != [module.out_features for module in group]:
            raise Unfit("layers that read one input were fused with others")
    return Products(weights=tuple(_layout(group[0]) for group in parts), biases=tuple(map(_bias, parts)))


def _together(module: Any) -> Any:
    return module.together if isinstance(module, QuantizedLinear) else None


def _bias(modules: list[Any]) -> torch.Tensor | None:
    """Return the bias of one product; zeros for layers without one."""
    if all(module.bias is None for module in modules):
        return None
    return torch.cat(
        [torch.zeros(module.out_features) if module.bias is None else module.bias.detach() for module in modules]
    )


def _layout(module: Any) -> Any:
    if isinstance(module, DenseLinear):
        return module.prepared
    layout = module.layout if isinstance(module, QuantizedLinear) else None
    if layout is None:
        raise Unfit(f"a {type(module).__name__} that no kernel in C multiplies")
    return layout


def _weight(norm: Any) -> torch.Tensor | None:
    return None if norm is None else norm.weight


def _eps(norm: Any) -> float:
    return float(norm.variance_epsilon)
