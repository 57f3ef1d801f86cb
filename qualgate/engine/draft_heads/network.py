"""A head's layer as torch trains it: unrolled as it drafts, over true tokens.

An anchor is a pair of the text, from which a draft may begin. Step k of an anchor stands k positions behind it, reads
what step k - 1 came to, and attends to the pairs of the text up to the anchor and to the anchor's own steps before it
(training-time test of EAGLE-3, 2503.01840, section 3.2). So what is learned is what is drafted with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from qualgate.engine.draft_heads.folder import HeadShape
from qualgate.engine.draft_heads.layer import angles, layer_tensors

SPREAD = 0.02  # of weights that nothing was learned of yet
MASK_SPREAD = 0.5  # of what is read in the place of a pair: about what `joined` makes of one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examples:
    """Some texts side by side, filled up at their ends. embedded, states: float32 [texts, pairs, width], of each pair;
    anchors: int64 [texts, n], the pairs from which drafts begin."""

    embedded: torch.Tensor
    states: torch.Tensor
    anchors: torch.Tensor

    def at(self, which: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        """[texts, n, width], of a column the rows `which`, [texts, n]."""
        last = column.shape[1] - 1
        return column.gather(1, which.clamp(max=last)[..., None].expand(-1, -1, column.shape[-1]))


class HeadNetwork(nn.Module):
    """Parameters by the names of `layer_tensors`, with "/" for "."."""

    def __init__(self, shape: HeadShape, generator: torch.Generator, scales: tuple[float, float, torch.Tensor]) -> None:
        """scales: by which embeddings and states are multiplied, so that both are about 1; float32 [width]: the size of
        each number of a state."""
        super().__init__()
        self.shape = shape
        self._embedding_scale, self._state_scale, sizes = scales
        for name, size in layer_tensors(shape).items():
            if len(size) == 2:
                start = torch.randn(size, generator=generator) * SPREAD
            else:
                start = sizes.clone() if name == "norm.weight" else torch.ones(size)
            self.register_parameter(name.replace(".", "/"), nn.Parameter(start))

    def tensors(self) -> dict[str, torch.Tensor]:
        """As a head's file has them: the scales are in the weight that reads what they scale."""
        found = {name.replace("/", "."): one.detach().clone() for name, one in self.named_parameters()}
        found["fc.weight"][:, : self.shape.width] *= self._embedding_scale
        found["fc.weight"][:, self.shape.width :] *= self._state_scale
        return found

    def forward(self, examples: Examples, steps: int) -> list[torch.Tensor]:
        """What each step of each anchor comes to, float32 [texts, anchors, width], `steps` of them."""
        width, anchors = self.shape.width, examples.anchors
        every = self.joined(examples.embedded, examples.states)
        keys, values = self._keys_values(every, torch.arange(every.shape[1])[None])
        seen = torch.arange(every.shape[1])[None, None] <= anchors[..., None]
        x = examples.at(anchors, every)
        own: list[tuple[torch.Tensor, torch.Tensor]] = []
        found = list[torch.Tensor]()
        for step in range(steps):
            if step:
                embedded = examples.at(anchors + step, examples.embedded)
                x = self.entering(step, embedded, found[-1])
                own.append(self._keys_values(x, anchors + step))
            y = x + self._attended(x, anchors + step, (keys, values, seen), own)
            normed = self._normed(y, "post_attention_layernorm")
            gate = functional.silu(self._times(normed, "mlp.gate_proj"))
            y = y + self._times(gate * self._times(normed, "mlp.up_proj"), "mlp.down_proj")
            found.append(self._normed(y, "norm"))
        assert x.shape[-1] == width
        return found

    def entering(self, step: int, embedded: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """What a step reads: the token behind the step before, and what that came to."""
        return self.joined(embedded, state)

    def joined(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """See `HeadLayer.joined`."""
        both = torch.cat([embedded * self._embedding_scale, states * self._state_scale], -1)
        return self._times(both, "fc")

    def _attended(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        text: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        own: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        shape, (keys, values, seen) = self.shape, text
        query = self._heads(self._times(self._normed(x, "input_layernorm"), "self_attn.q_proj"), shape.heads)
        query = self._turned(query, positions) * shape.head_dim**-0.5
        group = shape.heads // shape.kv_heads

        def each(kept: torch.Tensor) -> torch.Tensor:
            return kept.repeat_interleave(group, dim=2) if group > 1 else kept

        logits = torch.einsum("bahd,bthd->bhat", query, each(keys)).masked_fill(~seen[:, None], -torch.inf)
        mine = [(query * each(key)).sum(-1).transpose(1, 2)[..., None] for key, _ in own]
        weights = torch.cat([logits, *mine], -1).softmax(-1)
        out = torch.einsum("bhat,bthd->bahd", weights[..., : keys.shape[1]], each(values))
        for at, (_, value) in enumerate(own):
            out = out + weights[..., keys.shape[1] + at].transpose(1, 2)[..., None] * each(value)
        return self._times(out.flatten(2), "self_attn.o_proj")

    def _keys_values(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[texts, n, kv_heads, head_dim] each."""
        normed, heads = self._normed(x, "input_layernorm"), self.shape.kv_heads
        key = self._heads(self._times(normed, "self_attn.k_proj"), heads)
        return self._turned(key, positions), self._heads(self._times(normed, "self_attn.v_proj"), heads)

    def _heads(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.unflatten(-1, (heads, self.shape.head_dim))

    def _turned(self, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cosines, sines = angles(self.shape, int(positions.max()) + 1)
        cosine, sine = cosines[positions][:, :, None], sines[positions][:, :, None]
        left, right = heads.chunk(2, -1)
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.shape.eps) * self._weight(name)

    def _times(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, self._weight(name))

    def _weight(self, name: str) -> torch.Tensor:
        return self.get_parameter(f"{name}.weight".replace(".", "/"))


class ParallelNetwork(HeadNetwork):
    """One that reads a vector of its own at each place behind the anchor, so that a pass makes all of a draft."""

    def __init__(
        self,
        shape: HeadShape,
        generator: torch.Generator,
        scales: tuple[float, float, torch.Tensor],
        tokens: int,
    ) -> None:
        """tokens: of a draft."""
        super().__init__(shape, generator, scales)
        start = torch.randn(tokens - 1, shape.width, generator=generator) * MASK_SPREAD
        self.register_parameter("masks", nn.Parameter(start))

    def entering(self, step: int, embedded: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """See `HeadNetwork.entering`: nothing of what was said there."""
        return self.get_parameter("masks")[step - 1].expand_as(state)


class MedusaNetwork(nn.Module):
    """A residual block for each place of a draft: state + silu(W state + b) (Medusa, 2401.10774, section 2.1.1), of
    which the target's own output head says the token. At first each says what the target says next."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(tokens))
        for one in self.parameters():
            nn.init.zeros_(one)

    def tensors(self) -> dict[str, torch.Tensor]:
        """See `HeadNetwork.tensors`."""
        return {name: one.detach().clone() for name, one in self.named_parameters()}

    def forward(self, examples: Examples, steps: int) -> list[torch.Tensor]:
        """See `HeadNetwork.forward`."""
        states = examples.at(examples.anchors, examples.states)
        return [states + functional.silu(one(states)) for one in list(self.blocks)[:steps]]


Network = HeadNetwork | MedusaNetwork
