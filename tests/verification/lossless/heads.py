"""Draft heads of random numbers: laid out as they run, and what they draw by hand, by the networks that training
unrolls or in plain torch. One in the layout of others lacks the first token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch

from qualgate.engine.draft_heads.eagle3 import Eagle3Head, Eagle3Layer, eagle3_tensors
from qualgate.engine.draft_heads.folder import HeadFolder, HeadShape, Layout
from qualgate.engine.draft_heads.layer import HeadLayer, angles, head_tensors
from qualgate.engine.draft_heads.loading import LoadedHead
from qualgate.engine.draft_heads.medusa import block
from qualgate.engine.draft_heads.network import Examples, HeadNetwork
from tests.engine.draft_heads.heads import random_tensors
from tests.verification.lossless.models import Tokens

PLACES = 3  # tokens of a draft by heads that say each place apart
POSITIONS = 64
SHARP = 8.0  # times as large are the weights of a head's own output head


@cache
def numbers(layout: str, shape: HeadShape) -> dict[str, torch.Tensor]:
    """By the names of a head's file."""
    if layout != "eagle3":
        return random_tensors(head_tensors(cast("Layout", layout), PLACES, shape), 2)
    drafted = shape.vocabulary - 1
    found = random_tensors(eagle3_tensors(shape, drafted), 2)
    found["lm_head.weight"] *= SHARP / shape.width**0.5
    return {**found, "d2t": torch.ones(drafted, dtype=torch.int64)}


def laid_out(layout: str, shape: HeadShape) -> LoadedHead:
    tensors = numbers(layout, shape)
    folder = HeadFolder(
        path=Path(), layout=cast("Any", layout), tokens=PLACES, shape=shape, target=None, sha256="", nbytes=0
    )
    if layout == "eagle3":

        def turned(positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch.cat([table, table], -1)[positions] for table in angles(shape, POSITIONS))

        layer = Eagle3Layer(tensors, shape, turned)
        return LoadedHead(folder=folder, numbers=0, layer=layer, head=Eagle3Head(tensors, shape))
    if layout == "medusa":
        return LoadedHead(folder=folder, numbers=0, blocks=tuple(block(tensors, place) for place in range(PLACES)))
    return LoadedHead(folder=folder, numbers=0, layer=HeadLayer(tensors, shape))


def logits_by_hand(shape: HeadShape, whole: Any, prompt: Sequence[int]) -> dict[Tokens, torch.Tensor]:
    """float64 [vocabulary], of what a draft of PLACES tokens by an EAGLE head draws behind its text's last token and
    each further one of its own, by the network that training unrolls. whole: the target, of transformers."""
    read = whole(torch.tensor([prompt]), output_hidden_states=True).hidden_states[-1]
    texts = list(product(range(shape.vocabulary), repeat=PLACES))
    embedded = whole.get_input_embeddings()(torch.tensor([[*prompt[1:], *text] for text in texts]))
    states = torch.zeros_like(embedded)
    states[:, : len(prompt)] = read
    network = HeadNetwork(shape, torch.Generator(), (1.0, 1.0, torch.ones(shape.width)))
    for name, number in numbers("eagle", shape).items():
        network.get_parameter(name.replace(".", "/")).data = number.float()
    network.requires_grad_(False)
    examples = Examples(embedded=embedded, states=states, anchors=torch.full((len(texts), 1), len(prompt) - 1))
    rows = [whole.get_output_embeddings()(step[:, 0]).double() for step in network(examples, PLACES)]
    return {text[: at + 1]: rows[at][place] for at in range(PLACES) for place, text in enumerate(texts)}
