"""How a head learns what its target says next: by the target's own probabilities, in a few hundred steps.

The loss is the cross-entropy of the target's distribution and the head's at every step of a draft, each step counting
less than the one before it, and how far the first step is from the target's own state (EAGLE, 2401.15077, equation 4).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from qualgate.engine.draft_heads.folder import HeadShape, Layout
from qualgate.engine.draft_heads.network import Examples, HeadNetwork, MedusaNetwork, Network, ParallelNetwork
from qualgate.engine.draft_heads.texts import Text
from qualgate.engine.head import OutputHead, finished
from qualgate.engine.load import LoadedArm
from qualgate.errors import UsageError

TEXTS = 8  # of a step
LOGITS = 2**24  # numbers of one step's logits at most, at each place of a draft
UNROLLED = 4  # steps of a draft that are learned: what comes behind goes on as the last of them
LATER = 0.8  # what a place of a draft counts, over the one before it
NEARNESS = 0.1  # what the distance of states counts beside probabilities
WARM = 0.05  # of the steps, in which the rate rises
RATE = 3e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """layout: of the head; tokens: of the drafts that are learned; steps: of the optimizer; seed: of first weights, and
    of the order."""

    layout: Layout = "eagle"
    tokens: int = 5
    steps: int = 1000
    seed: int = 0


def learned(
    arm: LoadedArm, texts: Sequence[Text], lessons: Lessons, progress: Callable[[float, int, int], None]
) -> tuple[HeadShape, dict[str, torch.Tensor]]:
    """A head's shape and its tensors, bfloat16. progress: is told the loss, the steps done, all of them.

    The same arm, texts and lessons give the same head on as many threads. UsageError for texts without an answer of
    two tokens, and where the loss is no number.
    """
    usable = [text for text in texts if len(text.tokens) - text.prompt >= 2]
    if not usable:
        raise UsageError("No answer has two tokens, so there is nothing to learn. Ask for longer answers.")
    teacher, generator = Teacher(arm), torch.Generator().manual_seed(lessons.seed)
    shape = shape_of(arm, teacher.vocabulary)
    network = _network(lessons, shape, generator, teacher.scales(usable))
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, lessons.steps))
    unrolled = min(lessons.tokens, UNROLLED) if lessons.layout == "eagle" else lessons.tokens
    window = random.Random(lessons.seed + 1)
    for step, some in zip(range(lessons.steps), batches(usable, random.Random(lessons.seed)), strict=False):
        loss = teacher.loss(network, some, unrolled, window)
        if not loss.isfinite():
            raise UsageError(
                f"The loss is {loss.item()} at step {step}: nothing can be learned of this target's states on these "
                "cases. `qualgate inspect` says whether its weights hold NaN or infinities."
            )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(loss.item(), step + 1, lessons.steps)
    return shape, {name: one.bfloat16().contiguous() for name, one in network.tensors().items()}


def _network(
    lessons: Lessons, shape: HeadShape, generator: torch.Generator, scales: tuple[float, float, torch.Tensor]
) -> Network:
    match lessons.layout:
        case "medusa":
            return MedusaNetwork(shape.width, lessons.tokens)
        case "parallel":
            return ParallelNetwork(shape, generator, scales, lessons.tokens)
        case "eagle":
            return HeadNetwork(shape, generator, scales)


def rate(step: int, steps: int) -> float:
    """Share of the learning rate: it rises, then falls along half a cosine."""
    warm = max(1, round(WARM * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def batches(texts: Sequence[Text], order: random.Random) -> Iterator[list[Text]]:
    """Some texts of about one length each time, without an end: every text once, then again in another order."""
    while True:
        shuffled = order.sample(range(len(texts)), len(texts))
        groups = list[list[Text]]()
        for start in range(0, len(shuffled), 8 * TEXTS):
            some = sorted((texts[at] for at in shuffled[start : start + 8 * TEXTS]), key=lambda one: len(one.tokens))
            groups += [some[at : at + TEXTS] for at in range(0, len(some), TEXTS)]
        order.shuffle(groups)
        yield from groups


def shape_of(arm: LoadedArm, vocabulary: int) -> HeadShape:
    """A layer of the target's own sizes, as far as its config says them."""
    config: Any = arm.model.config.get_text_config(decoder=True)
    width, heads = int(config.hidden_size), int(config.num_attention_heads)
    head_dim = int(getattr(config, "head_dim", None) or width // heads)
    if width % 16:
        raise UsageError(f"A hidden size of {width} is no multiple of 16, which the kernels of a draft head want.")
    if head_dim % 16 or not isinstance(getattr(config, "intermediate_size", None), int):
        heads, head_dim = max(1, width // 64), 64 if width >= 64 else 16
    kv_heads = getattr(config, "num_key_value_heads", None)
    inner = getattr(config, "intermediate_size", None)
    return HeadShape(
        width=width,
        vocabulary=vocabulary,
        heads=heads,
        kv_heads=kv_heads if isinstance(kv_heads, int) and heads % kv_heads == 0 else heads,
        head_dim=head_dim,
        inner=inner if isinstance(inner, int) and inner % 16 == 0 else 2 * width,
    )


class Teacher:
    """What a target says of texts: its embeddings, its states, and its output head, through which one learns."""

    def __init__(self, arm: LoadedArm) -> None:
        self._embed: Any = arm.model.get_input_embeddings()
        self._head = OutputHead(arm.model)
        self.vocabulary = self._head.vocabulary
        width = int(arm.model.config.get_text_config(decoder=True).hidden_size)
        with torch.no_grad():  # of a packed head too: what it makes of each number of a state
            zero = self._head.module(torch.zeros(1, width)).float()
            self._weight = (self._head.module(torch.eye(width)).float() - zero).T.contiguous()
            self._bias = zero[0] if zero.any() else None
        if self._head.plain:
            self._weight = self._head.tensors["weight"].float()

    def scales(self, texts: Sequence[Text]) -> tuple[float, float, torch.Tensor]:
        """See `HeadNetwork`."""
        some = texts[:256]
        embedded = self._embed(torch.cat([text.tokens for text in some]))
        states = torch.cat([text.states for text in some])
        sizes = states.square().mean(0).sqrt()
        return 1 / _size(embedded), 1 / _size(states), sizes.clamp(min=1e-3 * float(sizes.mean()) + 1e-6)

    def loss(self, network: Network, texts: Sequence[Text], steps: int, window: random.Random) -> torch.Tensor:
        """Of drafts that begin at each token of the answers, or of a part of them that `window` draws."""
        examples, ends = self._examples(texts, window)
        anchors, total, weights = examples.anchors, torch.zeros(()), 0.0
        for step, found in enumerate(network(examples, steps)):
            valid = anchors + step + 1 < ends[:, None]  # what the target said there is known
            if not valid.any():
                continue
            theirs = examples.at(anchors + step + 1, examples.states)[valid]
            with torch.no_grad():
                expected = self._logits(theirs).softmax(-1)
            mine = found[valid]
            loss = functional.cross_entropy(self._logits(mine), expected)
            if not step:
                loss = loss + NEARNESS * functional.smooth_l1_loss(mine, theirs)
            total, weights = total + LATER**step * loss, weights + LATER**step
        return total / max(weights, 1e-6)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        return finished(functional.linear(states, self._weight, self._bias), self._head.after)

    def _examples(self, texts: Sequence[Text], window: random.Random) -> tuple[Examples, torch.Tensor]:
        """With the count of states of each text: the last one's token ends it, and nothing is learned of it."""
        ends = torch.tensor([len(text.states) for text in texts])
        pad = torch.nn.utils.rnn.pad_sequence
        behind = pad([text.tokens[1:] for text in texts], batch_first=True)
        states = pad([text.states for text in texts], batch_first=True)
        first = torch.tensor([text.prompt - 1 for text in texts])
        longest = max(1, int((ends - first).max()) - 1)
        count = max(1, min(longest, LOGITS // self.vocabulary // len(texts)))
        anchors = first[:, None] + window.randrange(longest - count + 1) + torch.arange(count)
        with torch.no_grad():
            embedded = self._embed(behind)
        return Examples(embedded=embedded, states=states, anchors=anchors), ends


def _size(numbers: torch.Tensor) -> float:
    return max(float(numbers.square().mean().sqrt()), 1e-6)
