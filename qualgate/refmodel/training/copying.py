"""A start that can already copy: an induction circuit written into the weights before training.

A small model spends its first millions of tokens discovering one circuit: find where the current token stood before
and say what followed it (Olsson et al. 2022, induction heads). Reformatting, extraction and quoting all wait for it,
and on two CPU cores that is most of the run. The circuit needs two layers and is known, so it is planted:

- every embedding gets the same large value in dimension 0: a constant that attention can turn into pure position;
- layer 0, head 0 looks at the previous token: query and key are that constant, their rotary phases one position
  apart, so the score is a sum of cos(w * (i - j - 1)), largest where j = i - 1; it writes what it sees into a
  subspace of its own;
- layer 1, heads 0 to 2 compare the current token with that subspace, in the slowly turning rotary dimensions alone,
  so that distance does not matter, and add what they find to the residual stream, in the embedding's own basis.

Where query heads share keys, the first of a group stands for its number and its neighbours are left as they are.
Everything else starts small and random, and training is free to undo all of it.
"""

# transformers and torch type these attributes and calls too loosely for a checker.
# pyrefly: ignore-errors[unsupported-operation]
from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

SCALE = 0.06  # of an embedding entry
CONSTANT = 4.0  # dimension 0 of an embedding, in units of SCALE
PREVIOUS = 3.0  # what the previous-token head writes, in units of SCALE
COPIED = 8.0  # what the induction heads write, in units of SCALE
SHARPNESS = 2.2  # of the comparison with earlier tokens: query and key scale
COPY_HEADS = 3


@torch.no_grad()
def plant(model: LlamaForCausalLM, seed: int) -> None:
    """Overwrite initial weights of `model`; needs two layers, four heads of at least 32 dimensions, three key heads."""
    config, layers = model.config, model.model.layers
    width, head = config.hidden_size, config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads  # query heads a key head
    half = head // 2
    generator = torch.Generator().manual_seed(seed)
    embedding = model.model.embed_tokens.weight
    embedding.copy_(torch.randn(embedding.shape, generator=generator) * SCALE)
    embedding[:, 0] = CONSTANT * SCALE
    for layer in layers:  # a quiet start, so that the planted circuit is heard
        layer.self_attn.o_proj.weight.mul_(0.25)
        layer.mlp.down_proj.weight.mul_(0.25)

    # Orthonormal directions besides dimension 0: `token` is read, `before` holds the previous token.
    basis = torch.linalg.qr(torch.randn(width - 1, width - 1, generator=generator)).Q
    basis = torch.nn.functional.pad(basis, (1, 0))
    token, before, *other_directions = basis.split(head)

    turn = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)  # radians a position
    fast = turn > 0.05
    attention = layers[0].self_attn
    for weight in (attention.q_proj.weight, attention.k_proj.weight):
        weight[:head] = 0
    attention.q_proj.weight[:half, 0] = 1.5 * fast
    attention.k_proj.weight[:half, 0] = 1.5 * fast * turn.cos()
    attention.k_proj.weight[half:head, 0] = 1.5 * fast * turn.sin()
    attention.v_proj.weight[:head] = token
    attention.o_proj.weight[:, :head] = PREVIOUS * SCALE * before.T

    attention = layers[1].self_attn
    slow = head // 6  # rotary pairs that turn little over a prompt
    for number, copied in enumerate((token, *other_directions)[:COPY_HEADS]):
        keys = slice(number * head, (number + 1) * head)
        queries = slice(group * number * head, (group * number + 1) * head)
        compared = slice(2 * slow * number, 2 * slow * (number + 1))
        for block, directions in (
            (attention.q_proj.weight[queries], token[compared]),
            (attention.k_proj.weight[keys], before[compared]),
        ):
            block.zero_()
            block[half - slow : half] = SHARPNESS * directions[:slow]
            block[head - slow : head] = SHARPNESS * directions[slow:]
        size = len(copied)  # the last subspace is one direction short
        attention.v_proj.weight[keys] = 0
        attention.v_proj.weight[keys][:size] = copied
        attention.o_proj.weight[:, queries] = 0
        attention.o_proj.weight[:, queries][:, :size] = COPIED * SCALE * copied.T
