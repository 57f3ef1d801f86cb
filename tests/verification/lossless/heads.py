"""An EAGLE-3 head of random numbers: laid out as it runs, and what it draws by hand, in plain torch. It lacks the first
token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from qualgate.engine.draft_heads.eagle3 import Eagle3Head, Eagle3Layer, eagle3_tensors
from qualgate.engine.draft_heads.folder import HeadFolder, HeadShape
from qualgate.engine.draft_heads.loading import LoadedHead
from qualgate.engine.draft_heads.published import Eagle3Form, turning
from tests.engine.draft_heads.heads import eagle3_by_hand, random_tensors
from tests.verification.lossless.models import Tokens

PLACES = 3  # tokens of a draft
AFTER = 1  # layers of its target, behind which it reads
FORM = Eagle3Form(taps=1)
SHARP = 8.0  # times as large are the weights of its output head


@cache
def numbers(shape: HeadShape) -> dict[str, torch.Tensor]:
    """By the names of a head's file."""
    drafted = shape.vocabulary - 1
    found = random_tensors(eagle3_tensors(shape, drafted, FORM), 2)
    found["lm_head.weight"] *= SHARP / shape.width**0.5
    return {**found, "d2t": torch.ones(drafted, dtype=torch.int64)}


def laid_out(shape: HeadShape) -> LoadedHead:
    """As loading lays it out."""
    tensors = numbers(shape)
    config = {"hidden_size": shape.width, "num_attention_heads": shape.heads, "head_dim": shape.head_dim}
    return LoadedHead(
        folder=HeadFolder(path=Path(), layout="eagle3", shape=shape, sha256="", form=FORM),
        numbers=0,
        layer=Eagle3Layer(tensors, shape, turning(config), FORM),
        head=Eagle3Head(tensors, shape, FORM),
        taps=(AFTER,),
    )


def logits_by_hand(shape: HeadShape, whole: Any, prompt: Sequence[int]) -> dict[Tokens, torch.Tensor]:
    """float64 [vocabulary], of what a draft of PLACES tokens draws behind its text's last token and each further one of
    its own. whole: the target, of transformers."""
    read = whole(torch.tensor([prompt]), output_hidden_states=True).hidden_states[AFTER][0]
    tensors, found = numbers(shape), dict[Tokens, torch.Tensor]()
    for text in product(range(shape.vocabulary), repeat=PLACES):
        states = read @ tensors["fc.weight"].float().T
        for place in range(PLACES):
            embedded = whole.get_input_embeddings()(torch.tensor([*prompt[1:], *text[: place + 1]]))
            left, logits = eagle3_by_hand(tensors, shape, embedded, states)
            states = torch.cat([states, left[-1:]])
            never = torch.full((1,), -torch.inf, dtype=torch.float64)
            found[text[: place + 1]] = torch.cat([never, logits[-1].double()])
    return found
