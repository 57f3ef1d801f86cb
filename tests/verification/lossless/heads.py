"""Draft heads of random numbers: laid out as they run, and what they draw by hand, by the networks that training
unrolls or in plain torch. One in the layout of others lacks the first token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from safetensors.torch import save_file

from qualgate.engine.draft_heads.ahead import LAYOUTS, Ahead
from qualgate.engine.draft_heads.ahead_layer import AheadLayer
from qualgate.engine.draft_heads.eagle3 import Eagle3Head, Eagle3Layer, eagle3_tensors
from qualgate.engine.draft_heads.folder import HeadFolder, HeadShape, Layout
from qualgate.engine.draft_heads.layer import HeadLayer, angles, head_tensors
from qualgate.engine.draft_heads.loading import LoadedHead
from qualgate.engine.draft_heads.medusa import block
from qualgate.engine.draft_heads.network import Examples, HeadNetwork, MedusaNetwork, ParallelNetwork
from qualgate.quant.shards import read_shards
from qualgate.records.speculation import MTP
from tests.engine.draft_heads.heads import eagle3_by_hand, random_tensors
from tests.engine.draft_heads.models_ahead import ModelAhead
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


def laid_out(layout: str, shape: HeadShape, taps: tuple[int, ...] = ()) -> LoadedHead:
    """taps: behind how many of the target's layers one of others reads."""
    tensors = numbers(layout, shape)
    folder = HeadFolder(
        path=Path(), layout=cast("Any", layout), tokens=PLACES, shape=shape, target=None, sha256="", nbytes=0
    )
    if layout == "eagle3":
        layer = Eagle3Layer(tensors, shape, lambda positions: _turned(shape, positions))
        return LoadedHead(folder=folder, numbers=0, layer=layer, head=Eagle3Head(tensors, shape), taps=taps)
    if layout == "medusa":
        return LoadedHead(folder=folder, numbers=0, blocks=tuple(block(tensors, place) for place in range(PLACES)))
    return LoadedHead(folder=folder, numbers=0, layer=HeadLayer(tensors, shape))


def laid_out_ahead(found: ModelAhead, target: Any, shape: HeadShape) -> LoadedHead:
    """The layer that a target has for further tokens, read from a file as its folder would hold it."""
    outer = {f"{name}.weight": one for name, one in found.outer.items()}
    outer["shared_head.norm.weight"] = outer.pop("last.weight")
    tensors = {**found.whole.model.layers[-1].state_dict(), **outer}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file({name: one.clone() for name, one in tensors.items()}, file)
        layer = AheadLayer(
            Ahead(layout=LAYOUTS[0], prefix="", entries=read_shards(Path(folder)).entries),
            target,
            torch.float32,
            "tiny",
        )
    folder_ = HeadFolder(path=Path(), layout=MTP, tokens=PLACES, shape=shape, target=None, sha256="", nbytes=0)
    return LoadedHead(folder=folder_, numbers=0, layer=layer, head=layer.head, embed=layer.embed)


def _turned(shape: HeadShape, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.cat([table, table], -1)[positions] for table in angles(shape, POSITIONS))


def logits_by_hand(
    layout: str, shape: HeadShape, whole: Any, prompt: Sequence[int], layer: int
) -> dict[Tokens, torch.Tensor]:
    """float64 [vocabulary], of what a draft of PLACES tokens draws behind its text's last token and each further one of
    its own. whole: the target, of transformers; layer: behind how many of its layers one of others reads, three times.
    """
    read = whole(torch.tensor([prompt]), output_hidden_states=True).hidden_states
    texts = list(product(range(shape.vocabulary), repeat=PLACES))
    embedded = whole.get_input_embeddings()(torch.tensor([[*prompt[1:], *text] for text in texts]))
    if layout == "eagle3":
        return _of_others(shape, embedded, read[layer][0], texts)
    states = torch.zeros_like(embedded)
    states[:, : len(prompt)] = read[-1]
    examples = Examples(embedded=embedded, states=states, anchors=torch.full((len(texts), 1), len(prompt) - 1))
    steps = _network(layout, shape)(examples, PLACES)
    rows = [whole.get_output_embeddings()(step[:, 0]).double() for step in steps]
    return {text[: at + 1]: rows[at][place] for at in range(PLACES) for place, text in enumerate(texts)}


def _network(layout: str, shape: HeadShape) -> Any:
    plain = (1.0, 1.0, torch.ones(shape.width))
    generator, network = torch.Generator(), cast("Any", None)
    if layout == "medusa":
        network = MedusaNetwork(shape.width, PLACES)
    elif layout == "parallel":
        network = ParallelNetwork(shape, generator, plain, PLACES)
    else:
        network = HeadNetwork(shape, generator, plain)
    for name, number in numbers(layout, shape).items():
        network.get_parameter(name if layout == "medusa" else name.replace(".", "/")).data = number.float()
    return network.requires_grad_(False)


def _of_others(
    shape: HeadShape, embedded: torch.Tensor, read: torch.Tensor, texts: Sequence[Tokens]
) -> dict[Tokens, torch.Tensor]:
    tensors, found = numbers("eagle3", shape), dict[Tokens, torch.Tensor]()
    entered = torch.cat([read] * 3, -1) @ tensors["fc.weight"].float().T
    for row, text in zip(embedded, texts, strict=True):
        h = entered
        for count in range(1, len(text) + 1):
            y, drafted = eagle3_by_hand(tensors, shape, row[: len(h)], h)
            found[text[:count]] = torch.cat([torch.tensor([-torch.inf]), drafted[-1]]).double()
            h = torch.cat([h, y[-1:]])
    return found
